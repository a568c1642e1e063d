"""The lifetimes of messages: the arrival of each, its queues with the periods, and its end.

A *place* is the stay of a message on a queue. Its key is the message, the queue and the position: the LSN of the record
that first put it there. It ends with the first of:

* a Dequeue record that ends the record which enqueued it, or a copy of that;
* a Delete record, or a Dequeue with the delete flag: the message is deleted, with all of its places;
* a Queue-Delete record after the position, unless that keeps the message.

Records of a transaction count if its commit exists (`outcomes`), or if another record ended them: an ended record needs
no commit any more. Nor does it need the record that ended it, once the commit was copied without it: such a place is
known to be over, without details.
"""

from __future__ import annotations

from array import array
from typing import NamedTuple

import numpy as np

from ...journal.format.record import Flag, RecordType
from ..scan.number_sets import Flags, Longs, first_of_each, is_ascending, is_in
from .outcomes import FATES, OPEN, ROLLED_BACK, Outcomes, outcomes_of, prepared_transactions
from .record_tables import Bytes, RecordTables

NEVER = np.iinfo(np.int64).max
FORGOTTEN = 0
"""The LSN of an end of which only that is known."""
DEQUEUED, DELETED, QUEUE_DELETED, PURGED, UNKNOWN = 1, 2, 3, 4, 5
HOW = (None, "dequeued", "deleted", "queue deleted", "purged", "forgotten")
"""The reasons for which a message left a queue, by number."""


class Messages(NamedTuple):
    """One row per message that has a Start record, by id."""

    id: Longs
    start_lsn: Longs
    """The LSN of its newest existing Start record."""
    time_us: Longs
    size: Longs
    pieces: Longs
    complete: Flags
    txn_id: Longs
    """0 without, and where only a copy is left."""
    fate: Bytes
    """The fate of the transaction that created the message, if no record shows its commit, see `outcomes.FATES`."""
    in_doubt: Flags
    """A prepared transaction is going to put it on a queue."""
    end_lsn: Longs
    """The LSN of the record that ends the message; `NEVER` without one."""
    end_us: Longs
    taken: Flags
    """True if that record is a Dequeue, and not a Delete."""
    flags: Bytes
    """The flags of that Dequeue record."""


class Places(NamedTuple):
    """One row per place, by message and position."""

    message_id: Longs
    queue_id: Longs
    position: Longs
    time_us: Longs
    end_lsn: Longs
    """The end; `NEVER` for a current place, `FORGOTTEN` if it is unknown."""
    end_us: Longs
    how: Bytes
    """A number of `HOW`."""
    flags: Bytes
    """The flags of the Dequeue record that ended the place; 0 without one."""


class Lifetimes(NamedTuple):
    """All messages of a log, as of an LSN."""

    messages: Messages
    places: Places
    opened: Longs
    """LSNs of the log-open records."""


def lifetimes_of(facts: RecordTables, as_of: int = NEVER) -> Lifetimes:
    """The lifetimes of the messages in *facts*, up to the LSN *as_of*.

    For a point in the past the result is limited to the log: messages that ended before the last container was
    reclaimed may be missing.
    """
    opened = facts.lsn[facts.type == int(RecordType.LOG_OPEN)]
    outcomes = outcomes_of(facts, as_of)

    def done(kind: RecordType) -> RecordTables:
        some = facts.of_type(kind)
        return some.where(~some.has(Flag.PREPARED) & outcomes.counts(some))

    dequeues, deletes = done(RecordType.DEQUEUE), done(RecordType.DELETE)
    if as_of < NEVER:
        dequeues, deletes = dequeues.where(dequeues.lsn < as_of), deletes.where(deletes.lsn < as_of)
    starts = facts.of_type(RecordType.START)
    if as_of < NEVER:
        starts = starts.where((starts.message_id < as_of) & ~_copies(starts, starts.message_id, outcomes))
    removed = _ends(dequeues, deletes)
    messages = _messages(facts, starts, outcomes, removed, as_of)
    enqueues = facts.of_type(RecordType.ENQUEUE)
    enqueues = enqueues.where(
        ~enqueues.has(Flag.PREPARED) & (outcomes.counts(enqueues) | is_in(enqueues.lsn, dequeues.extra))
    )
    if as_of < NEVER:
        enqueues = enqueues.where(~_copies(enqueues, enqueues.extra, outcomes))
    places = _places(enqueues, starts, outcomes, dequeues.message_id, as_of)
    places = _end(places, dequeues, removed, _cuts(facts, as_of))
    return Lifetimes(messages, places, opened[opened < as_of])


def _copies(some: RecordTables, originals: Longs, outcomes: Outcomes) -> Flags:
    """Return the mask of copies of records that were not committed yet: copies name no transaction any more."""
    return some.has(Flag.MOVED) & is_in(originals, outcomes.undone)


class _Ends(NamedTuple):
    """The record that ends each message."""

    message_id: Longs
    lsn: Longs
    time_us: Longs
    by_delete: Flags
    flags: Bytes

    def of(self, message_ids: Longs) -> tuple[Longs, Longs, Flags, Bytes]:
        """For each of these the LSN, `NEVER` without; the time; whether it is a Delete; the flags if it is none."""
        if not len(self.message_id):
            none = np.zeros(len(message_ids), np.int64)
            return np.full(len(message_ids), NEVER), none, none != 0, none.astype(np.uint8)
        at = np.minimum(np.searchsorted(self.message_id, message_ids), len(self.message_id) - 1)
        found = self.message_id[at] == message_ids
        by_delete = found & self.by_delete[at]
        flags = np.where(found & ~by_delete, self.flags[at], np.uint8(0))
        return np.where(found, self.lsn[at], NEVER), np.where(found, self.time_us[at], 0), by_delete, flags


def _ends(dequeues: RecordTables, deletes: RecordTables) -> _Ends:
    last = dequeues.where(dequeues.has(Flag.DELETE))
    message_ids = np.concatenate((last.message_id, deletes.message_id))
    lsns = np.concatenate((last.lsn, deletes.lsn))
    times = np.concatenate((last.time_us, deletes.time_us))
    first = first_of_each(message_ids, lsns)
    first = first[first_of_each(message_ids[first])]
    flags = np.concatenate((last.flags, deletes.flags))
    return _Ends(message_ids[first], lsns[first], times[first], first >= len(last.lsn), flags[first])


def _messages(facts: RecordTables, starts: RecordTables, outcomes: Outcomes, removed: _Ends, as_of: int) -> Messages:
    first = first_of_each(starts.message_id)
    ids = starts.message_id[first]
    original = starts.at(first)
    newest = original.lsn.copy()
    copies = starts.where(starts.has(Flag.MOVED))
    newest[np.searchsorted(ids, copies.message_id)] = copies.lsn  # of several the last one, which is the newest
    size, pieces = original.size.astype(np.int64), np.ones(len(ids), np.int64)
    last = np.where(original.has(Flag.MORE), -1, 0)
    chunks = facts.of_type(RecordType.CHUNK)
    chunks = chunks.where(is_in(chunks.message_id, ids))
    chunks = chunks.at(first_of_each(chunks.message_id, chunks.extra))
    whose = np.searchsorted(ids, chunks.message_id)
    np.add.at(size, whose, chunks.size)
    np.add.at(pieces, whose, 1)
    ends = ~chunks.has(Flag.MORE)
    last[whose[ends]] = chunks.extra[ends]
    end_lsn, end_us, by_delete, flags = removed.of(ids)
    fate = outcomes.fate_of(original.txn_id)
    fate[end_lsn < NEVER] = 0
    return Messages(
        ids, newest, original.time_us, size, pieces, pieces == last + 1, original.txn_id, fate,
        _in_doubt(facts, ids, as_of), end_lsn, end_us, (end_lsn < NEVER) & ~by_delete, flags,
    )  # fmt: skip


def _in_doubt(facts: RecordTables, ids: Longs, as_of: int) -> Flags:
    intended = facts.of_type(RecordType.ENQUEUE)
    intended = intended.where(intended.has(Flag.PREPARED))
    prepared = prepared_transactions(facts, as_of)
    return is_in(ids, intended.message_id[is_in(intended.txn_id, prepared)])


def _places(enqueues: RecordTables, starts: RecordTables, outcomes: Outcomes, ended: Longs, as_of: int) -> Places:
    """All places that were ever given, with no end yet but for those of which only that is known.

    *enqueues*: those that were done; *ended*: the messages of which something was ended.
    """
    counts = outcomes.counts(starts)
    unsure = np.flatnonzero(~counts)
    counts[unsure] = is_in(starts.message_id[unsure], ended)
    here = starts.where(starts.has(Flag.ENQUEUE) & counts)
    enqueues = enqueues.where(is_in(enqueues.message_id, starts.message_id))
    positions = np.where(enqueues.extra != 0, enqueues.extra, enqueues.lsn)
    message_ids = np.concatenate((here.message_id, enqueues.message_id))
    queue_ids = np.concatenate((here.queue_id, enqueues.queue_id))
    position = np.concatenate((here.message_id, positions))
    times = np.concatenate((here.time_us, enqueues.time_us))
    over = np.concatenate((outcomes.is_over(here) | is_in(here.lsn, outcomes.unplaced), outcomes.is_over(enqueues)))
    first = first_of_each(message_ids, position, queue_ids)
    first = first[position[first] < as_of]
    end_lsn = np.where(over[first], FORGOTTEN, NEVER)
    zeros, none = np.zeros(len(first), np.int64), np.zeros(len(first), np.uint8)
    return Places(message_ids[first], queue_ids[first], position[first], times[first], end_lsn, zeros, none, none)


class _Cut(NamedTuple):
    queue_id: int
    position: int
    """The LSN of the original record."""
    time_us: int
    kept: Longs
    how: int


def _cuts(facts: RecordTables, as_of: int) -> list[_Cut]:
    found = facts.of_type(RecordType.QUEUE_DELETE)
    cuts: dict[tuple[int, int], _Cut] = {}
    for lsn, flags, queue_id, time_us, extra in zip(
        found.lsn.tolist(), found.flags.tolist(), found.queue_id.tolist(), found.time_us.tolist(), found.extra.tolist(),
        strict=True,
    ):  # fmt: skip
        position = extra or lsn
        if position < as_of:
            kept = np.array(sorted(array("Q", facts.payloads[lsn])), np.int64)
            how = QUEUE_DELETED if flags & Flag.DELETE else PURGED
            cuts.setdefault((queue_id, position), _Cut(queue_id, position, time_us, kept, how))
    return list(cuts.values())


def _end(places: Places, dequeues: RecordTables, removed: _Ends, cuts: list[_Cut]) -> Places:
    end_lsn, end_us, flags = _dequeued(places, dequeues)
    how = np.where(end_lsn < NEVER, np.uint8(DEQUEUED), np.uint8(0))
    message_end, message_us, by_delete, message_flags = removed.of(places.message_id)
    is_copy = (flags & Flag.MOVED) != 0  # of a missing Dequeue: only its time shows its order
    earlier = (message_end < end_lsn) & ~(is_copy & (end_us <= message_us))
    end_lsn = np.where(earlier, message_end, end_lsn)
    end_us = np.where(earlier, message_us, end_us)
    how = np.where(earlier, np.where(by_delete, np.uint8(DELETED), np.uint8(DEQUEUED)), how)
    flags = np.where(earlier, message_flags, flags)
    is_copy = (flags & Flag.MOVED) != 0
    for cut in cuts:
        taken = (places.queue_id == cut.queue_id) & (places.position < cut.position) & (end_lsn > cut.position)
        taken &= ~is_in(places.message_id, cut.kept) & ~(is_copy & (end_us < cut.time_us))
        is_copy &= ~taken
        end_lsn, end_us, how = (
            np.where(taken, new, old)
            for new, old in ((cut.position, end_lsn), (cut.time_us, end_us), (np.uint8(cut.how), how))
        )
    unknown = (end_lsn == NEVER) & (places.end_lsn == FORGOTTEN)
    end_lsn, how = np.where(unknown, FORGOTTEN, end_lsn), np.where(unknown, np.uint8(UNKNOWN), how)
    flags = np.where(how == DEQUEUED, flags, np.uint8(0))
    return places._replace(end_lsn=end_lsn, end_us=end_us, how=how, flags=flags)


def _dequeued(places: Places, dequeues: RecordTables) -> tuple[Longs, Longs, Bytes]:
    """The LSN, time and flags of the Dequeue that ended each place.

    A Dequeue names the record that it ends, which is the one that gave the place or a copy of it: of all that name one
    at or behind the position the nearest, and of these the first. Most messages have one place and one Dequeue.
    """
    many = len(places.position)
    found = np.full(many, NEVER)
    times, flags = np.zeros(many, np.int64), np.zeros(many, np.uint8)
    if not many or not len(dequeues.lsn):
        return found, times, flags
    if not is_ascending(dequeues.message_id):
        dequeues = dequeues.at(np.argsort(dequeues.message_id, kind="stable"))
    single = ~_repeated(places.message_id)
    taker = np.minimum(np.searchsorted(dequeues.message_id, places.message_id), len(dequeues.lsn) - 1)
    single &= ~_repeated(dequeues.message_id)[taker]
    fits = single & (dequeues.message_id[taker] == places.message_id)
    fits &= (dequeues.queue_id[taker] == places.queue_id) & (dequeues.extra[taker] >= places.position)
    taker = taker[fits]
    found[fits], times[fits], flags[fits] = dequeues.lsn[taker], dequeues.time_us[taker], dequeues.flags[taker]
    several = np.flatnonzero(~single)
    if len(several):
        some = Places._make(field[several] for field in places)
        ends = dequeues.where(is_in(dequeues.message_id, some.message_id))
        found[several], times[several], flags[several] = _dequeued_of_several(some, ends)
    return found, times, flags


def _repeated(ordered: Longs) -> Flags:
    """Return the mask of values that occur more than once."""
    same = np.zeros(len(ordered) + 1, bool)
    same[1:-1] = ordered[1:] == ordered[:-1]
    repeated: Flags = same[1:] | same[:-1]
    return repeated


def _dequeued_of_several(places: Places, dequeues: RecordTables) -> tuple[Longs, Longs, Bytes]:
    """The LSN, time and flags of the Dequeue that ended each place, of messages with any number of both."""
    many, count = len(places.position), len(dequeues.lsn)
    kinds = np.repeat(np.array([0, 1]), (many, count))
    message_ids = np.concatenate((places.message_id, dequeues.message_id))
    queue_ids = np.concatenate((places.queue_id, dequeues.queue_id))
    given = np.concatenate((places.position, dequeues.extra))
    lsns = np.concatenate((np.zeros(many, np.int64), dequeues.lsn))
    order = np.lexsort((lsns, kinds, given, queue_ids, message_ids))
    numbers = np.where(kinds[order] == 1, np.arange(len(order)), len(order))
    following = np.minimum.accumulate(numbers[::-1])[::-1]  # of each in this order the next Dequeue
    found = np.full(many, NEVER)
    times, flags = np.zeros(many, np.int64), np.zeros(many, np.uint8)
    is_place = kinds[order] == 0
    places_at, next_at = order[is_place], following[is_place]
    has = next_at < len(order)
    places_at, taker = places_at[has], order[next_at[has]]
    fits = (message_ids[taker] == message_ids[places_at]) & (queue_ids[taker] == queue_ids[places_at])
    places_at, taker = places_at[fits], taker[fits] - many
    found[places_at], times[places_at] = dequeues.lsn[taker], dequeues.time_us[taker]
    flags[places_at] = dequeues.flags[taker]
    return found, times, flags


STATES = ("staged", "in doubt", FATES[OPEN], "queued", "removed")
REASONS = (None, "discarded", "consumed", "queue deleted", "purged", "forgotten", FATES[ROLLED_BACK])
"""The reasons for which a message ended, by number."""
_STAGED, _IN_DOUBT, _OPEN, _QUEUED, _GONE = range(5)
_REASON_OF_HOW = np.array([1, 2, 1, 3, 4, 5], np.uint8)
_REASON_OF_FATE = np.array([0, 6, 0, 5], np.uint8)


class States(NamedTuple):
    """The state of each message in `Lifetimes`."""

    state: Bytes
    """A number of `STATES`."""
    reason: Bytes
    """A number of `REASONS`."""
    end_lsn: Longs
    """The end; `NEVER` for a current message, or if it is unknown."""
    end_us: Longs
    flags: Bytes
    """The flags of the Dequeue record that ended the message; 0 without one."""


def states_of(lifetimes: Lifetimes) -> States:
    """The state of each message."""
    messages, places, _ = lifetimes
    ids = messages.id
    whose = np.searchsorted(ids, places.message_id)
    count = len(ids)
    live = np.zeros(count, bool)
    live[whose[places.end_lsn == NEVER]] = True
    had = np.zeros(count, bool)
    had[whose] = True
    last_lsn, how = np.zeros(count, np.int64), np.zeros(count, np.uint8)
    last_us, flags = np.zeros(count, np.int64), np.zeros(count, np.uint8)
    ended = np.flatnonzero(places.end_lsn < NEVER)
    if len(whose) > count or not is_ascending(whose, strictly=True):  # of several places the one that ended last
        ended = ended[np.argsort(places.end_lsn[ended], kind="stable")]
    at = whose[ended]
    last_lsn[at], how[at] = places.end_lsn[ended], places.how[ended]
    last_us[at], flags[at] = places.end_us[ended], places.flags[ended]
    is_deleted = messages.end_lsn < NEVER
    state = np.where(messages.in_doubt, np.uint8(_IN_DOUBT), np.uint8(_STAGED))
    uncommitted = (messages.fate != 0) & ~had
    is_open = messages.fate == OPEN
    state[uncommitted] = np.where(is_open[uncommitted], _OPEN, _GONE)
    reason = np.where(uncommitted & ~is_open, _REASON_OF_FATE[messages.fate], np.uint8(0))
    state[live] = _QUEUED
    over = (had & ~live & ~messages.in_doubt) | (is_deleted & ~live)
    state[over] = _GONE
    how[messages.taken], flags = DEQUEUED, np.where(messages.taken, messages.flags, flags)
    by_place = (how > 0) & ~messages.taken  # else the record that ends the last place is the end
    reason[over] = _REASON_OF_HOW[how[over]]
    end_lsn = np.where(over, np.where(by_place, last_lsn, messages.end_lsn), NEVER)
    end_lsn[end_lsn == FORGOTTEN] = NEVER
    end_us = np.where(over, np.where(by_place, last_us, messages.end_us), 0)
    return States(state, reason, end_lsn, end_us, np.where(over, flags, np.uint8(0)))
