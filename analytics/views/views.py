"""The other views of a log: messages, transactions, queues, containers, as Arrow tables.

They are made of all records there are (`facts`, `lifetimes`), about 100 bytes of memory for each.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ...base.times import MOST_US
from ...journal.format.record import HEAD_BYTES, Flag, RecordType
from ...store.contract.dequeue_reason import REASON_BITS, DequeueReason
from ..lifetimes.lifetimes import FORGOTTEN, HOW, NEVER, REASONS, STATES, Lifetimes, Places, states_of
from ..lifetimes.outcomes import FATES, outcomes_of
from ..lifetimes.record_tables import RecordTables
from ..scan.files import Log, LogPiece
from ..scan.log_scan import scan_piece, scanner_of
from ..scan.number_sets import Longs, first_of_each, is_in, unique
from ..scan.scanner import Damaged, Scanner, no_payloads
from .records import TIME, Names, ReadOptions, reasons_of
from .records import times as times_of

PLACE = pa.struct([
    ("queue_id", pa.int64()), ("queue", pa.string()), ("position", pa.int64()), ("time", TIME),
    ("end_lsn", pa.int64()), ("end_time", TIME), ("end", pa.string()), ("dequeue_reason", pa.string()),
])  # fmt: skip
"""The stay of a message on a queue, and its start. `end` is the reason of its end, null before it; `end_lsn` and
`end_time` are also null if the log no longer has them."""
MESSAGES = pa.schema([
    ("message_id", pa.int64()), ("time", TIME), ("size", pa.int64()), ("pieces", pa.int32()),
    ("complete", pa.bool_()), ("start_lsn", pa.int64()), ("txn_id", pa.int64()), ("queue_id", pa.int64()),
    ("queue", pa.string()), ("places", pa.list_(PLACE)), ("recoveries", pa.int32()), ("state", pa.string()),
    ("end_lsn", pa.int64()), ("end_time", TIME), ("end_reason", pa.string()), ("dequeue_reason", pa.string()),
])  # fmt: skip
"""One row per message of which the log has a Start record.

message_id   the LSN of its first record; also when it arrived, in the order of the log
start_lsn    where its content stands now
queue        the first queue it was put on; `places` has all
recoveries   how often the log was opened while it lived: each time it was offered again with a raised delivery-count
state        queued, staged (on no queue yet), in doubt (a prepared transaction will enqueue it), open (its transaction
             is not decided yet), removed
end_reason   consumed, discarded (never on a queue), queue deleted, purged, rolled back; forgotten, if the log keeps
             only that it is over
dequeue_reason  of one that was consumed: accepted, rejected, delivery-limit, expired, moved, overflow, replaced; null
             if it was not recorded
"""
PLACES = pa.schema([
    ("message_id", pa.int64()), ("size", pa.int64()), ("txn_id", pa.int64()), *PLACE, ("recoveries", pa.int32()),
])  # fmt: skip
"""One row per stay of a message on a queue, as `places` in `MESSAGES` has them; size, txn_id and recoveries are of the
message."""
TRANSACTIONS = pa.schema([
    ("txn_id", pa.int64()), ("kind", pa.string()), ("xid", pa.binary()), ("time", TIME), ("enqueues", pa.int32()),
    ("dequeues", pa.int32()), ("size", pa.int64()), ("prepared_lsn", pa.int64()), ("prepared_time", TIME),
    ("end_lsn", pa.int64()), ("end_time", TIME), ("state", pa.string()), ("decided_by_hand", pa.bool_()),
])  # fmt: skip
"""One row per transaction with more than one operation.

kind     local or distributed, of a client; copy: the broker put a copy of a message elsewhere and took it off its queue
         (dead letter, expiry, move), or brought a federated queue up to date
state    committed, rolled back, prepared (in doubt), open; forgotten, if the log keeps no outcome because it is not
         needs it any more
"""
QUEUES = pa.schema([
    ("queue_id", pa.int64()), ("queue", pa.string()), ("depth", pa.int64()), ("size", pa.int64()),
    ("oldest_id", pa.int64()), ("oldest_time", TIME), ("enqueued", pa.int64()), ("dequeued", pa.int64()),
    ("purged", pa.int64()),
])  # fmt: skip
"""One row per queue in the wiring or the log: its content, and its past as far as the log has it."""
CONTAINERS = pa.schema([
    ("container", pa.int64()), ("file", pa.string()), ("archived", pa.bool_()), ("incarnation", pa.int32()),
    ("begun", TIME), ("first_lsn", pa.int64()), ("end_lsn", pa.int64()), ("blocks", pa.int64()),
    ("records", pa.int64()), ("moved", pa.int64()), ("starts", pa.int64()), ("enqueues", pa.int64()),
    ("dequeues", pa.int64()), ("payload_bytes", pa.int64()), ("first_time", TIME), ("last_time", TIME),
    ("damaged_blocks", pa.int32()), ("damaged_bytes", pa.int64()), ("reclaimed_before", pa.int64()),
])  # fmt: skip
"""One row per container: the LSN of its first byte, what it holds of the selected range, what of it can't be read.

reclaimed_before  the bytes directly before the container that were reclaimed, and are in no archive
"""
WIRING = pa.schema([
    ("kind", pa.string()), ("id", pa.int64()), ("name", pa.string()), ("type", pa.string()),
    ("exchange", pa.string()), ("queue", pa.string()), ("key", pa.string()), ("arguments", pa.string()),
])  # fmt: skip
"""kind: queue, going-queue (its destruction was begun), exchange, binding, config; arguments: JSON."""
_STATES, _REASONS, _HOW = (pa.array(some, pa.string()) for some in (STATES, REASONS, HOW))
Array = npt.NDArray[Any]


def nullable(values: Longs, missing: Any) -> pa.Array:
    return pa.array(values, mask=np.asarray(missing, bool))


def _times(values: Longs, missing: Any) -> pa.Array:
    return pc.if_else(pa.array(np.asarray(missing, bool)), None, times_of(values))


def messages(
    lifetimes: Lifetimes, names: Mapping[int, str], columns: Sequence[str] = tuple(MESSAGES.names)
) -> pa.Table:
    """The view `messages`; of its columns only these are made."""
    found, places, _ = lifetimes
    ids, count = found.id, len(found.id)
    state, reason, end_lsn, end_us, flags = states_of(lifetimes)
    has_end = end_lsn < NEVER
    offsets = np.searchsorted(places.message_id, np.append(ids, NEVER)).astype(np.int32)
    has = offsets[1:] > offsets[:-1]
    first = np.minimum(offsets[:-1], max(len(places.queue_id) - 1, 0))
    queue_ids = places.queue_id[first] if len(places.queue_id) else np.zeros(count, np.int64)
    make: dict[str, Callable[[], pa.Array]] = {
        "message_id": lambda: pa.array(ids),
        "time": lambda: times_of(found.time_us),
        "size": lambda: pa.array(found.size),
        "pieces": lambda: pa.array(found.pieces, pa.int32()),
        "complete": lambda: pa.array(found.complete),
        "start_lsn": lambda: pa.array(found.start_lsn),
        "txn_id": lambda: nullable(found.txn_id, found.txn_id == 0),
        "queue_id": lambda: nullable(queue_ids, ~has),
        "queue": lambda: Names(names).of(np.where(has, queue_ids, 0)),
        "places": lambda: pa.ListArray.from_arrays(pa.array(offsets), pa.StructArray.from_arrays(
            [column() for column in _stays(places, names).values()], fields=list(PLACE)
        )),
        "recoveries": lambda: pa.array(_recoveries(lifetimes, ids, end_lsn), pa.int32()),
        "state": lambda: _STATES.take(pa.array(state)),
        "end_lsn": lambda: nullable(end_lsn, ~has_end),
        "end_time": lambda: _times(end_us, ~has_end),
        "end_reason": lambda: _REASONS.take(pa.array(reason)),
        "dequeue_reason": lambda: reasons_of(flags),
    }  # fmt: skip
    return _table(make, MESSAGES, columns)


def places(lifetimes: Lifetimes, names: Mapping[int, str], columns: Sequence[str] = tuple(PLACES.names)) -> pa.Table:
    """The view `places`; of its columns only these are made."""
    found, of, _ = lifetimes
    whose = np.searchsorted(found.id, of.message_id)

    def recoveries() -> Longs:
        return _recoveries(lifetimes, found.id, states_of(lifetimes).end_lsn)

    make: dict[str, Callable[[], pa.Array]] = {
        "message_id": lambda: pa.array(of.message_id),
        "size": lambda: pa.array(found.size[whose]),
        "txn_id": lambda: nullable(found.txn_id[whose], found.txn_id[whose] == 0),
        **_stays(of, names),
        "recoveries": lambda: pa.array(recoveries()[whose], pa.int32()),
    }  # fmt: skip
    return _table(make, PLACES, columns)


def _table(make: Mapping[str, Callable[[], pa.Array]], schema: pa.Schema, columns: Sequence[str]) -> pa.Table:
    return pa.Table.from_arrays([make[name]() for name in columns], schema=pa.schema(map(schema.field, columns)))


def _recoveries(lifetimes: Lifetimes, ids: Longs, end_lsn: Longs) -> Longs:
    """The number of openings of the log during the lifetime of each message."""
    opened: Longs = np.searchsorted(lifetimes.opened, end_lsn) - np.searchsorted(lifetimes.opened, ids)
    return opened


def _stays(of: Places, names: Mapping[int, str]) -> dict[str, Callable[[], pa.Array]]:
    """The columns of `PLACE`."""
    unknown = (of.end_lsn == NEVER) | (of.end_lsn == FORGOTTEN)
    return {
        "queue_id": lambda: pa.array(of.queue_id),
        "queue": lambda: Names(names).of(of.queue_id),
        "position": lambda: pa.array(of.position),
        "time": lambda: times_of(of.time_us),
        "end_lsn": lambda: nullable(of.end_lsn, unknown),
        "end_time": lambda: _times(of.end_us, unknown),
        "end": lambda: _HOW.take(pa.array(of.how)),
        "dequeue_reason": lambda: reasons_of(of.flags),
    }


def transactions(facts: RecordTables, as_of: int = NEVER, names: Mapping[int, str] | None = None) -> pa.Table:
    """The view `transactions`, as of an LSN; *names*: of queues, to recognize those of the broker."""
    facts = facts.where(facts.lsn < as_of)
    outcomes = outcomes_of(facts, as_of)
    of = facts.where(facts.txn_id != 0)
    ids = unique(of.txn_id)
    count = len(ids)

    def first(kind: RecordType) -> tuple[Longs, Longs]:
        """The LSN and the time of the first record of that type, per transaction (0 without)."""
        some = of.of_type(kind)
        some = some.at(first_of_each(some.txn_id))
        lsns, times = np.zeros(count, np.int64), np.zeros(count, np.int64)
        at = np.searchsorted(ids, some.txn_id)
        lsns[at], times[at] = some.lsn, some.time_us
        return lsns, times

    whose = np.searchsorted(ids, of.txn_id)
    began = np.full(count, NEVER)
    np.minimum.at(began, whose, of.time_us)
    prepared, prepared_us = first(RecordType.TX_PREPARE)
    commit, commit_us = first(RecordType.TX_COMMIT)
    rollback, rollback_us = first(RecordType.TX_ROLLBACK)
    decided, _ = first(RecordType.TX_END)
    ends = of.of_type(RecordType.TX_END)
    for_commit = is_in(ids, ends.txn_id[ends.extra == 1])  # the outcome itself may be gone
    xids = {}
    for kind in (RecordType.TX_END, RecordType.DTX_START):
        some = of.of_type(kind)
        xids.update({txn: of.payloads[lsn] for txn, lsn in zip(some.txn_id.tolist(), some.lsn.tolist(), strict=True)})
    is_distributed = (prepared > 0) | (decided > 0) | is_in(ids, np.array(sorted(xids), np.int64))
    kinds = np.where(is_distributed, "distributed", "local").astype("U12")
    kinds[~is_distributed & _copies(of, ids, names or {})] = "copy"
    end = np.where(commit > 0, commit, rollback)
    state = np.array(FATES)[outcomes.fate_of(ids)].astype("U12")
    state[prepared > 0] = "prepared"
    state[state == ""] = "forgotten"  # the outcome is unknown
    state[(rollback > 0) | (decided > 0)] = "rolled back"
    state[(commit > 0) | for_commit] = "committed"
    arrays = [
        pa.array(ids), pa.array(kinds, pa.string()),
        pa.array([xids.get(txn) for txn in ids.tolist()], pa.binary()), times_of(began),
        *_operations(of, ids), nullable(prepared, prepared == 0), _times(prepared_us, prepared == 0),
        nullable(end, end == 0), _times(np.where(commit > 0, commit_us, rollback_us), end == 0),
        pa.array(state, pa.string()), pa.array(decided > 0),
    ]  # fmt: skip
    return pa.Table.from_arrays(arrays, schema=TRANSACTIONS)


_MOVING = [
    int(one)
    for one in (DequeueReason.REJECTED, DequeueReason.DELIVERY_LIMIT, DequeueReason.EXPIRED, DequeueReason.MOVED)
]
"""Dequeue reasons with which the broker puts a copy elsewhere in the same transaction."""


def _copies(of: RecordTables, ids: Longs, names: Mapping[int, str]) -> npt.NDArray[np.bool_]:
    """Return whether each transaction is the broker's own: it dequeues for such reasons only, and enqueues.

    So is one on the notes of a federated queue. Other notes that a broker keeps in queues of its own do not count.
    """
    notes = np.array([number for number, name in names.items() if name.startswith("$follows:")], np.int64)
    own = np.array([number for number, name in names.items() if name.startswith("$")], np.int64)
    federated = of.txn_id[np.isin(of.queue_id, notes)]
    of = of.where(~np.isin(of.queue_id, own))
    put = of.txn_id[(of.type == RecordType.START) & of.has(Flag.ENQUEUE) | (of.type == RecordType.ENQUEUE)]
    taken = of.of_type(RecordType.DEQUEUE)
    is_moving = np.isin(taken.flags & REASON_BITS, _MOVING)
    moving, other = unique(taken.txn_id[is_moving]), unique(taken.txn_id[~is_moving])
    found: npt.NDArray[np.bool_] = is_in(ids, moving) & is_in(ids, unique(put)) & ~is_in(ids, other)
    return found | is_in(ids, unique(federated))


def _operations(of: RecordTables, ids: Longs) -> list[pa.Array]:
    """The numbers of enqueues and dequeues, and the bytes of new content: each once, though a commit repeats them."""
    is_put = (of.type == RecordType.START) & of.has(Flag.ENQUEUE) | (of.type == RecordType.ENQUEUE)
    found = []
    for some in (of.where(is_put), of.where(of.type == RecordType.DEQUEUE)):
        some = some.at(first_of_each(some.txn_id, some.message_id, some.queue_id))
        found.append(pa.array(np.bincount(np.searchsorted(ids, some.txn_id), minlength=len(ids)), pa.int32()))
    starts = of.of_type(RecordType.START)
    size = np.zeros(len(ids), np.int64)
    np.add.at(size, np.searchsorted(ids, starts.txn_id), starts.size)
    return [*found, pa.array(size)]


def queues(lifetimes: Lifetimes, names: Mapping[int, str]) -> pa.Table:
    """The view `queues`."""
    places, found = lifetimes.places, lifetimes.messages
    ids = unique(np.r_[unique(places.queue_id), np.array(sorted(names), np.int64)])
    whose = np.searchsorted(ids, places.queue_id)
    live = places.end_lsn == NEVER
    size, oldest, oldest_us = np.zeros(len(ids), np.int64), np.full(len(ids), NEVER), np.zeros(len(ids), np.int64)
    np.add.at(size, whose[live], found.size[np.searchsorted(found.id, places.message_id[live])])
    order = np.argsort(places.position[live], kind="stable")[::-1]  # the first one is written last
    oldest[whose[live][order]] = places.message_id[live][order]
    oldest_us[whose[live][order]] = places.time_us[live][order]

    def count(chosen: Array) -> pa.Array:
        return pa.array(np.bincount(whose[chosen], minlength=len(ids)))

    none = oldest == NEVER
    arrays = [
        pa.array(ids), Names(names).of(ids), count(live), pa.array(size), nullable(oldest, none),
        _times(oldest_us, none), count(live | ~live), count((places.how == 1) | (places.how == 2)),
        count(places.how > 2),
    ]  # fmt: skip
    return pa.Table.from_arrays(arrays, schema=QUEUES)


def containers(log: Log, pieces: tuple[LogPiece, ...], reading: ReadOptions) -> pa.Table:
    """The view `containers`."""
    scanner = scanner_of(log, reading, no_payloads)
    reclaimed = {gap.end_lsn: gap.end_lsn - gap.first_lsn for gap in log.gaps if gap.is_reclaimed}
    rows = [
        {**_container(log, piece, reading, scanner), "reclaimed_before": reclaimed.get(piece.slot_lsn, 0)}
        for piece in pieces
    ]  # fmt: skip
    return pa.Table.from_pylist(rows, schema=CONTAINERS)


def _container(log: Log, piece: LogPiece, reading: ReadOptions, scanner: Scanner) -> dict[str, Any]:
    row: dict[str, Any] = dict.fromkeys(
        ("blocks", "records", "moved", "starts", "enqueues", "dequeues", "payload_bytes", "damaged_blocks",
         "damaged_bytes"), 0,
    )  # fmt: skip
    times: list[tuple[int, int]] = []
    first_lsn = end_lsn = None
    for found in scan_piece(log, piece, reading, scanner):
        if isinstance(found, Damaged):
            row["damaged_blocks"] += 1
            row["damaged_bytes"] += found.end_lsn - found.first_lsn
            continue
        chosen = reading.selection.chosen(found)
        table = found.heads if chosen is None else found.heads[chosen]
        kinds, flags = table["type"], table["flags"]
        blocks = found.blocks if chosen is None else unique(found.of_blocks(chosen, found.blocks))
        row["blocks"] += len(blocks)
        row["records"] += len(table)
        row["moved"] += int(np.count_nonzero(flags & Flag.MOVED))
        row["starts"] += int(np.count_nonzero(kinds == RecordType.START))
        puts = (kinds == RecordType.ENQUEUE) | ((kinds == RecordType.START) & ((flags & Flag.ENQUEUE) != 0))
        row["enqueues"] += int(np.count_nonzero(puts))
        row["dequeues"] += int(np.count_nonzero(kinds == RecordType.DEQUEUE))
        row["payload_bytes"] += int(table["size"].sum(dtype=np.int64))
        if len(table):
            times.append((int(table["time_us"].min()), int(table["time_us"].max())))
        if len(blocks):
            first_lsn = int(blocks[0]) if first_lsn is None else first_lsn
            end_lsn = found.end_lsn if chosen is None else int(found.lsns[chosen[-1]]) + HEAD_BYTES
    row |= {
        "container": piece.slot_lsn, "file": piece.path.rpartition("/")[2], "archived": piece.is_archived,
        "incarnation": piece.incarnation, "begun": _in_calendar(piece.begun_us or None),
        "first_lsn": first_lsn, "end_lsn": end_lsn,
        "first_time": _in_calendar(min((low for low, _ in times), default=None)),
        "last_time": _in_calendar(max((high for _, high in times), default=None)),
    }  # fmt: skip
    return row


def _in_calendar(time_us: int | None) -> int | None:
    return None if time_us is None or time_us > MOST_US else time_us
