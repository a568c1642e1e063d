"""A stream into Parquet has each record once, whatever is killed: the query, the process that owns the store, or both.

The archive tells the truth at the end. The query is not told of it: what it still wants is kept by its slot alone.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from pyspark.errors.exceptions.captured import StreamingQueryException
from pyspark.sql import SparkSession

from cairnmq.columns.journal import open_journal
from cairnmq.columns.records import Reading
from cairnmq.journal.archive import archived_lsn
from cairnmq.store.bookmarks import read_bookmark

from .query import start

HERE = Path(__file__).parent
TOO_SLOW = "Python worker failed to connect back"
DEADLINE_S = 450
QUERY_KILLS = int(os.environ.get("CAIRN_QUERY_KILLS", "2"))


def wait_for(what: Callable[[], object]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not what():
        assert time.monotonic() < deadline
        time.sleep(0.02)


class Killed:
    """A program that is killed and started again."""

    def __init__(self, program: str, *arguments: Path) -> None:
        self._command = [sys.executable, str(HERE / program), *map(str, arguments)]
        self.kills = 0
        self._start()

    def _start(self) -> None:
        self._process = subprocess.Popen(
            self._command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, start_new_session=True
        )

    def kill(self) -> None:
        """With all processes that it started."""
        assert self.is_running()
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.communicate()
        self.kills += 1

    def is_running(self) -> bool:
        """True; else the test fails with what it said. Spark may give up on a busy machine: as good as a kill."""
        if self._process.poll() is not None:
            said = self._process.communicate()[1].decode()
            assert TOO_SLOW in said, said[-3000:]
            self._start()
        return True

    def stop(self) -> None:
        """At the end, however that came."""
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.communicate()

    def kill_and_restart(self) -> None:
        self.kill()
        self._start()


def test_kills_of_the_query_and_of_the_store(tmp_path: Path, spark: SparkSession) -> None:
    store, archive, target = tmp_path / "store", tmp_path / "archive", tmp_path / "parquet"
    archive.mkdir()
    commits = Path(f"{target}-checkpoint") / "commits"
    rng = random.Random(1)
    traffic = Killed("traffic.py", store, archive)
    query = None
    try:
        wait_for(lambda: (store / "journal").is_dir() and any((store / "journal").glob("*.cairn")))
        wait_for(lambda: (store / "journal" / "log.mark").exists())

        def committed() -> int:
            return max((int(one.name) for one in commits.glob("[0-9]*")), default=-1) if commits.is_dir() else -1

        query = Killed("query.py", store, target)
        for number in range(QUERY_KILLS):
            for _ in range(2):
                goal = committed() + 3

                def has_come(goal: int = goal, query: Killed = query) -> bool:
                    return query.is_running() and traffic.is_running() and committed() >= goal

                wait_for(has_come)
                time.sleep(rng.random() / 5)
                traffic.kill_and_restart()
            query.kill()
            if number + 1 < QUERY_KILLS:
                query = Killed("query.py", store, target)
        wait_for(lambda: traffic.is_running() and read_bookmark(str(store), "parquet"))
    finally:
        for process in (traffic, query):
            if process is not None:
                process.stop()
    again = Killed("traffic.py", store, archive)  # a recovery proves what the kill left
    wait_for(lambda: again.is_running() and open_journal(str(store)).log.durable_lsn > 40 * (64 << 10))
    again.kill()
    run = finish(spark, store, target)
    everything = open_journal(str(store), archive=str(archive), history=True)
    begin_lsn, end_lsn = read_by(run)
    assert not everything.log.gaps
    every = [lsn for batch in everything.records(Reading(), ["lsn"]) for lsn in batch["lsn"].to_pylist()]
    expected = [lsn for lsn in every if begin_lsn <= lsn < end_lsn]
    found = sorted(row.lsn for row in spark.read.parquet(str(target)).select("lsn").collect())
    assert found == expected
    archived = [name for name in os.listdir(archive) if archived_lsn(name) is not None]
    assert len(archived) > 10, "no container was recycled"
    assert everything.log.base_lsn > 10 * (64 << 10)


def finish(spark: SparkSession, store: Path, target: Path) -> object:
    """The query run to the end of what there is."""
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
    """Where the stream began, which may be behind the log's beginning, and where its last batch ended."""
    progress = query.lastProgress  # type: ignore[attr-defined]
    offset = json.loads(progress["sources"][0]["endOffset"])
    return int(offset.get("since", 0)), int(offset["lsn"])
