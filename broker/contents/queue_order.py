"""The order of changes to the messages of a queue: decided by this broker alone, or with the members of a cluster.

A queue always uses one of the two: `transactions.local_order`, or `cluster.broker_handler`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from ...store.contract.dequeue_reason import DequeueReason
from ..messages.entry import Entry


class QueueOrder(Protocol):
    """Changes of the messages on one queue. Core only."""

    @property
    def finds_by_position(self) -> bool:
        """Return whether events name messages by position, which may find entries that are dequeued."""

    @property
    def counts_failures(self) -> bool:
        """Return whether this broker alone counts failed deliveries, and keeps the counts on its disk."""

    @property
    def remembers_together(self) -> bool:
        """Return whether all brokers that have the queue remember the same message IDs, or none."""

    @property
    def limits_events(self) -> bool:
        """Return whether changes that are under way are limited in number elsewhere."""

    def take(self, entries: Sequence[Entry], reason: DequeueReason, then: Callable[..., None], *args: Any) -> None:
        """Dequeue messages, and call *then* when that is durable and safe."""

    def drop(self, entries: Sequence[Entry], reason: DequeueReason, then: Callable[[], None]) -> None:
        """Dequeue messages that the queue has no place for, and do *then* when they are counted out."""

    def drop_free(self, entries: Sequence[Entry], reason: DequeueReason, take_out: Callable[[Entry], bool]) -> None:
        """Dequeue those of *entries* that no consumer has; *take_out* removes one from the queue, if it is on it."""

    def drop_returned(self, entry: Entry, reason: DequeueReason) -> bool:
        """Dequeue a requeued message, if that can be decided at once; return whether it is dequeued."""

    def dead_letter(self, entry: Entry, reason: DequeueReason, then: Callable[[int], None]) -> None:
        """Dequeue a message that has no target; *then* gets the LSN to wait for before that is reported."""

    def rewrite(self, entry: Entry, content: bytes) -> int:
        """Replace the content of a message that will be requeued; return the LSN to wait for. Raise `CairnError`."""

    def still_has(self, entry: Entry) -> bool:
        """Return whether a message that was on its way elsewhere was not purged meanwhile."""

    def answer(self, then: Callable[..., None], *args: Any) -> None:
        """Do *then* when all earlier events are answered."""

    def requeue(self, entry: Entry, failed: bool, then: Callable[[], None]) -> bool:
        """Return a message that a client gave back; *failed*: its delivery has failed.

        Return True if it is back, or will be: then *then* is not called. Else it is called when that is safe.
        """

    def release(self, entry: Entry, failed: bool) -> None:
        """Return a message of a closed receiver to its place; *failed*: that counts as a failed delivery."""

    def release_all(self) -> None:
        """Send all pending returns of this step now."""

    def consuming(self) -> None:
        """Note another consumer of the queue."""

    def not_consuming(self) -> None:
        """Note that a consumer of the queue was closed."""

    def has_other_consumers(self) -> bool:
        """Return whether the queue has consumers at other members."""

    def deletes(self) -> bool:
        """Return whether this broker deletes the queue when its lifetime is over."""

    def purge(self, done: Callable[[int | Exception], None], user: str) -> None:
        """Dequeue all messages except those with consumers; *done* gets the count."""

    def deleted(self) -> None:
        """Note that the queue was deleted."""
