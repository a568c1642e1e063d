"""Changes of one queue, read from the log while it is written, for federation with another site.

The log determines the order: a reader at some position has exactly the state of the queue there. Only durable records
are read. Enqueues and dequeues have no additional cost. A *unit* is one record, or all records of a transaction. Its
position is the LSN after its last record, and reading can restart at any position.

A message may be deleted before its record is read, and its content with it if the record does not contain it (the
message arrived in pieces, or was put on several queues). The log then has its dequeue further on, so units are joined
up to that record, and the message is omitted.

The content of the queue at a position is requested from the state (`placed`), which advances meanwhile: messages that
it no longer has are dequeued further on in the log. Runs beside the core: any thread, one at a time.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from ...base.disk.seam import Directory
from ...base.errors import CairnError, StoreError
from ...journal.format.block import Block
from ...journal.format.record import HEAD, HEAD_BYTES, Flag, RecordHead, RecordType
from ...journal.read.follower import Follower
from ...journal.read.follower import HistoryReclaimed as HistoryReclaimed
from ..contract.dequeue_reason import DequeueReason, reason_of
from ..message_map.message_entry import SIZE_BITS
from ..message_map.state import CHUNK, DEQUEUE, ENQUEUE, FLAG_DELETE, FLAG_ENQUEUE, FLAG_MORE, QUEUE_DELETE, START
from ..message_map.transaction_log import TX_COMMIT
from .store import JournalStore

_LOG_OPEN = int(RecordType.LOG_OPEN)
_OF_QUEUE = (START, ENQUEUE, DEQUEUE, QUEUE_DELETE)
_NOT_DONE = int(Flag.MOVED) | int(Flag.PREPARED)
"""The flags of records that repeat another record, or have no effect yet. Of a dequeue the flags above are its reason,
which does not overlap them."""


_SLOTS = 32
"""The number of slots that are examined in one step."""


class EnqueueChange(NamedTuple):
    """A message was enqueued; `pieces` if its content is elsewhere, to be loaded piece by piece."""

    message_id: int
    content: bytes
    pieces: int = 0


class DequeueChange(NamedTuple):
    """Messages were dequeued."""

    reason: DequeueReason
    message_ids: list[int]


class PurgeChange(NamedTuple):
    """All messages but these were dequeued."""

    kept: list[int]


Change = EnqueueChange | DequeueChange | PurgeChange


class Unit(NamedTuple):
    """Operations of one queue that happened atomically."""

    place: int
    time_us: int
    """The source's clock, when it was recorded."""
    events: list[Change]


class QueueDeleted(CairnError):
    """The queue was deleted: there is nothing more to follow."""


class QueueHistory:
    """The history of one queue from a position on."""

    def __init__(self, store: JournalStore, queue_id: int, place: int) -> None:
        self._store = store
        self._directory: Directory = store.journal.pool.directory
        self._queue_id = queue_id
        self._tail = Follower(self._directory, place)
        self._from = self.read_lsn = place
        """The LSN up to which the log was read."""
        self._open: dict[int, list[tuple[RecordHead, bytes]]] = {}
        """Records of transactions, until the commit is read."""
        self._joined: list[Change] = []
        """Events of units that are joined with later ones."""
        self._lsns: dict[int, list[int]] = {}
        """The LSNs of the pieces of messages that no longer exist."""
        self._owed: set[int] = set()
        """Messages that are left out of them, and off the queue further on."""

    def units(self, durable_lsn: int) -> Iterator[Unit | None]:
        """Those that are durable and were not given yet, and None behind each block of the log, of whatever queues.

        Raises `HistoryReclaimed`, `QueueDeleted`, or `JournalError`.
        """
        for block in self._tail.blocks(durable_lsn):
            yield from self._units_in(block)
            self.read_lsn = max(self.read_lsn, block.end_lsn)
            yield None

    def is_at(self, durable_lsn: int) -> bool:
        """Return whether the log was read up to *durable_lsn*."""
        return self._tail.next_lsn >= durable_lsn

    @property
    def is_between(self) -> bool:
        """Return whether all operations read were returned, so that a place behind them can be named."""
        return not (self._open or self._owed)

    def _units_in(self, block: Block) -> Iterator[Unit]:
        table = block.table()
        kinds, flags = table["type"], table["flags"]
        ours = (table["queue_id"] == self._queue_id) & np.isin(kinds, _OF_QUEUE) & ((flags & _NOT_DONE) == 0)
        ours |= (kinds == TX_COMMIT) & ((flags & _NOT_DONE) == 0)
        ours |= kinds == _LOG_OPEN
        for number in np.flatnonzero(ours).tolist():
            lsn = block.record_lsn(number)
            if lsn < self._from:
                continue
            head = RecordHead._make(HEAD.unpack_from(block.body, HEAD_BYTES * number))
            if head.type == _LOG_OPEN:
                self._open.clear()  # records that a crash cut off never existed
            elif head.type == TX_COMMIT:
                records = self._open.pop(head.txn_id, None)
                if records is not None:
                    yield from self._unit(block, lsn, head.time_us, records)
            elif head.txn_id:
                self._open.setdefault(head.txn_id, []).append((head, bytes(block.payload(head))))
            else:
                yield from self._unit(block, lsn, head.time_us, [(head, bytes(block.payload(head)))])

    def _unit(self, block: Block, lsn: int, time_us: int, records: list[tuple[RecordHead, bytes]]) -> Iterator[Unit]:
        """Yield the change of *records*, the last of which is at *lsn*, in *block*."""
        events = self._joined
        for head, payload in records:
            kind, message_id = head.type, head.message_id
            if kind == START:
                if head.flags & FLAG_ENQUEUE:
                    events.append(EnqueueChange(message_id, payload))
            elif kind == ENQUEUE:
                self._put(events, block, message_id)
            elif kind == DEQUEUE:
                self._take(events, reason_of(head.flags), message_id)
            elif head.flags & FLAG_DELETE:
                raise QueueDeleted(f"queue {self._queue_id}", "it was deleted", "promote the copy, or delete it")
            else:
                kept = [*array("Q", payload)]
                self._owed &= set(kept)
                events.append(PurgeChange([one for one in kept if one not in self._owed]))
        if events and not self._owed:
            self._joined = []
            yield Unit(lsn + 1, time_us, events)

    def _put(self, events: list[Change], block: Block, message_id: int) -> None:
        """Add the enqueue of a message by an Enqueue record in *block*."""
        number = (message_id - block.record_lsn(0)) // HEAD_BYTES
        if 0 <= number < block.head.records:  # on several queues: the Start record stands right there
            head = RecordHead._make(HEAD.unpack_from(block.body, HEAD_BYTES * number))
            if head.type == START and not head.flags & FLAG_MORE:
                events.append(EnqueueChange(message_id, bytes(block.payload(head))))
                return
        try:
            count = self._store.piece_count(message_id) if self._store.holds(message_id) else 0
            if not count:
                self._lsns[message_id] = self._in_log(message_id)
                count = len(self._lsns[message_id])
            events.append(EnqueueChange(message_id, self.piece(message_id, 0) if count == 1 else b"", count))
        except (CairnError, LookupError):
            self._owed.add(message_id)

    def piece(self, message_id: int, number: int) -> bytes:
        """Return a piece of the content of a `Put`; each may be requested once, in order.

        Raises `CairnError` if it was deleted meanwhile: a new reader then finds the dequeue.
        """
        lsns = self._lsns.get(message_id)
        if lsns is None:
            try:
                return self._store.load_piece(message_id, number)
            except (CairnError, LookupError):  # it went while it was read
                lsns = self._lsns[message_id] = self._in_log(message_id)
        if number + 1 == len(lsns):
            del self._lsns[message_id]
        return self._tail.read_record(lsns[number]).payload

    def _in_log(self, message_id: int) -> list[int]:
        """Return the original LSNs of the pieces of a deleted message. Raises `StoreError` if one is missing."""
        if not self._tail.read_record(message_id).head.flags & FLAG_MORE:
            return [message_id]
        found = [message_id]
        for block in Follower(self._directory, message_id).blocks(self._store.journal.writer.durable_lsn):
            for number, head in enumerate(block.heads()):
                if head.type == CHUNK and head.message_id == message_id and not head.flags & _NOT_DONE:
                    found.append(block.record_lsn(number))
                    if not head.flags & FLAG_MORE:
                        return found
        raise StoreError(f"message {message_id}", "its content was reclaimed")

    def _take(self, events: list[Change], reason: DequeueReason, message_id: int) -> None:
        if message_id in self._owed:
            self._owed.discard(message_id)
        elif events and isinstance(last := events[-1], DequeueChange) and last.reason is reason:
            last.message_ids.append(message_id)
        else:
            events.append(DequeueChange(reason, [message_id]))


def placed(store: JournalStore, queue_id: int, after: int, before: int) -> Iterator[list[tuple[int, int]]]:
    """Positions and ids, in order, of the messages whose position on the queue lies between the two, part by part.

    Any thread: what others change is copied whole before it is looked at.
    """
    state = store.state
    first, last = state.slot_of(after), state.slot_of(before)
    detailed = {state.slot_of(at) for _, at in _detailed_on(store, queue_id)}
    slots = sorted(slot for slot in {*state.pages.copy(), *detailed} if first <= slot <= last)
    for begin in range(0, len(slots), _SLOTS):
        some = slots[begin : begin + _SLOTS]
        found: dict[int, int] = {}
        cut = state.cuts.unswept.copy().get(queue_id)
        for slot in some:
            page = state.pages.get(slot, {}).copy()
            found.update({one: one for one, value in page.items() if value >> SIZE_BITS == queue_id})
        found.update(_detailed_on(store, queue_id))  # also those that were plain when it was looked before
        low, high = max(after, state.start_of(some[0]) - 1), min(before, state.start_of(some[-1] + 1))
        part = sorted(
            (position, message_id)
            for message_id, position in found.items()
            if low < position < high and (cut is None or not cut.takes(message_id, position))
        )
        if part:
            yield part


def _detailed_on(store: JournalStore, queue_id: int) -> list[tuple[int, int]]:
    """Ids and positions."""
    detailed = store.state.detailed.copy().items()
    return [(one, at[0]) for one, message in detailed if (at := message.queues.get(queue_id)) is not None]
