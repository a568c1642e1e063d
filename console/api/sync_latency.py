"""The latency of syncs, from the histogram of the store since its start."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any


class SyncLatency:
    """The latency of the syncs between two samples of the store."""

    def __init__(self) -> None:
        self._counts: list[int] = []
        self._seconds = 0.0
        self.latest: dict[str, Any] = {}
        """The latency of the last interval with syncs; empty before the first one."""

    def add(self, store: Mapping[str, Any]) -> float | None:
        """Add a sample; return the mean latency since the previous one in ms, None without a sync."""
        bounds, counts = store.get("journal-fsync-bounds"), store.get("journal-fsync-counts")
        if not bounds or not counts:
            return None
        seconds = float(store["journal-fsync-seconds"])
        since = [now - before for now, before in zip(counts, self._counts or [0] * len(counts), strict=True)]
        duration_s = seconds - self._seconds
        if min(since) < 0:  # the broker has started again
            since, duration_s = counts, seconds
        self._counts, self._seconds = counts, seconds
        number = sum(since)
        if not number:
            return None
        mean_ms: float = round(1000 * duration_s / number, 3)
        self.latest = {
            "p50_ms": percentile_ms(bounds, since, 0.5), "p99_ms": percentile_ms(bounds, since, 0.99),
            "mean_ms": mean_ms, "count": number,
        }  # fmt: skip
        return mean_ms


def percentile_ms(bounds: Sequence[float], counts: Sequence[int], share: float) -> float:
    """Return the latency that *share* of the syncs do not exceed, interpolated in its class; at most the last bound."""
    sums = list(accumulate(counts))
    rank = share * sums[-1]
    at = bisect_left(sums, rank)
    if at >= len(bounds):
        return round(1000 * bounds[-1], 3)
    lower = bounds[at - 1] if at else 0.0
    inside = (rank - (sums[at] - counts[at])) / counts[at]
    return round(1000 * (lower + inside * (bounds[at] - lower)), 3)
