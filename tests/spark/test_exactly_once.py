"""Tests that a stream into Parquet has each record exactly once if the query, the broker or both are killed.

Clients count confirmed messages, and the archive has every record at the end. The query does not use
the archive: only its slot retains the records it needs, while the broker recycles containers and compacts.

`make stream-kills KILLS=20 SEED=7` is a longer run.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.errors.exceptions.captured import StreamingQueryException
from pyspark.sql import SparkSession

from cairnmq.analytics.scan.files import open_log
from cairnmq.analytics.spark.session import journal
from cairnmq.analytics.views.journal import open_journal
from cairnmq.analytics.views.records import ReadOptions
from cairnmq.journal.files.archive import archived_lsn
from cairnmq.store.journaled.retention_leases import read_bookmark
from tests.harness.spark.query import start
from tests.harness.spark.traffic import CONTAINER, Broker, Clients, wait_for

QUERY = Path(__file__).parents[1] / "harness" / "spark" / "query.py"
TOO_SLOW = "Python worker failed to connect back"
QUERY_KILLS = int(os.environ.get("CAIRN_QUERY_KILLS", "2"))
SEED = int(os.environ.get("CAIRN_SEED", "1"))
MOST_AHEAD = 8 * CONTAINER
ARCHIVED = 10
"""Number of archived containers that a run must exceed, so that containers are recycled on any machine."""


class Query:
    """A process of the program `query.py` that can be killed and started again."""

    def __init__(self, store: Path, target: Path) -> None:
        self._command = [sys.executable, str(QUERY), str(store), str(target)]
        self._commits = Path(f"{target}-checkpoint") / "commits"
        self.start()

    def start(self) -> None:
        self._process = subprocess.Popen(
            self._command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, start_new_session=True
        )

    def committed(self) -> int:
        """Return the number of the last committed batch, or -1."""
        names = os.listdir(self._commits) if self._commits.is_dir() else []
        return max((int(name) for name in names if name.isdecimal()), default=-1)

    def is_running(self) -> bool:
        """Return True, or fail with the output of the ended query; restart it if Spark timed out on a busy machine."""
        if self._process.poll() is not None:
            said = self._process.communicate()[1].decode()
            assert TOO_SLOW in said, said[-3000:]
            self.start()
        return True

    def kill(self) -> None:
        """Kill the query and all processes that it started."""
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.communicate()


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    (tmp_path / "archive").mkdir()
    made = Broker(tmp_path / "store", "--archive-dir", str(tmp_path / "archive"))
    yield made
    made.stop()


@pytest.mark.timeout(600 + 300 * QUERY_KILLS)
def test_kills_of_the_query_and_of_the_broker(tmp_path: Path, spark: SparkSession, broker: Broker) -> None:
    store, target = tmp_path / "store", tmp_path / "parquet"
    rng = random.Random(SEED)
    query = Query(store, target)
    clients = None
    try:
        wait_for(lambda: query.is_running() and read_bookmark(str(store), "parquet"))
        clients = Clients(broker.port, lambda: ahead(store) > MOST_AHEAD)
        for number in range(QUERY_KILLS):
            if number:
                query.kill()
                query.start()
            for _ in range(2):
                until_it_came_on(query, clients)
                time.sleep(rng.random() / 5)
                broker.kill_and_restart()
        wait_for(lambda: query.is_running() and clients.goes_on() and archived(tmp_path) > ARCHIVED)
        query.kill()
        clients.come_on()
        reads_beside(spark, tmp_path, clients)
        stream_what_there_is_beside(spark, store, target, clients)
    finally:
        if clients is not None:
            clients.stop()
        query.kill()
    assert broker.process.stop() == 0
    run = finish(spark, store, target)
    each_record_is_there_once(spark, tmp_path, run)
    each_confirmed_message_is_there_once(spark, target, clients)


def until_it_came_on(query: Query, clients: Clients) -> None:
    """Wait until the query has committed two more batches."""
    goal = query.committed() + 2
    wait_for(lambda: query.is_running() and clients.goes_on() and query.committed() >= goal)


def ahead(store: Path) -> int:
    """Return the distance in LSNs from the query's position to the durability mark of the log."""
    held = read_bookmark(str(store), "parquet")
    return 0 if held is None else open_log(str(store)).durable_lsn - held.lsn


def reads_beside(spark: SparkSession, place: Path, clients: Clients) -> None:
    """Read views while the broker writes, and check that each staying message is read once, even if it is relocated.

    Without the archive, reading may fail with a report that a container was recycled.
    """
    for archive in (place / "archive", None):
        before = clients.staying
        clients.come_on()
        columns = "message_id,state,queue,amqp_message_id"
        try:
            rows = journal(spark, str(place / "store"), view="messages", columns=columns, archive=archive).collect()
        except PySparkException as error:
            if archive is not None or "was reclaimed while it was read; keep history in an archive" not in str(error):
                raise
            continue
        names = [row.amqp_message_id for row in rows if row.amqp_message_id is not None]
        assert len(set(names)) == len(names)
        stay = {row.amqp_message_id for row in rows if (row.state, row.queue) == ("queued", "staying")}
        assert stay >= set(map(str, before))


def stream_what_there_is_beside(spark: SparkSession, store: Path, target: Path, clients: Clients) -> None:
    """Check that AvailableNow ends while the broker writes, with all messages that were confirmed before its start."""
    before = list(clients.confirmed)
    clients.come_on()
    finish(spark, store, target)
    assert clients.goes_on()
    found = spark.read.parquet(str(target)).filter("type = 'start' and not moved").select("amqp_message_id").collect()
    assert {row.amqp_message_id for row in found} >= set(map(str, before))


def archived(place: Path) -> int:
    """Return the number of containers in the archive."""
    return sum(archived_lsn(name) is not None for name in os.listdir(place / "archive"))


def each_record_is_there_once(spark: SparkSession, place: Path, run: object) -> None:
    everything = open_journal(str(place / "store"), archive=str(place / "archive"), history=True)
    begin_lsn, end_lsn = read_by(run)
    assert not everything.log.gaps
    every = [lsn for batch in everything.records(ReadOptions(), ["lsn"]) for lsn in batch["lsn"].to_pylist()]
    found = sorted(row.lsn for row in spark.read.parquet(str(place / "parquet")).select("lsn").collect())
    assert found == [lsn for lsn in every if begin_lsn <= lsn < end_lsn]
    assert archived(place) > ARCHIVED, "no container was recycled"
    assert everything.log.base_lsn > CONTAINER


def each_confirmed_message_is_there_once(spark: SparkSession, target: Path, clients: Clients) -> None:
    """Check that each confirmed message was read once, and each unconfirmed one at most once."""
    starts = spark.read.parquet(str(target)).filter("type = 'start'")
    assert starts.filter("moved").count(), "nothing was relocated"
    count = Counter(row.amqp_message_id for row in starts.filter("not moved").select("amqp_message_id").collect())
    assert set(count.values()) == {1}
    assert count.keys() >= set(map(str, clients.confirmed))


def finish(spark: SparkSession, store: Path, target: Path) -> object:
    """Run the query to the end of the log, up to 20 times on a slow machine, and return its last run."""
    for _ in range(20):
        run = start(spark, str(store), str(target), available_now=True)
        try:
            run.awaitTermination()
        except StreamingQueryException as error:
            if TOO_SLOW not in str(error):
                raise
        else:
            return run
    raise AssertionError("the machine is too slow")


def read_by(query: object) -> tuple[int, int]:
    """Return the LSN where the stream began, which may be after the log's beginning, and where its last batch ended."""
    progress = query.lastProgress  # type: ignore[attr-defined]
    offset = json.loads(progress["sources"][0]["endOffset"])
    return int(offset.get("since", 0)), int(offset["lsn"])
