"""The pace of a user, in messages a second: a token bucket that is emptied in batches."""

from __future__ import annotations


class Pace:
    """A bucket with the messages of at most one second. Its tokens become credit, which no sender can exceed."""

    def __init__(self, per_second: int, now_s: float) -> None:
        self.per_second = per_second
        self._tokens = float(per_second)
        self._now_s = now_s

    def take(self, wanted: int, now_s: float) -> int:
        """Take up to *wanted* messages from the bucket; return how many may be sent now."""
        self._fill(now_s)
        given = min(wanted, int(self._tokens))
        self._tokens -= given
        return given

    def wait_s(self) -> float:
        """Return the seconds from the last `take` until another message may be sent."""
        return max(0.0, (1 - self._tokens) / self.per_second)

    def _fill(self, now_s: float) -> None:
        gained = max(0.0, now_s - self._now_s) * self.per_second
        self._now_s = max(now_s, self._now_s)
        self._tokens = min(float(self.per_second), self._tokens + gained)
