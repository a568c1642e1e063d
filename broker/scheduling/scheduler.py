"""Actions of the core at a given time: delayed deliveries, expiry of messages, deletion of nodes.

The core has no timer of its own: its runner reads `due_s` and calls `run` at that time.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from itertools import count
from math import inf
from typing import Any

from ...base.clock import Clock
from .background import SLICE_S

RECHECK_S = 5.0
"""The longest time until the wall clock is read again while an action waits for it: it may be set, or a VM resumed."""
_Action = tuple[float, int, Callable[..., None], tuple[Any, ...]]


class Scheduler:
    """Actions in the order of their due times. Core only, except `due_s`, which any thread may read."""

    def __init__(self, clock: Clock, post: Callable[..., None]) -> None:
        """*post* wakes the runner of the core when an action is due earlier than before."""
        self.due_s = inf
        """The due time of the next action, in the clock's monotonic seconds."""
        self._clock = clock
        self._post = post
        self._numbers = count()
        self._actions: list[_Action] = []
        self._dated: list[_Action] = []
        """Actions at times of the wall clock, in microseconds."""

    def after(self, delay_s: float, action: Callable[..., None], *args: Any) -> None:
        """Run *action* in *delay_s* seconds; actions that are due at the same time run in the order of their calls."""
        due_s = self._clock.monotonic_s() + delay_s
        heappush(self._actions, (due_s, next(self._numbers), action, args))
        self._wake_at(due_s)

    def at(self, wall_us: int, action: Callable[..., None], *args: Any) -> None:
        """Run *action* at a time of the wall clock, also if that is set meanwhile."""
        heappush(self._dated, (wall_us, next(self._numbers), action, args))
        self._wake_at(self._dated_s())

    def _dated_s(self) -> float:
        """Return when the first of the dated actions is due, or when to read the wall clock again."""
        if not self._dated:
            return inf
        wait_s = (self._dated[0][0] - self._clock.wall_us()) / 1_000_000
        return self._clock.monotonic_s() + min(max(wait_s, 0.0), RECHECK_S)

    def _wake_at(self, due_s: float) -> None:
        if due_s < self.due_s:
            self.due_s = due_s
            self._post(self.run)

    def run(self) -> None:
        """Run the due actions in order until the slice ends; `due_s` stays in the past if some are left."""
        clock = self._clock
        now_s = clock.monotonic_s()
        end_s = now_s + SLICE_S
        for actions, now in ((self._actions, now_s), (self._dated, clock.wall_us())):
            while actions and actions[0][0] <= now and clock.monotonic_s() <= end_s:
                _, _, action, args = heappop(actions)
                action(*args)
        self.due_s = min(self._actions[0][0] if self._actions else inf, self._dated_s())
