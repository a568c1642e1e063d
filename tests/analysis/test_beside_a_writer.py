"""Tests of jobs on a store that is written: results are as of the start of the job, or the job reports an error."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from cairnmq.analytics.jobs.job_run import answer
from cairnmq.analytics.jobs.table import JOBS
from cairnmq.analytics.jobs.views import Views
from cairnmq.analytics.scan.files import find_again
from cairnmq.analytics.scan.read_lease import held
from cairnmq.analytics.scan.selection import Selection
from cairnmq.analytics.views.journal import open_journal
from cairnmq.analytics.views.records import ReadOptions
from cairnmq.base.errors import CairnError
from tests.harness.columns.live_store import SMALL, written


def base_lsn(store: Path) -> int:
    return open_journal(str(store)).log.base_lsn


def durable_lsn(store: Path) -> int:
    return open_journal(str(store)).log.durable_lsn


def test_jobs_are_as_of_the_moment_when_they_began(spark: SparkSession, tmp_path: Path) -> None:
    """Results are as of the start of the jobs with a read lease, which keeps containers that leave the log on disk."""
    path = tmp_path / "store"
    with written(path):
        while base_lsn(path) < 10 * SMALL:
            pass
        with held(str(path)):
            views = Views(spark, str(path), many=True)
            end_lsn = views.log.durable_lsn
            journal = open_journal(str(path))
            journal.log = views.log  # a later read may miss records that compaction copied after that LSN
            state = journal.queues(ReadOptions(selection=Selection(end_lsn=end_lsn))).to_pylist()
            while durable_lsn(path) < end_lsn + 30 * SMALL:
                pass
            found = {name: answer(JOBS[name], views).to_pylist() for name in ("integrity", "backlog", "depth")}
            views.close()
            assert base_lsn(path) > views.log.first_lsn, "nothing left the log"
    depths = {row["queue"]: row["depth"] for row in state}
    assert depths["staying"] > 0
    assert found["integrity"] == []
    assert {row["queue"]: row["messages"] for row in found["backlog"]} == {
        name: depth for name, depth in depths.items() if depth
    }
    last = {row["queue"]: row["depth"] for row in found["depth"]}  # rows are in order of time
    assert last == depths


@pytest.mark.parametrize("name", ["backlog", "transactions", "space"])
def test_what_was_given_back_meanwhile_is_told(spark: SparkSession, tmp_path: Path, name: str) -> None:
    """Without a read lease, a job fails if containers that it needs are reclaimed."""
    path = tmp_path / "store"
    with written(path):
        while base_lsn(path) < 10 * SMALL:
            pass
        views = Views(spark, str(path), many=True)
        while find_again(views.log, views.log.first_lsn):  # a reclaimed container is readable until its file is reused
            pass
        with pytest.raises(CairnError, match=rf"^{name}: .*reclaimed") as raised:
            answer(JOBS[name], views)
        views.close()
    assert "\n" not in str(raised.value)
    assert "Spark failed" not in str(raised.value)
