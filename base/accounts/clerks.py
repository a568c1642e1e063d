"""The threads that look up users and hash passwords, one job after the other, some of them delayed."""

from __future__ import annotations

import threading
from collections import Counter
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


class _Places:
    """The places of jobs that wait or run."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._most_untrusted = most - most // 4
        self._taken = self._untrusted = 0
        self.by_owner: Counter[str] = Counter()

    def has_room(self, new: _Waiting) -> bool:
        """Return whether there is a place for one more job."""
        return self._taken < self._most and (new.is_trusted or self._untrusted < self._most_untrusted)

    def count(self, one: _Waiting, by: int) -> None:
        """Count a job that takes a place (1) or leaves it (-1)."""
        self._taken += by
        self._untrusted += 0 if one.is_trusted else by
        self.by_owner[one.owner] += by
        if not self.by_owner[one.owner]:
            del self.by_owner[one.owner]


class Clerk:
    """A thread and its queue of jobs. Any thread.

    Jobs of different owners take turns, so that one with many of them delays only itself. The newest job of an owner
    comes first: in an overload, the clients of the oldest ones have given up. Delayed jobs have places of their own. In
    both, a quarter is reserved for trusted owners. Where the places are full, the newest job of the owner with the most
    is refused.
    """

    def __init__(self, name: str, most_waiting: int, most_delayed: int) -> None:
        """*most_waiting*: jobs of all owners that are not delayed; *most_delayed*: those that are."""
        self._places = {False: _Places(most_waiting), True: _Places(most_delayed)}
        """By `is_delayed`."""
        self._changed = threading.Condition()
        self._waiting: dict[str, list[_Waiting]] = {}
        """Waiting jobs of each owner that has some, in the order of the owners' turns."""
        self._delayed: list[_Waiting] = []
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
            self._places[new.is_delayed].count(new, 1)
            if new.is_delayed:
                self._delayed.append(new)
            else:
                self._waiting.setdefault(owner, []).append(new)
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
        places = self._places[new.is_delayed]
        if places.has_room(new):
            return None
        there = [one for one in self._all() if one.is_delayed == new.is_delayed]
        untrusted = [one for one in there if not one.is_trusted]
        candidates = untrusted or (there if new.is_trusted else [])
        if not new.is_trusted or not untrusted:
            candidates.append(new)
        counts = places.by_owner + Counter((new.owner,))
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
        self._places[one.is_delayed].count(one, -1)
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
                    self._places[found.is_delayed].count(found, -1)

    def _next(self) -> _Waiting | None:
        with self._changed:
            while not self._is_over:
                now_s = monotonic()
                for one in sorted((one for one in self._delayed if one.due_s <= now_s), key=lambda one: one.due_s):
                    self._delayed.remove(one)
                    self._waiting.setdefault(one.owner, []).append(one)
                if self._waiting:
                    owner = next(iter(self._waiting))
                    jobs = self._waiting.pop(owner)
                    newest = jobs.pop()
                    if jobs:
                        self._waiting[owner] = jobs  # behind those of the others
                    return newest
                first_s = min((one.due_s for one in self._delayed), default=None)
                self._changed.wait(None if first_s is None else first_s - now_s)
            return None
