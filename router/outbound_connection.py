"""Connections to other containers: opened, passed to a worker, and opened again when they break.

Each target has a thread, because looking up a name and connecting take time; it sleeps while the connection is open.
Between attempts it waits, twice as long each time and randomized, so that many brokers do not all reconnect at once.
"""

from __future__ import annotations

import logging
import random
import socket
import ssl
import threading
from collections.abc import Callable, Sequence
from itertools import cycle

from ..amqp.connector_target import Target
from ..base.errors import CairnError
from .connections.client_terminal import ClientTerminal
from .connections.secured_terminal import SecuredClientTerminal, SecuredTerminal
from .connections.terminal import Terminal
from .tls import make_client_context
from .workers.worker import Worker

log = logging.getLogger(__name__)

CONNECT_TIMEOUT_S = 5.0
FIRST_WAIT_S = 0.1
LONGEST_WAIT_S = 30.0

MakeTerminal = Callable[[Target, Worker, Callable[[Terminal], None], Callable[[], None]], ClientTerminal]


class OutboundConnection:
    """Keeps a connection to one target open."""

    def __init__(
        self, target: Target, pick: Callable[[], Worker], make: MakeTerminal, failed: Callable[[str, str], None]
    ) -> None:
        """*pick* chooses the worker; *failed* gets the reason of a failed attempt. Raises `CairnError`."""
        self._target = target
        self._turns = cycle(target.turns)
        _check(target)
        self._pick = pick
        self._make = make
        self._failed = failed
        self._changed = threading.Event()
        """The connection is over, or no more are wanted."""
        self._stopped = False
        self._thread = threading.Thread(target=self._run, name=f"cairnmq-dial-{target.name}", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Open no more connections; the caller closes an open one. Any thread."""
        self._stopped = True
        self._changed.set()

    def _run(self) -> None:
        wait_s, tries = FIRST_WAIT_S, 0
        while not self._stopped:
            terminal = self._connect(next(self._turns))
            if terminal is not None:
                self._changed.wait()
                self._changed.clear()
                if not terminal.is_opening:
                    wait_s, tries = FIRST_WAIT_S, 0
            if not self._stopped:
                self._changed.wait(random.uniform(wait_s / 2, wait_s))
            tries += 1
            if tries % len(self._target.turns) == 0:
                wait_s = min(2 * wait_s, LONGEST_WAIT_S)

    def check(self) -> None:
        """Read the files of the target, as each attempt to connect does. Raises `CairnError`. Any thread."""
        _check(self._target)

    def _connect(self, target: Target) -> ClientTerminal | None:
        try:
            target = target.read_again()
            context = make_client_context(target) if target.tls else None
        except CairnError as error:
            self._failed(target.name, str(error))
            return None
        try:
            sock = socket.create_connection((target.host, target.port), CONNECT_TIMEOUT_S)
        except (OSError, UnicodeError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            log.debug("%s: %s", target.place, reason)
            self._failed(target.name, reason)
            return None
        if self._stopped:
            sock.close()
            return None
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._changed.clear()
        return self._hand_over(target, context, sock, self._pick())

    def _hand_over(
        self, target: Target, context: ssl.SSLContext | None, sock: socket.socket, worker: Worker
    ) -> ClientTerminal:
        if context is None:
            plain = self._make(target, worker, worker.wake, self._changed.set)
            worker.adopt(sock, plain)
            return plain
        made: list[ClientTerminal] = []

        def make(wake: Callable[[object], None]) -> Terminal:
            made.append(self._make(target, worker, wake, self._changed.set))
            return made[0]

        secured: SecuredTerminal = SecuredClientTerminal(target, context, make, worker.wake)
        worker.adopt(sock, secured)
        return made[0]


class OutboundConnections:
    """The connections to all targets of one router (`channel.connector_target.Dialler`). Any thread."""

    def __init__(self, pick: Callable[[], Worker], make: MakeTerminal, failed: Callable[[str, str], None]) -> None:
        self._pick = pick
        self._make = make
        self._failed = failed
        self._connections: dict[str, OutboundConnection] = {}

    def dial(self, target: Target) -> None:
        self._connections[target.name] = OutboundConnection(target, self._pick, self._make, self._failed)

    def hang_up(self, name: str) -> None:
        connection = self._connections.pop(name, None)
        if connection is not None:
            connection.stop()

    def check(self) -> None:
        """Read the files of passwords and certificates of all targets. Raises `CairnError`."""
        for connection in list(self._connections.values()):
            connection.check()

    def stop(self) -> None:
        for connection in self._connections.values():
            connection.stop()


def _check(target: Target) -> None:
    """Raise `CairnError` if a file of *target* can't be used."""
    target = target.read_again()
    if target.tls:
        make_client_context(target)


def check_targets(targets: Sequence[Target]) -> None:
    """Raises `CairnError` if it is known beforehand that there can't be a connection to all of these."""
    for target in targets:
        if sum(one.name == target.name for one in targets) > 1:
            raise CairnError(f"connector {target.name}", "there are two of that name", "give one of them a name=")
        _check(target)
