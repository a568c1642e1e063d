"""A process with a query that writes a journal's records to Parquet until it is killed. Arguments: store, target."""

from __future__ import annotations

import sys

from pyspark.sql.streaming.query import StreamingQuery

from cairnmq.analytics.spark.session import session

COLUMNS = "lsn,type,message_id,moved,amqp_message_id"
CONF = {
    "spark.driver.memory": "1g", "spark.ui.enabled": "false", "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1", "spark.sql.streaming.minBatchesToRetain": "5",
    "spark.python.authenticate.socketTimeout": "120s",
}  # fmt: skip


def start(spark: object, store: str, target: str, *, available_now: bool) -> StreamingQuery:
    """Start the query; after a restart it continues where it stopped."""
    reader = spark.readStream.format("journal").option("slot", "parquet").option("maxBytesPerTrigger", "2m")  # type: ignore[attr-defined]
    reader = reader.option("copies", "all").option("maxPartitionBytes", "512k").option("verify", "full")
    writer = reader.option("columns", COLUMNS).load(store).writeStream.format("parquet")
    writer = writer.option("checkpointLocation", f"{target}-checkpoint")
    when = {"availableNow": True} if available_now else {"processingTime": "0 seconds"}
    found: StreamingQuery = writer.trigger(**when).start(target)
    return found


if __name__ == "__main__":
    start(session("local[2]", "query", CONF), sys.argv[1], sys.argv[2], available_now=False).awaitTermination()
