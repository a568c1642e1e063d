"""How far a start is that has much to read."""

from __future__ import annotations

import sys

from ..base.clock import Clock


class RecoveryProgress:
    """Says how far recovery is, on standard error, once a second from the second second on. One thread.

    Most of a start is reading, so what is left takes as long as what was read took, in proportion.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._begun_s = self._said_s = clock.monotonic_s()

    def __call__(self, done_bytes: int, total_bytes: int) -> None:
        now_s = self._clock.monotonic_s()
        if now_s - self._said_s < 1.0 or not done_bytes:
            return
        self._said_s = now_s
        left_s = (now_s - self._begun_s) * max(0, total_bytes - done_bytes) / done_bytes
        print(
            f"recovering: {done_bytes >> 20} of at most {total_bytes >> 20} MiB read, {left_s:.0f} s to go",
            file=sys.stderr,
            flush=True,
        )
