"""Whether this member hears what it says: while it does not, it hands out nothing (rules 4 and 15).

A member whose daemon is paused is told by nobody that the others have gone on without it, and owns its queues as
before. But what it says does not come back. Others go on after corosync's token time-out, 3 s by default, so who stops
after SILENT_S has stopped before. Who has said nothing knows nothing: its clients get what they have credit for, and
the first outcome of these begins the time. Core only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .core import Core

SILENT_S = 1.0


class Echo:
    """Of one member."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self.is_missing = False
        self._heard = 0
        self._since_s: float | None = None
        """When something of ours was heard last, or the first of it said; None if nothing is under way."""

    def look(self) -> None:
        """In each step, before anything is handed out."""
        said = self._core.locals
        if not len(said):
            self._since_s = None
            is_missing = False
        else:
            now_s = self._core.clock.monotonic_s()
            if self._since_s is None or said.times_heard != self._heard:
                self._since_s = now_s
            is_missing = now_s - self._since_s > SILENT_S
        self._heard = said.times_heard
        if is_missing != self.is_missing:
            self.is_missing = is_missing
            self._core.owners.hold(held=is_missing)
