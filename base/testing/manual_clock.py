"""A clock that a simulation moves."""

from __future__ import annotations


class ManualClock:
    """A clock that moves only by explicit calls, for tests and simulation."""

    def __init__(self, start_s: float = 1000.0) -> None:
        self.now_s = start_s
        self._wall_offset_us = 0

    def advance(self, seconds: float) -> None:
        self.now_s += seconds

    def set_wall_clock(self, seconds: float) -> None:
        """Set the wall clock by so many seconds, as NTP does; monotonic time is not affected."""
        self._wall_offset_us += int(seconds * 1_000_000)

    def monotonic_s(self) -> float:
        return self.now_s

    def wall_us(self) -> int:
        return int(self.now_s * 1_000_000) + self._wall_offset_us
