"""Sets of LSNs, as runs, such as the exported LSNs. Late additions are inserted in order."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Ranges:
    """Runs of LSNs in order, none of which touches another: first, and the first one behind."""

    runs: tuple[tuple[int, int], ...] = ()

    @staticmethod
    def of(pairs: Iterable[Iterable[int]]) -> Ranges:
        """Raises `ValueError` if *pairs* are no runs."""
        runs = tuple((int(first), int(end)) for first, end in pairs)
        bounds = [bound for run in runs for bound in run]
        if bounds != sorted(set(bounds)) or any(bound < 0 for bound in bounds):
            raise ValueError("not a list of ranges of LSNs")
        return Ranges(runs)

    @staticmethod
    def union(of: Iterable[Ranges]) -> Ranges:
        """The union of ranges that may overlap."""
        runs: list[tuple[int, int]] = []
        for first, end in sorted(run for ranges in of for run in ranges.runs):
            if runs and runs[-1][1] >= first:
                first, before = runs.pop()
                end = max(end, before)
            runs.append((first, end))
        return Ranges(tuple(runs))

    def cut(self, first_lsn: int) -> Ranges:
        """These ranges without the part below *first_lsn*."""
        return Ranges(tuple((max(first, first_lsn), end) for first, end in self.runs if end > first_lsn))

    @property
    def end_lsn(self) -> int:
        """The end of the last run; 0 for an empty set."""
        return self.runs[-1][1] if self.runs else 0

    def from_on(self, lsn: int) -> int:
        """The first LSN that is not among them, from *lsn* on."""
        at = bisect_right(self.runs, lsn, key=lambda run: run[0])
        return max(self.runs[at - 1][1], lsn) if at else lsn

    def added(self, first_lsn: int, end_lsn: int) -> Ranges:
        """With another run."""
        return Ranges.union((self, Ranges(((first_lsn, end_lsn),))))

    def without(self, first_lsn: int, end_lsn: int) -> list[tuple[int, int]]:
        """The parts of a run that are not among these ranges."""
        found = []
        for first, end in (*self.runs, (end_lsn, end_lsn)):
            if first_lsn < min(first, end_lsn):
                found.append((first_lsn, min(first, end_lsn)))
            first_lsn = max(first_lsn, end)
        return found
