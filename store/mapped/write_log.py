"""The log that a store with its state in memory (`maps`) writes per call, to persist or read it again.

Positions and the ids of messages and transactions are LSNs: each of them is given once.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..contract.transaction import Dequeue, Enqueue


class WriteLog:
    """Gets everything that happens, in order, and ignores it. The thread that makes the store's calls."""

    def started(self, message_id: int, content: bytes, *, is_last: bool) -> None:
        """A message, and its first piece."""

    def continued(self, message_id: int, number: int, content: bytes, *, is_last: bool) -> None:
        """The next piece of it, counted from 1."""

    def placed(self, message_id: int, queue_id: int, position: int) -> None: ...

    def taken(self, message_id: int, position: int) -> None:
        """Off the queue where it has that position. It stays."""

    def deleted(self, message_id: int) -> None:
        """With its pieces, and off the queue that it may still be on."""

    def purged(self, queue_id: int) -> None:
        """All messages that are on a queue are deleted, which are on no other one; `dropped` names them."""

    def dropped(self, message_ids: Sequence[int]) -> None:
        """Record the messages that were deleted by a purge."""

    def prepared(self, txn_id: int, xid: bytes, operations: Sequence[Enqueue | Dequeue]) -> None: ...

    def ended(self, txn_id: int) -> None:
        """Record that a prepared transaction has its outcome. Its operations are recorded separately."""

    def decided(self, txn_id: int, xid: bytes, *, committed: bool) -> None:
        """Record that the outcome must be remembered."""

    def forgotten(self, txn_id: int) -> None: ...
