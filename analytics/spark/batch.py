"""A batch: the part of the log that a partition reads, and how.

The view of the log is taken when Spark plans; a DataFrame is the log at that point in time. It is passed to the
partitions, so that a worker lists no directory.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from ...base.errors import CairnError
from ..lifetimes.extent import missing_as_of, whole_from
from ..lifetimes.lifetimes import NEVER
from ..scan.files import Gap, Log, LogPiece, grouped
from ..scan.ranges import Ranges
from ..views.journal import Journal
from ..views.records import ReadOptions
from .options import MESSAGE_PARTITION_BYTES, PARTITION_BYTES, Options
from .schemas import converted
from .workers import Reduced, guarded, settle

Batches = Iterator[Any]
"""An iterator of `pyarrow.RecordBatch`, which Spark accepts."""
log_of = logging.getLogger(__name__)
_OF_MESSAGES = ("messages", "places", "orphan_records", "live_set")
"""Views of which each partition is about a range of messages."""
_AS_OF = (*_OF_MESSAGES, "transactions", "queues")
"""Views that show a state as of `endingLsn`."""


@dataclass(eq=False, repr=False)
class JournalPart(InputPartition):
    """The input of one task: a journal with a part of its pieces."""

    journal: Journal
    reading: ReadOptions
    pieces: tuple[LogPiece, ...]
    ids: tuple[int, int] = (0, NEVER)
    """The range of messages of the partition."""

    def __repr__(self) -> str:
        first = f"LSN {self.pieces[0].slot_lsn}" if self.pieces else "nothing"
        return f"Part({len(self.pieces)} containers from {first})"


@dataclass(eq=False)
class JournalReader(DataSourceReader):
    """Reads a view once.

    There is no `pushFilters`: Spark would apply the filter of one DataFrame to others that are made of the same one.
    """

    _options: Options
    _schema: pa.Schema

    def __reduce__(self) -> Reduced:
        return guarded(self)

    def partitions(self) -> Sequence[InputPartition]:
        try:
            return self._parts()
        finally:
            settle()

    def _parts(self) -> Sequence[InputPartition]:
        options = self._options
        journal = options.open()
        reading = options.reading(journal)
        log, selection = without(journal.log, options.elsewhere), reading.selection
        end_lsn = log.durable_lsn if selection.end_lsn is None else min(selection.end_lsn, log.durable_lsn)
        if options.view == "wiring":
            return [JournalPart(journal, reading, ())]
        if options.has_start:
            check_loss(log, selection.start_lsn, end_lsn, options)
        elif options.archive is not None:  # the requested range begins where the archive does
            check_loss(log, log.first_lsn, end_lsn, options)
        check_past(journal, reading, options)
        if options.pinned is not None:
            check_still_there(log, options.pinned.seen, options, "when this began")
        check_lost(log, selection.start_lsn, end_lsn, options)
        truncated = log.truncation() if options.pinned is None and not options.has_start else ""
        if truncated:
            log_of.warning("%s: %s", log.place, truncated, extra={"event": "history.truncated"})
        if options.view in ("transactions", "queues"):
            return [JournalPart(journal, reading, log.pieces)]
        seen = Ranges(log.runs(selection.start_lsn)) if options.seen is None else options.seen
        if options.fail_on_data_loss:
            check_still_there(log, seen, options, "when the DataFrame was made")
        reading = replace(reading, seen=seen.runs)
        pieces = tuple(
            piece for piece in log.between(selection.start_lsn, end_lsn)
            if options.elsewhere.from_on(piece.slot_lsn) == piece.slot_lsn
        )  # fmt: skip
        if options.view in _OF_MESSAGES:
            return self._message_parts(journal, reading, pieces)
        return parts_of(journal, reading, pieces, options, log.gaps if options.view == "containers" else ())

    def _message_parts(
        self, journal: Journal, reading: ReadOptions, pieces: tuple[LogPiece, ...]
    ) -> list[InputPartition]:
        """Each has messages whose ids lie in a range, and reads all that follows; some lie where nothing is left."""
        most = self._options.partition_bytes or MESSAGE_PARTITION_BYTES
        groups = [*grouped(pieces, journal.log.container_bytes, most)]
        bounds = [0, *(some[0].slot_lsn for some in groups[1:]), NEVER]
        light = journal.altered(log=replace(journal.log, gaps=()))
        return [JournalPart(light, reading, (), ids) for ids in pairwise(bounds)]

    def read(self, partition: InputPartition) -> Batches:
        return read_part(partition, self._options.view, self._schema)


def parts_of(
    journal: Journal, reading: ReadOptions, pieces: Iterable[LogPiece], options: Options, gaps: tuple[Gap, ...] = ()
) -> list[InputPartition]:
    """Partitions of *pieces*; one without any if there are none. Their logs have only the *gaps*."""
    light = journal.altered(log=replace(journal.log, pieces=(), gaps=gaps))
    groups = grouped(pieces, journal.log.container_bytes, options.partition_bytes or PARTITION_BYTES)
    return [JournalPart(light, reading, some) for some in groups] or [JournalPart(light, reading, ())]


def read_part(part: InputPartition, view: str, schema: pa.Schema) -> Batches:
    """The rows of *view* in *part*."""
    assert isinstance(part, JournalPart)
    rows = part.journal.batches(view, part.reading, schema.names, pieces=part.pieces, ids=part.ids)
    yield from converted(rows, schema)
    settle()


def check_loss(log: Log, start_lsn: int, end_lsn: int, options: Options, also: str = "") -> list[Gap]:
    """The reclaimed part of a range. Raises `CairnError`, with *also* as a further remedy, if that is data loss."""
    removed = [gap for gap in log.missing(start_lsn, end_lsn) if gap.is_reclaimed]
    if start_lsn < log.first_lsn < end_lsn and not removed:
        removed = [Gap(*run, True) for run in options.elsewhere.without(start_lsn, log.first_lsn)]
    if removed and options.fail_on_data_loss:
        lost = sum(gap.end_lsn - gap.first_lsn for gap in removed)
        raise CairnError(
            log.place,
            f"LSN {removed[0].first_lsn} to {removed[-1].end_lsn} was asked for, and {lost} bytes of it were reclaimed"
            f"; the log begins at LSN {log.first_lsn}",
            "name an archive that has them (option archive), begin later, or accept the loss with "
            "failOnDataLoss=false; the next time keep them with an archive or, for a stream, a slot"
            + (f"; {also}" if also else ""),
        )  # fmt: skip
    return removed


def check_past(journal: Journal, reading: ReadOptions, options: Options) -> None:
    """Raises `CairnError` if a state of the past is asked for, and records that it needs were reclaimed since.

    A range with a beginning is about what began in it, all of which `check_loss` wants to be there. A time that may lie
    in a stretch that is missing is checked as of that stretch.
    """
    log, lsn = journal.log, reading.selection.end_lsn
    is_about_all = options.view == "queues" or (options.view in _AS_OF and not options.has_start)
    if lsn is None or not is_about_all or options.pinned is not None or not options.fail_on_data_loss:
        return
    earliest = lsn
    if options.end_us is not None and (options.end_lsn is None or lsn < options.end_lsn):
        earliest = min(lsn, journal.doubtful_lsn_since(options.end_us, reading) or lsn)
    removed = missing_as_of(log, earliest)
    if removed is not None:
        raise CairnError(
            log.place,
            f"the view {options.view} as of LSN {lsn} needs all that the log had then, and LSN {removed.first_lsn} to "
            f"{removed.end_lsn} was reclaimed since; the log is complete as of LSN {whole_from(log)} and later",
            "name one of these, or an archive that has the rest (option archive); failOnDataLoss=false shows what is "
            "left",
        )  # fmt: skip


def without(log: Log, elsewhere: Ranges) -> Log:
    """*log* without the gaps that are filled elsewhere, or are no loss."""
    return replace(log, gaps=tuple(
        replace(gap, first_lsn=first, end_lsn=end)
        for gap in log.gaps for first, end in elsewhere.without(gap.first_lsn, gap.end_lsn)
    ))  # fmt: skip


def check_still_there(log: Log, seen: Ranges, options: Options, when: str) -> None:
    """Raise `CairnError` if the log has reclaimed data that existed *when* it was opened, and that is to be read here.
    """
    there = Ranges.union((Ranges(log.runs(0)), options.elsewhere))
    removed = [run for first, end in seen.runs for run in there.without(first, end)]
    if removed:
        raise CairnError(
            log.place,
            f"LSN {removed[0][0]} to {removed[-1][1]} was there {when}, and was reclaimed since",
            "start again; name an archive to keep the records",
        )  # fmt: skip


def check_lost(log: Log, start_lsn: int, end_lsn: int, options: Options) -> None:
    """Raise `CorruptJournal` for a lost container of the range, unless the mode is permissive."""
    if not options.permissive:
        remedy = "read it with mode=PERMISSIVE to leave that out; `cairnmq dump` shows the readable part"
        log.check_lost(start_lsn, end_lsn, remedy)
