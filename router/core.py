"""The core: where everything is decided, by one thread at a time, in the order the actions were posted.

Workers, the store's flusher and the SQL thread `post` actions; nobody ever waits for the core. The core is a role, not
a thread: whoever has posted calls `run`, and if nobody plays the role just then, plays it until no action is left. A
batch thus goes from socket to journal without a thread hand-over, and decisions are as serial as with a thread of its
own (docs/decisions/0002-the-core-is-a-role.md has the measurements).
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable
from time import perf_counter
from typing import Any

from ..base.errors import JournalError

log = logging.getLogger(__name__)


class Core:
    """The action list (router guide C3, C7) and the role of the one who works it off."""

    def __init__(self, finish_step: Callable[[], None], on_failure: Callable[[BaseException], None]) -> None:
        """*finish_step* ends each batch of actions; *on_failure* hears of an error after which nothing may go on."""
        self._actions: deque[tuple[Callable[..., None], tuple[Any, ...]]] = deque()
        self._role = threading.Lock()
        self._player = 0
        self._finish_step = finish_step
        self._on_failure = on_failure
        self.failed = False
        self.steps = 0
        self.busy_s = 0.0
        """What all steps took together; read by any thread."""

    def post(self, action: Callable[..., None], *args: Any) -> None:
        """Have *action* done on the core. Any thread; somebody must call `run` afterwards."""
        self._actions.append((action, args))

    def is_current(self) -> bool:
        """Whether the calling thread is the core now (C9)."""
        return self._player == threading.get_ident()

    def run(self) -> None:
        """Work off all actions, or leave them to the thread that is at it. Any thread but the core."""
        while self._actions and self._role.acquire(blocking=False):
            self._player = threading.get_ident()
            try:
                self._step()
            finally:
                self._player = 0
                self._role.release()  # an action posted before this line is seen by the loop above

    def _step(self) -> None:
        actions = self._actions
        if self.failed:
            actions.clear()
            return
        begun_s = perf_counter()
        try:
            while actions:
                action, args = actions.popleft()
                action(*args)
            self._finish_step()
        except JournalError as error:
            self.fail(error)
        except Exception as error:  # the state may be half changed: going on could break a promise
            log.exception("internal error on the core")
            self.fail(error)
        self.steps += 1
        self.busy_s += perf_counter() - begun_s

    def fail(self, error: BaseException) -> None:
        """Nothing may go on after *error*: no action is done any more. Any thread."""
        self.failed = True
        self._on_failure(error)
