"""A stream: the records of the log in the order of LSNs, in batches that Spark can ask for again.

An offset is `{"lsn": N}`: everything below N was read. It never passes the log's durable end, so no LSN that was
consumed is ever used again. A batch is told by its two offsets alone, so what was planned before a crash reads the same
after it, if it is still there: `slot` sees to that, which is a bookmark in the store (`cairnmq.store.bookmarks`).

With `startingOffsets=earliest` the offset has `"since": N`, too: where the stream began. Copies that relocation made of
what stood before have not been seen, and are shown; all others are left out, unless `copies` asks for them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxBytes, SupportsTriggerAvailableNow

from ..base.errors import CairnError
from ..columns.files import Log, grouped
from ..columns.history import held_at, hold, release_until
from .batch import Batches, Part, check_loss, check_lost, rows_of
from .guard import Reduced, guarded
from .options import PARTITION_BYTES, Options
from .schemas import Conversion
from .workers import settle

_ALL = 1 << 63
Offset = dict[str, Any]


class JournalStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads records as they come. Spark calls all of it but `read` in one process, one call at a time."""

    def __init__(self, options: Options, names: tuple[str, ...], conversion: Conversion) -> None:
        self._options = options
        self._names = names
        self._conversion = conversion
        self._target: int | None = None

    def __reduce__(self) -> Reduced:
        return guarded(self)

    def initialOffset(self) -> Offset:
        """Where a new query begins.

        Spark writes down where batches end, not where the first one begins, and asks again if it was stopped before
        that was through. So a slot that is there already counts: it stands where that batch began.
        """
        options = self._options
        journal = options.open()
        log = journal.log
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
            if begin == "earliest" and held_lsn is None:
                lsn = max(lsn, options.open().log.first_lsn)  # something left the log before it was held
        return {"lsn": lsn, **({"since": lsn} if begin == "earliest" and lsn else {})}

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:
        """Up to where the next batch reads."""
        lsn = _lsn_of(start)
        log = self._look()
        end = log.durable_lsn if self._target is None else min(log.durable_lsn, self._target)
        if isinstance(limit, ReadMaxBytes) and end - lsn > limit.max_bytes:
            size = log.container_bytes
            end = lsn + limit.max_bytes
            end -= end % size if end // size > lsn // size else 0  # whole containers, if there is one
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
        check_loss(log, start_lsn, end_lsn, options)
        check_lost(log, start_lsn, end_lsn, options)
        if end_lsn > log.durable_lsn:
            raise CairnError(
                log.place, f"the stream has come to LSN {end_lsn}, and the log ends at LSN {log.durable_lsn}",
                "it is another store, or an older copy: begin anew with another checkpointLocation",
            )  # fmt: skip
        reading = options.reading(journal)
        reading = replace(
            reading,
            selection=replace(reading.selection, start_lsn=start_lsn, end_lsn=end_lsn),
            seen=((int(end.get("since", 0)), _ALL),),
        )
        most = options.partition_bytes or PARTITION_BYTES
        light = journal.with_pieces(())
        runs = grouped(log.between(start_lsn, end_lsn), log.container_bytes, most)
        return [Part(light, reading, some) for some in runs]

    def read(self, partition: InputPartition) -> Batches:
        assert isinstance(partition, Part)
        yield from self._conversion.converted(rows_of("records", partition, self._names))
        settle()

    def commit(self, end: Offset) -> None:
        """What lies below is not asked for again."""
        if self._options.slot:
            release_until(self._look(), self._options.slot, _lsn_of(end), self._options.slot_bytes)

    def _look(self) -> Log:
        """The log as it stands, without the names of queues."""
        return self._options.open().log


def _lsn_of(offset: Offset) -> int:
    lsn = offset.get("lsn")
    if not isinstance(lsn, int):
        raise CairnError(f"offset {offset!r}", "it has no LSN", "begin anew with another checkpointLocation")
    return lsn
