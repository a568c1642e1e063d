"""On which queues messages are, with purges and transactions applied.

A purge is one record; `MessagePlaces.settle` applies it to a message before that is used, and `sweep_some` applies it
to all messages, some at a time.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator

from ...base.errors import MessageLocked, StoreError
from ...journal.format.record import Flag, RecordType
from ...journal.write.journal import Journal
from ..contract.dequeue_reason import DequeueReason
from ..contract.transaction import TransactionLocks
from ..message_map.placement import on_queues
from ..message_map.purge_sweep import AT_ONCE, is_cut, settle, sweep, sweep_all
from ..message_map.purges import MAX_KEPT, PurgeMark
from ..message_map.state import State

_ENQUEUE, _DEQUEUE = int(RecordType.ENQUEUE), int(RecordType.DEQUEUE)
_QUEUE_DELETE, _FLAG_DELETE = int(RecordType.QUEUE_DELETE), int(Flag.DELETE)


class MessagePlaces:
    """The places of messages on queues. The thread of the store's calls, but for `holds`, which any thread may call."""

    def __init__(self, journal: Journal, state: State) -> None:
        self.locks = TransactionLocks()
        self.settles_at_once = AT_ONCE
        """Messages that `sweep_some` settles in one step."""
        self._journal = journal
        self._state = state
        self._unswept = state.cuts.unswept
        self._sweep: Iterator[None] | None = None

    def holds(self, message_id: int) -> bool:
        """Return whether the message exists."""
        return message_id in self._state and not (self._unswept and is_cut(self._state, message_id))

    def messages(self) -> dict[int, array[int]]:
        """Queue ID to the messages on it, in order."""
        self.settle_all()
        return on_queues(self._state)

    def check_enqueue(self, message_id: int, queue_id: int) -> None:
        """Raise `StoreError` if the message is incomplete, or on that queue already. Settles its purges first."""
        if self._unswept:
            self.settle(message_id)
        message = self._state.detailed.get(message_id)
        queue = self._state.queue_of(message_id)
        if queue is None and (message is None or not message.is_complete):
            raise StoreError(f"message {message_id}", "it does not exist, or its content is not complete")
        if queue == queue_id or (message is not None and queue_id in message.queues):
            raise StoreError(f"message {message_id}", f"it is on queue {queue_id} already")

    def check_dequeue(self, message_id: int, queue_id: int) -> None:
        """Raise `StoreError` if the message is not on that queue. Settles its purges first."""
        if self._unswept:
            self.settle(message_id)
        message = self._state.detailed.get(message_id)
        if self._state.queue_of(message_id) != queue_id and (message is None or queue_id not in message.queues):
            raise StoreError(f"message {message_id}", f"it is not on queue {queue_id}")

    def check_destroy(self, message_id: int) -> None:
        """Raises `StoreError` if the message is on a queue, `MessageLocked` if a transaction puts it on one."""
        if self._unswept:
            self.settle(message_id)
        message = self._state.detailed.get(message_id)
        if message is None or message.queues:
            raise StoreError(f"message {message_id}", "it does not exist, or is still on a queue")
        if self.locks.is_enqueued(message_id):
            raise MessageLocked(f"message {message_id}", "a transaction puts it on a queue")

    def enqueue(self, message_id: int, queue_id: int, time_us: int, txn_id: int = 0) -> int:
        """Puts a message on a queue that `check_enqueue` allows; the LSN of the record."""
        lsn = self._journal.append(
            _ENQUEUE, time_us=time_us, undo_prev=message_id, message_id=message_id, queue_id=queue_id, txn_id=txn_id
        )
        self._state.enqueued(lsn, message_id, queue_id, lsn)
        return lsn

    def dequeue(self, message_id: int, queue_id: int, time_us: int, reason: DequeueReason, txn_id: int = 0) -> int:
        """Takes a message off a queue, and deletes it if this was its last queue; the LSN of the record.

        Raises `StoreError` if it is not on that queue.
        """
        is_last, given_lsn = self._removal(message_id, queue_id)
        lsn = self._journal.append(
            _DEQUEUE, time_us=time_us, flags=(_FLAG_DELETE if is_last else 0) | reason, undo_prev=message_id,
            message_id=message_id, queue_id=queue_id, txn_id=txn_id, extra=given_lsn,
        )  # fmt: skip
        self._state.taken(lsn, message_id, queue_id, given_lsn, is_last=is_last)
        return lsn

    def _removal(self, message_id: int, queue_id: int) -> tuple[bool, int]:
        """Return whether a dequeue from that queue deletes the message, and the LSN of the record that it ends.

        It does if that is the last queue, and no transaction adds one (checklist E43).
        """
        state = self._state
        deletes = not self.locks.is_enqueued(message_id)
        if state.queue_of(message_id) == queue_id:
            return deletes, state.place_of(message_id)
        message = state.detailed.get(message_id)
        if message is None or queue_id not in message.queues:
            raise StoreError(f"message {message_id}", f"it is not on queue {queue_id}")
        if deletes and len(message.queues) == 1:
            return True, message.start
        return False, message.queues[queue_id][1]

    def purge(self, queue_id: int, time_us: int, *, keep: Iterable[int], is_final: bool) -> int:
        """Takes all messages off a queue but *keep* and those that transactions dequeue; the LSN of the record."""
        state = self._state
        kept = set()
        for message_id in {*keep, *self.locks.dequeued_from(queue_id)}:
            self.settle(message_id)
            message = state.detailed.get(message_id)
            if state.queue_of(message_id) == queue_id or (message is not None and queue_id in message.queues):
                kept.add(message_id)
        if len(kept) > MAX_KEPT:
            reason = f"{len(kept)} of its messages are to be left, {MAX_KEPT} can be"
            raise MessageLocked(f"queue {queue_id}", reason, "end the transactions that take them off")
        lsn = self._journal.append(
            _QUEUE_DELETE, array("Q", sorted(kept)).tobytes(), time_us=time_us,
            flags=_FLAG_DELETE if is_final else 0, queue_id=queue_id,
        )  # fmt: skip
        state.cut(PurgeMark(queue_id, lsn, frozenset(kept), lsn))
        return lsn

    def settle(self, message_id: int) -> None:
        """Applies the purges of its queues to a message."""
        settle(self._state, message_id, self.locks.is_enqueued)

    def settle_all(self) -> None:
        """Applies purges to all messages: at the start."""
        sweep_all(self._state, self.locks.is_enqueued)
        self._sweep = None

    def sweep_some(self) -> bool:
        """Applies purges to the next `settles_at_once` messages; whether all were done."""
        if self._sweep is None:
            self._sweep = sweep(self._state, self.locks.is_enqueued, self.settles_at_once)
        if next(self._sweep, self) is not self:
            return False
        self._sweep = None
        return True
