"""Streaming queries that run to their end, and stores of a newer format."""

from __future__ import annotations

import time
from pathlib import Path

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

UNSTARTED = "Python worker failed to connect back"
DEADLINE_S = 600
"""The time within which a failed query is started again."""


def newer_format(data: bytearray, at: int) -> None:
    from crc32c import crc32c

    data[at + 8] = 9
    data[at : at + 4] = crc32c(bytes(data[at + 4 : at + 88])).to_bytes(4, "little")


def run(spark: SparkSession, store: Path, to: Path, **options: object) -> list[int]:
    """Write the records of *store* into Parquet at *to*, as a stream; return the sizes of its batches.

    Spark fails a query whose Python worker does not connect within 10 s of its start, which a busy machine may exceed;
    no setting changes that. Such a query is started again, and continues behind its last batch.
    """
    reader = spark.readStream.format("journal")
    for name, value in options.items():
        reader = reader.option(name, str(value))
    writer = reader.load(str(store)).writeStream.format("parquet").option("checkpointLocation", f"{to}-checkpoint")
    sizes: list[int] = []
    end_s = time.monotonic() + DEADLINE_S
    while True:
        query = writer.trigger(availableNow=True).start(str(to))
        failure = _failure_of(query)
        sizes += [progress.numInputRows for progress in query.recentProgress if progress.numInputRows]
        if failure is None:
            return sizes
        if UNSTARTED not in str(failure) or time.monotonic() > end_s:
            raise failure


def _failure_of(query: StreamingQuery) -> PySparkException | None:
    """Wait for the end of *query*, and return its failure."""
    try:
        query.awaitTermination()
    except PySparkException as error:
        return error
    return None


def streamed(spark: SparkSession, to: Path) -> list[int]:
    return sorted(row.lsn for row in spark.read.parquet(str(to)).select("lsn").collect())
