"""The gate: who is let in, and how many at once. One for all workers; any thread.

Looking up users and hashing passwords takes milliseconds, on purpose, so a thread of its own does it, one after the
other, for all connections. Only so many may wait for it, and one that is gone when its turn comes costs nothing.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from ..amqp.front import Front
from ..amqp.sasl import Login

log = logging.getLogger(__name__)

MOST_WAITING = 256
"""Some seconds of hashing: whoever comes later could not be answered in time, and is told to try again."""


class Gate:
    """Made by the router, asked by terminals."""

    def __init__(self, login: Login, most_per_user: int) -> None:
        """*most_per_user*: connections that one user may have; whoever has no name is not counted."""
        self._login = login
        self._most_per_user = most_per_user
        self._lock = threading.Lock()
        self._waiting = 0
        self._there: Counter[str] = Counter()
        self._clerk = ThreadPoolExecutor(1, "cairnmq-login")
        self._post: Callable[..., None] = _nobody

    def start(self, post: Callable[..., None]) -> None:
        """*post* has something done on the core. Before anybody asks."""
        self._post = post

    def front(self, *, secure: bool, certified: str) -> Front:
        """The beginning of a new connection."""
        return Front(self._login, secure=secure, certified=certified)

    def check(self, job: Callable[[], Any], wanted: Callable[[], bool], then: Callable[[Any], None]) -> bool:
        """Have *job* done on the login thread, and *then* told on the core what it returned.

        False: too many are waiting.
        """
        with self._lock:
            if self._waiting >= MOST_WAITING:
                return False
            self._waiting += 1
        self._clerk.submit(self._run, job, wanted, then)
        return True

    def _run(self, job: Callable[[], Any], wanted: Callable[[], bool], then: Callable[[Any], None]) -> None:
        found = None
        try:
            if wanted():
                found = job()
        except Exception:  # one login fails, and the next one may not
            log.exception("internal error at a login")
        finally:
            with self._lock:
                self._waiting -= 1
            self._post(then, found)

    def enter(self, user: str) -> str:
        """Count a connection of *user*; why not, if there are too many, and then it is not counted."""
        if user:
            with self._lock:
                if self._there[user] >= self._most_per_user:
                    return f"a user may have {self._most_per_user} connections"
                self._there[user] += 1
        return ""

    def leave(self, user: str) -> None:
        """A connection that was counted is gone."""
        if user:
            with self._lock:
                self._there[user] -= 1
                if not self._there[user]:
                    del self._there[user]

    def stop(self) -> None:
        """Nobody waits any more."""
        self._clerk.shutdown(cancel_futures=True)


def _nobody(action: Callable[..., None], *args: object) -> None:
    raise RuntimeError("the gate is not open yet")
