"""The CPU time of this process and of all that it started, also of what ended and nobody waited for.

What a process used is gone with it, but for those who wait for their children: Spark's daemon, which has the workers,
ignores them. So a thread looks at /proc ten times a second, and keeps the last figure of each process. What one used
behind the last look at it is missed, a tenth of a second at most where the thread gets to run, and all of one that ran
between two looks.
"""

from __future__ import annotations

import os
import threading
import time
from types import TracebackType
from typing import Self

_EACH_S = 0.1
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


class CpuClock:
    """Counts from `__enter__` to `__exit__`; what the tree of processes used before counts as well, as far as it lives.

    Any thread may ask.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._used: dict[tuple[int, int], int] = {}
        """Ticks by pid and start: a pid may be given again."""
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="cpu-clock", daemon=True)
        self._own_s = 0.0

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join()

    def cpu_s(self) -> float:
        """CPU seconds up to now, without what looking took."""
        with self._lock:
            self._look()
            return sum(self._used.values()) / _TICKS_PER_S - self._own_s

    def _run(self) -> None:
        while not self._over.wait(_EACH_S):
            with self._lock:
                self._look()

    def _look(self) -> None:
        begun_s = time.thread_time()
        found: dict[int, tuple[int, int, int]] = {}
        for name in os.listdir("/proc"):
            if name.isdecimal():
                try:
                    with open(f"/proc/{name}/stat", encoding="ascii", errors="replace") as file:
                        fields = file.read().rpartition(")")[2].split()
                except (FileNotFoundError, ProcessLookupError):
                    continue
                found[int(name)] = (int(fields[1]), int(fields[19]), int(fields[11]) + int(fields[12]))
        ours = {os.getpid()} | {pid for pid, (_, start, _) in found.items() if (pid, start) in self._used}
        before = 0
        while len(ours) > before:  # whose parent ended stays known
            before = len(ours)
            ours |= {pid for pid, (parent, _, _) in found.items() if parent in ours}
        for pid in ours:
            if pid in found:
                _, start, ticks = found[pid]
                self._used[pid, start] = ticks
        self._own_s += time.thread_time() - begun_s
