"""Long work of the core, done in time slices. Core only.

The core serves all clients. Work whose amount depends on a client (evaluating a selector over a backlog, removing
expired messages) calls `has_time` repeatedly. When the slice of the step is used up, the rest is deferred to a later
step, and the requests of other clients are handled before it. Users take turns, and so do the jobs of one user.

A job that can't be divided, such as the routing of one message to a thousand queues, may take longer than the slice.
Its user then waits for as many slices as the job took too much, so that the average of each step is kept.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from ...base.clock import Clock

SLICE_S = 0.002
"""The time for background work in one step. A client's round trip takes several steps."""
MOST_DEBT_S = 16 * SLICE_S
"""The maximum time that counts for one user's job that took too long: the thread may have been preempted."""
Job = Callable[[], None]


class BackgroundWork:
    """The jobs of one broker that were put off."""

    def __init__(self, clock: Clock, next_step: Callable[[Job], None]) -> None:
        """*next_step* runs a job in a later step of the core."""
        self._clock = clock
        self._next_step = next_step
        self.end_s = 0.0
        """The time at which the slice of this step ends; 0 before it began."""
        self.jobs: dict[str, deque[Job]] = {}
        """The jobs of each user; the first user's turn is next."""
        self._debts: dict[str, float] = {}
        """The seconds that users had beyond their slices; each further slice, in which they wait, pays for a part."""
        self._is_scheduled = False

    def has_time(self) -> bool:
        """Return whether this step may do more background work."""
        now_s = self._clock.monotonic_s()
        if not self.end_s:
            self.end_s = now_s + SLICE_S
        return now_s < self.end_s

    def put_off(self, job: Job, user: str = "$broker") -> None:
        """Do *job*, which is done for *user* (empty for anonymous clients) or for the broker, in a later step."""
        self.jobs.setdefault(user, deque()).append(job)

    def end_step(self) -> None:
        """End the slice of this step, and schedule the jobs that were put off."""
        self.end_s = 0.0
        if self.jobs and not self._is_scheduled:
            self._is_scheduled = True
            self._next_step(self._run)

    def _run(self) -> None:
        """Run jobs of users without debt until the slice ends: at least one, so that a busy broker makes progress."""
        self._is_scheduled = False
        self.end_s = 0.0
        left = sum(map(len, self.jobs.values()))  # jobs that are deferred meanwhile are for the next step
        debts = self._debts
        if debts:
            self._debts = {user: debt_s - SLICE_S for user, debt_s in debts.items() if debt_s > SLICE_S}
        while left and self.has_time():
            left -= 1
            user = next((user for user in self.jobs if debts.get(user, 0.0) < SLICE_S), None)
            if user is None:
                return
            jobs = self.jobs.pop(user)
            job = jobs.popleft()
            if jobs:
                self.jobs[user] = jobs  # behind the other users
            job()
            excess_s = self._clock.monotonic_s() - self.end_s
            if excess_s > 0.0:
                self._debts[user] = min(excess_s, MOST_DEBT_S)
