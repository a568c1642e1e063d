"""The view `records`: one row per record of the log, as Arrow batches.

column          Arrow type        meaning
lsn             int64             where the record stands
container       int64             the LSN of its container's first byte
block           int64             the LSN of its block
incarnation     int32             how many times the log had been opened for writing
type            string            as in docs/FORMAT.md: start, chunk, delete, enqueue, dequeue, tx-start, ...
flags           int32             1 enqueue, 2 delete, 4 more, 8 moved, 16 prepared
why             string            of a dequeue why: accepted, rejected, expired, ...; null if it was not recorded
moved           bool              it was copied forward by relocation: another record said the same before
message_id      int64             the LSN of the message's first record
txn_id          int64             the LSN of the transaction's first record
queue_id        int64
queue           string            the queue's name, where the wiring knows it
time            timestamp[us]     when it was appended, UTC
size            int32             of the payload, in bytes
undo_prev       int64             the record it continues; of a moved one the record that it was copied from
extra           int64             depends on the type
crc_ok          bool              the block's checksum is right; null if it was not looked at
damaged_blocks  int32             how many stretches of its container can't be read, and were left out; of a container
                                  that has more than 256 MiB of what is read, up to there
payload         binary            only on request

What a record does not have (0 in its head) is null.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ..base.errors import CairnError, CorruptJournal
from ..journal.record import Flag, RecordType, type_name
from ..store.why import Why
from .files import Log, Piece, find_again
from .scanning import Damaged, Longs, Reclaimed, Scanner, Window
from .selection import Selection

TIME = pa.timestamp("us", "UTC")
SCHEMA = pa.schema([
    ("lsn", pa.int64()), ("container", pa.int64()), ("block", pa.int64()), ("incarnation", pa.int32()),
    ("type", pa.string()), ("flags", pa.int32()), ("why", pa.string()), ("moved", pa.bool_()),
    ("message_id", pa.int64()), ("txn_id", pa.int64()), ("queue_id", pa.int64()), ("queue", pa.string()),
    ("time", TIME), ("size", pa.int32()), ("undo_prev", pa.int64()), ("extra", pa.int64()), ("crc_ok", pa.bool_()),
    ("damaged_blocks", pa.int32()), ("payload", pa.binary()),
])  # fmt: skip
"""All columns."""
DEFAULT = tuple(name for name in SCHEMA.names if name != "payload")
_BATCH_ROWS = 1 << 16
_BATCH_BYTES = 8 << 20
"""A batch is closed at the end of a container when it has so many rows, or so many bytes of payloads;"""
_MOST_ROWS = 4 << 20
_MOST_BYTES = 256 << 20
"""with so many within one, too: what Arrow counts in a batch has 31 bits."""
_OF_HEAD = {
    "type": "type", "flags": "flags", "why": "flags", "moved": "flags", "message_id": "message_id", "txn_id": "txn_id",
    "queue_id": "queue_id", "queue": "queue_id", "time": "time_us", "size": "size", "undo_prev": "undo_prev",
    "extra": "extra",
}  # fmt: skip
"""Which field of a record head a column is made of."""
_NULLABLE = {"message_id", "txn_id", "queue_id", "undo_prev", "extra"}
Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Reading:
    """How records are read."""

    columns: tuple[str, ...] = DEFAULT
    selection: Selection = Selection()
    verify: bool = False
    """Check the checksum of each block."""
    permissive: bool = False
    """Leave out what can't be read, and count it; else `CorruptJournal` is raised."""
    copies: str = "all"
    """Of what relocation copied forward: "all" records, "none", or those that say something "new" (see `seen`)."""
    seen: tuple[tuple[int, int], ...] = ()
    """Ranges of LSNs that are read, too, or were before: copies of what stands there are nothing new."""
    lose: bool = False
    """Leave out what is reclaimed while it is read; else `Reclaimed` is raised."""

    def __post_init__(self) -> None:
        check_columns(self.columns, SCHEMA)


def check_columns(names: Sequence[str], schema: pa.Schema) -> None:
    """Raises `CairnError` for a column that a view does not have, or that is named twice."""
    for name in names:
        if name not in schema.names:
            raise CairnError(f"column {name!r}", "there is no such column", f"one of {', '.join(schema.names)}")
    if len(set(names)) != len(names):
        raise CairnError("columns", f"{next(n for n in names if names.count(n) > 1)!r} is named twice")
    if not names:
        raise CairnError("columns", "none is named", "name one at least")


def schema_of(columns: Sequence[str]) -> pa.Schema:
    return pa.schema([SCHEMA.field(name) for name in columns])


def read_records(
    log: Log, pieces: Iterable[Piece], reading: Reading, queue_names: Mapping[int, str] | None = None
) -> Iterator[pa.RecordBatch]:
    """The records in *pieces* of *log* that *reading* selects, in order."""
    batch = _Batch(reading, queue_names or {})
    copies = None if reading.copies == "all" else _Copies(reading)
    for piece in pieces:
        found = scan_piece(log, piece, reading, heads_only="payload" not in reading.columns)
        yield from batch.add_piece(found, piece.slot_lsn, copies)
    yield from batch.rest()


def scan_piece(log: Log, piece: Piece, reading: Reading, *, heads_only: bool = False) -> Iterator[Window | Damaged]:
    """*piece* scanned, wherever its container is by now. *heads_only*: payloads may be missing from the windows."""
    scanner = Scanner(log.container_bytes, log.log_id, verify=reading.verify, heads_only=heads_only)
    at = 0
    for _ in range(3):
        try:
            for found in scanner.scan(piece, at):
                if isinstance(found, Damaged) and not reading.permissive:
                    raise CorruptJournal(
                        found.path, f"LSN {found.first_lsn} to {found.end_lsn} can't be read ({found.why})",
                        "read it with mode=PERMISSIVE to leave that out; `cairnmq dump` shows what is whole",
                        found.first_lsn, found.end_lsn,
                    )  # fmt: skip
                yield found
                at = found.end_lsn
            return
        except Reclaimed as error:
            again = find_again(log, piece.slot_lsn)
            if again is None:
                if reading.lose:
                    return
                raise Reclaimed(piece.path, error.lsn) from error
            last = piece.last_lsn or again.last_lsn
            piece = Piece(**{**vars(again), "last_lsn": last, "end_lsn": piece.end_lsn, "reach_lsn": piece.reach_lsn})
    raise Reclaimed(piece.path, at or piece.slot_lsn)


ENDS = tuple(type_name(number) for number in range(256) if number in (3, 5) or number >= 16)
"""Types of records that say that something is over; copies of these do not tell what they were copied from."""


class _Copies:
    """Which copies say something new."""

    def __init__(self, reading: Reading) -> None:
        self._none = reading.copies == "none"
        self._bounds = np.array([bound for run in sorted(reading.seen) for bound in run], np.uint64)

    def without(self, table: Array, rows: Longs) -> Longs:
        """*rows* without those that are nothing new."""
        moved = (table["flags"][rows] & Flag.MOVED) != 0
        if not moved.any():
            return rows
        if self._none:
            rest: Longs = rows[~moved]
            return rest
        seen = np.searchsorted(self._bounds, table["undo_prev"][rows], "right") % 2 == 1
        kinds = table["type"][rows]
        seen &= (kinds != 3) & (kinds != 5) & (kinds < 16)  # as in `ENDS`
        new: Longs = rows[~(moved & seen)]
        return new


class _Batch:
    """Gathers what windows hold into batches."""

    def __init__(self, reading: Reading, queue_names: Mapping[int, str]) -> None:
        self._reading = reading
        self._schema = schema_of(reading.columns)
        of_head = [name for name in reading.columns if name in _OF_HEAD]
        self._fields = sorted({_OF_HEAD[name] for name in [*of_head, *(("type",) if "why" in of_head else ())]})
        self._wants = set(reading.columns)
        self._names = Names(queue_names)
        self._parts: list[dict[str, Array]] = []
        self._payloads: list[pa.Array] = []
        self._rows = 0
        self._bytes = 0

    def add_piece(
        self, found: Iterable[Window | Damaged], container: int, copies: _Copies | None
    ) -> Iterator[pa.RecordBatch]:
        """Take in what a piece holds."""
        first, damaged = len(self._parts), 0
        for one in found:
            if isinstance(one, Damaged):
                damaged += 1
                continue
            rows = self._reading.selection.rows(one.table, one.rows, one.lsn)
            if copies is not None:
                rows = copies.without(one.table, rows)
            if len(rows):
                self._add(one, rows, container)
            if self._rows >= _MOST_ROWS or self._bytes >= _MOST_BYTES:
                self._count_damage(first, damaged)
                yield from self.rest()
                first = 0
        self._count_damage(first, damaged)
        if self._rows >= _BATCH_ROWS or self._bytes >= _BATCH_BYTES:
            yield from self.rest()

    def _count_damage(self, first: int, damaged: int) -> None:
        """Note what is known of a container's damage in all that was gathered of it."""
        if "damaged_blocks" in self._wants:
            for part in self._parts[first:]:
                part["damaged_blocks"] = np.full(part["count"][0], damaged, np.int32)

    def rest(self) -> Iterator[pa.RecordBatch]:
        """What was gathered, as batches."""
        if self._rows:
            yield self._made()
            self._parts, self._payloads, self._rows, self._bytes = [], [], 0, 0

    def _add(self, window: Window, rows: Array, container: int) -> None:
        table, count = window.table, len(rows)
        part: dict[str, Array] = {field: table[field][rows] for field in self._fields}
        part["count"] = np.array([count])
        wants = self._wants
        if "lsn" in wants:
            part["lsn"] = rows * table.itemsize + window.lsn
        if "container" in wants:
            part["container"] = np.full(count, container, np.int64)
        if "block" in wants:
            part["block"] = window.of_blocks(rows, window.blocks)
        if "incarnation" in wants:
            part["incarnation"] = window.of_blocks(rows, window.incarnations).astype(np.int32)
        if "payload" in wants:
            payloads = window.payloads(rows)
            self._payloads.append(payloads)
            self._bytes += payloads.nbytes
        self._parts.append(part)
        self._rows += count

    def _made(self) -> pa.RecordBatch:
        parts = self._parts
        joined: dict[str, Array] = {
            name: parts[0][name] if len(parts) == 1 else np.concatenate([part[name] for part in parts])
            for name in parts[0]
            if name != "count"
        }
        arrays = [self._column(name, joined) for name in self._schema.names]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def _column(self, name: str, joined: Mapping[str, Array]) -> pa.Array:
        if name == "payload":
            return pa.concat_arrays(self._payloads)
        if name == "crc_ok":
            return pa.nulls(self._rows, pa.bool_()) if not self._reading.verify else pa.array(np.ones(self._rows, bool))
        if name == "why":
            return whys(np.where(joined["type"] == RecordType.DEQUEUE, joined["flags"], 0))
        values = joined[_OF_HEAD.get(name, name)]
        make = _MAKE.get(name)
        if make is not None:
            return make(values)
        if name == "queue":
            return self._names.of(values)
        if name in _NULLABLE:
            return pa.array(values.view(np.int64), mask=values == 0)
        return pa.array(values.astype(SCHEMA.field(name).type.to_pandas_dtype(), copy=False))


class Names:
    """Names by number."""

    def __init__(self, names: Mapping[int, str]) -> None:
        self._ids = np.array(sorted(names), np.uint64)
        self._names = pa.array([names[int(number)] for number in self._ids], pa.string())

    def of(self, ids: Array) -> pa.Array:
        """The name of each; null for one that has none."""
        if not len(self._ids):
            return pa.nulls(len(ids), pa.string())
        at = np.minimum(np.searchsorted(self._ids, ids), len(self._ids) - 1)
        return self._names.take(pa.array(at, mask=self._ids[at] != ids))


_TYPE_NAMES = pa.array([type_name(number) for number in range(256)])


def names_of_types(values: Array) -> pa.Array:
    return _TYPE_NAMES.take(pa.array(values))


def whys(flags: Array) -> pa.Array:
    """What the flags of Dequeue records say of why; null for nothing."""
    return _WHYS.take(pa.array(flags.astype(np.int64) >> 5 & 7))


_WHYS = pa.array([why.words if why else None for why in Why], pa.string())


def times(values: Array) -> pa.Array:
    """Microseconds since 1970."""
    return pa.array(values.view(np.int64)).view(TIME)


_MAKE: dict[str, Callable[[Array], pa.Array]] = {
    "type": names_of_types,
    "time": times,
    "moved": lambda values: pa.array((values & Flag.MOVED) != 0),
}
