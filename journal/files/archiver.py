"""A queue of containers that left the log and are to be archived, so that the log never waits for the archive.

If the archive can't take a container (its disk is full or fails, too much waits already, or the log's own disk is
nearly full), the container is reused without being archived. A warning names the LSNs whose history is lost, and
`dropped` counts the containers.

Threads: `take_over` is the pool's, in any thread. `start` begins the thread that does the work; without it `take_over`
does it.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Iterable
from typing import NamedTuple

from ...base.clock import Clock
from ...base.errors import CairnError
from ...base.texts import counted
from .archive import Archive

log = logging.getLogger(__name__)

WAITING_BYTES = 256 << 20
"""The maximum size of waiting containers (at least four may wait); beyond it the oldest is dropped."""
LOOK_S = 30.0
"""The interval at which the archive's limits are checked while the archiver is idle."""
SAY_AGAIN_S = 10.0
"""The minimum interval between two warnings of dropped history."""


class Left(NamedTuple):
    """A container that left the log."""

    slot: int
    number: int
    """The number of the file that holds the container."""


class Archiver:
    """Puts containers into an archive."""

    def __init__(
        self, archive: Archive, clock: Clock, done: Callable[[Left], None], crowded: Callable[[], bool]
    ) -> None:
        """*done* is called with each container when the archive no longer needs it.

        *crowded* returns whether the log's disk is nearly full, in which case no container may wait.
        """
        self.archive = archive
        self.dropped = 0
        """The number of containers that were not archived since the start."""
        self.failure: CairnError | None = None
        """The error of the last attempt; None if it succeeded."""
        self._clock = clock
        self._done = done
        self._crowded = crowded
        self._most = max(4, WAITING_BYTES // archive.container_bytes)
        self._waiting: deque[Left] = deque()
        self._lock = threading.Lock()
        self._bell = threading.Event()
        self._thread: threading.Thread | None = None
        self._stopping = False
        self._unreported: list[int] = []  # slots that were dropped
        self._reason = ""
        self._reported_s = clock.monotonic_s() - SAY_AGAIN_S

    @property
    def waiting(self) -> int:
        """Number of waiting containers."""
        return len(self._waiting)

    def start(self) -> None:
        """Let a thread of its own do the work from now on."""
        self._thread = threading.Thread(target=self._run, name="cairnmq-archive", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End the thread after the current container. Containers that still wait are found at the next opening."""
        self._stopping = True
        self._bell.set()
        if self._thread is not None:
            self._thread.join()
        self._tell()

    def take_over(self, containers: Iterable[Left]) -> None:
        """Archive *containers*, which are durably no longer part of the log."""
        with self._lock:
            self._waiting.extend(containers)
            surplus: list[Left] = []
            if self._thread is not None:
                most = 0 if self._crowded() else self._most
                while len(self._waiting) > most:
                    surplus.append(self._waiting.popleft())
        for left in surplus:
            self._drop(left, "the archive can't keep up")
        if self._thread is not None:
            self._bell.set()
        elif not self._stopping:
            while self.step():
                pass

    def step(self) -> bool:
        """Archive one container if one waits; return whether one did."""
        with self._lock:
            if not self._waiting:
                return False
            left = self._waiting.popleft()
        try:
            self.archive.store(left.slot, left.number)
        except CairnError as error:
            self.failure = error
            self._drop(left, str(error))
        else:
            self.failure = None
            self._done(left)
        return True

    def _run(self) -> None:
        while not self._stopping:
            self._bell.clear()
            while not self._stopping and self.step():
                pass
            try:
                self.archive.keep_limits()
            except CairnError as error:
                self.failure = error
            if self._unreported and self._is_time_to_report():
                self._tell()
            self._bell.wait(SAY_AGAIN_S if self._unreported else LOOK_S)

    def _drop(self, left: Left, reason: str) -> None:
        with self._lock:
            self.dropped += 1
            self._unreported.append(left.slot)
            self._reason = reason
        if self._is_time_to_report():
            self._tell()
        self._done(left)

    def _is_time_to_report(self) -> bool:
        return self._clock.monotonic_s() - self._reported_s >= SAY_AGAIN_S

    def _tell(self) -> None:
        with self._lock:
            slots, self._unreported = self._unreported, []
            self._reported_s = self._clock.monotonic_s()
        if slots:
            size, lost = self.archive.container_bytes, counted(len(slots), "container")
            log.warning(
                "history is missing from the archive %s: %s of LSN %d to %d (%s)",
                self.archive.directory.path, lost, min(slots) * size, (max(slots) + 1) * size, self._reason,
                extra={"event": "archive.gap"},
            )  # fmt: skip
