"""A sidecar: the record heads of some sealed containers as one Parquet file, with a summary of each container.

A container is *sealed* when the log continues after it: its content never changes again. Its sidecar is made from
blocks with valid checksums, so readers need not read the container. The file is named after the first and last LSN and
its checksum, and is first written under a temporary name. A sidecar of several containers is synced before it gets its
final name. One of a single container may be incomplete after a power cut; the next making of sidecars removes it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from crc32c import crc32c
from msgspec import Struct

from ...base.disk.real import RealDirectory, disk_error
from ...base.errors import CairnError
from ...base.private_files import make_private_directories, open_private
from ...base.typed_json import JsonFormat, decode_json
from ..scan.files import LogPiece, in_runs
from ..views.journal import Journal
from ..views.records import SCHEMA as RECORDS
from ..views.records import ReadOptions

COLUMNS = tuple(name for name in RECORDS.names if name not in ("queue", "crc_ok", "payload"))
"""The columns of the view `records`, except the name of a queue, which may change, and the check of checksums."""
SCHEMA = pa.schema([RECORDS.field(name) for name in COLUMNS])
SUFFIX = ".heads.parquet"
HALF = ".half"
"""The suffix of a file that is being written."""
HELD = "_held"
"""A directory, passed by where Parquet is looked for, in which each sidecar has a second name: who planned to read one
finds it there for a while after it became part of a longer one."""
_FORMAT = 2
_KEY = b"cairnmq.sidecar"
_DICTIONARY = ["type", "dequeue_reason"]
_DELTA = [field.name for field in SCHEMA if field.type in (pa.int64(), pa.int32()) or field.name == "time"]
_GROUP_ROWS = 1 << 20


class Torn(CairnError):
    """A file with the name of a sidecar that is invalid or incomplete."""


@dataclass(frozen=True)
class Summary:
    """A summary of one container, available without reading the container."""

    container: int
    """The LSN of its first byte."""
    incarnation: int
    """The number of times that the log had been opened when the container was begun."""
    last_lsn: int
    """The last valid block. With `container` and `incarnation` it identifies the container."""
    first_lsn: int
    end_lsn: int
    """The LSN of the first record, and the LSN behind the last one."""
    records: int
    moved: int
    """The number of `records` that compaction copied forward."""
    payload_bytes: int
    first_us: int
    last_us: int
    first_message_id: int
    last_message_id: int
    damaged_blocks: int
    types: dict[str, int]
    """The number of records of each type."""
    queues: dict[str, tuple[int, int]]
    """Queue id (JSON has no numbers there) to how many records put a message there, and how many took one off; copies
    left out. Whether a transaction came to anything is not looked at."""


@dataclass(frozen=True)
class Sidecar:
    """A file."""

    path: str
    log_uuid: str
    container_bytes: int
    summaries: tuple[Summary, ...]
    """The summaries of its containers in the order of LSNs."""
    size_bytes: int

    @property
    def first_lsn(self) -> int:
        return self.summaries[0].container

    @property
    def end_lsn(self) -> int:
        return self.summaries[-1].container + self.container_bytes


def make(journal: Journal, pieces: Sequence[LogPiece], directory: str) -> Sidecar:
    """Make the sidecar of the sealed containers *pieces*, which follow one another.

    That of one alone is not synced: the broker beside syncs the same disk, and both would wait. Raises `Reclaimed` if
    one of them is used again already, and `DiskError`.
    """
    reading = ReadOptions(COLUMNS, verify=True, permissive=True)
    batches = journal.records(reading, list(COLUMNS), pieces=tuple(pieces))
    complete = pa.Table.from_batches(batches, SCHEMA).combine_chunks()
    log, containers = journal.log, complete["container"].to_numpy()
    summaries = []
    for piece in pieces:
        first, end = np.searchsorted(containers, (piece.slot_lsn, piece.slot_lsn + 1)).tolist()
        summaries.append(_summary(piece, complete.slice(first, end - first)))
    path = os.path.join(directory, _name(pieces[0].slot_lsn, pieces[-1].slot_lsn + log.container_bytes))
    return _write(path, log.uuid.hex, log.container_bytes, tuple(summaries), [complete], synced=len(pieces) > 1)


def merge(parts: Sequence[Sidecar], directory: str) -> Sidecar:
    """Merge consecutive sidecars into one file on the disk; the originals stay. A million rows are in memory."""
    first = parts[0]
    path = os.path.join(directory, _name(first.first_lsn, parts[-1].end_lsn))
    summaries = tuple(summary for part in parts for summary in part.summaries)
    tables = map(pa.concat_tables, in_runs(_row_groups(parts), len, _GROUP_ROWS))
    return _write(path, first.log_uuid, first.container_bytes, summaries, tables, synced=True)


class _Stored(Struct):
    """The metadata of a sidecar, as it is stored."""

    log: str
    container_bytes: int
    containers: tuple[Summary, ...]


def read(path: str) -> Sidecar:
    """The sidecar in the file at *path*; no row is read. Raises `Torn`, or `CairnError` for a newer one."""
    try:
        size_bytes = os.path.getsize(path)
        found = (pq.read_schema(path).metadata or {}).get(_KEY)
        if found is None:
            raise ValueError("it has no header")
        number = decode_json(found, JsonFormat).format
        if number != _FORMAT:
            remedy = "read it with a newer version" if number > _FORMAT else "remove it; it is made again"
            raise CairnError(path, f"a sidecar of format {number}", remedy)
        stored = decode_json(found, _Stored)
        return Sidecar(path, stored.log, stored.container_bytes, stored.containers, size_bytes)
    except (OSError, pa.ArrowException, ValueError) as error:
        raise Torn(path, f"incomplete sidecar ({error})", "remove it; it is made again") from error


def held_path(path: str) -> str:
    """The second name of the sidecar at *path*."""
    directory, name = os.path.split(path)
    return os.path.join(directory, HELD, name)


def is_complete(sidecar: Sidecar) -> bool:
    """Return whether all of the file is as it was written. Reads it."""
    try:
        reported = os.path.basename(sidecar.path).removesuffix(SUFFIX).rpartition("-")[2]
        return reported == f"{_checksum(sidecar.path):08x}"
    except OSError:
        return False


def _checksum(path: str) -> int:
    found = 0
    with open(path, "rb") as file:
        while data := file.read(1 << 20):
            found = crc32c(data, found)
    return found


def _name(first_lsn: int, end_lsn: int) -> str:
    """Return the beginning of the file name, without checksum and suffix."""
    return f"{first_lsn:016x}-{end_lsn:016x}"


def _summary(piece: LogPiece, table: pa.Table) -> Summary:
    kinds = {str(one["values"]): int(one["counts"]) for one in pc.value_counts(table["type"]).to_pylist()}
    lsns, times, ids = _ends(table["lsn"]), _ends(table["time"].cast(pa.int64())), _ends(table["message_id"])
    fresh = pc.invert(table["moved"])
    is_put = pc.equal(pc.bit_wise_and(table["flags"], 1), 1)
    puts = pc.or_(pc.equal(table["type"], "enqueue"), pc.and_(pc.equal(table["type"], "start"), is_put))
    takes = pc.equal(table["type"], "dequeue")
    damaged = table["damaged_blocks"][0].as_py() if len(table) else 0
    queues: dict[str, tuple[int, int]] = {}
    for place, chosen in enumerate((puts, takes)):
        some = table["queue_id"].filter(pc.and_(chosen, fresh))
        for one in pc.value_counts(some).to_pylist():
            counts = list(queues.get(str(one["values"]), (0, 0)))
            counts[place] = one["counts"]
            queues[str(one["values"])] = (counts[0], counts[1])
    return Summary(
        piece.slot_lsn, piece.incarnation, piece.last_lsn,
        lsns[0], lsns[1] + 1 if len(table) else 0, len(table), int(pc.sum(table["moved"]).as_py() or 0),
        int(pc.sum(table["size"]).as_py() or 0), *times, *ids, damaged, kinds, queues,
    )  # fmt: skip


def _ends(column: pa.ChunkedArray) -> tuple[int, int]:
    """Return the minimum and the maximum; zeros for an empty column."""
    found = pc.min_max(column).as_py()
    return found["min"] or 0, found["max"] or 0


def _row_groups(parts: Iterable[Sidecar]) -> Iterator[pa.Table]:
    for part in parts:
        with pq.ParquetFile(part.path) as file:
            for number in range(file.num_row_groups):
                yield file.read_row_group(number).cast(SCHEMA)


def _write(
    path: str, log_uuid: str, container_bytes: int, summaries: tuple[Summary, ...], tables: Iterable[pa.Table],
    *, synced: bool,
) -> Sidecar:  # fmt: skip
    reported: dict[str, Any] = {
        "format": _FORMAT, "log": log_uuid, "container_bytes": container_bytes,
        "containers": [asdict(summary) for summary in summaries],
    }  # fmt: skip
    schema = SCHEMA.with_metadata({_KEY: json.dumps(reported, separators=(",", ":"))})
    half = path + SUFFIX + HALF
    directory = RealDirectory(os.path.dirname(path))
    try:
        with open(half, "wb", opener=open_private) as file:
            with pq.ParquetWriter(
                file, schema, compression="zstd", use_dictionary=_DICTIONARY,
                column_encoding=dict.fromkeys(_DELTA, "DELTA_BINARY_PACKED"),
            ) as writer:  # fmt: skip
                for table in tables:
                    writer.write_table(table.replace_schema_metadata(schema.metadata))
            file.flush()
            if synced:
                os.fsync(file.fileno())
            size_bytes = file.tell()
        path += f"-{_checksum(half):08x}{SUFFIX}"
        os.rename(half, path)
        with suppress(OSError):  # a second name, where the file system can
            make_private_directories(os.path.dirname(held_path(path)))
            os.link(path, held_path(path))
    except OSError as error:
        with suppress(OSError):
            os.unlink(half)
        raise disk_error(path, "write", error) from error
    if synced:
        directory.sync()
    return Sidecar(path, log_uuid, container_bytes, summaries, size_bytes)
