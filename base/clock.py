"""The clock seam: monotonic seconds for timeouts, wall-clock microseconds for time stamps."""

from __future__ import annotations

import time
from typing import Protocol

_ANCHOR_NS = time.time_ns() - time.monotonic_ns()


def now_ns() -> int:
    """Nanoseconds since 1970, of a clock that does not jump while the process runs."""
    return time.monotonic_ns() + _ANCHOR_NS


class Clock(Protocol):
    """A source of time. Any thread may call it."""

    def monotonic_s(self) -> float:
        """Seconds that never go back; the zero is arbitrary."""

    def wall_us(self) -> int:
        """Microseconds since 1970-01-01 UTC; may jump."""


class SystemClock:
    """The machine's own clocks."""

    monotonic_s = staticmethod(time.monotonic)
    """The C function itself: each turn of a worker and each flush calls it several times."""

    def wall_us(self) -> int:
        return time.time_ns() // 1000
