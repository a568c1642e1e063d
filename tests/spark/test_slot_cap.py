"""Tests of a slot's size limit on a live broker, and of the reports of lost records by broker and stream."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.errors.exceptions.captured import StreamingQueryException
from pyspark.sql import SparkSession

from cairnmq.analytics.views.journal import open_journal
from cairnmq.store.journaled.retention_leases import read_bookmark
from tests.harness.spark.streams import run, streamed
from tests.harness.spark.traffic import CONTAINER, Broker, Clients, wait_for


def work(broker: Broker, done: Callable[[], object] = lambda: True) -> None:
    """Pass messages through the broker, at least some, until *done* returns true."""
    clients = Clients(broker.port)
    try:
        clients.come_on()
        wait_for(lambda: clients.goes_on() and done())
    finally:
        clients.stop()


def test_a_slot_that_is_too_far_behind_is_dropped(spark: SparkSession, tmp_path: Path) -> None:
    """A slot retains records up to its limit; then the stream fails with the lost range, or skips it if permitted."""
    store, target = tmp_path / "store", tmp_path / "target"
    options = {"slot": "small", "slotMaxBytes": "4m", "columns": "lsn"}
    broker = Broker(store)
    try:
        work(broker)
        assert run(spark, store, target, **options)
        held = read_bookmark(str(store), "small")
        assert held is not None

        def is_used_again() -> bool:
            log = open_journal(str(store), history=True).log
            return any(gap.is_reclaimed for gap in log.missing(held.lsn, log.durable_lsn))

        work(broker, is_used_again)
        broker.process.wait_for(r"bookmark small is \d+ bytes behind the log, and dropped at 4194304")
        broker.process.wait_for(rf"bookmark small was dropped at LSN {held.lsn} \(it may be 4194304 bytes behind\)")
        lost = open_journal(str(store), history=True).log.missing(held.lsn, held.lsn + (1 << 40))
        assert lost[-1].end_lsn - lost[0].first_lsn >= CONTAINER // 2
        with pytest.raises(StreamingQueryException) as raised:
            run(spark, store, target, **options)
        for said in ("was asked for", "were reclaimed", "failOnDataLoss=false", "for a stream, a slot"):
            assert said in str(raised.value)
        before = set(streamed(spark, target))
        assert run(spark, store, target, **options, failOnDataLoss=False)
        after = streamed(spark, target)
        assert len(set(after)) == len(after)
        assert set(after) > before
        assert not any(gap.first_lsn <= lsn < gap.end_lsn for gap in lost for lsn in set(after) - before)
    finally:
        broker.stop()
