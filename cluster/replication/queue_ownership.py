"""Dispatches the messages of one queue while this member leads it: take, and drop (D45).

Taken and dropped in time slices if others are interested, too (D12); if none is, the queue is kept as long as there are
consumers, and nothing is multicast or timed for its owner's sake (D22). So it is if the policy says which consumer gets
a message: groups, a single active consumer, an exclusive one. What is handed out is not multicast at all:
all who hear an owner's release hear in the same event what its consumers still have (rules 14, 15). Core only.
"""

from __future__ import annotations

from collections.abc import Callable

from ...broker.scheduling.scheduler import Scheduler
from .replica import Replica

SLICE_S = 0.1
"""So long an owner hands out messages while others are interested."""
IDLE_SLICE_S = 0.01
"""So long, if it has found no consumer with credit: it passes on what it can't use."""


class QueueOwnership:
    """The leadership of one queue, for this member."""

    def __init__(
        self, replica: Replica, scheduler: Scheduler, release: Callable[[Replica], None], *, held: bool = False
    ) -> None:
        self.replica = replica
        self.owned = False
        self._held = held
        """Without a lease: the queue may be owned, and nothing of it is dispatched (D2)."""
        self._scheduler = scheduler
        self._release = release
        self._turn = 0
        """The number of the turn that a timer is for."""
        self._taken = 0
        """What had been taken off the queue when the turn began."""
        self._ends_early = False
        """No consumer here had credit: this turn is a short one, and nothing that comes meanwhile begins it anew."""

    def take(self, contested: bool) -> None:
        """The others have heard that it is ours."""
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
        """Return whether the queue is kept as long as it has consumers here, since its policy chooses the consumer."""
        policy = self.replica.queue.policy
        return policy.assigns or policy.exclusive

    def drop(self) -> None:
        """Stop, and let the next one have it: others act when they hear it, we do at once."""
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
        """The end of a step in which the queue was touched: who can't use it passes it on soon."""
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
        """The slice is over; an empty queue is as good here as elsewhere (D79: nobody else, no release)."""
        queue = self.replica.queue
        if turn != self._turn or not self.owned or len(self.replica.interested) < 2:
            return
        if queue.depth or queue.taken != self._taken:
            self.drop()
        else:
            self._begin_turn(SLICE_S)
