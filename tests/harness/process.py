"""A real `cairnmq broker` process for tests that need one."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

DEADLINE_S = 180.0
CAIRNMQ = str(Path(sys.executable).with_name("cairnmq"))


class BrokerProcess:
    """A started broker; `lines` holds its output so far."""

    def __init__(
        self,
        store_dir: Path,
        *options: str,
        within: Callable[[list[str]], list[str]] = list,
        preexec: Callable[[], None] | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """Start the broker.

        *within*: transforms the command, for example to run it in a network namespace.
        *environment*: variables in addition to those of the tests.
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
        self._log_file = options[options.index("--log-file") + 1] if "--log-file" in options else ""
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self._followed() if self._log_file else self.process.stdout:
            with self._changed:
                self.lines.append(line.rstrip("\n"))
                self._changed.notify_all()
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    def _followed(self) -> Iterator[str]:
        """Yield the lines of the log file until the process ends."""
        while not os.path.exists(self._log_file) and self.process.poll() is None:
            time.sleep(0.02)
        with open(self._log_file) as file:
            while True:
                has_ended = self.process.poll() is not None
                at = file.tell()
                line = file.readline()
                if line.endswith("\n"):
                    yield line
                elif has_ended:
                    return
                else:
                    file.seek(at)
                    time.sleep(0.02)

    def wait_for(self, pattern: str) -> re.Match[str]:
        """Wait for the first line that contains *pattern*, and return the match."""

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
        """Wait until the broker accepts clients."""
        self.wait_for(r"\bbroker\.recovered\b")
        return self

    def stop(self, number: int = signal.SIGTERM) -> int:
        """Send a signal, wait for the end, and return the exit status."""
        self.process.send_signal(number)
        return self.wait()

    def wait(self) -> int:
        status = self.process.wait(DEADLINE_S)
        self._reader.join(DEADLINE_S)
        return status


@contextmanager
def broker(store_dir: Path, *options: str) -> Iterator[BrokerProcess]:
    """Run a broker that is ready for clients, by default on a free port; kill it at the end if it still runs."""
    running = BrokerProcess(store_dir, *(options if "--port" in options else (*options, "--port", "0")))
    try:
        yield running.ready()
    finally:
        if running.process.poll() is None:
            running.stop(signal.SIGKILL)
