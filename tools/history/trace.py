"""The lifetime of a message according to the log: from its first record to the one that removed it.

All records about a message follow its first record, so the log is read once from there. An operation in a transaction
counts when its commit is read. A message that the broker moved, to a dead-letter address or for an operator, becomes a
new message with the same properties and body: the transaction that dequeued the original enqueued it. Such copies, in
both directions, belong to the lifetime.

The log records neither the sender of a message nor that it was requeued. It records only that all messages were
dispatched again when a broker started. It names the consumers that acquired the message if delivery tracking was on:
each block records that.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from uuid import UUID

import numpy as np

from ...amqp.codec import sections
from ...amqp.codec.primitives import Malformed
from ...analytics.lifetimes.lifetimes import lifetimes_of
from ...analytics.lifetimes.record_tables import gather
from ...analytics.scan.log_scan import ScanOptions
from ...base.errors import CairnError, IncompleteResult, JournalError
from ...journal.format.block import ACQUISITIONS, Block
from ...journal.format.record import Flag, RecordHead, RecordType
from ...journal.read.scanner import Damage
from ...store.contract.dequeue_reason import DequeueReason, reason_of
from ..inspect.journal_check import Progress, byte_counter
from ..inspect.lines import acquired_in
from ..inspect.properties import Properties, properties_of
from .arrivals import RecordReader
from .history import History

_T = RecordType
_OF_ALL = (_T.LOG_OPEN, _T.QUEUE_DELETE, _T.DTX_START)
_OUTCOMES = {
    _T.TX_PREPARE: "prepared", _T.TX_COMMIT: "committed", _T.TX_ROLLBACK: "rolled back",
    _T.TX_END: "decided without its coordinator", _T.TX_DELETE: "decision forgotten",
}  # fmt: skip
_PERMISSIVE = ScanOptions(permissive=True)
_MOVES = (DequeueReason.REJECTED, DequeueReason.DELIVERY_LIMIT, DequeueReason.EXPIRED, DequeueReason.MOVED)


class Event(NamedTuple):
    """An event in the lifetime of a message."""

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
    """Message to the queues that it is on at the end of the log; empty if it was removed from all queues."""
    xids: dict[int, str] = field(default_factory=dict)
    """The xids of the distributed transactions that contained the message."""
    missing: list[tuple[int, int]] = field(default_factory=list)
    """Ranges of LSNs, behind its first record, of which nothing is kept."""
    damage: list[Damage] = field(default_factory=list)
    unwritten: list[tuple[int, int]] = field(default_factory=list)
    """Ranges of LSNs in which it was on a queue, without recorded acquisitions."""


# ---- which message --------------------------------------------------------------------------------------------------


def message_at(history: History, lsn: int) -> int:
    """Return the ID of the message of the record at *lsn*; *lsn* may be the ID. Raises `IncompleteResult`."""
    records = RecordReader(history)
    try:
        head = records.record(lsn).head
        if not head.message_id:
            raise IncompleteResult(f"LSN {lsn}", "the record there is about no message", "name a message's id")
        return head.message_id
    except (JournalError, IncompleteResult) as error:
        if any(lsn in block.table()["message_id"] for block in history.scan(lsn) if isinstance(block, Block)):
            return lsn  # its first record is missing, others exist
        raise IncompleteResult(error.place, error.reason, error.remedy) from error
    finally:
        records.close()


def needle_of(text: str) -> bytes:
    """Return bytes that each message with that id contains; none if the id may be a number, a UUID or bytes."""
    with suppress(ValueError):
        UUID(text)
        return b""
    return b"" if set(text) <= set("0123456789abcdef") else text.encode()


def find(history: History, matches: Callable[[Properties], bool], needle: bytes, progress: Progress) -> list[int]:
    """The messages whose properties match, in order of arrival; *needle* is in the content of each."""
    found: dict[int, None] = {}
    add = byte_counter("looking for the message", len(history.slots) * history.container_bytes, progress)
    for block in history.scan():
        if not isinstance(block, Block):
            continue
        add(block.end_lsn - block.lsn)
        if needle not in bytes(block.body):
            continue
        kinds = block.table()["type"]
        heads = block.heads()
        for number in np.flatnonzero(kinds == _T.START).tolist():
            head = heads[number]
            content = bytes(block.payload(head))
            if needle in content and matches(properties_of(content)):
                found[head.message_id] = None
    return [*found]


def sent_as(history: History, life: MessageLifetime) -> tuple[Properties, int]:
    """Return the sender's properties of a message, if a record of it can be read, and the record's length in bytes."""
    with closing(RecordReader(history)) as records:
        for message_id in life.message_ids:
            try:
                content = records.payload(message_id)
            except CairnError:
                continue
            return properties_of(content), len(content)
    return Properties("", "", {}), 0


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


class _Stays:
    """The stays of some messages on queues, as `lifetimes` derives them."""

    def __init__(self, history: History, message_ids: Sequence[int]) -> None:
        self._of: dict[int, list[tuple[int, int, int]]] = {}  # queue, position and LSN of the end
        for one in message_ids:
            facts = gather(history.log, history.log.between(one, history.end_lsn), _PERMISSIVE, (one, one + 1))
            places = lifetimes_of(facts).places
            rows = np.flatnonzero(places.message_id == one)
            columns = (places.queue_id, places.position, places.end_lsn)
            self._of[one] = list(zip(*(column[rows].tolist() for column in columns), strict=True))

    def at(self, lsn: int) -> dict[int, set[int]]:
        """Each message that is on queues as of *lsn*, to these."""
        on = {one: {queue for queue, begin, end in stays if begin < lsn <= end} for one, stays in self._of.items()}
        return {one: queues for one, queues in on.items() if queues}

    def ended_by(self, lsn: int) -> dict[int, set[int]]:
        """Each message that the record at *lsn* takes off queues, to these."""
        ends = {one: {queue for queue, _, end in stays if end == lsn} for one, stays in self._of.items()}
        return {one: queues for one, queues in ends.items() if queues}


class _Reading:
    """One pass over the log for some messages."""

    def __init__(self, history: History, message_ids: list[int]) -> None:
        self._history = history
        self._life = MessageLifetime(message_ids)
        self._stays = _Stays(history, message_ids)
        self._cuts: set[int] = set()  # positions of the queue-delete records that were read
        self._txns: set[int] = set()
        self._was_unwritten = False

    def run(self, progress: Progress) -> MessageLifetime:
        history, life = self._history, self._life
        first = life.message_ids[0]
        wanted = np.array(life.message_ids, np.uint64)
        listed = re.compile(b"|".join(re.escape(one.to_bytes(8, "little")) for one in life.message_ids))
        size = history.container_bytes
        add = byte_counter("reading the log", sum(slot >= first // size for slot in history.slots) * size, progress)
        life.missing = [(gap.first_lsn, gap.end_lsn) for gap in history.log.missing(first, history.end_lsn)]
        for found in history.scan(first):
            if isinstance(found, Damage):
                if found.torn:
                    break
                life.damage.append(found)
                continue
            add(found.end_lsn - found.lsn)
            table = found.table()
            kinds = table["type"]
            meant = np.isin(table["message_id"], wanted) | np.isin(kinds, _OF_ALL)
            if meant.any() or self._txns:
                self._txns.update(table["txn_id"][meant].tolist())
                self._txns.discard(0)
                meant |= (kinds > _T.DEQUEUE) & np.isin(table["txn_id"], [*self._txns])
            if (kinds == _T.ACQUIRE).any() and listed.search(found.body):
                meant |= kinds == _T.ACQUIRE  # `_take` looks for the messages that each lists
            heads = found.heads() if meant.any() else []
            for number in np.flatnonzero(meant).tolist():
                self._take(found, found.record_lsn(number), heads[number])
            self._look_whether_written(found)
        life.on = self._stays.at(history.end_lsn)
        return life

    def _look_whether_written(self, block: Block) -> None:
        """Record that acquisitions were not recorded during *block*, if one of these messages was on a queue."""
        ranges = self._life.unwritten
        was_on = self._stays.at(block.lsn) or self._stays.at(block.end_lsn)
        is_unwritten = bool(was_on) and not block.head.flags & ACQUISITIONS
        if is_unwritten and self._was_unwritten:
            ranges[-1] = (ranges[-1][0], block.end_lsn)
        elif is_unwritten:
            ranges.append((block.lsn, block.end_lsn))
        self._was_unwritten = is_unwritten

    def _take(self, block: Block, lsn: int, head: RecordHead) -> None:
        kind = head.type
        if head.message_id:
            self._of_message(lsn, head)
        elif kind == _T.ACQUIRE and (found := acquired_in(block, head)) is not None:
            for one in found.message_ids:
                if one in self._life.message_ids and head.flags & Flag.ENQUEUE:
                    self._tell(lsn, head, "returned to the queue", one, reason=found.link)
                elif one in self._life.message_ids:
                    self._tell(lsn, head, "acquired", one, container=found.container, link=found.link)
        elif kind == _T.DTX_START:
            self._life.xids[head.txn_id] = bytes(block.payload(head)).hex()
        elif kind in _OUTCOMES and head.txn_id in self._txns and not head.flags & Flag.MOVED:
            self._outcome(lsn, head)
        elif kind == _T.QUEUE_DELETE:
            position = head.extra or lsn  # that of the first one, in a copy
            for one in () if position in self._cuts else self._stays.ended_by(position):
                what = "queue deleted" if head.flags & Flag.DELETE else "purged"
                self._tell(lsn, head, what, one, removed=one not in self._stays.at(position + 1))
            self._cuts.add(position)
        elif kind == _T.LOG_OPEN:
            for one in self._stays.at(lsn):
                self._tell(lsn, head, "broker started: offered again", one)

    def _of_message(self, lsn: int, head: RecordHead) -> None:
        kind, flags, one = head.type, head.flags, head.message_id
        if flags & Flag.MOVED and kind in (_T.START, _T.CHUNK, _T.ENQUEUE):
            self._tell(lsn, head, "relocated", one, source=head.undo_prev, record=_T(kind).name.lower())
        elif flags & Flag.MOVED:
            if one in self._stays.ended_by(lsn):  # the original is not kept
                self._end(lsn, head)
        elif flags & Flag.PREPARED:
            what = "to be enqueued" if kind == _T.ENQUEUE else "to be dequeued"
            self._tell(lsn, head, what, one, **_reason(head))
        elif kind == _T.START:
            self._tell(lsn, head, "arrived", one, bytes=head.size, more_follows=bool(flags & Flag.MORE))
        elif kind == _T.CHUNK:
            self._tell(lsn, head, "piece", one, number=head.extra, bytes=head.size, last=not flags & Flag.MORE)
        elif kind == _T.ENQUEUE:
            self._tell(lsn, head, "enqueued", one)
        else:
            self._end(lsn, head)

    def _end(self, lsn: int, head: RecordHead) -> None:
        one, is_delete = head.message_id, head.type == _T.DELETE
        removed = is_delete or bool(head.flags & Flag.DELETE)
        self._tell(lsn, head, "deleted" if is_delete else "dequeued", one, removed=removed, **_reason(head))

    def _outcome(self, lsn: int, head: RecordHead) -> None:
        what = _OUTCOMES[RecordType(head.type)]
        if head.type == _T.TX_END:
            what += ": committed" if head.extra else ": rolled back"
        ids = dict.fromkeys(event.message_id for event in self._life.events if event.txn_id == head.txn_id)
        for one in ids:
            self._tell(lsn, head, f"transaction {what}", one)

    def _tell(self, lsn: int, head: RecordHead, what: str, message_id: int, **more: Any) -> None:
        reported = {key: value for key, value in more.items() if value not in (False, None)}
        event = Event(lsn, head.time_us, message_id, what, head.queue_id, head.txn_id, reported)
        self._life.events.append(event)


def _reason(head: RecordHead) -> dict[str, str]:
    reason = reason_of(head.flags) if head.type == _T.DEQUEUE else DequeueReason.NOT_RECORDED
    return {"reason": reason.words} if reason else {}


# ---- copies ---------------------------------------------------------------------------------------------------------


def _copies(history: History, life: MessageLifetime) -> dict[tuple[int, int], tuple[int, int]]:
    """Original and copy, each to the LSN and the time of what made the copy, as far as contents can still be read."""
    ids = set(life.message_ids)
    txns = {event.txn_id for event in life.events if event.txn_id}
    found: dict[tuple[int, int], tuple[int, int]] = {}
    with closing(RecordReader(history)) as records:
        for txn_id in txns:
            taken: list[int] = []
            put: dict[int, tuple[int, int]] = {}
            for lsn, head in _operations(history, txn_id):
                if head.type == _T.DEQUEUE and reason_of(head.flags) in _MOVES:
                    taken.append(head.message_id)
                elif head.type in (_T.START, _T.ENQUEUE):
                    put[head.message_id] = lsn, head.time_us
            for old in taken:
                for new, where in put.items():
                    if old != new and (old in ids or new in ids) and _same(records, old, new):
                        found[old, new] = where
    return found


def _operations(history: History, txn_id: int) -> Iterator[tuple[int, RecordHead]]:
    """The records of a transaction that were written with its commit."""
    for found in history.scan(txn_id):
        if not isinstance(found, Block):
            continue
        table = found.table()
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
    found = sections.index(content, complete=False)
    before = [one.end for one in (found.header, found.delivery_annotations, found.message_annotations) if one]
    return content[max(before, default=0) :]
