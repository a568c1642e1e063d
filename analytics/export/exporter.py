"""An export: what a source has that the target has not, in commits of many containers, each record exactly once.

How far a target has come is written into it together with the rows, by each format's own means. So it does not matter
where an export was cut off, or how often it is done.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Protocol, TypeVar

from ...base.errors import CairnError, CorruptJournal
from ...base.extras import install_hint
from ...base.private_files import private_umask
from ...store.journaled.truncation import truncation_words
from ..scan.files import Gap
from ..scan.ranges import Ranges
from ..scan.read_lease import held_store
from ..views.records import DEFAULT
from ..views.wiring_rows import find_names
from .rows import PARTITIONS, Rows, Shape
from .sources import ExportPart, ExportRequest, Source, open_source, parts_of
from .target import ExportIdentity, Target, check_fits

KINDS = ("parquet", "delta", "iceberg")
Progress = Callable[[str, int, int], None]
T = TypeVar("T")


@dataclass(frozen=True)
class ExportResult:
    """The result of an export."""

    path: str
    kind: str
    log: str
    records: int
    commits: int
    log_bytes: int
    """The size of the part of the log that held the records."""
    end_lsn: int
    """Everything below this LSN is exported, except for `missing`."""
    missing: tuple[Gap, ...]
    """Ranges that neither the source nor the target has."""
    runs: tuple[tuple[int, int], ...]
    """All that the target has."""

    def truncation(self) -> str:
        """The ranges that were reclaimed before their export, as a sentence; empty if nothing is missing."""
        gaps = [(gap.first_lsn, gap.end_lsn) for gap in self.missing if gap.is_reclaimed]
        first_lsn = gaps.pop(0)[1] if gaps and not gaps[0][0] else 0
        return truncation_words(first_lsn, 0, gaps)


class Sink(Protocol):
    """A table of some kind."""

    exported: Ranges

    def write_batch(self, part: ExportPart, rows: Rows) -> None: ...

    def close(self) -> None: ...


@private_umask()
def export(
    source: str, target: str, asked: ExportRequest, progress: Progress = lambda what, done, total: None
) -> ExportResult:
    """Export what *source* has and *target* has not. Raises `CairnError`; what was committed before stays.

    Files and directories that it creates are for their owner only.
    """
    Shape(asked.columns or DEFAULT)
    _sink_of(asked.kind or KINDS[0])
    check_fits(target, asked.kind or KINDS[0])
    with held_store(source) as check:
        found, names = open_source(source, asked)
        if asked.names_of is not None:
            names = {**names, **find_names(asked.names_of, found.uuid, asked.connect, asked.catalog)}
        with closing(Target(target)) as place:
            shape, made = _settled(place, found, asked)
            with closing(made) as sink:
                return _copy(found, sink, shape, shape.names(names), asked.commit_bytes, progress, place, check)


def _settled(place: Target, source: Source, asked: ExportRequest) -> tuple[Shape, Sink]:
    """The shape of the rows, which is the target's unless it has none yet, and the table."""
    was = place.identity
    usual = was or ExportIdentity(KINDS[0], "", 0, DEFAULT, PARTITIONS)
    wanted = ExportIdentity(
        asked.kind or usual.kind, source.uuid.hex, source.container_bytes,
        usual.columns if asked.columns is None else asked.columns,
        usual.partition if asked.partition is None else asked.partition,
    )  # fmt: skip
    shape = Shape(wanted.columns, wanted.partition, has_day=wanted.kind != "iceberg")
    source.check(shape.needed)
    make_sink = _sink_of(wanted.kind)
    place.settle(wanted)
    return shape, make_sink(place, shape)


def _sink_of(kind: str) -> Callable[[Target, Shape], Sink]:
    """The class of tables of the format. Raises `CairnError` if a package for it is not installed."""
    try:
        if kind == "delta":
            from .delta import DeltaSink

            return DeltaSink
        if kind == "iceberg":
            import pyiceberg_core  # noqa: F401

            from .iceberg import IcebergSink

            return IcebergSink
    except ImportError as error:
        name, remedy = (error.name or "").partition(".")[0], install_hint(kind)
        raise CairnError(f"--format {kind}", f"{name} is missing", remedy) from error
    from .parquet import ParquetSink

    return ParquetSink


def _copy(
    source: Source, sink: Sink, shape: Shape, names: dict[int, str], commit_bytes: int, progress: Progress,
    place: Target, check: Callable[[], None],
) -> ExportResult:  # fmt: skip
    begun = sink.exported
    if source.end_lsn and begun.end_lsn > source.end_lsn:
        raise CairnError(
            source.place, f"it ends at LSN {source.end_lsn}, and the export contains the log up to LSN {begun.end_lsn}",
            "it is an older copy of the store; export it into another directory",
        )  # fmt: skip
    parts = list(parts_of(source, begun, commit_bytes))
    total = sum(part.log_bytes for part in parts)
    records = done = 0

    def write(part: ExportPart) -> None:
        nonlocal records, done
        rows = Rows(shape, _checked(source.rows(part, shape.needed, names), check))
        sink.write_batch(part, rows)
        records += rows.count
        done += part.log_bytes
        progress("exporting", done, total)

    for part in parts:
        try:
            write(part)
        except CorruptJournal as error:
            if (complete := part.before(error.first_lsn)) is not None:
                write(complete)
            raise
    exported = sink.exported
    missing = tuple(
        replace(gap, first_lsn=first, end_lsn=end)
        for gap in source.gaps for first, end in exported.without(gap.first_lsn, gap.end_lsn)
    )  # fmt: skip
    assert place.identity is not None
    return ExportResult(
        place.path, place.identity.kind, place.identity.log, records, len(parts), done, exported.end_lsn, missing,
        exported.runs,
    )  # fmt: skip


def _checked(rows: Iterator[T], check: Callable[[], None]) -> Iterator[T]:
    """*rows*, and *check* behind the last of them: what it raises keeps them from being committed."""
    yield from rows
    check()
