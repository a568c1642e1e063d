"""Streaming queries that run to their end, and stores of a newer format."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import SparkSession


def newer_format(data: bytearray, at: int) -> None:
    from crc32c import crc32c

    data[at + 8] = 9
    data[at : at + 4] = crc32c(bytes(data[at + 4 : at + 88])).to_bytes(4, "little")


def run(spark: SparkSession, store: Path, to: Path, **options: object) -> list[int]:
    """A stream of what there is into Parquet at *to*; the sizes of its batches."""
    reader = spark.readStream.format("journal")
    for name, value in options.items():
        reader = reader.option(name, str(value))
    writer = reader.load(str(store)).writeStream.format("parquet").option("checkpointLocation", f"{to}-checkpoint")
    query = writer.trigger(availableNow=True).start(str(to))
    query.awaitTermination()
    return [progress.numInputRows for progress in query.recentProgress if progress.numInputRows]


def streamed(spark: SparkSession, to: Path) -> list[int]:
    return sorted(row.lsn for row in spark.read.parquet(str(to)).select("lsn").collect())
