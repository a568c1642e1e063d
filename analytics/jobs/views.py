"""The input of jobs: the views of one journal as DataFrames, all as of one point in time.

from cairnmq.analytics.jobs.table import JOBS
from cairnmq.analytics.jobs.views import Views
from cairnmq.analytics.spark.session import session

spark = session()
JOBS["depth"].run(spark, Views(spark, "./data")).show()
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from ...base.errors import CairnError
from ..scan.files import Log
from ..spark.options import PINNED, Pinned
from ..spark.session import journal
from ..views.journal import open_journal

_NEEDED = {"other": ("other store", "--with"), "producer_log": ("log of a producer", "--producer-log")}


@dataclass(frozen=True)
class ViewsRequest:
    """The options of a user beside the job."""

    archive: str | None = None
    connect: str | None = None
    catalog: str | None = None
    skip_damaged: bool = False
    bucket_s: int = 60
    """The interval of figures over time."""
    other: str | None = None
    """Another store, to be compared with."""
    producer_log: str | None = None
    """The path of a producer's log of the messages that it has sent."""

    def need(self, job: str, field: str) -> str:
        """Return the option *field*, which *job* requires. Raises `CairnError` if it is not given."""
        found: str | None = getattr(self, field)
        if found is None:
            what, option = _NEEDED[field]
            raise CairnError(job, f"no {what} is named", f"name one with {option}")
        return found


def look(store: str, asked: ViewsRequest) -> Log:
    """Read the structure of the log. Raises `CairnError` without a readable log."""
    opened = open_journal(store, archive=asked.archive, connect=asked.connect, catalog=asked.catalog)
    if asked.producer_log is not None and not os.path.isfile(asked.producer_log):
        raise CairnError(asked.producer_log, "no such file", "name a file of CSV, or of JSON lines")
    if asked.other is not None:
        open_journal(asked.other)
    return opened.log


class Views:
    """Views of one journal at the present time. Spark caches data that is read more than once until `close`.

    A job fails if the broker reclaims data that it needs, and no archive has the data. `columns.holding.held`, started
    before, prevents that.

    *many*: several jobs follow, so places are cached, too. A single job reads only the columns that it needs. Raises
    `CairnError` at once without a readable journal.
    """

    def __init__(
        self, spark: SparkSession, store: str, asked: ViewsRequest | None = None, *, many: bool = False
    ) -> None:
        self.spark = spark
        self.store = store
        self.asked = asked or ViewsRequest()
        self.many = many
        self.log: Log = look(store, self.asked)
        self.gaps = self.log.missing(self.log.first_lsn, self.log.durable_lsn) if self.asked.archive else []
        """The missing ranges of log and archive; jobs cover the rest."""
        self._pinned = Pinned.of(self.log).as_option
        self._kept: dict[tuple[str, bool], DataFrame] = {}

    def close(self) -> None:
        for frame in self._kept.values():
            frame.unpersist()

    def view(self, name: str, **options: object) -> DataFrame:
        """A view of the journal as it was when this was made, see docs/reference/spark.md. Checksums are checked."""
        asked = self.asked
        given: dict[str, object] = {
            "verify": "full", "archive": asked.archive, "connect": asked.connect, "catalog": asked.catalog,
            "mode": "PERMISSIVE" if asked.skip_damaged else "FAILFAST",
        }  # fmt: skip
        if any(gap.is_reclaimed for gap in self.gaps):
            given["failOnDataLoss"] = False
        if name != "wiring" and "endingLsn" not in options:
            given |= {"endingLsn": self.log.durable_lsn, PINNED: self._pinned}
        return journal(self.spark, self.store, view=name, **(given | options))

    def forgiving(self) -> Views:
        """These views with damage left out; closed together with this."""
        made = Views(self.spark, self.store, replace(self.asked, skip_damaged=True), many=self.many)
        made.log, made.gaps, made._pinned, made._kept = self.log, self.gaps, self._pinned, self._kept
        return made

    @property
    def whole_from(self) -> int:
        """Return the LSN from which on nothing is missing up to the end; 0 if nothing ever left the log."""
        runs = self.log.runs(0)
        return runs[-1][0] if runs else self.log.durable_lsn

    def messages(self, columns: str) -> DataFrame:
        """Return one row per message, with at least these columns."""
        return self._cached("messages") if self.many else self.view("messages", columns=columns)

    def places(self, columns: str) -> DataFrame:
        """Return one row per stay of a message on a queue, with at least these columns."""
        return self._cached("places") if self.many else self.view("places", columns=columns)

    @property
    def transactions(self) -> DataFrame:
        return self._cached("transactions")

    @property
    def containers(self) -> DataFrame:
        return self._cached("containers") if self.many else self.view("containers")

    def records(self, columns: str, types: str | None = None) -> DataFrame:
        """Records, copies too: all, or those of these types. Spark hides the needs of a query from the source."""
        return self.view("records", columns=columns, types=types, copies="all")

    @property
    def orphan_records(self) -> DataFrame:
        """The records that put messages on queues and end them, of messages without a Start record."""
        return self._cached("orphan_records")

    @property
    def live_set(self) -> DataFrame:
        """The view `live_set`: the part of each container that is on queues or in doubt."""
        return self._cached("live_set") if self.many else self.view("live_set")

    def wiring(self) -> list[dict[str, Any]]:
        """The rows of the view `wiring`, read here and not by Spark."""
        asked = self.asked
        rows: list[dict[str, Any]] = (
            open_journal(self.store, connect=asked.connect, catalog=asked.catalog).wiring().to_pylist()
        )
        return rows

    def _cached(self, name: str) -> DataFrame:
        """A view with all of its columns, which Spark keeps until `close`."""
        key = name, self.asked.skip_damaged
        if key not in self._kept:
            self._kept[key] = self.view(name).persist()
        return self._kept[key]
