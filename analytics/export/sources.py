"""Sources of an export: a log (a store, a journal directory, an archive), or a directory of sidecars.

A source is read in parts of some containers, each once: exported data is skipped, even within a container. Reading a
container that is still being written ends at the durable end, and continues later.
"""

from __future__ import annotations

import operator
import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any
from uuid import UUID

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from ...base.errors import CairnError, CorruptJournal
from ..scan.files import Gap, LogPiece, grouped, in_runs
from ..scan.log_scan import scan_piece, scanner_of
from ..scan.ranges import Ranges
from ..scan.scanner import Damaged, no_payloads
from ..scan.selection import Selection
from ..sidecars.folder import Folder
from ..sidecars.sidecar import COLUMNS, SUFFIX, Sidecar, is_complete
from ..views.journal import Journal, open_journal
from ..views.records import Names, ReadOptions

_READ_BYTES = 16 << 20
"""The size of the log that is converted to rows at a time."""
_REMEDY = "--skip-damaged leaves it out; `cairnmq verify` shows the losses"


@dataclass(frozen=True)
class ExportRequest:
    """The options of an export; None takes the target's value, or else the default."""

    kind: str | None = None
    columns: tuple[str, ...] | None = None
    partition: tuple[str, ...] | None = None
    archive: str | None = None
    names_of: str | None = None
    """A store whose wiring names the queues."""
    connect: str | None = None
    catalog: str | None = None
    skip_damaged: bool = False
    sealed_only: bool = False
    """Leave out the container that is being written."""
    commit_bytes: int = 256 << 20
    """The size of the log that is exported in one commit, at least one container."""
    history: bool = False
    """True to include data that left the log and is not overwritten yet."""


@dataclass(frozen=True)
class Unit:
    """The part of a container that is to be read."""

    first_lsn: int
    end_lsn: int
    of: Any
    """The piece, or the sidecar."""


@dataclass(frozen=True)
class ExportPart:
    """Units in the order of LSNs: what one commit holds."""

    units: tuple[Unit, ...]

    @property
    def first_lsn(self) -> int:
        return self.units[0].first_lsn

    @property
    def end_lsn(self) -> int:
        return self.units[-1].end_lsn

    @property
    def log_bytes(self) -> int:
        return sum(unit.end_lsn - unit.first_lsn for unit in self.units)

    def added_to(self, done: Ranges) -> Ranges:
        """The exported ranges with this part added."""
        for unit in self.units:
            done = done.added(unit.first_lsn, unit.end_lsn)
        return done

    def before(self, lsn: int) -> ExportPart | None:
        """The units that end there, or before; None if there are none."""
        units = tuple(unit for unit in self.units if unit.end_lsn <= lsn)
        return ExportPart(units) if units else None


def parts_of(source: Source, done: Ranges, most_bytes: int) -> Iterator[ExportPart]:
    """Divides the export into parts of at most so many bytes of the log, one container at least."""
    return map(ExportPart, in_runs(source.units(done), lambda unit: unit.end_lsn - unit.first_lsn, most_bytes))


class LogSource:
    """A log as it was when it was opened."""

    def __init__(self, journal: Journal, *, skip_damaged: bool, sealed_only: bool) -> None:
        """*sealed_only*: without the container that the log is writing."""
        self._journal = journal
        self._log = log = journal.log
        self._skip_damaged = skip_damaged
        self._sealed_only = sealed_only
        self.place, self.uuid, self.container_bytes = log.place, log.uuid, log.container_bytes
        self.end_lsn = log.durable_lsn if log.journal else 0
        """The end of the readable data; 0 if other processes may have read beyond it."""
        self.gaps = log.gaps
        """The missing ranges."""

    def check(self, columns: tuple[str, ...]) -> None:
        """Raises `CairnError` for a column of the view `records` that is not there; a log has all."""

    def units(self, done: Ranges) -> Iterator[Unit]:
        """The units to read, in order."""
        for piece in self._log.pieces:
            first, end = done.from_on(piece.slot_lsn), piece.slot_lsn + self.container_bytes
            if first >= end:
                continue
            if end > self._log.durable_lsn:
                end = first if self._sealed_only else max(self._end_of(piece), first)
            if end > first:
                yield Unit(first, end, piece)

    def _end_of(self, piece: LogPiece) -> int:
        """Return the end of its last valid block."""
        reading = ReadOptions(("lsn",), permissive=True)
        found = scan_piece(self._log, piece, reading, scanner_of(self._log, reading, no_payloads))
        return max((one.end_lsn for one in found if not isinstance(one, Damaged)), default=0)

    def rows(self, part: ExportPart, columns: tuple[str, ...], names: Mapping[int, str]) -> Iterator[pa.RecordBatch]:
        """These columns of all records of *part*. Raises `CorruptJournal` for damage that is not to be left out."""
        reading = ReadOptions(("lsn",), verify=True, permissive=self._skip_damaged)
        journal = self._journal.altered(names=names)
        begun = [unit for unit in part.units if unit.first_lsn > unit.of.slot_lsn]
        complete = tuple(unit.of for unit in part.units if unit.first_lsn == unit.of.slot_lsn)
        try:
            for unit in begun:
                rest = replace(reading, selection=Selection(start_lsn=unit.first_lsn))
                yield from journal.records(rest, list(columns), pieces=(unit.of,))
            for some in grouped(complete, self.container_bytes, _READ_BYTES):
                yield from journal.records(reading, list(columns), pieces=some)
        except CorruptJournal as error:
            raise CorruptJournal(error.place, error.reason, _REMEDY, error.first_lsn, error.end_lsn) from error


class SidecarSource:
    """A directory of sidecars, as a `LogSource`."""

    end_lsn = 0

    def __init__(self, folder: Folder, *, skip_damaged: bool) -> None:
        self._folder = folder
        self._skip_damaged = skip_damaged
        self.place = folder.path
        self.uuid = UUID(folder.sidecars[0].log_uuid)
        self.container_bytes = folder.sidecars[0].container_bytes
        there = sorted(folder.containers)
        ends = [0, *(lsn + self.container_bytes for lsn in there)]
        self.gaps = tuple(Gap(end, lsn, True) for end, lsn in zip(ends, there, strict=False) if lsn > end)

    def check(self, columns: tuple[str, ...]) -> None:
        missing = [name for name in columns if name not in (*COLUMNS, "queue", "crc_ok")]
        if missing:
            remedy = "export the store or the archive itself"
            raise CairnError(self.place, f"sidecars have heads only, and no {missing[0]}", remedy)

    def units(self, done: Ranges) -> Iterator[Unit]:
        behind = 0
        for sidecar in self._folder.sidecars:
            for summary in sidecar.summaries:
                first, end = done.from_on(summary.container), summary.container + self.container_bytes
                if summary.container >= behind and first < end:
                    yield Unit(first, end, sidecar)
                behind = max(behind, end)

    def rows(self, part: ExportPart, columns: tuple[str, ...], names: Mapping[int, str]) -> Iterator[pa.RecordBatch]:
        for sidecar in {unit.of.path: unit.of for unit in part.units}.values():
            if not is_complete(sidecar):
                reason = "its checksum does not match: it is damaged"
                raise CairnError(sidecar.path, reason, "remove it, and export the store or the archive")
            self._refuse_damage(sidecar, part)
            yield from _rows_of(sidecar, part, columns, names)

    def _refuse_damage(self, sidecar: Sidecar, part: ExportPart) -> None:
        wanted = {unit.first_lsn - unit.first_lsn % self.container_bytes for unit in part.units}
        for one in sidecar.summaries:
            if one.damaged_blocks and one.container in wanted and not self._skip_damaged:
                reason = f"of the container at LSN {one.container} {one.damaged_blocks} stretches could not be read"
                raise CorruptJournal(sidecar.path, reason, _REMEDY, one.container, one.container + self.container_bytes)


def _rows_of(
    sidecar: Sidecar, part: ExportPart, columns: tuple[str, ...], names: Mapping[int, str]
) -> Iterator[pa.RecordBatch]:
    stored = [name for name in (*columns, "queue_id") if name in COLUMNS]
    of_queues = Names(names)
    wanted = _is_in(part.added_to(Ranges()))
    try:
        found = ds.dataset(sidecar.path, format="parquet")
        for batch in found.to_batches(columns=list(dict.fromkeys(stored)), filter=wanted, use_threads=False):
            if not batch.num_rows:
                continue
            arrays = []
            for name in columns:
                if name == "crc_ok":
                    arrays.append(pa.array([True] * batch.num_rows))
                elif name == "queue":
                    arrays.append(of_queues.of(batch["queue_id"].fill_null(0).to_numpy()))
                else:
                    arrays.append(batch[name])
            yield pa.RecordBatch.from_arrays(arrays, names=list(columns))
    except (OSError, pa.ArrowException) as error:
        raise CairnError(sidecar.path, f"incomplete sidecar ({error})", "remove it; it is made again") from error


def _is_in(ranges: Ranges) -> pc.Expression:
    lsn = pc.field("lsn")
    return reduce(operator.or_, ((lsn >= first) & (lsn < end) for first, end in ranges.runs))


Source = LogSource | SidecarSource


def open_source(path: str, asked: ExportRequest) -> tuple[Source, dict[int, str]]:
    """The source at *path*, and the names of queues that are known there. Raises `CairnError`."""
    if not _are_sidecars(path):
        journal = open_journal(
            path, archive=asked.archive, connect=asked.connect, catalog=asked.catalog, history=asked.history
        )
        return LogSource(journal, skip_damaged=asked.skip_damaged, sealed_only=asked.sealed_only), journal.queue_names
    if asked.archive is not None:
        raise CairnError("--archive-dir", "sidecars are exported as they are", "leave it out, or name the store")
    folder = Folder(path, None)
    if not folder.sidecars:
        raise CairnError(path, folder.remarks[0], "export the store or the archive itself")
    return SidecarSource(folder, skip_damaged=asked.skip_damaged), {}


def _are_sidecars(path: str) -> bool:
    """Return whether the directory *path* holds sidecars, and no log."""
    with suppress(OSError):
        return any(name.endswith(SUFFIX) for name in os.listdir(path))
    return False
