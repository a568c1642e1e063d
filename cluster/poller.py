"""Schedules steps of the core when the group has something to receive, or when a timer of the group is due.

The group belongs to the core. A worker of the router watches its descriptor, like the sockets of clients, so received
data needs no hand-over between threads. The descriptor is watched for one event, and again after a step that received
nothing more: another thread may run the core, and until it ends nothing more needs a step.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf

from ..base.callbacks import ignore
from .kernel.context import MemberContext

Watch = Callable[[int, Callable[[], None]], None]
"""Runs an action on some thread, once, as soon as a descriptor is readable."""


class Poller:
    """The poller of one group: created after the workers, and stopped before the group is closed."""

    def __init__(self, context: MemberContext, watch: Watch, post: Callable[[Callable[[], None]], None]) -> None:
        """*post*: runs an action on the broker's core, at the end of which the step of the group follows.

        So an action that does nothing schedules a step.
        """
        self._context = context
        self._watch = watch
        self._post = post
        self._watched = False
        self._due_s = inf
        """The time at which the next timer is due."""
        self._is_stopped = False
        context.events.idle.subscribe(self._on_step)
        post(ignore)

    def stop(self) -> None:
        """Stops the poller. Called on the core, or after it ended."""
        self._is_stopped = True

    def _on_step(self) -> None:
        """Watches the descriptor and sets a timer, after a step that left nothing to receive. Called on the core."""
        group = self._context.group
        if self._is_stopped:
            return
        if not self._watched:
            self._watched = True
            self._watch(group.fileno(), self._came)
        wait_s = group.wait_s()
        if wait_s is None:
            return
        due_s = self._context.clock.monotonic_s() + wait_s
        if wait_s <= 0:
            self._post(ignore)
        elif due_s < self._due_s:
            self._due_s = due_s
            self._context.timers.after(wait_s, self._rings, due_s)

    def _came(self) -> None:
        """Schedules a step. Called on the watching thread; the descriptor is not watched until the step ends."""
        self._watched = False
        self._post(ignore)

    def _rings(self, due_s: float) -> None:
        if self._due_s == due_s:
            self._due_s = inf
