"""Checks that this member receives its own events: otherwise it dispatches nothing (rules 4 and 15).

A member whose daemon is suspended is not notified that the others continue without it, and still owns its queues. But
its own events do not come back. The others continue after corosync's token time-out, 3 s by default, so a member that
stops after SILENT_S has stopped before. A member whose process was stopped, and which others may have expelled
meanwhile, has no valid lease when it resumes (`liveness`): it dispatches nothing before a heartbeat that it sent since
then comes back. Core only.
"""

from __future__ import annotations

from collections.abc import Callable

from ..kernel.context import MemberContext

SILENT_S = 1.0


class SelfDeliveryCheck:
    """The check of one member."""

    def __init__(
        self, context: MemberContext, may_dispatch: Callable[[float], bool], hold: Callable[[bool], None]
    ) -> None:
        """*may_dispatch*: whether this member has a valid lease at a time; *hold*: stops or resumes dispatching."""
        self._context = context
        self._may_dispatch = may_dispatch
        self._hold = hold
        self.is_missing = False
        self._received = 0
        self._since_s: float | None = None
        """The time of the last self-delivery, or of the first event sent since; None if nothing is in flight."""

    def look(self) -> None:
        """Stops or resumes dispatching; called in each step, before any dispatch."""
        said, now_s = self._context.locals, self._context.clock.monotonic_s()
        if not len(said):
            self._since_s = None
        elif self._since_s is None or said.times_received != self._received:
            self._since_s = now_s
        is_missing = not self._may_dispatch(now_s)
        is_missing = is_missing or (self._since_s is not None and now_s - self._since_s > SILENT_S)
        self._received = said.times_received
        if is_missing != self.is_missing:
            self.is_missing = is_missing
            self._hold(is_missing)
