"""The terminals of a router: one for each connection, by its protocol."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from ..amqp.connector_target import Target
from ..amqp.ports import Drivers
from ..base.accounts.audit import IDENTITY, LoginFailure
from .admission.admission import Admission
from .admission.login_gate import LoginGate
from .amqp091.terminal import Terminal091
from .amqp091.topology import ExclusiveQueues
from .connections.client_terminal import ClientTerminal
from .connections.secured_terminal import SecuredTerminal
from .connections.terminal import Terminal, TerminalContext
from .kernel.core import Core
from .options import RouterOptions
from .tcp_info import seconds_idle
from .workers.worker import Worker


@dataclass(frozen=True)
class Terminals:
    """Creates terminals. Any thread."""

    _core: Core
    _drivers: Drivers
    _admission: Admission
    _gate: LoginGate
    _options: RouterOptions
    _no_room: Callable[[bool], str]
    """Returns the reason to refuse a connection that opens now; empty to accept it."""
    _exclusive: ExclusiveQueues = field(default_factory=ExclusiveQueues)

    def plain(
        self, worker: Worker, sock: socket.socket, name: str
    ) -> tuple[Terminal, Callable[[], Terminal091] | None]:
        """Return the terminal of a client without TLS, and what makes another one for AMQP 0-9-1, if that is on."""
        terminal = self._server(worker, sock, name)(wake=worker.wake)
        if not self._options.amqp091:
            return terminal, None
        other = partial(
            Terminal091, self._context(worker), self._exclusive, name, wake=worker.wake, no_room=self._no_room,
            idle_s=partial(seconds_idle, sock),
        )  # fmt: skip
        return terminal, other

    def secured(self, worker: Worker, sock: socket.socket, name: str, context: ssl.SSLContext) -> SecuredTerminal:
        """Return the terminal of a client with TLS."""
        make = self._server(worker, sock, name)

        def named(user: str, certificate: bytes, wake: Callable[[object], None]) -> Terminal:
            return make(wake=wake, secure=True, certified=user, certificate=certificate)

        def refused(claimed: str, reason: str) -> None:
            self._gate.login_failed(LoginFailure(name, claimed, "EXTERNAL", IDENTITY, reason))

        return SecuredTerminal(name, context, named, worker.wake, refused=refused)

    def client(
        self, worker: Worker, target: Target, wake: Callable[[Any], None], over: Callable[[], None]
    ) -> ClientTerminal:
        """Return the terminal of a connection that the broker opens."""
        return ClientTerminal(self._context(worker), target, wake=wake, over=over)

    def _server(self, worker: Worker, sock: socket.socket, name: str) -> Callable[..., Terminal]:
        return partial(
            Terminal, self._context(worker), name, no_room=self._no_room, scratch=worker.scratch,
            idle_s=partial(seconds_idle, sock),
        )  # fmt: skip

    def _context(self, worker: Worker) -> TerminalContext:
        limits, buckets = self._options.limits, worker.outgoing
        return TerminalContext(self._core, self._drivers, self._admission, limits, buckets, self._gate)
