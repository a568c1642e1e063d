"""The router: a core, its workers, and the socket where clients arrive."""

from __future__ import annotations

import logging
import resource
import socket
import ssl
from collections.abc import Callable
from functools import partial

from ..amqp.connector_target import Target
from ..amqp.ports import Drivers
from ..base.accounts.audit import IDENTITY, Audit, LoginFailure
from ..base.clock import Clock
from .admission.admission import Admission
from .admission.login_gate import LoginGate
from .connections.client_terminal import ClientTerminal
from .connections.secured_terminal import SecuredTerminal
from .connections.terminal import Terminal, TerminalContext
from .credentials import Credentials
from .kernel.core import Core
from .listener import ConnectionRate, bind, places_of, shown
from .options import FEWEST_OPENING, RouterOptions
from .outbound_connection import OutboundConnections
from .tcp_info import seconds_idle
from .workers.worker import Worker

log = logging.getLogger(__name__)

FILES_FOR_OTHERS = 128
"""Open files that connections must leave to the journal, SQL and the rest of the process."""

KEPT_FOR_MANAGERS = 16
"""Connections beyond the limit that are reserved for users who may manage everything."""
ACCEPTED_AT_ONCE = 64
"""New connections that are accepted in one turn."""


class Router:
    """Made and run by `broker_plugin`. Any thread."""

    def __init__(self, options: RouterOptions, clock: Clock, container_id: str, audit: Audit | None = None) -> None:
        """Bind the socket, so that a wrong address or a port in use is known at once. Raises `CairnError`."""
        self._options = options
        self._clock = clock
        self.admission = Admission(container_id, options.admission)
        self.credentials = Credentials(options)
        plain = bind(options.host, options.port) if options.plain else None
        try:
            self._secure = bind(options.host, options.tls.port, "--tls-port") if options.tls else None
        except BaseException:
            if plain is not None:
                plain.close()
            raise
        listeners = plain, self._secure
        self.address, self.tls_address = ["" if one is None else shown(one.getsockname()) for one in listeners]
        """The addresses of the listeners without TLS and with it, as host:port; empty without one."""
        self.places = places_of(plain), places_of(self._secure)
        """The addresses and ports of the listener without TLS, and of that with TLS."""
        self.port, self.tls_port = [0 if one is None else int(one.getsockname()[1]) for one in listeners]
        self._listeners = [one for one in listeners if one is not None]
        self._gate = LoginGate(self.credentials.login, options.max_connections_per_user, audit, clock)
        self.outbound_connections = OutboundConnections(self._least_loaded, self._client_terminal, self._not_connected)
        """Connections to other containers."""
        self._workers: list[Worker] = []
        self._most = self._most_wanted = self._most_opening = 0
        self._rate = ConnectionRate(options.connection_rate)
        self._drivers: Drivers | None = None
        self._core: Core | None = None

    def start(self, drivers: Drivers, core: Core) -> None:
        """Start the workers and let clients in."""
        self._drivers, self._core = drivers, core
        files = _most_files() - FILES_FOR_OTHERS
        wanted = self._options.max_unauthenticated or max(FEWEST_OPENING, self._options.max_connections // 10)
        self._most_opening = min(wanted, max(1, files // 2))
        self.limit_connections(self._options.max_connections, self._options.max_connections_per_user)
        threads = self._options.worker_threads
        share_bytes = max(2, self._options.buffer_limit_bytes // threads)
        scratch_bytes = self._options.limits.max_frame_bytes
        self._workers = [
            Worker(
                number, core, drivers, self._clock, share_bytes, scratch_bytes, max(1, self._most_opening // threads)
            )
            for number in range(threads)
        ]
        core.ring = self._workers[0].ring
        self._gate.start(core.submit)
        for listener in self._listeners:
            listener.listen(512)
            self._workers[0].listen(listener.fileno(), partial(self._accept, listener))
        self._workers[0].keep_time(drivers.scheduler)
        for worker in self._workers:
            worker.thread.start()

    def watch(self, fd: int, ready: Callable[[], None]) -> None:
        """Have a worker call *ready* as soon as *fd* is readable, once; its actions are run. Any thread."""
        self._workers[0].watch(fd, ready)

    def stop(self) -> None:
        """Stop listening, close all connections, and wait for the workers to end."""
        self.outbound_connections.stop()
        for worker in self._workers:
            worker.stop()
        for worker in self._workers:
            worker.thread.join()
        self._gate.stop()
        for listener in self._listeners:
            listener.close()

    def _accept(self, listener: socket.socket) -> None:
        context = self.credentials.context if listener is self._secure else None
        for _ in range(ACCEPTED_AT_ONCE):
            try:
                sock, peer = listener.accept()
            except (BlockingIOError, InterruptedError, ConnectionError):
                return
            except OSError as error:
                log.error("a connection can't be accepted: %s", error, extra={"event": "connection.failed"})
                return
            self._take_in(sock, peer, context)

    def _take_in(self, sock: socket.socket, peer: tuple[object, ...], context: ssl.SSLContext | None) -> None:
        address = self._rate.admitted(peer, self._clock.monotonic_s())
        if not address:
            sock.close()
            return
        worker, name = self._least_loaded(), shown(peer)
        make = partial(
            Terminal, self._context(worker), name, no_room=self._no_room, scratch=worker.scratch,
            idle_s=partial(seconds_idle, sock),
        )  # fmt: skip
        sock.setblocking(False)
        if sock.family in (socket.AF_INET, socket.AF_INET6):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if context is None:
            worker.adopt(sock, make(wake=worker.wake), address)
        else:

            def named(user: str, certificate: bytes, wake: Callable[[object], None]) -> Terminal:
                return make(wake=wake, secure=True, certified=user, certificate=certificate)

            def refused(claimed: str, reason: str) -> None:
                self._gate.login_failed(LoginFailure(name, claimed, "EXTERNAL", IDENTITY, reason))

            worker.adopt(sock, SecuredTerminal(name, context, named, worker.wake, refused=refused), address)

    def _no_room(self, is_manager: bool) -> str:
        """Return the reason to refuse a connection that opens now; empty to accept it. Any thread."""
        most = self._most + (KEPT_FOR_MANAGERS if is_manager else 0)
        if sum(worker.load - worker.opening for worker in self._workers) < most:
            return ""
        limit = "--max-connections" if self._most == self._most_wanted else "the open files it may have"
        return f"the broker has {self._most} connections, and may not have more: {limit}"

    def limit_connections(self, most: int, most_per_user: int) -> None:
        """Set the limits of connections of all clients and of one user; open connections stay. Any thread."""
        self._most_wanted = most
        self._most = min(most, _most_files() - FILES_FOR_OTHERS - self._most_opening - KEPT_FOR_MANAGERS)
        self._gate.most_per_user = most_per_user

    def _least_loaded(self) -> Worker:
        return min(self._workers, key=lambda worker: worker.load)

    def _not_connected(self, name: str, reason: str) -> None:
        """Report that a connection to another container could not be opened. Any thread."""
        assert self._core is not None
        assert self._drivers is not None
        self._core.submit(self._drivers.disconnected, name, None, reason)

    def _client_terminal(
        self, target: Target, worker: Worker, wake: Callable[[Terminal], None], over: Callable[[], None]
    ) -> ClientTerminal:
        return ClientTerminal(self._context(worker), target, wake=wake, over=over)

    def _context(self, worker: Worker) -> TerminalContext:
        assert self._core is not None
        assert self._drivers is not None
        limits, buckets = self._options.limits, worker.outgoing
        return TerminalContext(self._core, self._drivers, self.admission, limits, buckets, self._gate)


def _most_files() -> int:
    """Raise the limit of open files of this process as far as possible, and return it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        soft = hard
    return 1 << 30 if soft == resource.RLIM_INFINITY else soft
