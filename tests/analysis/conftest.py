"""The `spark` fixture of the data source tests, shared with the tests of jobs."""

from __future__ import annotations

from tests.spark.conftest import spark

__all__ = ["spark"]
