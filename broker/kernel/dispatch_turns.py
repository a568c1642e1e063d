"""The dispatch of many queues that changed in one step: the first ones at once, the others in later steps. Core only.

One message may change a thousand queues, and so may one batch of flows. To dispatch them all takes tens of
milliseconds, in which no other client is served. So queues beyond `AT_ONCE` of one owner are dispatched in later steps,
`AT_ONCE` in each, and owners take turns. Like all dispatch, that is at the end of a step, behind events of a cluster.
"""

from __future__ import annotations

from collections.abc import Collection
from itertools import islice

from ..scheduling.background import BackgroundWork
from .commit_queue import CommitQueue
from .ports import Dispatchable

AT_ONCE = 64
"""The number of queues of one owner that are dispatched at the end of a step."""


def owner_of(queue: Dispatchable) -> str:
    """Return the name of the user who owns *queue*; empty for a queue without an owner."""
    return "" if queue.account is None else queue.account.name


class DispatchTurns:
    """The queues whose dispatch was put off, by their owner."""

    def __init__(self, background: BackgroundWork, commits: CommitQueue) -> None:
        """*commits*: has the queues that are dispatched at the end of the step."""
        self._background = background
        self._commits = commits
        self.step = 0
        """The number of the current step."""
        self._waiting: dict[Dispatchable, int] = {}
        """Queues that wait for a later step, and the steps in which they were put off."""
        self._by_owner: dict[str, dict[Dispatchable, None]] = {}
        """The waiting queues of each owner, in the order in which they were put off; the first owner's turn is next."""
        self._chosen: dict[Dispatchable, None] = {}
        """Queues that were put off, and are dispatched at the end of this step beside `AT_ONCE` others."""
        self._turn_step = -1
        """The step in which queues were chosen last."""
        self._is_scheduled = False

    def has_waiting(self, owner: str, step: int) -> bool:
        """Return whether a queue of *owner* has waited since *step*, or an earlier one."""
        queues = self._by_owner.get(owner)
        return queues is not None and self._waiting[next(iter(queues))] <= step

    def select(self, changed: Collection[Dispatchable]) -> list[Dispatchable]:
        """Return the *changed* queues to dispatch now, and put the others off. Called for more than `AT_ONCE`."""
        now: list[Dispatchable] = []
        counts: dict[str, int] = {}
        chosen, self._chosen = self._chosen, {}
        for queue in changed:
            if queue in chosen:
                now.append(queue)
                continue
            owner = owner_of(queue)
            counts[owner] = count = counts.get(owner, 0) + 1
            if count <= AT_ONCE:
                now.append(queue)
            elif queue not in self._waiting:
                self._waiting[queue] = self.step
                self._by_owner.setdefault(owner, {})[queue] = None
        self._schedule()
        return now

    def _schedule(self) -> None:
        if self._by_owner and not self._is_scheduled:
            self._is_scheduled = True
            self._background.put_off(self._begin_turn, "$dispatch")  # a turn beside those of the users

    def _begin_turn(self) -> None:
        """Add queues of the next owner to those that are dispatched at the end of this step, once in a step."""
        self._is_scheduled = False
        if self._turn_step != self.step:
            self._turn_step = self.step
            self._choose()
        self._schedule()

    def _choose(self) -> None:
        owner = next(iter(self._by_owner))
        queues = self._by_owner.pop(owner)
        self._chosen = dict.fromkeys(islice(queues, AT_ONCE))
        for queue in self._chosen:
            del queues[queue], self._waiting[queue]
        if queues:
            self._by_owner[owner] = queues  # behind those of the others
        self._commits.dirty.update(self._chosen)
