"""The end of each step of the core, and the progress of the store's durable LSN. Core only."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from time import perf_counter

from .kernel.context import CoreContext
from .kernel.dispatch_turns import AT_ONCE
from .nodes.replication_port import Members


class CoreSteps:
    """Does, at the end of a step, the work that its actions have scheduled."""

    def __init__(self, core: CoreContext, members: Members, became_durable: Callable[[int], None]) -> None:
        """*became_durable*: of the store."""
        self._core = core
        self._became_durable = became_durable
        self._members = members
        self._shares_queues = members.shares_queues
        self._durable_at_s = 0.0
        """The time since which messages have been durable and not dispatched; 0 for none."""

    def durable(self, lsn: int) -> None:
        """Handle that the log is durable up to *lsn*."""
        self._durable_at_s = self._durable_at_s or perf_counter()
        self._became_durable(lsn)
        self._core.commits.move()
        for act in [*self._core.events.durable]:  # an action may remove itself
            act()
        if self._shares_queues:
            self._members.durable()

    def finish(self) -> None:
        """End a batch of actions: dispatch messages, and make records durable."""
        core = self._core
        if core.memory.starved or core.memory.starved_selections:
            for relieved in core.memory.take_relieved():
                core.schedule_dispatch(relieved)
        commits = core.commits
        while (self._shares_queues and self._members.step()) or commits.dirty:
            dirty, commits.dirty = commits.dirty, {}
            for queue in dirty if len(dirty) <= AT_ONCE else core.dispatch_turns.select(dirty):
                if not queue.is_deleted:
                    queue.dispatch()
                    if queue.has_lifetime:
                        queue.check_lifetime()
        if self._durable_at_s:
            dispatch_s, took_s = core.latencies.dispatch_s, perf_counter() - self._durable_at_s
            dispatch_s.counts[bisect_left(dispatch_s.bounds, took_s)] += 1  # `observe`, without a call
            dispatch_s.total += took_s
            self._durable_at_s = 0.0
        if core.background.end_s or core.background.jobs:
            core.background.end_step()
        if core.memory.waiting:
            core.memory.release()
        if core.complete_loads.waiting:
            core.complete_loads.start_waiting()
        if core.users.changed:
            core.users.step()
        if core.loader.put_off:
            core.loader.end_step()
        core.dispatch_turns.step += 1
        core.store.kick()
