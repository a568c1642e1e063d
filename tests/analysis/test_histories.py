"""The results of jobs match the operations of clients for random histories of a store on an in-memory disk.

Histories include compaction, container reuse with an archive, purges, transactions of all outcomes, and crashes.
Crashes lose unflushed operations, which are removed from the notes of clients, so no job may report them.
"""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from cairnmq.analytics.jobs.job_run import answer, job_named
from cairnmq.analytics.jobs.views import Views, ViewsRequest
from cairnmq.analytics.views.journal import open_journal
from cairnmq.journal.files.archive import archived_lsn
from tests.harness.analysis.crashing import Crashing
from tests.harness.analysis.laws import LAWS, write_log
from tests.harness.analysis.space_laws import LAWS as SPACE_LAWS
from tests.harness.analysis.walked import walk


def test_behind_a_life_that_did_nothing_all_is_read(tmp_path: Path) -> None:
    """Records before and after a run without operations are read, although its empty slot is not archived."""
    clients = Crashing(1, tmp_path / "archive")
    clients.step()
    for steps in (12, 0, 12):
        for _ in range(steps):
            clients.step()
        clients.crash()
    log = open_journal(clients.laid_out(tmp_path / "store"), archive=str(tmp_path / "archive")).log
    there = {piece.slot_lsn for piece in log.pieces}
    assert {archived_lsn(file.name) for file in (tmp_path / "archive").iterdir()} <= there
    assert not log.gaps
    assert log.openings


@settings(max_examples=1, database=None, suppress_health_check=list(HealthCheck))
@given(seed=st.integers(0, 1 << 30), lives=st.lists(st.integers(3, 12), min_size=1, max_size=4))
@example(seed=1, lives=[12, 3, 12])
def test_history_agrees_with_model(spark: SparkSession, seed: int, lives: list[int]) -> None:
    """Jobs match the model for a history with *lives* steps before each crash and after the last crash."""
    with TemporaryDirectory() as place:
        archive = Path(place, "archive")
        clients = Crashing(seed, archive)
        for number, steps in enumerate(lives):
            if number:
                clients.crash()
            for _ in range(steps):
                clients.step()
            if steps > 6:
                clients.purge()
        store = clients.laid_out(Path(place, "store"))
        log = write_log(clients.notes, Path(place, "sent.jsonl"))
        views = Views(spark, store, ViewsRequest(archive=str(archive), producer_log=log), many=bool(seed % 2))
        names = {number: name for name, number in clients.ids.items()}

        def ask(job: str) -> list[dict[str, Any]]:
            """Return the rows of a job with queue names added, as the store has no SQL wiring."""
            rows = answer(job_named(job), views).to_pylist()
            return [row | {"queue": names[row["queue_id"]]} if "queue_id" in row else row for row in rows]

        try:
            assert not views.gaps
            for law in LAWS:
                law(clients.notes, ask)
            walked = walk(Path(store), archive)
            for space_law in SPACE_LAWS:
                space_law(clients.notes, walked, ask)
        finally:
            views.close()
