"""The store and the queues that a question is about, and common parts of answers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ...analytics.scan.selection import queue_ids_named
from ...tools.history.history_view import HistoryView


def paths_of(asked: Mapping[str, Any]) -> list[str]:
    """Return the store and its archive."""
    return [path for path in (asked["store_dir"], asked["archive_dir"]) if path]


def queues_named(past: HistoryView, queue: str) -> Callable[[int], bool]:
    """Return the test of queue IDs for *queue*; empty for all queues. Raises `CairnError` for an unknown one."""
    if not queue:
        return lambda queue_id: True
    ids = queue_ids_named((queue,), past.queue_names, "queue {}")
    return lambda queue_id: queue_id in ids


def ignore_progress(what: str, done: int, total: int) -> None:
    """Ignore the progress of a question."""


def ms_of(time_us: int) -> float | None:
    """Return a time in milliseconds; None if it is unknown."""
    return time_us / 1000 if time_us else None
