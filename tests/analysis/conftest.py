"""The same small Spark session as for the data source."""

from __future__ import annotations

from tests.spark.conftest import spark

__all__ = ["spark"]
