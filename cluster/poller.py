"""Listening to the group: something came to its descriptor, or a time has come, so the core has a step to do.

The group belongs to the core. Its descriptor is watched by a worker of the router, as clients' sockets are: so what
comes is heard without a hand-over between threads. It is watched for one event, and again when a step has found nothing
more there: who plays the core may be another thread, and until it is done there is nothing new to tell.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf

from .group.group import Group
from .kernel.context import MemberContext

Watch = Callable[[int, Callable[[], None]], None]
"""Have an action done, on some thread, as soon as a descriptor is readable: once."""


class Poller:
    """Made when there are workers to watch, whatever steps were done before; stopped before the group is closed."""

    def __init__(
        self, context: MemberContext, group: Group, watch: Watch, post: Callable[[Callable[[], None]], None]
    ) -> None:
        """*post*: have an action done on the broker's core, at the end of which the group's step is done."""
        self._clock = context.clock
        self._timers = context.timers
        self._group = group
        self._watch = watch
        self._post = post
        self._watched = False
        self._due_s = inf
        """When a timer rings."""
        self._is_stopped = False
        context.events.idle.subscribe(self._on_step)
        post(_step)

    def stop(self) -> None:
        """On the core, or when nobody plays it any more."""
        self._is_stopped = True

    def _on_step(self) -> None:
        """On the core: the group was stepped, nothing more is to be done there, and it knows for how long."""
        group = self._group
        if self._is_stopped:
            return
        if not self._watched:
            self._watched = True
            self._watch(group.fileno(), self._came)
        wait_s = group.wait_s()
        if wait_s is None:
            return
        due_s = self._clock.monotonic_s() + wait_s
        if wait_s <= 0:
            self._post(_step)
        elif due_s < self._due_s:
            self._due_s = due_s
            self._timers.after(wait_s, self._rings, due_s)

    def _came(self) -> None:
        """On the thread that watches: no step has said since that the group is to be watched."""
        self._watched = False
        self._post(_step)

    def _rings(self, due_s: float) -> None:
        if self._due_s == due_s:
            self._due_s = inf


def _step() -> None:
    """The end of the core's step does it."""
