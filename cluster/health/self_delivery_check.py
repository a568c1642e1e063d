"""Checks that this member receives its own events: otherwise it dispatches nothing (rules 4 and 15).

A member whose daemon is paused is told by nobody that the others have gone on without it, and owns its queues as
before. But what it says does not come back. Others go on after corosync's token time-out, 3 s by default, so who stops
after SILENT_S has stopped before. A member whose process was stopped, and which others may have expelled meanwhile, has
no valid lease when it goes on (`liveness`): it dispatches nothing before it has heard a word that it said since. Core
only.
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
        self._locals = context.locals
        self._clock = context.clock
        self._may_dispatch = may_dispatch
        self._hold = hold
        self.is_missing = False
        self._heard = 0
        self._since_s: float | None = None
        """When something of ours was heard last, or the first of it said; None if nothing is under way."""

    def look(self) -> None:
        """In each step, before anything is handed out."""
        said, now_s = self._locals, self._clock.monotonic_s()
        if not len(said):
            self._since_s = None
        elif self._since_s is None or said.times_heard != self._heard:
            self._since_s = now_s
        is_missing = not self._may_dispatch(now_s)
        is_missing = is_missing or (self._since_s is not None and now_s - self._since_s > SILENT_S)
        self._heard = said.times_heard
        if is_missing != self.is_missing:
            self.is_missing = is_missing
            self._hold(is_missing)
