"""The core: the place of all decisions, by one thread at a time, in the order in which actions were posted.

Workers, the store's flusher and the SQL thread `post` actions; no thread ever waits for the core. The core is a role,
not a thread: a thread that has posted calls `run`, and if no thread has the role, takes it until no action is left. A
batch thus goes from socket to journal without a thread hand-over, and decisions are as serial as with a dedicated
thread (docs/decisions/0002-the-core-is-a-role.md has the measurements).
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable
from time import perf_counter
from typing import Any

from ...base.callbacks import ignore
from ...base.errors import JournalError
from .longest_turn import LongestTurn

log = logging.getLogger(__name__)

TURN_S = 0.01
"""Seconds of work that the core does at once before sockets are read and written again."""


class Core:
    """The list of actions (router guide C3, C7) and the role of the thread that runs them."""

    def __init__(self, finish_step: Callable[[], None], on_failure: Callable[[BaseException], None]) -> None:
        """*finish_step* ends each batch of actions, on the core (C9).

        *on_failure* gets an error that stops the core.
        """
        self.waiting: deque[tuple[Callable[..., None], tuple[Any, ...]]] = deque()
        """Post actions; call `run` afterwards."""
        self.player = 0
        """The identifier of the thread that is the core now; 0 for none."""
        self.ring: Callable[[], None] = ignore
        """Has a worker run the core; set when there are workers. Any thread."""
        self.finish_step = finish_step
        self._role = threading.Lock()
        self._on_failure = on_failure
        self.failed = False
        self.steps = 0
        self.busy_s = 0.0
        """The total seconds of all steps; read by any thread."""
        self.longest = LongestTurn()
        """The longest step of the core."""
        self.longest_of_workers = LongestTurn()
        """The longest turn of the workers: from ready sockets to the last byte written, steps of the core included."""

    def post(self, action: Callable[..., None], *args: Any) -> None:
        """Add *action* to the core's actions. Any thread; the caller must have `run` called afterwards."""
        self.waiting.append((action, args))

    def submit(self, action: Callable[..., None], *args: Any) -> None:
        """Add *action* to the core's actions, and have a worker run the core. Any thread."""
        self.waiting.append((action, args))
        self.ring()

    def run(self) -> bool:
        """Work off actions for one turn, or leave them to the thread that is at it. Any thread but the core.

        Returns True if this thread has worked off all that was posted before the call. Otherwise some of it may be
        left, or another thread may be at it.
        """
        until_s = perf_counter() + TURN_S
        actions, is_done = self.waiting, False
        while actions and self._role.acquire(blocking=False):
            self.player = threading.get_ident()
            begun_s = perf_counter()
            try:
                if self.failed:
                    actions.clear()
                    return True
                while actions:
                    action, args = actions.popleft()
                    action(*args)
                    if perf_counter() >= until_s:
                        break
                is_done = not actions
                self.finish_step()
            except JournalError as error:
                self.fail(error)
            except Exception as error:  # the state may be half changed: going on could break a promise
                log.exception("internal error on the core", extra={"event": "broker.internal-error"})
                self.fail(error)
            finally:
                self.player = 0
                self._role.release()  # an action posted before this line is seen by the loop above
            ended_s = perf_counter()
            self.steps += 1
            self.busy_s += ended_s - begun_s
            longest = self.longest
            if ended_s - begun_s > longest.maximum_s or ended_s >= longest.window_end_s:
                longest.note(ended_s - begun_s, ended_s)
            if ended_s >= until_s:
                break
        return is_done

    def run_all(self) -> None:
        """Work off actions until none is left, where nothing else is to be done any more."""
        while self.waiting:
            self.run()

    def fail(self, error: BaseException) -> None:
        """Stop all actions after *error*. Any thread."""
        self.failed = True
        self._on_failure(error)
