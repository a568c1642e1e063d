"""A broker as a process that is started and killed, whatever broker it is: all that is known of it are its commands."""

from __future__ import annotations

import os
import shlex
import signal
import socket
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from random import SystemRandom
from typing import NamedTuple

from ...amqp.frames.performatives import SASL_HEADER
from ...base.errors import BrokerError

ENDED_S = 60.0
_LOOK_S = 0.02
_LOWEST_PORT = 10_000


class Commands(NamedTuple):
    """Templates for a shell, with {store_dir} and {port}."""

    start: str
    """Runs the broker in the foreground."""
    kill: str = ""
    """Kills it at once; by default every process of the start command's session is sent SIGKILL."""
    stop: str = ""
    """Ends it in good order, and tidies up behind it; SIGTERM by default."""


class Server:
    """One broker, started repeatedly."""

    def __init__(self, commands: Commands, store: Path, host: str, port: int, log: Path) -> None:
        self.host, self.port = host, port
        self.store = store
        self.log = log
        self._commands = commands
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def running(self) -> bool:
        return self._process is not None

    def start(self) -> None:
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                ["/bin/sh", "-c", f"exec {self._filled(self._commands.start)}"],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip

    def await_ready(self, patience_s: float, look: Callable[[], bool]) -> bool:
        """Wait until the broker speaks AMQP; return False if *look*, which is polled meanwhile, returns False first.

        Raises `BrokerError` if the broker exits, or takes longer than *patience_s*.
        """
        assert self._process is not None
        end_s = time.monotonic() + patience_s
        while not self._answers():
            if not look():
                return False
            self.check()
            if time.monotonic() > end_s:
                raise BrokerError("the broker", f"it did not come up within {patience_s:g} s: {self.said()}")
            time.sleep(_LOOK_S)
        return True

    def check(self) -> None:
        """Raises `BrokerError` if it ended by itself."""
        if self._process is not None and self._process.poll() is not None and not self._commands.kill:
            raise BrokerError("the broker", f"it ended by itself (status {self._process.returncode}): {self.said()}")

    def freeze(self) -> None:
        """Have it do nothing any more, without its knowing."""
        for pid in self._pids():
            _signal(pid, signal.SIGSTOP)

    def kill(self) -> None:
        """Kill the broker, and wait until its processes have ended."""
        if self._commands.kill:
            self._shell(self._commands.kill)
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """End it in good order, if it runs."""
        if self._commands.stop:
            self._shell(self._commands.stop)
        if self._process is not None:
            self._end(signal.SIGTERM)

    def said(self) -> str:
        """The last line it printed."""
        try:
            with self.log.open("rb") as log:
                log.seek(max(0, self.log.stat().st_size - 4096))
                lines = [line.strip() for line in log.read().decode(errors="replace").splitlines() if line.strip()]
        except OSError:
            return ""
        return lines[-1] if lines else "it said nothing"

    def _filled(self, template: str) -> str:
        return template.format(store_dir=shlex.quote(str(self.store)), port=self.port)

    def _shell(self, template: str) -> None:
        command = self._filled(template)
        try:
            done = subprocess.run(command, shell=True, capture_output=True, text=True, timeout=ENDED_S)
        except subprocess.TimeoutExpired:
            raise BrokerError(command, f"it does not end within {ENDED_S:.0f} s", "correct the command") from None
        if done.returncode:
            said = (done.stderr or done.stdout).strip().splitlines()
            raise BrokerError(command, f"status {done.returncode}: {said[-1] if said else ''}", "correct the command")

    def _end(self, number: int) -> None:
        assert self._process is not None
        end_s = time.monotonic() + ENDED_S
        for pid in self._pids():
            _signal(pid, number)
            _signal(pid, signal.SIGCONT)
        while self._process.poll() is None or self._pids():
            if time.monotonic() > end_s:
                if number == signal.SIGKILL:
                    raise BrokerError("the broker", "it can't be killed")
                number = signal.SIGKILL
                end_s = time.monotonic() + ENDED_S
            if number == signal.SIGKILL:
                for pid in self._pids():  # one may have been forked just then
                    _signal(pid, number)
            time.sleep(_LOOK_S)
        self._process = None

    def _pids(self) -> list[int]:
        """Return the processes in the session of the start command, without zombies."""
        assert self._process is not None
        found = []
        for entry in os.listdir("/proc"):
            if entry.isdigit():
                try:
                    fields = Path("/proc", entry, "stat").read_text().rpartition(")")[2].split()
                except OSError:
                    continue
                if int(fields[3]) == self._process.pid and fields[0] not in "ZX":
                    found.append(int(entry))
        return found

    def _answers(self) -> bool:
        try:
            with socket.create_connection((self.host, self.port), 1.0) as sock:
                sock.sendall(SASL_HEADER)
                return sock.recv(8) == SASL_HEADER
        except OSError:
            return False


def _signal(pid: int, number: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, number)


def free_port() -> int:
    """A free port of loopback outside the range from which the system assigns ports.

    A killed broker needs it again: another program could have got one of the range by then.
    """
    first, last = _given_away()
    others = [*range(_LOWEST_PORT, first), *range(last + 1, 1 << 16)]
    port: int
    for port in SystemRandom().sample(others, len(others)):
        try:
            with socket.create_server(("127.0.0.1", port)):
                return port
        except OSError:
            continue  # somebody has it
    raise BrokerError("127.0.0.1", "there is no free port", "end other servers")


def _given_away() -> tuple[int, int]:
    """The first and the last of the ports that Linux gives to who names none."""
    try:
        first, last = Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()
        return int(first), int(last)
    except (OSError, ValueError):
        return 32768, 60999
