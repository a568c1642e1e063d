"""Tests of jobs against the notes of clients, with transactions, compaction, container reuse, purges and kills."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from cairnmq.analytics.jobs.job_run import answer, job_named
from cairnmq.analytics.jobs.views import Views, ViewsRequest
from tests.harness.analysis.laws import LAWS, Ask, write_log
from tests.harness.analysis.space_laws import LAWS as SPACE_LAWS
from tests.harness.analysis.walked import Walked, walk

from .clients import SMALL, Notes, live

Law = Callable[[Notes, Ask], None]
SpaceLaw = Callable[[Notes, Walked, Ask], None]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("world")


@pytest.fixture(scope="module")
def world(place: Path) -> Notes:
    """Generate half a day of traffic in three runs of the store, with all containers archived."""
    return live(place, 5, [25, 25, 15], archived=True)


@pytest.fixture(scope="module")
def views(spark: SparkSession, world: Notes, place: Path) -> Iterator[Views]:
    asked = ViewsRequest(archive=str(place / "archive"), producer_log=write_log(world, place / "sent.csv"))
    made = Views(spark, str(place / "store"), asked)
    yield made
    made.close()


@pytest.fixture(scope="module")
def ask(views: Views) -> Ask:
    return lambda name: answer(job_named(name), views).to_pylist()


def test_the_world_has_all_that_is_to_be_met(world: Notes, views: Views) -> None:
    """The traffic includes compaction, container reuse, kills, purges, and transactions of all outcomes."""
    assert views.whole_from == 0
    assert any(piece.is_archived for piece in views.log.pieces)
    assert not all(piece.is_archived for piece in views.log.pieces)
    assert views.log.base_lsn > SMALL or views.log.gaps
    assert world.kills == 2
    assert {stay.how for stay in world.stays} == {"", "dequeued", "purged"}
    assert {noted.state for noted in world.transactions} == {"committed", "rolled back", "prepared"}
    assert views.records("moved").filter("moved").count() > 0


@pytest.mark.parametrize("law", LAWS, ids=lambda law: str(law.__name__))
def test_a_job_says_what_clients_did(law: Law, world: Notes, ask: Ask) -> None:
    law(world, ask)


@pytest.mark.parametrize("law", SPACE_LAWS, ids=lambda law: str(law.__name__))
def test_a_job_says_where_things_stand(law: SpaceLaw, world: Notes, place: Path, ask: Ask) -> None:
    law(world, walk(place / "store", place / "archive"), ask)


def test_some_messages_lived_over_a_start(world: Notes, ask: Ask) -> None:
    assert all(row["over_recoveries"] > 0 for row in ask("redeliveries"))
