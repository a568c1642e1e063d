"""Journals as a data source of Spark, batch and streaming: `cairnmq.analytics.spark.journal(spark, "./data")` is a
DataFrame."""

from __future__ import annotations

from typing import TYPE_CHECKING

__all__ = ["journal"]

if TYPE_CHECKING:
    from .session import journal
else:

    def __getattr__(name: str) -> object:
        """Import Spark lazily, not with the package."""
        if name != "journal":
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from .session import journal

        return journal
