"""A clock that a simulation moves."""

from __future__ import annotations


class ManualClock:
    """A clock that moves only by explicit calls, for tests and simulation."""

    def __init__(self, start_s: float = 1000.0) -> None:
        self.now_s = start_s

    def advance(self, seconds: float) -> None:
        self.now_s += seconds

    def monotonic_s(self) -> float:
        return self.now_s

    def wall_us(self) -> int:
        return int(self.now_s * 1_000_000)
