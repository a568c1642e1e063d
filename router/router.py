"""The router: a core, its workers, and the socket where clients arrive."""

from __future__ import annotations

import logging
import socket
import ssl
from collections.abc import Callable
from functools import partial
from typing import Any

from ..amqp.connector_target import Target
from ..amqp.ports import Drivers
from ..base.accounts.audit import Audit
from ..base.clock import Clock
from .admission.admission import Admission
from .admission.login_gate import LoginGate
from .connections.client_terminal import ClientTerminal
from .credentials import Credentials
from .kernel.core import Core
from .listener import ConnectionRate, bind, places_of, shown
from .options import KEPT_FOR_MANAGERS, OpenFiles, RouterOptions
from .outbound_connection import OutboundConnections
from .terminals import Terminals
from .workers.worker import Worker

log = logging.getLogger(__name__)

BACKLOG = 1 << 16
"""Connections that may wait to be accepted; the kernel has a limit, too (`net.core.somaxconn`)."""
ACCEPTED_AT_ONCE = 64
"""New connections that are accepted in one turn."""


class Router:
    """Made and run by `broker_plugin`. Any thread."""

    def __init__(
        self,
        options: RouterOptions,
        clock: Clock,
        container_id: str,
        audit: Audit | None = None,
        trusted_path: str = "",
    ) -> None:
        """Bind the socket, so that a wrong address or a port in use is known at once. Raises `CairnError`.

        *trusted_path*: the file of `TrustedLogins`; empty for none.
        """
        self._options = options
        self._clock = clock
        self._files = OpenFiles.raised()
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
        self._gate = LoginGate(self.credentials.login, options.max_connections_per_user, audit, clock, trusted_path)
        self.outbound_connections = OutboundConnections(self._least_loaded, self._client_terminal, self._not_connected)
        """Connections to other containers."""
        self._workers: list[Worker] = []
        self._most = self._most_wanted = self._most_opening = 0
        self._rate = ConnectionRate(options.connection_rate)
        self._accept_logged_s = 0.0
        self._terminals: Terminals | None = None
        self._drivers: Drivers | None = None
        self._core: Core | None = None

    def start(self, drivers: Drivers, core: Core) -> None:
        """Start the workers and let clients in."""
        self._drivers, self._core = drivers, core
        self._terminals = Terminals(core, drivers, self.admission, self._gate, self._options, self._no_room)
        self._most_opening = self._files.openings(self._options.most_opening)
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
            listener.listen(BACKLOG)
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

    def _accept(self, listener: socket.socket) -> bool:
        """Accept the clients that wait; return False if the others have to wait for a place."""
        context = self.credentials.context if listener is self._secure else None
        for _ in range(ACCEPTED_AT_ONCE):
            now_s = self._clock.monotonic_s()
            free = [one for one in self._workers if one.has_place(now_s)]
            if not free:
                return False
            worker = min(free, key=lambda one: one.load)
            try:
                sock, peer = listener.accept()
            except (BlockingIOError, InterruptedError, ConnectionError):
                return True
            except OSError as error:
                self._log_failed_accept(error, now_s)
                return False
            address = self._rate.admitted(peer, now_s)
            if address:
                self._take_in(worker, sock, peer, address, context)
            else:
                sock.close()
        return True

    def _log_failed_accept(self, error: OSError, now_s: float) -> None:
        if now_s >= self._accept_logged_s + 1:
            self._accept_logged_s = now_s
            text = "a connection can't be accepted: %s; raise the limit of open files (ulimit -n, LimitNOFILE)"
            log.error(text, error, extra={"event": "connection.failed"})

    def _take_in(
        self,
        worker: Worker,
        sock: socket.socket,
        peer: tuple[object, ...],
        address: str,
        context: ssl.SSLContext | None,
    ) -> None:
        assert self._terminals is not None
        sock.setblocking(False)
        if sock.family in (socket.AF_INET, socket.AF_INET6):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if context is None:
            worker.adopt(sock, *self._terminals.plain(worker, sock, shown(peer)), address=address)
        else:
            worker.adopt(sock, self._terminals.secured(worker, sock, shown(peer), context), address=address)

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
        self._most = self._files.connections(most, self._most_opening)
        if self._most < most:
            text = "at most %d of %d connections (--max-connections) are possible with %d open files; raise LimitNOFILE"
            log.warning(text, self._most, most, self._files.most, extra={"event": "connection.few-files"})
        self._gate.most_per_user = most_per_user

    def _least_loaded(self) -> Worker:
        return min(self._workers, key=lambda worker: worker.load)

    def _not_connected(self, name: str, reason: str) -> None:
        """Report that a connection to another container could not be opened. Any thread."""
        assert self._core is not None
        assert self._drivers is not None
        self._core.submit(self._drivers.disconnected, name, None, reason)

    def _client_terminal(
        self, target: Target, worker: Worker, wake: Callable[[Any], None], over: Callable[[], None]
    ) -> ClientTerminal:
        assert self._terminals is not None
        return self._terminals.client(worker, target, wake, over)
