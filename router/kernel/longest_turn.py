"""The longest turn of a loop in the recent past, which is the longest wait of all others."""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter

WINDOW_S = 15.0


class LongestTurn:
    """The maximum of the values recorded in the last 15 to 30 seconds.

    Time is divided into windows, and the maxima of the current one and of the previous one are kept. A reader changes
    nothing, so several readers see the same value.
    """

    def __init__(self, clock: Callable[[], float] = perf_counter) -> None:
        self._clock = clock
        self._window = 0
        self._before_s = 0.0
        self.maximum_s = 0.0
        """The maximum of the current window."""
        self.window_end_s = 0.0
        """The end of the current window. A turn that ends before it and is shorter than `maximum_s` changes nothing."""

    def note(self, duration_s: float, now_s: float) -> None:
        """Record a turn that ended at *now_s*, by the clock of the constructor."""
        window = int(now_s // WINDOW_S)
        if window != self._window:
            self._before_s = self.maximum_s if window == self._window + 1 else 0.0
            self.maximum_s, self._window = 0.0, window
        self.window_end_s = (window + 1) * WINDOW_S
        if duration_s > self.maximum_s:
            self.maximum_s = duration_s

    def longest_s(self) -> float:
        """Return the maximum. Any thread."""
        passed = int(self._clock() // WINDOW_S) - self._window
        if passed > 1:
            return 0.0
        return self.maximum_s if passed else max(self.maximum_s, self._before_s)
