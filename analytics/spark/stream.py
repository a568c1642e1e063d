"""A stream: the records of the log in the order of LSNs, in batches that Spark can request again.

An offset is `{"lsn": N}`: everything below N was read. It never passes the durable end of the log, so no consumed LSN
is ever reused. A batch is defined by its two offsets alone. A batch that was planned before a crash therefore has the
same content after it, as long as its data exists. The option `slot` ensures that by a bookmark in the store
(`cairnmq.store.journaled.retention_leases`).

With `startingOffsets=earliest` the offset also has `"since": N`, the start of the stream. Copies by compaction of
records before it have not been seen, and are shown; all others are left out, unless `copies` includes them.

Containers after that LSN that the log had reclaimed when the stream began are no data loss, as in Kafka. The offset
lists them as `"reclaimed": [[first, end], ...]`, and the end of the log at that time as `"began": N`. They count as not
seen, and are never read, even if a file still holds them, so that a batch is always the same. Both are dropped once
everything below `began` was read, which includes all copies from these containers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxBytes, SupportsTriggerAvailableNow

from ...base.errors import CairnError
from ..scan.files import Log
from ..scan.ranges import Ranges
from ..views.retention_lease import held_at, hold, release_until
from .batch import Batches, check_loss, check_lost, parts_of, read_part, without
from .options import Options
from .workers import Reduced, guarded

_ALL = 1 << 63
OLD_OFFSET = "a stream that an earlier version of CairnMQ began needs a new checkpointLocation"
"""Offsets of earlier versions have no `reclaimed`: what was reclaimed before they began counts as data loss."""
Offset = dict[str, Any]


@dataclass(eq=False)
class JournalStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A reader of records as they are written. Spark calls all methods but `read` in one process, one call at a time.
    """

    _options: Options
    _schema: pa.Schema
    _target: int | None = None

    def __reduce__(self) -> Reduced:
        return guarded(self)

    def initialOffset(self) -> Offset:
        """Return the offset at which a new query begins.

        Spark records the ends of batches, not the beginning of the first one, and asks again if it was stopped before
        the end of that batch. An existing slot is therefore used: its position is the beginning of that batch.
        """
        options = self._options
        journal = options.open()
        log = journal.log
        is_earliest = options.starting_offsets in ("", "earliest")  # or a time, which stands for what is there since
        begin = options.starting_offsets or "earliest"
        if options.start_us is not None:
            begin = str(journal.first_lsn_since(options.start_us))
        held_lsn = held_at(log, options.slot) if options.slot else None
        known = {"earliest": log.first_lsn, "latest": log.durable_lsn}
        if held_lsn is not None:
            known = {"earliest": min(held_lsn, log.first_lsn), "latest": min(held_lsn, log.durable_lsn)}
        lsn = known[begin] if begin in known else int(begin)
        if lsn > log.durable_lsn:
            raise CairnError(
                "option startingOffsets", f"LSN {lsn} lies behind the log's durable end, {log.durable_lsn}",
                "write earliest or latest",
            )  # fmt: skip
        if options.slot:
            hold(log, options.slot, lsn, options.slot_bytes)
            log = options.open(history=held_lsn is not None).log
            if begin == "earliest" and held_lsn is None:
                lsn = max(lsn, log.first_lsn)  # something left the log before it was held
        removed = [(gap.first_lsn, gap.end_lsn) for gap in log.missing(lsn, log.durable_lsn) if gap.is_reclaimed]
        return {
            "lsn": lsn, **({"since": lsn} if begin == "earliest" and lsn else {}),
            **({"reclaimed": [*map(list, removed)], "began": log.durable_lsn} if is_earliest and removed else {}),
        }  # fmt: skip

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:
        """Return the end of the next batch."""
        lsn = _lsn_of(start)
        log = self._look()
        end = log.durable_lsn if self._target is None else min(log.durable_lsn, self._target)
        if isinstance(limit, ReadMaxBytes) and end - lsn > limit.max_bytes:
            size = log.container_bytes
            end = lsn + limit.max_bytes
            end -= end % size if end // size > lsn // size else 0  # whole containers, if there is one
        if lsn >= int(start.get("began", 0)):
            start = {name: value for name, value in start.items() if name not in ("reclaimed", "began")}
        return {**start, "lsn": max(end, lsn)}

    def getDefaultReadLimit(self) -> ReadLimit:
        most = self._options.trigger_bytes
        return ReadMaxBytes(most) if most else ReadAllAvailable()

    def reportLatestOffset(self) -> Offset:
        return {"lsn": self._look().durable_lsn}

    def prepareForTriggerAvailableNow(self) -> None:
        self._target = self._look().durable_lsn

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        options = self._options
        start_lsn, end_lsn = _lsn_of(start), _lsn_of(end)
        if start_lsn >= end_lsn:
            return []
        journal = options.open(history=True)
        log = journal.log
        removed = Ranges.union((_removed(start), _removed(end)))
        check_loss(without(log, removed), start_lsn, end_lsn, options, OLD_OFFSET if "began" not in start else "")
        check_lost(log, start_lsn, end_lsn, options)
        if end_lsn > log.durable_lsn:
            raise CairnError(
                log.place, f"the stream has read up to LSN {end_lsn}, and the log ends at LSN {log.durable_lsn}",
                "it is another store, or an older copy: start again with another checkpointLocation",
            )  # fmt: skip
        reading = options.reading(journal)
        reading = replace(
            reading,
            selection=replace(reading.selection, start_lsn=start_lsn, end_lsn=end_lsn),
            seen=tuple(removed.without(int(end.get("since", 0)), _ALL)),
        )
        between = log.between(start_lsn, end_lsn)
        pieces = [piece for piece in between if removed.from_on(piece.slot_lsn) == piece.slot_lsn]
        return parts_of(journal, reading, pieces, options)

    def read(self, partition: InputPartition) -> Batches:
        return read_part(partition, "records", self._schema)

    def commit(self, end: Offset) -> None:
        """Commits *end*: nothing below it is read again."""
        if self._options.slot:
            release_until(self._look(), self._options.slot, _lsn_of(end), self._options.slot_bytes)

    def _look(self) -> Log:
        """Return the current log, without the names of queues."""
        return self._options.open().log


def _removed(offset: Offset) -> Ranges:
    """The range that had been reclaimed when the query began."""
    try:
        return Ranges.of(offset.get("reclaimed", ()))
    except (TypeError, ValueError) as error:
        remedy = "start again with another checkpointLocation"
        raise CairnError(f"offset {offset!r}", "its field reclaimed is not a list of ranges of LSNs", remedy) from error


def _lsn_of(offset: Offset) -> int:
    lsn = offset.get("lsn")
    if not isinstance(lsn, int):
        raise CairnError(f"offset {offset!r}", "it has no LSN", "start again with another checkpointLocation")
    return lsn
