"""CPU time of this process and of all its descendants, including ended processes for which no parent waited.

The kernel reports the CPU time of an ended process only to a parent that waits for it, and the Spark daemon ignores its
workers. Therefore, a thread samples /proc ten times per second and keeps the last value of each process. CPU time after
the last sample of a process is missed, usually at most a tenth of a second, as are processes that run between samples.
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
    """A clock that samples from `__enter__` to `__exit__`, and includes the previous CPU time of processes alive then.

    All methods are thread-safe.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._used: dict[tuple[int, int], int] = {}
        """Ticks by PID and start time, as PIDs are reused."""
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
        """Return the CPU seconds so far, without the time of sampling."""
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
        while len(ours) > before:  # orphans stay included
            before = len(ours)
            ours |= {pid for pid, (parent, _, _) in found.items() if parent in ours}
        for pid in ours:
            if pid in found:
                _, start, ticks = found[pid]
                self._used[pid, start] = ticks
        self._own_s += time.thread_time() - begun_s
