"""The router: a core, its workers, and the socket where clients arrive."""

from __future__ import annotations

import logging
import resource
import socket
import ssl
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from ..accounts.users import UsersFile
from ..amqp.buckets import DEFAULT_LIMIT_BYTES
from ..amqp.events import Limits
from ..amqp.sasl import Login
from ..base.clock import Clock
from ..base.errors import CairnError
from ..channel.outward import Target
from ..channel.words import Drivers
from .admission import Admission, AdmissionOptions, HostPort
from .client_terminal import ClientTerminal
from .core import Core
from .dialler import Lines
from .gate import Gate
from .revocation import Revoked
from .terminal import Terminal
from .tls import NONE, SecuredTerminal, TlsOptions, make_context
from .worker import Worker

log = logging.getLogger(__name__)

FILES_FOR_OTHERS = 128
"""Open files that connections must leave to the journal, SQL and the rest of the process."""

MOST_TURNED_AWAY = 64
"""Clients beyond the most there may be that are heard as far as their open, to be told so; others are just closed."""


@dataclass(frozen=True)
class RouterOptions:
    """Where to listen, and what connections may do."""

    host: str = "127.0.0.1"
    port: int = 5672
    """0 for any free one."""
    worker_threads: int = 1
    anonymous: bool = True
    """Let clients in without a name."""
    max_connections: int = 5000
    max_connections_per_user: int = 1000
    users_file: str = ""
    """Who can log in with a password."""
    insecure_auth: bool = False
    """Passwords may be sent without TLS."""
    tls: TlsOptions | None = None
    plain: bool = True
    """Listen at `port`, too, where no TLS is spoken."""
    limits: Limits = Limits()
    admission: AdmissionOptions = AdmissionOptions()
    buffer_limit_bytes: int = DEFAULT_LIMIT_BYTES
    """How much content may be on its way between sockets and queues."""

    @property
    def knows_users(self) -> bool:
        """Whether clients can log in with a name."""
        return bool(self.users_file) or (self.tls is not None and self.tls.clients != NONE)


class Router:
    """Made and run by `broker_plugin`. Any thread."""

    def __init__(self, options: RouterOptions, clock: Clock, container_id: str) -> None:
        """Bind the socket, so that a wrong address or a port in use is known at once. Raises `CairnError`."""
        self._options = options
        self._clock = clock
        self._admission = Admission(container_id, options.admission)
        self._users = users = UsersFile(options.users_file) if options.users_file else None
        login = Login(users.find if users else None, options.anonymous, options.insecure_auth)
        self._context, self._revoked = _read_tls(options.tls)
        self._listener = _bind(options.host, options.port) if options.plain else None
        try:
            self._secure = _bind(options.host, options.tls.port, "--tls-port") if options.tls else None
        except BaseException:
            if self._listener is not None:
                self._listener.close()
            raise
        self._gate = Gate(login, options.max_connections_per_user)
        self.lines = Lines(self._least_loaded, self._client_terminal, self._not_connected)
        """Connections to other containers."""
        self._workers: list[Worker] = []
        self._most = self._most_heard = 0
        self._drivers: Drivers | None = None
        self._core: Core | None = None

    @property
    def address(self) -> str:
        """Where it listens without TLS, as host:port; empty if it does not."""
        return "" if self._listener is None else _show(self._listener.getsockname())

    @property
    def port(self) -> int:
        return 0 if self._listener is None else int(self._listener.getsockname()[1])

    @property
    def tls_address(self) -> str:
        """Where it listens with TLS, as host:port; empty if it does not."""
        return "" if self._secure is None else _show(self._secure.getsockname())

    @property
    def places(self) -> tuple[HostPort, ...]:
        """Where it listens without TLS: address and port."""
        return _places(self._listener)

    @property
    def tls_places(self) -> tuple[HostPort, ...]:
        """The same with TLS."""
        return _places(self._secure)

    def failover_to(self, plain: Sequence[HostPort], tls: Sequence[HostPort]) -> None:
        """Clients are told of these brokers, beside those of the options. Any thread."""
        self._admission.failover_to(plain, tls)

    @property
    def tls_port(self) -> int:
        return 0 if self._secure is None else int(self._secure.getsockname()[1])

    def start(self, drivers: Drivers, core: Core) -> None:
        """Start the workers and let clients in."""
        self._drivers, self._core = drivers, core
        files = _most_files() - FILES_FOR_OTHERS
        self._most = min(self._options.max_connections, files)
        self._most_heard = min(self._most + MOST_TURNED_AWAY, files)
        threads = self._options.worker_threads
        share_bytes = max(2, self._options.buffer_limit_bytes // threads)
        scratch_bytes = self._options.limits.max_frame_bytes
        self._workers = [
            Worker(number, core, drivers, self._clock, share_bytes, scratch_bytes) for number in range(threads)
        ]
        self._gate.start(self._post)
        for listener, accept in ((self._listener, self._accept_plain), (self._secure, self._accept_secure)):
            if listener is not None:
                listener.listen(512)
                self._workers[0].listen(listener.fileno(), accept)
        self._workers[0].keep_time(drivers)
        for worker in self._workers:
            worker.thread.start()

    def read_again(self) -> Callable[[], None]:
        """Read the users file, certificates and lists of revoked ones; what it returns makes them count from then on.

        Raises `CairnError`. Any thread, but one at a time.
        """
        take_users = self._users.read_again() if self._users is not None else None
        context, revoked = _read_tls(self._options.tls)

        def put_in_place() -> None:
            if take_users is not None:
                take_users()
            self._context, self._revoked = context, revoked

        return put_in_place

    def knows(self, user: str) -> bool:
        """Whether *user* could log in with a password. Any thread."""
        return self._users is not None and self._users.knows(user)

    def is_revoked(self, certificate: bytes) -> bool:
        """Whether a client's certificate (in DER) is not believed any more. Any thread."""
        return self._revoked is not None and self._revoked.has(certificate)

    def ring(self) -> None:
        """An action was posted from outside: have a worker run the core."""
        if self._workers:
            self._workers[0].ring()

    def watch(self, fd: int, ready: Callable[[], None]) -> None:
        """Have *ready* called by a worker as soon as *fd* is readable, once; what it posts is done. Any thread."""
        self._workers[0].watch(fd, ready)

    def _post(self, action: Callable[..., None], *args: object) -> None:
        """Have *action* done on the core, soon. Any thread."""
        assert self._core is not None
        self._core.post(action, *args)
        self.ring()

    def stop(self) -> None:
        """Let nobody in any more, say goodbye, and wait for the workers to end."""
        self.lines.stop()
        for worker in self._workers:
            worker.stop()
        for worker in self._workers:
            worker.thread.join()
        self._gate.stop()
        for listener in (self._listener, self._secure):
            if listener is not None:
                listener.close()

    def _accept_plain(self) -> None:
        assert self._listener is not None
        self._accept(self._listener, None)

    def _accept_secure(self) -> None:
        assert self._secure is not None
        self._accept(self._secure, self._context)

    def _accept(self, listener: socket.socket, context: ssl.SSLContext | None) -> None:
        try:
            sock, peer = listener.accept()
        except (BlockingIOError, InterruptedError, ConnectionError):
            return
        except OSError as error:
            log.error("a connection can't be accepted: %s", error)
            return
        there = sum(worker.load for worker in self._workers)
        if there >= self._most_heard:
            log.warning("%s: refused: there are %d connections", _show(peer), there)
            sock.close()
            return
        worker, name = self._least_loaded(), _show(peer)
        make = partial(self._terminal, name, worker, no_room=self._no_room() if there >= self._most else "")
        sock.setblocking(False)
        if sock.family in (socket.AF_INET, socket.AF_INET6):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if context is None:
            worker.adopt(sock, make(worker.wake))
        else:

            def named(user: str, certificate: bytes, wake: Callable[[object], None]) -> Terminal:
                return make(wake, secure=True, certified=user, certificate=certificate)

            worker.adopt(sock, SecuredTerminal(name, context, named, worker.wake))

    def _no_room(self) -> str:
        limit = "--max-connections" if self._most == self._options.max_connections else "the open files it may have"
        return f"the broker has {self._most} connections, and may not have more: {limit}"

    def _least_loaded(self) -> Worker:
        return min(self._workers, key=lambda worker: worker.load)

    def _not_connected(self, name: str, why: str) -> None:
        """A connection to another container could not be opened. Any thread."""
        assert self._drivers is not None
        self._post(self._drivers.disconnected, name, None, why)

    def _client_terminal(
        self, target: Target, worker: Worker, wake: Callable[[Terminal], None], over: Callable[[], None]
    ) -> ClientTerminal:
        assert self._core is not None
        assert self._drivers is not None
        return ClientTerminal(
            target,
            self._core,
            self._drivers,
            self._admission,
            self._options.limits,
            worker.outgoing,
            self._gate,
            wake=wake,
            over=over,
        )

    def _terminal(
        self,
        name: str,
        worker: Worker,
        wake: Callable[[Terminal], None],
        *,
        secure: bool = False,
        certified: str = "",
        certificate: bytes = b"",
        no_room: str = "",
    ) -> Terminal:
        assert self._core is not None
        assert self._drivers is not None
        options = self._options
        return Terminal(
            name,
            self._core,
            self._drivers,
            self._admission,
            options.limits,
            worker.outgoing,
            self._gate,
            wake=wake,
            secure=secure,
            certified=certified,
            certificate=certificate,
            no_room=no_room,
            scratch=worker.scratch,
        )


def _read_tls(options: TlsOptions | None) -> tuple[ssl.SSLContext | None, Revoked | None]:
    if options is None:
        return None, None
    context = make_context(options)
    return context, Revoked(options.crl) if options.crl else None


def _most_files() -> int:
    """How many files this process may have open, after asking for all that it may ask for."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        soft = hard
    return 1 << 30 if soft == resource.RLIM_INFINITY else soft


def _bind(host: str, port: int, option: str = "--port") -> socket.socket:
    place = f"{host}:{port}"
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listener = socket.socket(family, kind, protocol)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(address)
            listener.setblocking(False)
        except BaseException:
            listener.close()
            raise
    except (OSError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise CairnError(place, f"can't listen there: {reason}", f"choose another {option} or --listen") from error
    return listener


def _places(listener: socket.socket | None) -> tuple[HostPort, ...]:
    if listener is None:
        return ()
    host, port = listener.getsockname()[:2]
    return ((str(host).partition("%")[0], int(port)),)


def _show(address: tuple[object, ...]) -> str:
    host, port = address[0], address[1]
    return f"[{host}]:{port}" if ":" in str(host) else f"{host}:{port}"
