"""The thread that listens to the group's descriptor: something came, so the core of the broker has a step to do.

The group belongs to the core; this thread only waits, for as long as the core has said. A step that leaves the group
with an earlier deadline than the one that is waited for wakes it.
"""

from __future__ import annotations

import os
import select
import threading
from collections.abc import Callable

from .core import Core


class Listening:
    """Started when the broker runs, stopped before the group is closed."""

    def __init__(self, core: Core, post: Callable[[Callable[[], None]], None]) -> None:
        """*post*: have an action done on the broker's core, at the end of which the group's step is done."""
        self._core = core
        self._post = post
        self._wake = os.eventfd(0, os.EFD_NONBLOCK)
        self._stepped = threading.Event()
        self._stopping = False
        self._waits_s: float | None = None
        self._thread = threading.Thread(target=self._run, name="cairnmq-cluster", daemon=True)
        core.on_step = self._on_step

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopping = True
        self._stepped.set()
        os.eventfd_write(self._wake, 1)
        self._thread.join()
        os.close(self._wake)

    def _on_step(self) -> None:
        """On the core: the group was stepped, and it is known how long to wait for it."""
        wait_s = self._core.group.wait_s()
        before, self._waits_s = self._waits_s, wait_s
        if self._stepped.is_set():
            if wait_s is not None and (before is None or wait_s < before):
                os.eventfd_write(self._wake, 1)
        else:
            self._stepped.set()

    def _run(self) -> None:
        self._stepped.wait()
        poll = select.poll()
        poll.register(self._core.group.fileno(), select.POLLIN)
        poll.register(self._wake, select.POLLIN)
        while not self._stopping:
            wait_s = self._waits_s
            found = poll.poll(None if wait_s is None else max(0.0, wait_s) * 1000)
            if any(fd == self._wake for fd, _ in found):
                os.eventfd_read(self._wake)
                if len(found) == 1:
                    continue
            if self._stopping:
                return
            self._stepped.clear()
            self._post(_step)
            self._stepped.wait()


def _step() -> None:
    """The end of the core's step does it."""
