"""The view `records`: one row per record of the log, as Arrow batches.

column          Arrow type        meaning
lsn             int64             the position of the record
container       int64             the LSN of its container's first byte
block           int64             the LSN of its block
incarnation     int32             how many times the log had been opened for writing
type            string            as in docs/reference/format.md: start, chunk, delete, enqueue, dequeue, tx-start, ...
flags           int32             1 enqueue, 2 delete, 4 more, 8 moved, 16 prepared
dequeue_reason  string            the dequeue reason: accepted, rejected, expired, ...; null if it was not recorded
moved           bool              it was copied forward by compaction; an equal record existed before
message_id      int64             the LSN of the message's first record
txn_id          int64             the LSN of the transaction's first record
queue_id        int64
queue           string            the queue's name; $queue-ID where the wiring does not know it (any more)
time            timestamp[us]     when it was appended, UTC
size            int32             of the payload, in bytes
undo_prev       int64             the record it continues; for a moved one its original
extra           int64             depends on the type
crc_ok          bool              the block's checksum is right; null if it was not looked at
damaged_blocks  int32             how many stretches of its container can't be read, and were left out; of a container
                                  that has more than 256 MiB of what is read, up to there
payload         binary            only on request

Fields that a record does not have (0 in its head) are null.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ...base.errors import CairnError
from ...base.times import LEAST_US, MOST_US
from ...journal.format.record import TABLE, Flag, RecordType, type_name
from ...store.contract.dequeue_reason import DequeueReason
from ...store.contract.layout import unnamed_queue
from ..scan.files import Log, LogPiece
from ..scan.log_scan import ScanOptions, scan_piece, scanner_of
from ..scan.number_sets import Longs
from ..scan.scanner import Damaged, Window, all_payloads, no_payloads
from ..scan.selection import Selection

TIME = pa.timestamp("us", "UTC")
SCHEMA = pa.schema([
    ("lsn", pa.int64()), ("container", pa.int64()), ("block", pa.int64()), ("incarnation", pa.int32()),
    ("type", pa.string()), ("flags", pa.int32()), ("dequeue_reason", pa.string()), ("moved", pa.bool_()),
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
_ROOM_ROWS = 8 << 10
_ROOM_BYTES = 1 << 20
"""The first batch has room for so many rows and bytes of payloads at first; it doubles, and stays."""
_OF_HEAD = {
    "type": "type", "flags": "flags", "dequeue_reason": "flags", "moved": "flags", "message_id": "message_id",
    "txn_id": "txn_id",
    "queue_id": "queue_id", "queue": "queue_id", "time": "time_us", "size": "size", "undo_prev": "undo_prev",
    "extra": "extra",
}  # fmt: skip
"""The field of a record head from which a column is made."""
_BESIDE: dict[str, np.dtype[Any]] = {
    "lsn": np.dtype(np.int64), "container": np.dtype(np.int64), "block": np.dtype(np.int64),
    "incarnation": np.dtype(np.int32), "damaged_blocks": np.dtype(np.int32), "payload": np.dtype(np.int32),
}  # fmt: skip
"""Columns that are made of something else; of payloads the sizes are kept."""
_NULLABLE = {"message_id", "txn_id", "queue_id", "undo_prev", "extra"}
Array = npt.NDArray[Any]


@dataclass(frozen=True)
class ReadOptions(ScanOptions):
    """Selection and columns of a read, and its handling of damage."""

    columns: tuple[str, ...] = DEFAULT
    selection: Selection = Selection()
    copies: str = "all"
    """Selects copies made by compaction: "all" records, "none", or those with "new" content (see `seen`)."""
    seen: tuple[tuple[int, int], ...] = ()
    """Ranges of LSNs that are read, too, or were before: copies of their records are not new."""

    def __post_init__(self) -> None:
        check_columns(self.columns, SCHEMA)


def check_columns(names: Sequence[str], schema: pa.Schema) -> None:
    """Raises `CairnError` for a column that a view does not have, or that is named twice."""
    for name in names:
        if name not in schema.names:
            raise CairnError(f"column {name!r}", "unknown column", f"one of {', '.join(schema.names)}")
    if len(set(names)) != len(names):
        raise CairnError("columns", f"{next(n for n in names if names.count(n) > 1)!r} is named twice", "leave out one")
    if not names:
        raise CairnError("columns", "none is named", "name one at least")


def read_records(
    log: Log, pieces: Iterable[LogPiece], reading: ReadOptions, queue_names: Mapping[int, str] | None = None
) -> Iterator[pa.RecordBatch]:
    """The records in *pieces* of *log* that *reading* selects, in order."""
    batch = _Batch(reading, queue_names or {})
    copies = None if reading.copies == "all" else _Copies(reading)
    scanner = scanner_of(log, reading, all_payloads if "payload" in reading.columns else no_payloads)
    for piece in pieces:
        found = scan_piece(log, piece, reading, scanner)
        yield from batch.add_piece(found, piece.slot_lsn, copies)
    yield from batch.rest()


ENDS = tuple(type_name(number) for number in range(256) if number in (3, 5) or number >= 16)
"""Types of records that end others; copies of these do not name their originals."""


class _Copies:
    """Selects the copies with new content."""

    def __init__(self, reading: ReadOptions) -> None:
        self._none = reading.copies == "none"
        self._bounds = np.array([bound for run in sorted(reading.seen) for bound in run], np.uint64)

    def without(self, window: Window, chosen: Longs | None) -> Longs | None:
        """The *chosen* records (None: all) without those that are nothing new."""
        heads = window.heads if chosen is None else window.heads[chosen]
        moved = (heads["flags"] & Flag.MOVED) != 0
        if not moved.any():
            return chosen
        if not self._none:
            seen = np.searchsorted(self._bounds, heads["undo_prev"], "right") % 2 == 1
            kinds = heads["type"]
            moved &= seen & (kinds != 3) & (kinds != 5) & (kinds < 16)  # as in `ENDS`
        rest = np.flatnonzero(~moved)
        return rest if chosen is None else chosen[rest]


class _Batch:
    """Gathers what windows hold into batches.

    Fields are copied out of the heads once, into arrays that have room for a batch: memory that is touched for the
    first time costs more than the copying.
    """

    def __init__(self, reading: ReadOptions, queue_names: Mapping[int, str]) -> None:
        self._reading = reading
        self._schema = pa.schema([SCHEMA.field(name) for name in reading.columns])
        of_head = {_OF_HEAD[name] for name in reading.columns if name in _OF_HEAD}
        if "dequeue_reason" in reading.columns:
            of_head.add("type")
        self._of_head: dict[str, np.dtype[Any]] = {name: TABLE[name] for name in sorted(of_head)}
        beside = {name: kind for name, kind in _BESIDE.items() if name in reading.columns}
        self._kinds: dict[str, np.dtype[Any]] = self._of_head | beside
        self._wants = set(reading.columns)
        self._names = Names(queue_names)
        self._room, self._content_room = _ROOM_ROWS, _ROOM_BYTES
        self._columns: dict[str, Array] = {}
        self._content = np.empty(0, np.uint8)
        self._rows = 0
        self._bytes = 0

    def add_piece(
        self, found: Iterable[Window | Damaged], container: int, copies: _Copies | None
    ) -> Iterator[pa.RecordBatch]:
        """Take in what a piece holds."""
        first, damaged = self._rows, 0
        for one in found:
            if isinstance(one, Damaged):
                damaged += 1
                continue
            chosen = self._reading.selection.chosen(one)
            if copies is not None:
                chosen = copies.without(one, chosen)
            self._add(one, chosen, container)
            if self._rows >= _MOST_ROWS or self._bytes >= _MOST_BYTES:
                self._count_damage(first, damaged)
                yield from self.rest()
                first = 0
        self._count_damage(first, damaged)
        if self._rows >= _BATCH_ROWS or self._bytes >= _BATCH_BYTES:
            yield from self.rest()

    def _count_damage(self, first: int, damaged: int) -> None:
        """Note what is known of a container's damage in all that was gathered of it."""
        if "damaged_blocks" in self._columns:
            self._columns["damaged_blocks"][first : self._rows] = damaged

    def rest(self) -> Iterator[pa.RecordBatch]:
        """Yields the gathered rows as batches."""
        if self._rows:
            yield self._made()
            self._columns, self._content, self._rows, self._bytes = {}, np.empty(0, np.uint8), 0, 0

    def _add(self, window: Window, chosen: Longs | None, container: int) -> None:
        heads = window.heads if chosen is None else window.heads[chosen]
        begin, end = self._rows, self._rows + len(heads)
        if begin == end:
            return
        if end > self._room or not self._columns:
            self._make_room(end)
        columns = self._columns
        for name in self._of_head:
            columns[name][begin:end] = heads[name]
        if "lsn" in columns:
            columns["lsn"][begin:end] = window.lsns if chosen is None else window.lsns[chosen]
        if "container" in columns:
            columns["container"][begin:end] = container
        if "block" in columns:
            columns["block"][begin:end] = window.of_blocks(chosen, window.blocks)
        if "incarnation" in columns:
            columns["incarnation"][begin:end] = window.of_blocks(chosen, window.incarnations)
        if "payload" in self._wants:
            sizes, runs = window.payload_runs(chosen)
            columns["payload"][begin:end] = sizes
            for run in runs:
                self._take_in(run)
        self._rows = end

    def _make_room(self, rows: int) -> None:
        """Have room for so many rows."""
        while self._room < rows:
            self._room *= 2
        before, self._columns = self._columns, {name: np.empty(self._room, kind) for name, kind in self._kinds.items()}
        for name, values in before.items():
            self._columns[name][: self._rows] = values[: self._rows]

    def _take_in(self, payloads: Array) -> None:
        """Put them behind those that are there."""
        begin, end = self._bytes, self._bytes + len(payloads)
        if end > len(self._content):
            while self._content_room < end:
                self._content_room *= 2
            content = np.empty(self._content_room, np.uint8)
            content[:begin] = self._content[:begin]
            self._content = content
        self._content[begin:end] = payloads
        self._bytes = end

    def _made(self) -> pa.RecordBatch:
        rows = self._rows
        if rows * 2 < self._room:  # it may be kept for long
            self._columns = {name: values[:rows].copy() for name, values in self._columns.items()}
        gathered = {name: values[:rows] for name, values in self._columns.items()}
        arrays = [self._column(name, gathered) for name in self._schema.names]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def _column(self, name: str, gathered: Mapping[str, Array]) -> pa.Array:
        if name == "payload":
            offsets = np.zeros(self._rows + 1, np.int32)
            np.cumsum(gathered["payload"], out=offsets[1:])
            content = self._content[: self._bytes]
            if self._bytes * 2 < len(self._content):
                content = content.copy()
            return pa.BinaryArray.from_buffers(
                pa.binary(), self._rows, [None, pa.py_buffer(offsets), pa.py_buffer(content)]
            )
        if name == "crc_ok":
            return pa.nulls(self._rows, pa.bool_()) if not self._reading.verify else pa.array(np.ones(self._rows, bool))
        if name == "dequeue_reason":
            return reasons_of(np.where(gathered["type"] == RecordType.DEQUEUE, gathered["flags"], 0))
        values = gathered[_OF_HEAD.get(name, name)]
        make = _MAKE.get(name)
        if make is not None:
            return make(values)
        if name == "queue":
            return self._names.of(values.view(np.int64))
        if name in _NULLABLE:
            missing = values == 0
            return pa.array(values.view(np.int64), mask=missing if missing.any() else None)
        return pa.array(values.astype(SCHEMA.field(name).type.to_pandas_dtype(), copy=False))


class Names:
    """Names by number."""

    def __init__(self, names: Mapping[int, str]) -> None:
        self._ids = np.array(sorted(names), np.int64)
        self._names = pa.array([names[number] for number in self._ids.tolist()], pa.string())

    def of(self, ids: Longs) -> pa.Array:
        """The name of each; `$queue-ID` for one that has none, null for no queue (0)."""
        known = np.zeros(len(ids), bool)
        at = np.zeros(len(ids), np.int64)
        if len(self._ids):
            at = np.minimum(np.searchsorted(self._ids, ids), len(self._ids) - 1)
            known = self._ids[at] == ids
        unnamed = np.unique(ids[~known & (ids != 0)])
        if not len(unnamed):
            return self._names.take(pa.array(at, mask=~known))
        names = pa.concat_arrays([self._names, pa.array([unnamed_queue(int(one)) for one in unnamed], pa.string())])
        at = np.where(known, at, len(self._ids) + np.searchsorted(unnamed, ids))
        return names.take(pa.array(at, mask=ids == 0))


_TYPE_NAMES = pa.array([type_name(number) for number in range(256)])


def names_of_types(values: Array) -> pa.Array:
    return _TYPE_NAMES.take(pa.array(values))


def reasons_of(flags: Array) -> pa.Array:
    """The dequeue reasons in the flags of Dequeue records; null for none."""
    return _WHYS.take(pa.array(flags.astype(np.int64) >> 5 & 7))


_WHYS = pa.array([reason.words if reason else None for reason in DequeueReason], pa.string())


def times(values: Array) -> pa.Array:
    """Microseconds since 1970; null for what no calendar has."""
    found = values.view(np.int64)
    return pa.array(found, mask=(found < LEAST_US) | (found > MOST_US)).view(TIME)


_MAKE: dict[str, Callable[[Array], pa.Array]] = {
    "type": names_of_types,
    "time": times,
    "moved": lambda values: pa.array((values & Flag.MOVED) != 0),
}
