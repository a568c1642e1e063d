"""Runs a call that may block forever in its own thread; the caller polls for the result or abandons the call.

Calls of corosync's library wait for the daemon without a time limit. A suspended daemon would otherwise block this
process.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class DetachedCall(Generic[T]):
    """One call of *work*, started immediately. One thread polls for its result."""

    def __init__(self, work: Callable[[threading.Event], T], late: Callable[[T], None]) -> None:
        """*work* receives an event that is set on abandonment; *late* receives a result after that, in its thread."""
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
        except Exception as error:  # raised where the result is requested
            found = error
        with self._lock:
            self._found = found
            self._ended.set()
            is_late = self._given_up.is_set()
        if is_late and not isinstance(found, Exception):
            self._late(found)

    def ended(self, within_s: float = 0.0) -> bool:
        """Waits for at most so many seconds, and returns whether the call has ended."""
        return self._ended.wait(within_s)

    def result(self) -> T:
        """Returns the result of a call that has ended, or raises its exception."""
        if isinstance(self._found, Exception):
            raise self._found
        assert self._ended.is_set()
        return self._found  # type: ignore[return-value]  # which may be None

    def give_up(self) -> bool:
        """Abandons the call; returns False if it has already ended, and its result must still be read."""
        with self._lock:
            if not self._ended.is_set():
                self._given_up.set()
            return self._given_up.is_set()
