"""Histograms of measured values: one thread at a time counts, any thread reads."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate


@dataclass(frozen=True)
class HistogramValue:
    """A snapshot of a histogram."""

    bounds: tuple[float, ...]
    """Ascending; a value belongs to the first bound that is not below it."""
    counts: tuple[int, ...]
    """The number of values for each bound, and last the number of values above all bounds."""
    total: float
    """The sum of the values."""

    @property
    def count(self) -> int:
        return sum(self.counts)

    def cumulative(self) -> list[int]:
        """Return for each bound the number of values that are not above it, and last the total number."""
        return list(accumulate(self.counts))


class Histogram:
    """A histogram: counts values by their size. Hot paths write `observe` out by hand, which saves its call."""

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = tuple(bounds)
        self.counts = [0] * (len(self.bounds) + 1)
        self.total = 0.0

    def observe(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value

    def value(self) -> HistogramValue:
        return HistogramValue(self.bounds, tuple(self.counts), self.total)
