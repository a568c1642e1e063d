"""The client processes of a soak: how each begins, from both sides, and their control by the one that started them."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from ...base.errors import BrokerError
from .client import SoakClient
from .history import Died, Notebook
from .receiver import Drain, SoakReceiver
from .sender import Sender
from .transactions import TransactionReceiver, TransactionSender
from .wire import Settings

PATIENCE_S = 60.0
ROLES: dict[str, type[SoakClient]] = {"sender": Sender, "receiver": SoakReceiver, "drain": Drain}
IN_TRANSACTIONS: dict[str, type[SoakClient]] = ROLES | {"sender": TransactionSender, "receiver": TransactionReceiver}


class ClientProcess:
    """A client process, its standard streams, and its counters."""

    def __init__(self, settings: Settings, directory: Path) -> None:
        self.settings = settings
        self.counted: tuple[int, ...] = (0, 0, 0, 0)
        """Messages confirmed, their bytes, messages taken, theirs."""
        self._errors = directory / f"{settings.name}.err"
        self._rest = b""
        with self._errors.open("wb") as errors:
            self.process = subprocess.Popen(
                command(settings), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, bufsize=0,
                start_new_session=True,
            )  # fmt: skip
        assert self.process.stdout is not None
        os.set_blocking(self.process.stdout.fileno(), False)
        if settings.user:
            self.tell(settings.password)

    def tell(self, *words: object) -> None:
        assert self.process.stdin is not None
        with suppress(BrokenPipeError):  # `check` reports the reason
            self.process.stdin.write((" ".join(map(str, words)) + "\n").encode())

    def listen(self) -> None:
        """Take in how far it is. Raises `BrokerError` if it ended by itself."""
        assert self.process.stdout is not None
        try:
            *lines, self._rest = (self._rest + os.read(self.process.stdout.fileno(), 65536)).split(b"\n")
        except BlockingIOError:
            lines = []
        if lines:
            self.counted = tuple(map(int, lines[-1].split()))
        if self.process.poll() is not None:
            raise BrokerError(f"client {self.settings.name}", self._reason())

    def end(self, patience_s: float = PATIENCE_S) -> None:
        """Let it end. Raises `BrokerError` if it does not, or failed."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.await_end(patience_s)

    def await_end(self, patience_s: float, is_over: Callable[[], bool] = lambda: False) -> bool:
        """Return whether it ended before *is_over*."""
        assert self.process.stdout is not None
        end_s = time.monotonic() + patience_s
        while self.process.poll() is None:
            if is_over():
                return False
            if time.monotonic() > end_s:
                self.kill()
                raise BrokerError(f"client {self.settings.name}", f"it does not end within {patience_s:g} s")
            said = select.select([self.process.stdout], [], [], 0.1)[0]
            if said and not os.read(self.process.stdout.fileno(), 65536):
                time.sleep(0.01)  # it closed its output, and is about to end
        if self.process.returncode:
            raise BrokerError(f"client {self.settings.name}", self._reason())
        return True

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def _reason(self) -> str:
        said = self._errors.read_text(errors="replace").strip().splitlines()
        return said[-1] if said else f"it ended (status {self.process.returncode})"


class ClientProcesses:
    """All clients of an epoch, by roles; one that is killed is followed by another."""

    def __init__(self, settings: Settings, directory: Path, senders: int, receivers: int) -> None:
        """*settings* are what they have in common."""
        self._settings = settings
        self._directory = directory
        self._notebook = Notebook(str(directory / "soak.jsonl"))
        self._count = 0
        self._removed = [0, 0, 0, 0]
        self.clients: list[ClientProcess] = []
        self.failed: list[str] = []
        """Names of clients that ended by themselves, at an unknown time."""
        for role, number in (("sender", senders), ("receiver", receivers)):
            for _ in range(number):
                self._begin(role)

    def connect(self, port: int, life: int, *, receivers: bool) -> None:
        for client in self.clients:
            if receivers or client.settings.role == "sender":
                client.tell("connect", port, life)

    def counted(self) -> list[int]:
        """Messages confirmed, their bytes, messages taken, theirs. Raises `BrokerError` if a client failed."""
        for client in self.clients:
            try:
                client.listen()
            except BrokerError:
                self.failed.append(client.settings.name)
                raise
        return [sum(column) for column in zip(self._removed, *(client.counted for client in self.clients), strict=True)]

    def kill_one(self, number: int, life: int) -> None:
        client = self.clients.pop(number)
        self._notebook.note(Died(client.settings.name, life, time.monotonic_ns()))
        self._notebook.flush()
        client.kill()
        self._removed = [sum(pair) for pair in zip(self._removed, client.counted, strict=True)]
        self._begin(client.settings.role)

    def end(self) -> None:
        """Let all of them end; what they counted still counts."""
        for client in self.clients:
            client.end()
            self._removed = [sum(pair) for pair in zip(self._removed, client.counted, strict=True)]
        self.clients.clear()

    def kill(self) -> None:
        """Kills all clients. Those that have ended by themselves meanwhile count as failed."""
        for client in self.clients:
            if client.process.poll() and client.settings.name not in self.failed:
                self.failed.append(client.settings.name)
            client.kill()

    def drain(self, port: int, life: int, patience_s: float, is_over: Callable[[], bool]) -> bool:
        """Have a client empty the queues; False if *is_over* said so before. Raises `BrokerError` if that fails."""
        name = f"{self._settings.name}drain"
        path = str(self._directory / f"{name}.jsonl")
        settings = self._settings._replace(role="drain", name=name, notebook=path, rate_per_s=0.0)
        client = ClientProcess(settings, self._directory)
        try:
            client.tell("connect", port, life)
            return client.await_end(patience_s, is_over)
        finally:
            if client.process.poll() is None:
                client.kill()

    def _begin(self, role: str) -> None:
        self._count += 1
        name = f"{self._settings.name}{role[0]}{self._count}"
        path = str(self._directory / f"{name}.jsonl")
        settings = self._settings._replace(role=role, name=name, notebook=path)
        self.clients.append(ClientProcess(settings, self._directory))


def command(settings: Settings) -> list[str]:
    """The command that starts a client process. Its settings are an argument; the password is not."""
    given = json.dumps(settings._replace(password=""))
    return [sys.executable, "-c", f"from {__name__} import main; main()", given]


def _first_line() -> str:
    """Return the first line of standard input without reading ahead: the rest is read elsewhere."""
    line = b""
    while not line.endswith(b"\n") and (byte := os.read(0, 1)):
        line += byte
    return line.decode().rstrip("\n")


def main() -> None:
    """The life of a client process. A password is the first line on standard input, if there is a user."""
    settings = Settings(*json.loads(sys.argv[1]))
    if settings.user:
        settings = settings._replace(password=_first_line())
    roles = IN_TRANSACTIONS if settings.per_transaction else ROLES
    try:
        roles[settings.role](settings).run()
    except OSError as error:
        sys.exit(f"{settings.name}: {error}")
