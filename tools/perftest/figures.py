"""Measurements of a test: times in an HDR histogram, and the reports of clients on an iteration.

A histogram stores times from 100 ns to an hour in steps of 0.1 %, in little memory, and histograms can be added.
Percentiles of many clients, in many processes and on many machines, therefore cover all of their messages.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from hdrh.histogram import HdrHistogram
from numpy.typing import NDArray

STEP_NS = 100
_LONGEST = 36_000_000_000
_DIGITS = 3
_EXACT_BITS = 11
PERCENTILES = (50.0, 90.0, 99.0, 99.9, 99.99)
_GATHERED = 50_000


class Times:
    """Times in ns, of any number of messages."""

    def __init__(self) -> None:
        self._histogram = HdrHistogram(1, _LONGEST, _DIGITS)
        self._fresh: list[NDArray[np.int64]] = []
        self._fresh_count = 0

    def add(self, times_ns: NDArray[np.int64]) -> None:
        self._fresh.append(times_ns)
        self._fresh_count += len(times_ns)
        if self._fresh_count > _GATHERED:
            self._settle()

    def add_encoded(self, times: str) -> None:
        """Add the result of `encoded`."""
        self._histogram.decode_and_add(times.encode())

    def encoded(self) -> str:
        self._settle()
        return str(self._histogram.encode().decode("ascii"))

    @property
    def count(self) -> int:
        self._settle()
        return int(self._histogram.get_total_count())

    def us(self, percentile: float) -> float:
        """Return a percentile in microseconds; 0 without values."""
        return float(self._histogram.get_value_at_percentile(percentile)) * STEP_NS / 1000 if self.count else 0.0

    def summary(self) -> dict[str, float]:
        """In microseconds."""
        if not self.count:
            return {}
        found = {f"p{percentile:g}": self.us(percentile) for percentile in PERCENTILES}
        low, high = self._histogram.get_min_value(), self._histogram.get_max_value()
        mean = self._histogram.get_mean_value()
        return {
            "min": low * STEP_NS / 1000, "mean": round(mean * STEP_NS / 1000, 1), **found,
            "max": high * STEP_NS / 1000, "count": self.count,
        }  # fmt: skip

    def _settle(self) -> None:
        """Count equal times together, to as many digits as the histogram keeps: it takes one at a time."""
        if not self._fresh:
            return
        steps = np.clip(np.concatenate(self._fresh) // STEP_NS, 1, _LONGEST)
        self._fresh, self._fresh_count = [], 0
        shift = np.maximum(0, np.floor(np.log2(steps)).astype(np.int64) + 1 - _EXACT_BITS)
        values, counts = np.unique((steps >> shift) << shift, return_counts=True)
        for value, count in zip(values.tolist(), counts.tolist(), strict=True):
            self._histogram.record_value(value, count)


@dataclass
class Report:
    """The report of one client on one iteration; `partial` if it was stopped before its end."""

    role: str
    """`publisher` or `subscriber`."""
    number: int
    iteration: int
    messages: int = 0
    """Publisher: sent, and settled if it waits for that. Subscriber: received."""
    begun_ns: int = 0
    ended_ns: int = 0
    cpu_s: float = 0.0
    """The client's share of its process's."""
    times: str = ""
    """Publisher: from sent, or due, to accepted. Subscriber: to received."""
    refused: int = 0
    """Publisher: messages with another outcome than accepted."""
    lost: int = 0
    duplicated: int = 0
    reordered: int = 0
    altered: int = 0
    partial: bool = False

    @property
    def per_s(self) -> float:
        return self.messages * 1e9 / max(1, self.ended_ns - self.begun_ns) if self.messages else 0.0

    def wrong(self) -> dict[str, int]:
        names = ("refused", "lost", "duplicated", "reordered", "altered")
        return {name: found for name in names if (found := getattr(self, name))}


@dataclass
class Iteration:
    """All reports of one iteration."""

    number: int
    body_bytes: int
    reports: list[Report] = field(default_factory=list)

    def of(self, role: str) -> list[Report]:
        """Return the reports of the clients of that role."""
        return [report for report in self.reports if report.role == role]

    @property
    def partial(self) -> bool:
        return any(report.partial for report in self.reports)

    @property
    def seconds(self) -> float:
        begun = [report.begun_ns for report in self.reports if report.begun_ns]
        ended = [report.ended_ns for report in self.reports if report.ended_ns]
        return (max(ended) - min(begun)) / 1e9 if begun and ended else 0.0

    @property
    def transfers(self) -> int:
        return sum(report.messages for report in self.reports)

    def wrong(self) -> dict[str, int]:
        found = Counter[str]()
        for report in self.reports:
            found.update(report.wrong())
        return dict(found)

    def times(self, role: str) -> Times:
        found = Times()
        for report in self.of(role):
            if report.times:
                found.add_encoded(report.times)
        return found

    def cpu_us(self, role: str) -> float:
        """CPU per message of these clients."""
        those = self.of(role)
        messages = sum(report.messages for report in those)
        return sum(report.cpu_s for report in those) / messages * 1e6 if messages else 0.0

    def as_json(self) -> dict[str, Any]:
        seconds = self.seconds
        per_s = self.transfers / seconds if seconds else 0.0
        return {
            "iteration": self.number,
            "partial": self.partial,
            "seconds": round(seconds, 6),
            "transfers": self.transfers,
            "transfers_per_s": round(per_s, 1),
            "mbytes_per_s": round(per_s * self.body_bytes / (1 << 20), 3),
            "publishers": [_of(report) for report in self.of("publisher")],
            "subscribers": [_of(report) for report in self.of("subscriber")],
            "accepted_us": self.times("publisher").summary(),
            "end_to_end_us": self.times("subscriber").summary(),
            "client_cpu_us": {
                "publisher": round(self.cpu_us("publisher"), 3), "subscriber": round(self.cpu_us("subscriber"), 3),
            },
            "wrong": self.wrong(),
        }  # fmt: skip


def _of(report: Report) -> dict[str, Any]:
    found: dict[str, Any] = {"number": report.number, "messages": report.messages, "per_s": round(report.per_s, 1)}
    return found | report.wrong() | ({"partial": True} if report.partial else {})


def mean(values: Iterable[float]) -> float:
    found = list(values)
    return sum(found) / len(found) if found else 0.0


def totals(iterations: list[Iteration]) -> Mapping[str, float]:
    """The averages over the iterations."""
    found = [iteration.as_json() for iteration in iterations]
    return {
        "publisher_per_s": round(mean(mean(r.per_s for r in one.of("publisher")) for one in iterations), 1),
        "subscriber_per_s": round(mean(mean(r.per_s for r in one.of("subscriber")) for one in iterations), 1),
        "transfers_per_s": round(mean(one["transfers_per_s"] for one in found), 1),
        "mbytes_per_s": round(mean(one["mbytes_per_s"] for one in found), 3),
    }
