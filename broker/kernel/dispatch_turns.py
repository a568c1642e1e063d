"""The dispatch of many queues that changed in one step: the first ones at once, the others in time slices. Core only.

One message may change a thousand queues, and so may one batch of flows. To dispatch them all takes tens of
milliseconds, in which no other client is served. So queues beyond `AT_ONCE` of one owner are dispatched in later steps;
the queues of other owners do not wait for them.
"""

from __future__ import annotations

from collections.abc import Collection
from functools import partial

from ..scheduling.background import BackgroundWork
from .ports import Dispatchable

AT_ONCE = 64
"""The number of queues of one owner that are dispatched at the end of a step."""


class DispatchTurns:
    """The queues whose dispatch was put off, by their owner."""

    def __init__(self, background: BackgroundWork) -> None:
        self._background = background
        self._waiting: dict[str, dict[Dispatchable, None]] = {}

    def is_put_off(self, queue: Dispatchable) -> bool:
        """Return whether *queue* waits for a later step."""
        return bool(self._waiting) and queue in self._waiting.get(_owner(queue), ())

    def first_of(self, changed: Collection[Dispatchable]) -> list[Dispatchable]:
        """Return the *changed* queues to dispatch now, and put the others off: for more than `AT_ONCE`."""
        now: list[Dispatchable] = []
        counts: dict[str, int] = {}
        for queue in changed:
            owner = _owner(queue)
            counts[owner] = count = counts.get(owner, 0) + 1
            if count <= AT_ONCE:
                now.append(queue)
            elif owner in self._waiting:
                self._waiting[owner][queue] = None
            else:
                self._waiting[owner] = {queue: None}
                self._background.put_off(partial(self._go_on, owner), owner)
        return now

    def _go_on(self, owner: str) -> None:
        """Dispatch queues of *owner*, at least one, until the slice of the step ends."""
        waiting = self._waiting[owner]
        while waiting:
            queue = next(iter(waiting))
            del waiting[queue]
            if not queue.is_deleted:
                queue.dispatch()
                if queue.has_lifetime:
                    queue.check_lifetime()
            if not self._background.has_time():
                break
        if waiting:
            self._background.put_off(partial(self._go_on, owner), owner)
        else:
            del self._waiting[owner]


def _owner(queue: Dispatchable) -> str:
    return "" if queue.account is None else queue.account.name
