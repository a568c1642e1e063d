"""Runs a call that may block forever in its own thread; the caller polls for the result or abandons the call.

Calls of corosync's library wait for the daemon without a time limit. A suspended daemon would otherwise block this
process.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, InvalidStateError, wait
from contextlib import suppress
from typing import Generic, TypeVar

T = TypeVar("T")


class DetachedCall(Generic[T]):
    """One call of *work*, started immediately. One thread polls for its result."""

    def __init__(self, work: Callable[[threading.Event], T], late: Callable[[T], None]) -> None:
        """*work* receives an event that is set on abandonment; *late* receives a result after that, in its thread."""
        self._given_up = threading.Event()
        self._future: Future[T] = Future()
        self.result = self._future.result
        """Returns the result of a call that has ended, or raises its exception."""
        threading.Thread(target=self._run, args=(work, late), name="cairnmq-beside", daemon=True).start()

    def _run(self, work: Callable[[threading.Event], T], late: Callable[[T], None]) -> None:
        try:
            found = work(self._given_up)
        except Exception as error:  # raised where the result is requested
            with suppress(InvalidStateError):
                self._future.set_exception(error)
            return
        try:
            self._future.set_result(found)
        except InvalidStateError:  # the call was abandoned
            late(found)

    def ended(self, within_s: float = 0.0) -> bool:
        """Waits for at most so many seconds, and returns whether the call has ended."""
        return bool(wait([self._future], within_s).done)

    def give_up(self) -> bool:
        """Abandons the call; returns False if it has already ended, and its result must still be read."""
        if self._future.cancel():
            self._given_up.set()
        return self._future.cancelled()
