"""A call that may wait for ever, in a thread of its own: who asked for it looks now and then, or gives it up.

Calls of corosync's library wait for the daemon, without any limit. A daemon that is paused would hold this process.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class Beside(Generic[T]):
    """One call of *work*, begun at once. One thread asks for what came of it."""

    def __init__(self, work: Callable[[threading.Event], T], late: Callable[[T], None]) -> None:
        """*work* gets what is set when nobody waits any more; what it returns after that is given to *late*, there."""
        self._given_up = threading.Event()
        self._lock = threading.Lock()
        self._found: T | Exception | None = None
        self._ended = threading.Event()
        self._work = work
        self._late = late
        threading.Thread(target=self._run, name="cairnmq-beside", daemon=True).start()

    def _run(self) -> None:
        found: T | Exception
        try:
            found = self._work(self._given_up)
        except Exception as error:  # it is raised where the result is asked for
            found = error
        with self._lock:
            self._found = found
            self._ended.set()
            is_late = self._given_up.is_set()
        if is_late and not isinstance(found, Exception):
            self._late(found)

    def ended(self, within_s: float = 0.0) -> bool:
        """Returns whether the call has ended, after so many seconds at most."""
        return self._ended.wait(within_s)

    def result(self) -> T:
        """Returns the result of a call that has ended, or raises its exception."""
        if isinstance(self._found, Exception):
            raise self._found
        assert self._ended.is_set()
        return self._found  # type: ignore[return-value]  # which may be None

    def give_up(self) -> bool:
        """Abandons the call; returns False if it has ended, and its result is still to be taken."""
        with self._lock:
            if not self._ended.is_set():
                self._given_up.set()
            return self._given_up.is_set()
