"""Derivation of the clients' notes from the records of a log, of which some may be missing, with plain loops.

It implements docs/reference/format.md. From all records it derives the complete notes. It relies on properties of
`Clients`: a message is enqueued on a queue once, queues are purged and never deleted, and only the coordinator of a
transaction decides it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from struct import iter_unpack

from tests.analysis.clients import Noted, Notes, Stay
from tests.harness.analysis.walked import (
    CHUNK,
    DELETE,
    DEQUEUE,
    DTX_START,
    ENQUEUE,
    LOG_OPEN,
    MORE,
    PREPARED,
    QUEUE_DELETE,
    START,
    TX_COMMIT,
    TX_PREPARE,
    TX_ROLLBACK,
    WITH_DELETE,
    WITH_ENQUEUE,
    Record,
)

REASONS = ("", "accepted", "rejected", "delivery-limit", "expired", "moved", "overflow", "replaced")
Place = tuple[int, int]
"""A message and a queue."""


@dataclass
class Told:
    """Notes that were derived from records, and the parts that are missing in them."""

    notes: Notes
    incomplete: set[int] = field(default_factory=set)
    """Messages with missing pieces."""
    without_start: set[Place] = field(default_factory=set)
    """Places that have not ended, of messages whose Start record is missing."""
    prepared: dict[int, tuple[int, int]] = field(default_factory=dict)
    """Two numbers of operations of each transaction in doubt: that in its tx-prepare, and that found."""


class _Log:
    """Records of a log with indexes by transaction and message."""

    def __init__(self, records: Iterable[Record]) -> None:
        self.records = sorted(records)
        self.commits: dict[int, list[Record]] = defaultdict(list)
        for one in self.records:
            if one.type == TX_COMMIT:
                self.commits[one.txn_id].append(one)
        self.ends = [one for one in self.records if one.type == DEQUEUE and self.is_done(one)]
        self.ended = {one.extra for one in self.ends}
        self.ended_messages = {one.message_id for one in self.ends}
        self.first = _first(self.records)
        over = {one.txn_id for one in self.records if one.type in (TX_COMMIT, TX_ROLLBACK)}
        self.in_doubt = {one.txn_id for one in self.records if one.type == TX_PREPARE} - over

    def is_done(self, one: Record) -> bool:
        return not one.flags & PREPARED and (not one.txn_id or one.txn_id in self.commits)

    def is_over(self, one: Record) -> bool:
        """Return whether only copies of the record's commit remain, and none of them lists the record."""
        commits = self.commits.get(one.txn_id, [])
        if not commits or not all(commit.moved for commit in commits):
            return False
        return one.lsn not in {lsn for commit in commits for (lsn,) in iter_unpack("<Q", commit.payload)}

    def gives_place(self, one: Record) -> bool:
        """Return whether a record puts its message on a queue: it took effect, or its place was ended later."""
        if one.type == START and one.flags & WITH_ENQUEUE:
            return self.is_done(one) or one.message_id in self.ended_messages
        return one.type == ENQUEUE and not one.flags & PREPARED and (self.is_done(one) or one.lsn in self.ended)


def _first(records: Iterable[Record]) -> dict[int, Record]:
    """Return the first Start record of each message."""
    found: dict[int, Record] = {}
    for one in records:
        if one.type == START:
            found.setdefault(one.message_id, one)
    return found


def told(records: Iterable[Record], world: Notes) -> Told:
    """Derive the notes from *records*; only the names and the producer's log are taken from *world*."""
    log = _Log(records)
    found = Told(Notes(0))
    found.notes.ids, found.notes.named, found.notes.sent = world.ids, world.named, world.sent
    _contents(log, found)
    _stays(log, found)
    _transactions(log, found)
    _loose(log, found.notes)
    return found


def _contents(log: _Log, found: Told) -> None:
    pieces: dict[int, dict[int, Record]] = defaultdict(dict)
    for one in log.records:
        if one.type in (START, CHUNK) and one.message_id in log.first:
            pieces[one.message_id][one.extra if one.type == CHUNK else 0] = one
    for message_id, some in pieces.items():
        content = b"".join(some[number].payload for number in sorted(some))
        found.notes.stored(message_id, content, log.first[message_id].time_us)
        last = max(some)
        if some[last].flags & MORE or len(some) != last + 1:
            found.incomplete.add(message_id)


def _stays(log: _Log, found: Told) -> None:
    names = {number: name for name, number in found.notes.ids.items()}
    places: dict[Place, tuple[int, Record]] = {}
    for one in log.records:
        if log.gives_place(one):
            position = one.message_id if one.type == START else one.extra or one.lsn
            places.setdefault((one.message_id, one.queue_id), (position, one))
    opened = [one.lsn for one in log.records if one.type == LOG_OPEN]
    for (message_id, queue_id), (position, one) in sorted(places.items(), key=lambda item: item[1][0]):
        end = _end(log, message_id, queue_id, position)
        if message_id not in log.first:
            if end is None and not log.is_over(one):
                found.without_start.add((message_id, queue_id))
            continue
        stay = Stay(message_id, names[queue_id], one.time_us, len(found.notes.contents[message_id]))
        if end is not None:
            stay.end_us, stay.how = end.time_us, "purged" if end.type == QUEUE_DELETE else "dequeued"
            stay.reason = REASONS[end.flags >> 5] if end.type == DEQUEUE else ""
        assert end is not None or not log.is_over(one), "nothing tells when it ended"
        last = end.lsn if end is not None else max(one.lsn for one in log.records)
        stay.lives += sum(message_id < lsn < last for lsn in opened)
        found.notes.stays.append(stay)


def _end(log: _Log, message_id: int, queue_id: int, position: int) -> Record | None:
    """Return the first record that ended a place, or None; a copy has the time of its original."""
    ends = [
        one for one in log.ends
        if one.message_id == message_id and (one.queue_id == queue_id or one.flags & WITH_DELETE)
    ]  # fmt: skip
    for one in log.records:
        is_purge = one.type == QUEUE_DELETE and one.queue_id == queue_id and (one.extra or one.lsn) > position
        if is_purge and (message_id,) not in iter_unpack("<Q", one.payload):
            ends.append(one)
    return min(ends, key=lambda one: (one.time_us, one.lsn), default=None)


def _transactions(log: _Log, found: Told) -> None:
    of: dict[int, list[Record]] = defaultdict(list)
    for one in log.records:
        if one.txn_id:
            of[one.txn_id].append(one)
    for txn_id, some in of.items():
        by_type = {one.type: one for one in reversed(some)}
        put = {
            one.message_id: one.queue_id for one in some
            if one.type == ENQUEUE or (one.type == START and one.flags & WITH_ENQUEUE)
        }  # fmt: skip
        took = {(one.message_id, one.queue_id) for one in some if one.type == DEQUEUE}
        size = sum(len(found.notes.contents.get(message_id, b"")) for message_id in put)
        end = by_type.get(TX_COMMIT) or by_type.get(TX_ROLLBACK)
        prepare = by_type.get(TX_PREPARE)
        state = "prepared" if prepare else "forgotten"
        if end is not None:
            state = "committed" if end.type == TX_COMMIT else "rolled back"
        xid = by_type[DTX_START].payload if DTX_START in by_type else b""
        noted = Noted(
            "distributed" if prepare or DTX_START in by_type else "local", min(one.time_us for one in some), state,
            end.time_us if end else None, len(put), len(took), size, xid, prepare.time_us if prepare else 0,
        )  # fmt: skip
        found.notes.transactions.append(noted)
        if prepare and state == "prepared":
            found.prepared[txn_id] = prepare.extra, len(put) + len(took)


def _loose(log: _Log, notes: Notes) -> None:
    """Add to *notes* the messages that were on no queue: ended, staged or in doubt."""
    on = {stay.message_id for stay in notes.stays}
    alone = notes.contents.keys() - on
    for one in log.records:
        if one.message_id in alone and log.is_done(one):
            if one.type == DELETE:
                notes.ended.setdefault(one.message_id, (one.time_us, "discarded", ""))
            elif one.type == DEQUEUE and one.flags & WITH_DELETE:
                notes.ended.setdefault(one.message_id, (one.time_us, "consumed", REASONS[one.flags >> 5]))
    in_doubt = {one.message_id for one in log.records if one.txn_id in log.in_doubt and one.type == ENQUEUE}
    for message_id in alone - notes.ended.keys() - in_doubt:
        if log.first[message_id].txn_id:
            notes.ended[message_id] = 0, "forgotten", ""
        else:
            notes.staged.add(message_id)
    work = [("put", message_id, 0, "") for message_id in in_doubt & alone - notes.ended.keys()]
    notes.work = {b"": work}
