"""The life of a message, as the log tells it: from its first record to the one that took it away.

Everything about a message stands behind its first record, so the log is read once from there. Of a transaction an
operation counts when its commit is read. A message that the broker moved, to a dead-letter address or for an operator,
is another one from then on: it was put there by the transaction that took the old one off, with the same properties and
body. Such copies belong to the life, on both sides.

The log does not say who sent a message, or that it came back to its queue; only that it was offered again, as all
are, when a broker started. Who had acquired it stands there if the broker was to write that down: each block says so.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from ...amqp.codec import sections
from ...amqp.codec.primitives import Malformed
from ...base.errors import CairnError, JournalError, NotWhole
from ...journal.format.block import ACQUISITIONS, Block
from ...journal.format.record import Flag, RecordHead, RecordType
from ...journal.read.scanner import Damage
from ...store.contract.dequeue_reason import Why, why_of
from ...store.journaled.acquire_records import Acquired, decode
from ..inspect.block_table import heads_of_block
from ..inspect.journal_check import Progress
from ..inspect.properties import Properties, properties_of
from .arrivals import RecordReader
from .history import History

_T = RecordType
_OF_ALL = (_T.LOG_OPEN, _T.QUEUE_DELETE, _T.DTX_START)
_OUTCOMES = {
    _T.TX_PREPARE: "prepared", _T.TX_COMMIT: "committed", _T.TX_ROLLBACK: "rolled back",
    _T.TX_END: "decided without its coordinator", _T.TX_DELETE: "decision forgotten",
}  # fmt: skip
_MOVES = (Why.REJECTED, Why.DELIVERY_LIMIT, Why.EXPIRED, Why.MOVED)


class Event(NamedTuple):
    """One thing that happened."""

    lsn: int
    time_us: int
    message_id: int
    what: str
    queue_id: int = 0
    txn_id: int = 0
    more: dict[str, Any] = {}


@dataclass
class MessageLifetime:
    """The events of one message and its copies."""

    message_ids: list[int]
    events: list[Event] = field(default_factory=list)
    on: dict[int, set[int]] = field(default_factory=dict)
    """Message to the queues that it is on at the end of the log; none if it is gone."""
    xids: dict[int, str] = field(default_factory=dict)
    """Of the distributed transactions it was in."""
    missing: list[tuple[int, int]] = field(default_factory=list)
    """Ranges of LSNs, behind its first record, of which nothing is kept."""
    damage: list[Damage] = field(default_factory=list)
    unwritten: list[tuple[int, int]] = field(default_factory=list)
    """Ranges of LSNs where it was on a queue, and nobody wrote down who acquired it."""


# ---- which message --------------------------------------------------------------------------------------------------


def message_at(history: History, lsn: int) -> int:
    """The message that the record at *lsn* is about; *lsn* itself if that is a message's id. Raises `NotWhole`."""
    records = RecordReader(history)
    try:
        head = records.record(lsn).head
        if not head.message_id:
            raise NotWhole(f"LSN {lsn}", "the record there is about no message", "name a message's id")
        return head.message_id
    except (JournalError, NotWhole) as error:
        if any(lsn in _ids_in(block) for block in history.scan(lsn) if isinstance(block, Block)):
            return lsn  # its first record is gone, others are there
        raise NotWhole(error.place, error.reason, error.remedy) from error
    finally:
        records.close()


def _ids_in(block: Block) -> Any:
    return heads_of_block(block)["message_id"]


def find(history: History, matches: Callable[[Properties], bool], needle: bytes, progress: Progress) -> list[int]:
    """The messages whose properties match, in order of arrival; *needle* is in the content of each."""
    found: dict[int, None] = {}
    total, done = len(history.slots) * history.container_bytes, 0
    for block in history.scan():
        if not isinstance(block, Block):
            continue
        done += block.end_lsn - block.lsn
        progress("looking for the message", min(done, total), total)
        if needle not in bytes(block.body):
            continue
        kinds = heads_of_block(block)["type"]
        heads = block.heads()
        for number in np.flatnonzero(kinds == _T.START).tolist():
            head = heads[number]
            content = bytes(block.payload(head))
            if needle in content and matches(properties_of(content)):
                found[head.message_id] = None
    return [*found]


# ---- its life -------------------------------------------------------------------------------------------------------


def lifetime_of(history: History, message_id: int, progress: Progress) -> MessageLifetime:
    """The lifetime of a message and of its copies, from the log."""
    ids = [message_id]
    while True:
        life = _Reading(history, ids).run(progress)
        copies = _copies(history, life)
        links = {one for pair in copies for one in pair}
        for old, new, lsn, time_us in ((old, new, *where) for (old, new), where in copies.items()):
            life.events.append(Event(lsn, time_us, old, "copied", more={"to": new}))
        if links <= set(ids):
            life.events.sort(key=lambda event: event.lsn)
            return life
        ids = sorted({*ids, *links})


class _Reading:
    """One run over the log for some messages."""

    def __init__(self, history: History, message_ids: list[int]) -> None:
        self._history = history
        self._life = MessageLifetime(message_ids)
        self._on: dict[int, set[int]] = {one: set() for one in message_ids}
        self._ops: dict[int, list[tuple[int, int, bool]]] = {}  # of transactions: message, queue, whether it is put
        self._txns: set[int] = set()
        self._was_unwritten = False

    def run(self, progress: Progress) -> MessageLifetime:
        history, life = self._history, self._life
        first = life.message_ids[0]
        wanted = np.array(life.message_ids, np.uint64)
        size = history.container_bytes
        begin = first // size
        total, done, last = sum(slot >= begin for slot in history.slots) * size, 0, -1
        for found in history.scan(first):
            if isinstance(found, Damage):
                if found.torn:
                    break
                life.damage.append(found)
                continue
            slot = found.lsn // size
            if last >= 0 and slot > last + 1 and history.containers[slot].head.prev_lsn // size > last:
                life.missing.append(((last + 1) * size, slot * size))
            elif last < 0 and slot > begin:
                life.missing.append((first, slot * size))
            last = slot
            done += found.end_lsn - found.lsn
            progress("reading the log", min(done, total), total)
            table = heads_of_block(found)
            kinds = table["type"]
            meant = np.isin(table["message_id"], wanted) | np.isin(kinds, _OF_ALL)
            if meant.any() or self._txns:
                self._txns.update(table["txn_id"][meant].tolist())
                self._txns.discard(0)
                meant |= (kinds > _T.DEQUEUE) & np.isin(table["txn_id"], [*self._txns])
            if (kinds == _T.ACQUIRE).any():
                meant |= self._hands_out(found, kinds)
            was_on = any(self._on.values())
            if not meant.any():
                self._look_whether_written(found, was_on)
                continue
            heads = found.heads()
            for number in np.flatnonzero(meant).tolist():
                self._take(found, found.record_lsn(number), heads[number])
            was_on |= any(self._on.values())
            self._look_whether_written(found, was_on)
        life.on = {one: queues for one, queues in self._on.items() if queues}
        return life

    def _hands_out(self, block: Block, kinds: Any) -> Any:
        """Which records of *block* say who was handed one of the messages."""
        chosen = kinds == _T.ACQUIRE
        content = bytes(block.body)
        if any(one.to_bytes(8, "little") in content for one in self._life.message_ids):
            heads = block.heads()
            for number in np.flatnonzero(chosen).tolist():
                chosen[number] = any(one in self._on for one in _acquired(block, heads[number]).message_ids)
        else:
            chosen[:] = False
        return chosen

    def _look_whether_written(self, block: Block, was_on: bool) -> None:
        """Note that nobody wrote down who acquired messages while *block* gathered, if one of these was there."""
        ranges = self._life.unwritten
        is_unwritten = was_on and not block.head.flags & ACQUISITIONS
        if is_unwritten and self._was_unwritten:
            ranges[-1] = (ranges[-1][0], block.end_lsn)
        elif is_unwritten:
            ranges.append((block.lsn, block.end_lsn))
        self._was_unwritten = is_unwritten

    def _take(self, block: Block, lsn: int, head: RecordHead) -> None:
        kind = head.type
        if head.message_id:
            self._of_message(lsn, head)
        elif kind == _T.ACQUIRE:
            found = _acquired(block, head)
            for one in found.message_ids:
                if one in self._on:
                    self._tell(lsn, head, "acquired", one, container=found.container, link=found.link)
        elif kind == _T.DTX_START:
            self._life.xids[head.txn_id] = bytes(block.payload(head)).hex()
        elif kind in _OUTCOMES and head.txn_id in self._txns and not head.flags & Flag.MOVED:
            self._outcome(lsn, head)
        elif kind == _T.QUEUE_DELETE:
            kept = array("Q", bytes(block.payload(head)))
            what = "queue deleted" if head.flags & Flag.DELETE else "purged"
            for one, queues in self._on.items():
                if head.queue_id in queues and one not in kept:
                    queues.discard(head.queue_id)
                    self._tell(lsn, head, what, one, gone=not queues)
        elif kind == _T.LOG_OPEN:
            for one, queues in self._on.items():
                if queues:
                    self._tell(lsn, head, "broker started: offered again", one)

    def _of_message(self, lsn: int, head: RecordHead) -> None:
        kind, flags, one = head.type, head.flags, head.message_id
        if flags & Flag.MOVED and kind in (_T.START, _T.CHUNK, _T.ENQUEUE):
            self._tell(lsn, head, "relocated", one, source=head.undo_prev, record=_T(kind).name.lower())
            if kind == _T.ENQUEUE or flags & Flag.ENQUEUE:
                self._on[one].add(head.queue_id)
        elif flags & Flag.MOVED:
            if self._on[one] and (flags & Flag.DELETE or head.queue_id in self._on[one]):  # what it ends is not kept
                self._end(lsn, head)
        elif flags & Flag.PREPARED:
            self._txns.add(head.txn_id)
            what = "to be enqueued" if kind == _T.ENQUEUE else "to be dequeued"
            self._tell(lsn, head, what, one, **_why(head))
        elif kind == _T.START:
            self._tell(lsn, head, "arrived", one, bytes=head.size, more_follows=bool(flags & Flag.MORE))
            if flags & Flag.ENQUEUE:
                self._place(head)
        elif kind == _T.CHUNK:
            self._tell(lsn, head, "piece", one, number=head.extra, bytes=head.size, last=not flags & Flag.MORE)
        elif kind == _T.ENQUEUE:
            self._tell(lsn, head, "enqueued", one)
            self._place(head)
        else:
            self._end(lsn, head)

    def _place(self, head: RecordHead) -> None:
        if head.txn_id:
            self._txns.add(head.txn_id)
            self._ops.setdefault(head.txn_id, []).append((head.message_id, head.queue_id, True))
        else:
            self._on[head.message_id].add(head.queue_id)

    def _end(self, lsn: int, head: RecordHead) -> None:
        one, is_delete = head.message_id, head.type == _T.DELETE
        gone = is_delete or bool(head.flags & Flag.DELETE)
        self._tell(lsn, head, "deleted" if is_delete else "dequeued", one, gone=gone, **_why(head))
        if head.txn_id:
            self._txns.add(head.txn_id)
            self._ops.setdefault(head.txn_id, []).append((one, head.queue_id, False))
        elif gone:
            self._on[one].clear()
        else:
            self._on[one].discard(head.queue_id)

    def _outcome(self, lsn: int, head: RecordHead) -> None:
        what = _OUTCOMES[RecordType(head.type)]
        if head.type == _T.TX_END:
            what += ": committed" if head.extra else ": rolled back"
        operations = self._ops.pop(head.txn_id, []) if head.type == _T.TX_COMMIT else []
        for one, queue_id, puts in operations:
            (self._on[one].add if puts else self._on[one].discard)(queue_id)
        ids = dict.fromkeys(event.message_id for event in self._life.events if event.txn_id == head.txn_id)
        for one in ids:
            self._tell(lsn, head, f"transaction {what}", one)

    def _tell(self, lsn: int, head: RecordHead, what: str, message_id: int, **more: Any) -> None:
        told = {key: value for key, value in more.items() if value not in (False, None)}
        event = Event(lsn, head.time_us, message_id, what, head.queue_id, head.txn_id, told)
        self._life.events.append(event)


def _acquired(block: Block, head: RecordHead) -> Acquired:
    """The acquisition that a record lists; an empty one if the record can't be decoded."""
    try:
        return decode(bytes(block.payload(head)), head.extra)
    except ValueError:
        return Acquired(array("Q"), "", "")


def _why(head: RecordHead) -> dict[str, str]:
    why = why_of(head.flags) if head.type == _T.DEQUEUE else Why.NOT_RECORDED
    return {"reason": why.words} if why else {}


# ---- copies ---------------------------------------------------------------------------------------------------------


def _copies(history: History, life: MessageLifetime) -> dict[tuple[int, int], tuple[int, int]]:
    """Original and copy, each to the LSN and the time of what made the copy, as far as contents can still be read."""
    ids = set(life.message_ids)
    txns = {event.txn_id for event in life.events if event.txn_id}
    found: dict[tuple[int, int], tuple[int, int]] = {}
    records = RecordReader(history)
    try:
        for txn_id in txns:
            taken: list[int] = []
            put: dict[int, tuple[int, int]] = {}
            for lsn, head in _operations(history, txn_id):
                if head.type == _T.DEQUEUE and why_of(head.flags) in _MOVES:
                    taken.append(head.message_id)
                elif head.type in (_T.START, _T.ENQUEUE):
                    put[head.message_id] = lsn, head.time_us
            for old in taken:
                for new, where in put.items():
                    if old != new and (old in ids or new in ids) and _same(records, old, new):
                        found[old, new] = where
    finally:
        records.close()
    return found


def _operations(history: History, txn_id: int) -> Iterator[tuple[int, RecordHead]]:
    """The records of a transaction that were written with its commit."""
    for found in history.scan(txn_id):
        if not isinstance(found, Block):
            continue
        table = heads_of_block(found)
        numbers = np.flatnonzero((table["txn_id"] == txn_id) & (table["flags"] & (Flag.PREPARED | Flag.MOVED) == 0))
        heads = found.heads() if len(numbers) else []
        for number in numbers.tolist():
            yield found.record_lsn(number), heads[number]
            if heads[number].type in (_T.TX_COMMIT, _T.TX_ROLLBACK):
                return


def _same(records: RecordReader, old: int, new: int) -> bool:
    """Return whether two messages have the same properties and body, as far as their first records go."""
    try:
        first, second = _bare(records.payload(old)), _bare(records.payload(new))
    except (CairnError, Malformed):
        return False
    size = min(len(first), len(second))
    return first[:size] == second[:size]


def _bare(content: bytes) -> bytes:
    """The parts of a message that no broker changes."""
    found = sections.index(content, whole=False)
    before = [one.end for one in (found.header, found.delivery_annotations, found.message_annotations) if one]
    return content[max(before, default=0) :]
