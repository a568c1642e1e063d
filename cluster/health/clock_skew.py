"""Detects clock differences between members, and logs them when members meet: nothing else would reveal them.

A difference breaks nothing: the decider of a queue determines which messages expired, and all members follow it. But it
uses its own clock, so messages expire early or late, and by the difference of the clocks it matters which member
decides. A clock value arrives with a delay, so small differences are ignored. Core only.
"""

from __future__ import annotations

import logging

from ...base.clock import Clock

log = logging.getLogger(__name__)

APART_S = 5.0


class ClockSkew:
    """The differences between this member's clock and the others'."""

    def __init__(self, name: str, clock: Clock) -> None:
        self._name = name
        self._clock = clock
        self.apart_s: dict[int, float] = {}
        """By node: the time by which its clock was ahead of this one's, if that was too much."""

    def received(self, node: int, wall_us: int) -> None:
        """Compares the clock of *node*, which it sent just before, with this one."""
        ahead_s = (wall_us - self._clock.wall_us()) / 1e6
        if abs(ahead_s) <= APART_S:
            self.apart_s.pop(node, None)
            return
        if node not in self.apart_s:
            log.error(
                "cluster %s: the clock of node %d is %.0f s %s: messages that it dispatches expire too %s, unless this "
                "broker was paused for that time; synchronize all clocks with NTP",
                self._name, node, abs(ahead_s),
                *(("ahead of this one's", "early") if ahead_s > 0 else ("behind this one's", "late")),
                extra={"event": "cluster.clock-skew"},
            )  # fmt: skip
        self.apart_s[node] = ahead_s
