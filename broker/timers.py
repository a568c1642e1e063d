"""What is to be done at a time: deliveries that are delayed, messages that expire, nodes that outlast their links.

The core has no clock of its own that rings: who runs it asks `due_s` and calls `run` when that time has come.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from itertools import count
from math import inf
from typing import Any

from ..base.clock import Clock


class Timers:
    """Actions by the time they are due. Core only, but for `due_s`, which any thread may read."""

    def __init__(self, clock: Clock, post: Callable[..., None]) -> None:
        """*post* wakes who runs the core, so that an earlier time than before is not slept over."""
        self.due_s = inf
        """When the next one is due, in the clock's monotonic seconds."""
        self._clock = clock
        self._post = post
        self._numbers = count()
        self._actions: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []

    def after(self, delay_s: float, action: Callable[..., None], *args: Any) -> None:
        """Do *action* in so many seconds; what is due at the same time is done in the order it was asked for."""
        due_s = self._clock.monotonic_s() + delay_s
        heappush(self._actions, (due_s, next(self._numbers), action, args))
        if due_s < self.due_s:
            self.due_s = due_s
            self._post(self.run)

    def run(self) -> None:
        """Do what is due."""
        now_s = self._clock.monotonic_s()
        actions = self._actions
        while actions and actions[0][0] <= now_s:
            _, _, action, args = heappop(actions)
            action(*args)
        self.due_s = actions[0][0] if actions else inf
