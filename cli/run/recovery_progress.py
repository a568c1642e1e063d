"""The progress of a start that has much to read."""

from __future__ import annotations

from ...base.clock import Clock
from .announcements import announce


class RecoveryProgress:
    """Logs the progress of recovery once a second, from the second second on. One thread.

    Most of a start is reading, so what is left takes as long as what was read took, in proportion. Time counts from the
    first call: what comes before it, the wiring above all, is no measure of reading.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._begun: tuple[float, int] | None = None
        """When, and what had been read by then."""
        self._said_s = 0.0

    def __call__(self, done_bytes: int, total_bytes: int) -> None:
        now_s = self._clock.monotonic_s()
        if self._begun is None:
            self._begun, self._said_s = (now_s, done_bytes), now_s
        begun_s, before_bytes = self._begun
        read_bytes = done_bytes - before_bytes
        if now_s - self._said_s < 1.0 or not read_bytes:
            return
        self._said_s = now_s
        left_s = (now_s - begun_s) * max(0, total_bytes - done_bytes) / read_bytes
        text = f"recovering: {done_bytes >> 20} of at most {total_bytes >> 20} MiB read, {left_s:.0f} s to go"
        announce("broker.recovering", text)
