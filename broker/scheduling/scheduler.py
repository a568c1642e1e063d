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


class Scheduler:
    """Actions in the order of their due times. Core only, except `due_s`, which any thread may read."""

    def __init__(self, clock: Clock, post: Callable[..., None]) -> None:
        """*post* wakes the runner of the core when an action is due earlier than before."""
        self.due_s = inf
        """The due time of the next action, in the clock's monotonic seconds."""
        self._clock = clock
        self._post = post
        self._numbers = count()
        self._actions: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []

    def after(self, delay_s: float, action: Callable[..., None], *args: Any) -> None:
        """Run *action* in *delay_s* seconds; actions that are due at the same time run in the order of their calls."""
        due_s = self._clock.monotonic_s() + delay_s
        heappush(self._actions, (due_s, next(self._numbers), action, args))
        if due_s < self.due_s:
            self.due_s = due_s
            self._post(self.run)

    def run(self) -> None:
        """Run the due actions in order until the slice ends; `due_s` stays in the past if some are left."""
        clock = self._clock
        now_s = clock.monotonic_s()
        end_s = now_s + SLICE_S
        actions = self._actions
        while actions and actions[0][0] <= now_s:
            _, _, action, args = heappop(actions)
            action(*args)
            if clock.monotonic_s() >= end_s:
                break
        self.due_s = actions[0][0] if actions else inf
