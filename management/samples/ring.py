"""Samples at fixed intervals of the wall clock, kept for a fixed time."""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from math import isnan, nan
from typing import NamedTuple


class Span(NamedTuple):
    """An interval between samples, and the number of samples that are kept."""

    interval_s: int
    kept: int


SPANS = {"hour": Span(5, 720), "day": Span(60, 1440)}
SAMPLE_S = SPANS["hour"].interval_s


class Ring:
    """The last samples of one span, a column for each figure.

    A sample is known by its number: the seconds since 1970 divided by the interval. Missing samples are NaN, so a gap
    stays a gap. After a step of the wall clock backward, samples that are now in the future are dropped.
    """

    def __init__(self, span: Span, columns: int, typecode: str) -> None:
        self._kept = span.kept
        self._values = [array(typecode, [nan]) * span.kept for _ in range(columns)]
        self._end = 0
        """The number behind the last sample."""
        self._begin = 0
        """The number of the first sample that may be known."""

    def set(self, number: int, values: Sequence[float]) -> None:
        """Set the sample of *number*."""
        if not self._end or not self._begin < number < self._end + self._kept:  # the first one, or a long gap or step
            self._begin = number
            self._end = number
        for missing in range(min(self._end, number), max(self._end, number + 1)):
            for column in self._values:
                column[missing % self._kept] = nan
        for column, value in zip(self._values, values, strict=True):
            column[number % self._kept] = value
        self._end = number + 1
        self._begin = max(self._begin, self._end - self._kept)

    def since(self, number: int) -> tuple[int, list[array[float]]]:
        """Return the number of the first sample from *number* on, and the values of each column from there."""
        begin = min(max(number, self._begin), self._end)
        if begin == self._end:
            return begin, [column[:0] for column in self._values]
        first, last = begin % self._kept, (self._end - 1) % self._kept + 1
        if first < last:
            return begin, [column[first:last] for column in self._values]
        return begin, [column[first:] + column[:last] for column in self._values]


class History:
    """The samples of one entity: an hour and a day. A minute has the last levels, and the mean of the rates."""

    def __init__(self, columns: Mapping[str, bool], typecode: str) -> None:
        """*columns*: the names, and whether a figure is a rate."""
        self.columns = columns
        self._rings = {name: Ring(span, len(columns), typecode) for name, span in SPANS.items()}
        self._minute = 0
        self._sums = [(0.0, 0)] * len(columns)
        """The sum and the number of the samples of the present minute, of each rate."""

    def add(self, wall_s: float, values: Sequence[float]) -> None:
        self._rings["hour"].set(int(wall_s // SAMPLE_S), values)
        minute = int(wall_s // SPANS["day"].interval_s)
        if minute != self._minute:
            self._minute, self._sums = minute, [(0.0, 0)] * len(self.columns)
        merged = list(values)
        for at, is_rate in enumerate(self.columns.values()):
            if is_rate:
                total, number = self._sums[at]
                if not isnan(values[at]):
                    total, number = self._sums[at] = total + values[at], number + 1
                merged[at] = total / number if number else nan
        self._rings["day"].set(minute, merged)

    def since(self, span: str, number: int) -> tuple[int, dict[str, array[float]]]:
        """See `Ring.since`; the values by column."""
        begin, found = self._rings[span].since(number)
        return begin, dict(zip(self.columns, found, strict=True))
