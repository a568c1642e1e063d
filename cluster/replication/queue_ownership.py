"""Dispatches the messages of one queue while this member leads it: takes and drops the queue (D45).

The queue is taken and dropped in time slices if other members are interested, too (D12). Otherwise it is kept as long
as there are consumers, and its ownership needs no events or timers (D22). It is also kept if the policy chooses the
consumer of a message: groups, a single active consumer, an exclusive one. Dispatch is not multicast at all: the event
that releases a queue also lists the messages that its consumers still have (rules 14, 15). Core only.
"""

from __future__ import annotations

from collections.abc import Callable

from ...broker.scheduling.scheduler import Scheduler
from .replica import Replica

SLICE_S = 0.1
"""The time that an owner dispatches while other members are interested."""
IDLE_SLICE_S = 0.01
"""The time if no consumer has credit: the owner passes on messages that it cannot use."""


class QueueOwnership:
    """The leadership of one queue, for this member."""

    def __init__(
        self, replica: Replica, scheduler: Scheduler, release: Callable[[Replica], None], *, held: bool = False
    ) -> None:
        self.replica = replica
        self.owned = False
        self._held = held
        """True without a lease: the queue may be owned, and nothing of it is dispatched (D2)."""
        self._scheduler = scheduler
        self._release = release
        self._turn = 0
        """The number of the turn that a timer is for."""
        self._taken = 0
        """The number of messages that had been taken off the queue when the turn began."""
        self._ends_early = False
        """True if no consumer here had credit: this turn is short, and later messages do not extend it."""

    def take(self, contested: bool) -> None:
        """Starts dispatching: a majority has received the event that made this member the owner."""
        if self.owned:
            return
        self.owned = True
        if not self._held:
            self.replica.queue.start_consumers()
        self._taken = self.replica.queue.taken
        if contested:
            self._begin_turn(SLICE_S)

    def contest(self) -> None:
        """Begins a time slice, since another member has consumers, too."""
        if self.owned:
            self._begin_turn(SLICE_S)

    @property
    def _is_kept(self) -> bool:
        """True if the queue is kept as long as it has consumers here, since its policy chooses the consumer."""
        policy = self.replica.queue.policy
        return policy.assigns or policy.exclusive

    def drop(self) -> None:
        """Stops dispatching at once, and multicasts the release of the queue."""
        if self.owned:
            self.stop()
            self._release(self.replica)

    def stop(self) -> None:
        self.owned = self._ends_early = False
        self._turn += 1
        self.replica.queue.stop_consumers()

    def hold(self, *, held: bool) -> None:
        """Stops dispatching the queue, now and when it becomes this member's; or resumes."""
        self._held = held
        if self.owned and held:
            self.replica.queue.stop_consumers()
        elif self.owned:
            self.replica.queue.start_consumers()

    def look(self) -> None:
        """Shortens the turn, at the end of a step that changed the queue, if no consumer here has credit."""
        queue = self.replica.queue
        if (
            self.owned
            and not self._ends_early
            and queue.depth
            and not any(taker.room() > 0 for taker in queue.consumers)
        ):
            self._begin_turn(IDLE_SLICE_S)

    def _begin_turn(self, slice_s: float) -> None:
        if self._is_kept:
            return
        self._turn += 1
        self._ends_early = slice_s == IDLE_SLICE_S
        self._scheduler.after(slice_s, self._fire, self._turn)

    def _fire(self, turn: int) -> None:
        """Ends the time slice; an empty queue is kept, since its owner does not matter (D79: alone, no release)."""
        queue = self.replica.queue
        if turn != self._turn or not self.owned or len(self.replica.interested) < 2:
            return
        if queue.depth or queue.taken != self._taken:
            self.drop()
        else:
            self._begin_turn(SLICE_S)
