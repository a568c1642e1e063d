"""Fixtures: one small Spark session for all tests of a module, and stores to read."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from cairnmq.analytics.spark.session import session
from cairnmq.store.contract.options import StoreOptions
from cairnmq.store.embedded.library import open_store

SMALL = 64 << 10
OPTIONS = StoreOptions(container_bytes=SMALL, min_container_bytes=SMALL, reserve_bytes=4 * SMALL)
CONF = {
    "spark.driver.memory": "1g", "spark.ui.enabled": "false", "spark.sql.shuffle.partitions": "2",
    "spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1", "spark.sql.session.timeZone": "UTC",
    "spark.python.authenticate.socketTimeout": "120s",
}  # fmt: skip


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    """Yield a Spark session with two threads in one Java process."""
    made = session("local[2]", "tests", CONF)
    made.sparkContext.setLogLevel("OFF")  # failures are intended
    yield made
    made.stop()


Fill = Callable[[Path, int], None]


@pytest.fixture
def fill() -> Fill:
    return fill_store


def fill_store(path: Path, messages: int, archive: Path | None = None) -> None:
    """Enqueue *messages* messages in the store at *path*, and dequeue all but every fifth."""
    with open_store(str(path), options=replace(OPTIONS, archive_dir=str(archive) if archive else None)) as store:
        passing, staying = store.queue("passing"), store.queue("staying")
        for at in range(0, messages, 50):
            passing.put_all([b"%08d" % number * 10 for number in range(at, at + 50)]).result()
            with store.transaction() as both:
                for _ in range(10):
                    message = both.take(passing)
                    assert message is not None
                    both.put(staying, message.content)
            taken = [message for _ in range(40) if (message := passing.take()) is not None]
            passing.accept(taken).result()
