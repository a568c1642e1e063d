"""The store and the queues that a question is about, and common parts of answers."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ...analytics.scan.selection import queue_ids_named
from ...tools.history.history_view import HistoryView

REPORT_S = 0.2
_reported_s = 0.0

def paths_of(asked: Mapping[str, Any]) -> list[str]:
    """Return the store and its archive."""
    return [path for path in (asked["store_dir"], asked["archive_dir"]) if path]


def labels_of(stores: Iterable[str], own: str) -> dict[str, str]:
    """Return *stores* by label: the shortest end of each path that is not that of another one. *own* is left out."""
    paths = {os.path.abspath(store): store for store in stores}
    taken = {*paths, os.path.abspath(own)}
    found = {}
    for path, store in paths.items():
        parts = path.strip("/").split("/")
        ends = ["/".join(parts[-count:]) for count in range(1, len(parts) + 1)]
        label = next((end for end in ends if sum(f"/{end}" == one[-len(end) - 1 :] for one in taken) == 1), path)
        if path != os.path.abspath(own):
            found[label] = store
    return found


def queues_named(past: HistoryView, queue: str) -> Callable[[int], bool]:
    """Return the test of queue IDs for *queue*; empty for all queues. Raises `CairnError` for an unknown one."""
    if not queue:
        return lambda queue_id: True
    ids = queue_ids_named((queue,), past.queue_names, "queue {}")
    return lambda queue_id: queue_id in ids


def shown_queues(past: HistoryView, queue: str) -> Callable[[int], bool]:
    """Return the test of queue IDs for *queue*; empty for all but the queues of the broker itself."""
    if queue:
        return queues_named(past, queue)
    return lambda queue_id: not past.name_of(queue_id).startswith("$")


def report_progress(what: str, done: int, total: int) -> None:
    """Write the progress of the question as a line: its stage, and the parts done of all. At most one each 0.2 s."""
    global _reported_s
    now_s = time.monotonic()
    if now_s - _reported_s >= REPORT_S:
        _reported_s = now_s
        sys.stdout.write(json.dumps([what, done, total]) + "\n")
        sys.stdout.flush()


def ms_of(time_us: int) -> float | None:
    """Return a time in milliseconds; None if it is unknown."""
    return time_us / 1000 if time_us else None
