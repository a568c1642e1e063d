"""A real `cairnmq broker` process for tests that need one."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

DEADLINE_S = 180.0
CAIRNMQ = str(Path(sys.executable).with_name("cairnmq"))


class BrokerProcess:
    """A started broker. `lines` holds what it said so far."""

    def __init__(
        self,
        store_dir: Path,
        *options: str,
        within: Callable[[list[str]], list[str]] = list,
        preexec: Callable[[], None] | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """*within*: makes of its command one that runs it somewhere else, such as in a network namespace.

        *environment*: what it has besides that of the tests.
        """
        self.process = subprocess.Popen(
            within([CAIRNMQ, "broker", "--store-dir", str(store_dir), *options]),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            preexec_fn=preexec,
            env={**os.environ, "PYTHONUNBUFFERED": "1", **(environment or {})},
        )
        self.lines: list[str] = []
        self._changed = threading.Condition()
        self._ended = False
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            with self._changed:
                self.lines.append(line.rstrip("\n"))
                self._changed.notify_all()
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    def wait_for(self, pattern: str) -> re.Match[str]:
        """The first line that *pattern* is found in, waited for."""

        def found() -> re.Match[str] | None:
            return next((match for line in self.lines if (match := re.search(pattern, line))), None)

        with self._changed:
            self._changed.wait_for(lambda: found() or self._ended, DEADLINE_S)
            match = found()
        assert match, f"no line with {pattern!r} in {self.lines}"
        return match

    @property
    def port(self) -> int:
        return int(self.wait_for(r"listening on [^\"]*:(\d+)(?:\"|$)")[1])

    def ready(self) -> BrokerProcess:
        """Wait until clients are let in."""
        self.wait_for(r"\bbroker\.recovered\b")
        return self

    def stop(self, number: int = signal.SIGTERM) -> int:
        """Send a signal and wait for the end; the exit status."""
        self.process.send_signal(number)
        return self.wait()

    def wait(self) -> int:
        status = self.process.wait(DEADLINE_S)
        self._reader.join(DEADLINE_S)
        return status


@contextmanager
def broker(store_dir: Path, *options: str) -> Iterator[BrokerProcess]:
    """A broker on a free port, ready for clients, killed at the end if it still runs."""
    running = BrokerProcess(store_dir, *(options if "--port" in options else (*options, "--port", "0")))
    try:
        yield running.ready()
    finally:
        if running.process.poll() is None:
            running.stop(signal.SIGKILL)
