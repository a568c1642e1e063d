"""The records of a journal from sidecars where possible, and from containers for the rest.

Spark reads sidecars itself, in columns, with filters pushed down. Before planning, this module checks that a sidecar is
usable for a container: log, LSN, incarnation and last block are the same, nothing of it was damaged, and the checksum
of the file is correct. All other containers are read directly, as of the same time.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import reduce
from operator import or_

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f

from ...base.errors import CairnError
from ..scan.files import Log, store_of
from ..scan.ranges import Ranges
from ..scan.selection import Selection
from ..sidecars.folder import NAME, Folder
from ..sidecars.sidecar import COLUMNS, Sidecar, held_path, is_complete
from ..views.journal import Journal
from ..views.records import ENDS, ReadOptions
from .options import Options
from .schemas import schema_of

_GLOB = re.compile(r"([\\*?\[\]{}])")
_SEALED: dict[tuple[str, int, int, int], bool] = {}
"""Files that were checked, by path, inode, size and time, and whether they were whole."""


@dataclass(frozen=True)
class Plan:
    """The division of a query between sidecars and the log."""

    journal: Journal
    files: tuple[str, ...]
    """Sidecars."""
    elsewhere: Ranges
    """The containers that are read in these."""
    has_more: bool
    """True if the files cover other containers, too."""
    has_copies: bool
    seen: Ranges
    """All that is read, in either place."""
    start_lsn: int
    end_lsn: int

    @property
    def has_rest(self) -> bool:
        """Return whether containers are to be read as well."""
        return any(self.elsewhere.without(first, min(end, self.end_lsn)) for first, end in self.seen.runs)

    @property
    def for_source(self) -> str:
        """The plan as an option of the source."""
        return json.dumps({"elsewhere": self.elsewhere.runs, "seen": self.seen.runs}, separators=(",", ":"))


def planned(options: Options) -> Plan | None:
    """The plan for a query that sidecars can serve; None if they can't.

    Raises `CairnError` if they are demanded and can't serve.
    """
    must = options.use_sidecar == "true"
    if options.use_sidecar == "false":
        return None
    reason = _denial_reason(options)
    if reason:
        if must:
            raise CairnError("option useSidecar=true", f"{reason}, and sidecars have heads only", "leave it out")
        return None
    if not os.path.isdir(options.path):
        return None  # the source reports it, or the path exists where that runs
    place = options.sidecar_dir or os.path.join(store_of(options.path), NAME)
    if not must and not os.path.isdir(place):
        return None
    journal = options.open()
    folder = Folder(place, journal.log.uuid, passes_others=True)
    asked = Selection(options.start_lsn or 0, options.end_lsn, options.start_us, options.end_us)
    how = ReadOptions(selection=asked, permissive=options.permissive, lose=not options.fail_on_data_loss)

    def since(time_us: int) -> int:
        """The first LSN of that time or later, of the log or, if they must serve, of sidecars."""
        lsn = journal.first_lsn_since(time_us, how)
        return _lsn_in(folder, time_us, journal.log, lsn) if must else lsn

    selection = journal.resolved("records", how, since).selection
    plan = _serving(folder, journal, selection, only_there=not must)
    if plan is None and must:
        said = f"; {folder.remarks[0]}" if folder.remarks else ""
        remedy = "name their directory (sidecarDir), or leave the option out"
        raise CairnError(folder.path, f"no sidecar fits this log{said}", remedy)
    return plan


def _denial_reason(options: Options) -> str:
    """The reason why sidecars can't serve *options*; empty if they can."""
    if options.view != "records":
        return f"the view {options.view} is made of containers"
    extra = [name for name in options.names() if name not in (*COLUMNS, "queue", "crc_ok")]
    if extra:
        return f"the column {extra[0]} is asked for"
    return "verify=full reads containers" if options.verify else ""


def _lsn_in(folder: Folder, time_us: int, log: Log, lsn: int) -> int:
    """The first LSN of that time or later in sidecars of what *log* has not any more; *lsn* if that is lower."""
    size, there = log.container_bytes, Ranges(log.runs(0))
    for sidecar in folder.sidecars:
        removed = [one for one in sidecar.summaries if there.without(one.container, one.container + size)]
        if not any(one.last_us >= time_us and one.container < lsn for one in removed):
            continue
        table = pq.read_table(_lasting(sidecar.path), columns=["lsn", "container", "time", "moved"])
        is_removed = pc.is_in(table["container"], pa.array([one.container for one in removed], pa.int64()))
        is_late = pc.greater_equal(table["time"].cast(pa.int64()), time_us)
        some = table["lsn"].filter(pc.and_(pc.and_(is_removed, is_late), pc.invert(table["moved"])))
        if len(some):
            lsn = min(lsn, int(pc.min(some).as_py()))
    return lsn


def _serving(folder: Folder, journal: Journal, selection: Selection, *, only_there: bool) -> Plan | None:
    """Choose the usable files and their containers; *only_there*: only those that the log still has."""
    log = journal.log
    pieces = {piece.slot_lsn: piece for piece in log.pieces}
    size, start_lsn = log.container_bytes, selection.start_lsn
    end_lsn = log.durable_lsn if selection.end_lsn is None else min(selection.end_lsn, log.durable_lsn)
    files: list[str] = []
    elsewhere = Ranges()
    has_more = has_copies = False
    for sidecar in folder.sidecars:
        some = []
        for one in sidecar.summaries:
            piece = pieces.get(one.container)
            same = piece and (piece.incarnation, piece.last_lsn) == (one.incarnation, one.last_lsn)
            fits = same if piece else not only_there
            is_asked_for = one.container + size > start_lsn and one.container < end_lsn
            if fits and is_asked_for and not one.damaged_blocks and one.container >= elsewhere.end_lsn:
                some.append(one)
        if some and sidecar.container_bytes == size and _is_sealed(sidecar):
            files.append(_lasting(sidecar.path))
            runs = Ranges(tuple((one.container, one.container + size) for one in some))
            elsewhere = Ranges.union((elsewhere, runs))
            has_more |= len(some) < len(sidecar.summaries)
            has_copies |= any(one.moved for one in some)
    if not files:
        return None
    seen = Ranges.union((Ranges(log.runs(start_lsn)), elsewhere)).cut(start_lsn)
    return Plan(journal, tuple(files), elsewhere, has_more, has_copies, seen, start_lsn, end_lsn)


def _is_sealed(sidecar: Sidecar) -> bool:
    """Return whether it is as it was written; looked at once in a process."""
    try:
        reported = os.stat(sidecar.path)
    except OSError:
        return False
    key = (sidecar.path, reported.st_ino, reported.st_size, reported.st_mtime_ns)
    if key not in _SEALED:
        _SEALED[key] = is_complete(sidecar)
    return _SEALED[key]


def _lasting(path: str) -> str:
    """The name of a sidecar that stays for a while when it becomes part of another one."""
    held = held_path(path)
    try:
        return held if os.path.samefile(held, path) else path
    except OSError:
        return path


def literal(path: str) -> str:
    """The one file at *path* on a file system that all processes see, as Spark's readers take it: not as a pattern."""
    return "file://" + _GLOB.sub(r"\\\1", os.path.abspath(path))


def heads(spark: SparkSession, plan: Plan, options: Options) -> DataFrame:
    """The rows of sidecars, as the source gives them."""
    journal, names = plan.journal, options.names()
    stored = schema_of(replace(options, columns=COLUMNS, include_payload=False, include_amqp=False))
    paths = [literal(path) for path in plan.files]
    frame = spark.read.schema(stored).option("parquet.page.verify-checksum.enabled", "true").parquet(*paths)
    asked = replace(options, start_lsn=plan.start_lsn, end_lsn=plan.end_lsn, start_us=None, end_us=None)
    selection = asked.reading(journal).selection
    for condition in _conditions(options, selection, plan):
        frame = frame.filter(condition)
    return frame.select([_column(name, journal).alias(name) for name in names])


def _conditions(options: Options, selection: Selection, plan: Plan) -> Iterator[Column]:
    """Those of the source; what is true of all rows is left out, as Spark would read columns for it."""
    if plan.has_more:
        yield _is_in("lsn", plan.elsewhere)
    if selection.start_lsn > plan.elsewhere.runs[0][0]:
        yield f.col("lsn") >= selection.start_lsn
    if plan.end_lsn < plan.elsewhere.end_lsn:
        yield f.col("lsn") < plan.end_lsn
    if options.types:
        yield f.col("type").isin(*options.types)
    if selection.queue_ids:
        yield f.col("queue_id").isin(*selection.queue_ids)
    if plan.has_copies and options.copies == "none":
        yield ~f.col("moved")
    if plan.has_copies and options.copies == "new":
        yield ~f.col("moved") | f.col("type").isin(*ENDS) | ~_is_in("undo_prev", plan.seen)


def _is_in(name: str, ranges: Ranges) -> Column:
    column = f.coalesce(f.col(name), f.lit(-1))
    return reduce(or_, ((column >= first) & (column < end) for first, end in ranges.runs))


def _column(name: str, journal: Journal) -> Column:
    if name == "crc_ok":
        return f.lit(None).cast("boolean")
    if name != "queue":
        return f.col(name)
    names = [f.lit(text) for pair in journal.queue_names.items() for text in pair]
    unnamed = f.concat(f.lit("$queue-"), f.col("queue_id").cast("string"))  # as `layout.unnamed_queue`
    return f.coalesce(f.try_element_at(f.create_map(*names), f.col("queue_id")), unnamed) if names else unnamed
