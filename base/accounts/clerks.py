"""The threads that look up users and hash passwords, one job after the other, some of them delayed."""

from __future__ import annotations

import threading
from collections import Counter, deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import count
from time import monotonic

from ..callbacks import ignore

Job = Callable[[], None]


@dataclass(eq=False, slots=True)
class _Waiting:
    """A job that waits, or runs."""

    owner: str
    job: Job
    due_s: float
    number: int
    """Rises with each submission."""
    is_delayed: bool
    """True if the job takes one of the places of delayed jobs, also once it is due."""
    is_trusted: bool
    is_wanted: Callable[[], bool]
    refused: Job


class Clerk:
    """A thread and its queue of jobs. Any thread.

    Jobs of different owners take turns, so that one with many of them delays only itself. Delayed jobs have places of
    their own, as many as the others. In both, each owner may have a quarter, two at least, and a quarter is reserved
    for trusted owners. Where the places are full, the newest job of the owner with the most is refused.
    """

    def __init__(self, name: str, most_waiting: int) -> None:
        """*most_waiting*: jobs of all owners that are not delayed, and as many again that are."""
        self._most = most_waiting
        self._most_of_one = max(2, most_waiting // 4)
        self._most_untrusted = most_waiting - most_waiting // 4
        self._changed = threading.Condition()
        self._waiting: dict[str, deque[_Waiting]] = {}
        """Waiting jobs of each owner that has some, in the order of their turns."""
        self._delayed: list[_Waiting] = []
        self._running: _Waiting | None = None
        self._numbers = count()
        self._is_over = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        """The thread, which starts with the first job: a broker whose start fails leaves none."""

    def submit(
        self,
        owner: str,
        job: Job,
        delay_s: float = 0.0,
        *,
        is_trusted: bool = False,
        is_wanted: Callable[[], bool] = lambda: True,
        refused: Job = ignore,
    ) -> bool:
        """Have *job* done, not before *delay_s*; False if too many are waiting. A job raises nothing.

        *is_wanted*: a job that is not wanted any more gives its place to others, and neither it nor *refused* may be
        called. *refused* is called, on the thread of another submission, if the job has to yield later.
        """
        due_s = monotonic() + delay_s
        number = next(self._numbers)
        new = _Waiting(owner, job, due_s, number, delay_s > 0, is_trusted, is_wanted, refused)
        with self._changed:
            if self._is_over:
                return False
            yielding = self._yielding(new)
            if yielding is not None:
                self._sweep()
                yielding = self._yielding(new)
            if yielding is new:
                return False
            if self._thread.ident is None:
                self._thread.start()  # first: if that fails, nothing has changed
            if yielding is not None:
                self._remove(yielding)
            if new.is_delayed:
                self._delayed.append(new)
            else:
                self._waiting.setdefault(owner, deque()).append(new)
            self._changed.notify()
        if yielding is not None:
            yielding.refused()
        return True

    def stop(self) -> None:
        """Stop beginning jobs; return when the current one has ended."""
        with self._changed:
            self._is_over = True
            self._changed.notify()
        if self._thread.ident is not None:
            self._thread.join()

    def _yielding(self, new: _Waiting) -> _Waiting | None:
        """Return the job that yields if *new* is taken; None if there is room for both."""
        there = [one for one in self._all() if one.is_delayed == new.is_delayed]
        running = self._running
        taken = len(there) + (running is not None and running.is_delayed == new.is_delayed)
        counts = Counter(one.owner for one in there)
        if running is not None and running.is_delayed == new.is_delayed:
            counts[running.owner] += 1
        counts[new.owner] += 1
        if counts[new.owner] > self._most_of_one:
            return new
        untrusted = [one for one in there if not one.is_trusted]
        if taken < self._most and (new.is_trusted or len(untrusted) < self._most_untrusted):
            return None
        candidates = untrusted or (there if new.is_trusted else [])
        if not new.is_trusted or not untrusted:
            candidates.append(new)
        return max(candidates, key=lambda one: (counts[one.owner], one.number))

    def _all(self) -> Iterable[_Waiting]:
        for jobs in self._waiting.values():
            yield from jobs
        yield from self._delayed

    def _sweep(self) -> None:
        """Remove the jobs that are not wanted any more."""
        for one in [one for one in self._all() if not one.is_wanted()]:
            self._remove(one)

    def _remove(self, one: _Waiting) -> None:
        jobs = self._waiting.get(one.owner)
        if jobs is None or one not in jobs:
            self._delayed.remove(one)
            return
        jobs.remove(one)
        if not jobs:
            del self._waiting[one.owner]

    def _run(self) -> None:
        while (found := self._next()) is not None:
            try:
                found.job()
            finally:
                with self._changed:
                    self._running = None

    def _next(self) -> _Waiting | None:
        with self._changed:
            while not self._is_over:
                now_s = monotonic()
                for one in sorted((one for one in self._delayed if one.due_s <= now_s), key=lambda one: one.due_s):
                    self._delayed.remove(one)
                    self._waiting.setdefault(one.owner, deque()).append(one)
                if self._waiting:
                    owner = next(iter(self._waiting))
                    jobs = self._waiting.pop(owner)
                    self._running = jobs.popleft()
                    if jobs:
                        self._waiting[owner] = jobs  # behind those of the others
                    return self._running
                first_s = min((one.due_s for one in self._delayed), default=None)
                self._changed.wait(None if first_s is None else first_s - now_s)
            return None
