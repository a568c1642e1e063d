"""Measures how long events wait for a majority, and warns if that takes seconds.

Corosync's members do not detect packet loss as long as the token passes: all of it becomes slow. Core only.
"""

from __future__ import annotations

import logging

from ..kernel.context import MemberContext

log = logging.getLogger(__name__)

LOOK_S = 0.5
LATE_S = 3.0
"""The waiting time of events that causes a warning."""
AGAIN_S = 60.0
"""The minimum time between two warnings."""


class CommitDelays:
    """The age of the oldest event of one member that no majority has acknowledged."""

    def __init__(self, context: MemberContext) -> None:
        self._context = context
        self._turn = 0
        self._warned_s = -AGAIN_S
        self.lost()

    @property
    def oldest_s(self) -> float:
        """The age of the oldest event that waits, to within half a second. Any thread."""
        return self._age_s(self._context.clock.monotonic_s())

    def _age_s(self, now_s: float) -> float:
        return max([now_s - since_s for key, since_s in (self._unheard, self._unsafe) if key is not None], default=0.0)

    def begin(self) -> None:
        """Begins to measure in a new membership."""
        self.lost()
        if not self._context.state.is_alone:
            self._look(self._turn)

    def lost(self) -> None:
        """Forgets the events of a membership that ended."""
        self._turn += 1
        self._unheard: tuple[object, float] = (None, 0.0)
        """The oldest event of this member that has not come back, and the time since which it is the oldest."""
        self._unsafe: tuple[object, float] = (None, 0.0)
        """The oldest event that came back and waits for acknowledgements, and the time since which it is the oldest."""
        self._is_reported = False
        """True if the last report was that events are late."""

    def _look(self, turn: int) -> None:
        if turn != self._turn:
            return
        self._context.timers.after(LOOK_S, self._look, turn)
        now_s, oldest = self._context.clock.monotonic_s(), self._context.commits.oldest
        unheard = self._context.locals.times_received if len(self._context.locals) else None
        if unheard != self._unheard[0]:
            self._unheard = unheard, now_s
        if oldest is not self._unsafe[0]:
            self._unsafe = oldest, now_s
        age_s = self._age_s(now_s)
        is_late = age_s >= LATE_S
        if is_late and now_s - self._warned_s >= AGAIN_S:
            self._warned_s = now_s
            self._is_reported = True
            log.warning(
                "cluster %s: events have waited for %.1f s to be acknowledged by a majority (%d wait, %d bytes are in "
                "flight): a member or its disk is slow, or the network loses packets. See cairnmq_cluster_lag_bytes of "
                "all members, and corosync's log for 'Retransmit List' and 'token' (see "
                "docs/explanation/cluster.md, Packet loss)", self._context.state.name, age_s,
                self._context.commits.backlog, self._context.group.in_flight_bytes, extra={"event": "cluster.late"},
            )  # fmt: skip
        elif self._is_reported and not is_late:
            self._is_reported = False
            text = "cluster %s: events are acknowledged by a majority again"
            log.info(text, self._context.state.name, extra={"event": "cluster.in-time"})
