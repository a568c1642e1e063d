"""Spark looks for modules named `pyspark_*`, and knows their data sources without being told: here `journal`."""

from cairnmq.analytics.spark.source import JournalSource as DefaultSource

__all__ = ["DefaultSource"]
