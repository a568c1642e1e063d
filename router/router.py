"""The router: a core, its workers, and the socket where clients arrive."""

from __future__ import annotations

import logging
import resource
import socket
from dataclasses import dataclass

from ..amqp.buckets import DEFAULT_LIMIT_BYTES
from ..amqp.engine import Limits
from ..base.clock import Clock
from ..base.errors import CairnError
from ..channel.words import Drivers
from .admission import Admission, AdmissionOptions
from .core import Core
from .terminal import Terminal
from .worker import Worker

log = logging.getLogger(__name__)

FILES_FOR_OTHERS = 128
"""Open files that connections must leave to the journal, SQL and the rest of the process."""


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
    limits: Limits = Limits()
    admission: AdmissionOptions = AdmissionOptions()
    buffer_limit_bytes: int = DEFAULT_LIMIT_BYTES
    """How much content may be on its way between sockets and queues."""


class Router:
    """Made and run by `broker_plugin`. Any thread."""

    def __init__(self, options: RouterOptions, clock: Clock, container_id: str) -> None:
        """Bind the socket, so that a wrong address or a port in use is known at once. Raises `CairnError`."""
        self._options = options
        self._clock = clock
        self._admission = Admission(container_id, options.admission)
        self._listener = _bind(options.host, options.port)
        self.address = _show(self._listener.getsockname())
        self.port = int(self._listener.getsockname()[1])
        self._workers: list[Worker] = []
        self._most = 0
        self._drivers: Drivers | None = None
        self._core: Core | None = None

    def start(self, drivers: Drivers, core: Core) -> None:
        """Start the workers and let clients in."""
        self._drivers, self._core = drivers, core
        self._most = min(self._options.max_connections, _most_files() - FILES_FOR_OTHERS)
        threads = self._options.worker_threads
        share_bytes = max(2, self._options.buffer_limit_bytes // threads)
        self._workers = [Worker(number, core, drivers, self._clock, share_bytes) for number in range(threads)]
        self._listener.listen(512)
        self._workers[0].listen(self._listener.fileno(), self._accept)
        self._workers[0].keep_time(drivers)
        for worker in self._workers:
            worker.thread.start()

    def ring(self) -> None:
        """An action was posted from outside: have a worker run the core."""
        if self._workers:
            self._workers[0].ring()

    def stop(self) -> None:
        """Let nobody in any more, say goodbye, and wait for the workers to end."""
        for worker in self._workers:
            worker.stop()
        for worker in self._workers:
            worker.thread.join()
        self._listener.close()

    def _accept(self) -> None:
        assert self._core is not None
        assert self._drivers is not None
        try:
            sock, peer = self._listener.accept()
        except (BlockingIOError, InterruptedError, ConnectionError):
            return
        except OSError as error:
            log.error("a connection can't be accepted: %s", error)
            return
        if sum(worker.load for worker in self._workers) >= self._most:
            log.warning("%s: refused: there are %d connections", _show(peer), self._most)
            sock.close()
            return
        sock.setblocking(False)
        if sock.family in (socket.AF_INET, socket.AF_INET6):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        worker = min(self._workers, key=lambda worker: worker.load)
        terminal = Terminal(
            _show(peer),
            self._core,
            self._drivers,
            self._admission,
            self._options.limits,
            worker.outgoing,
            anonymous=self._options.anonymous,
            wake=worker.wake,
        )
        worker.adopt(sock, terminal)


def _most_files() -> int:
    """How many files this process may have open, after asking for all that it may ask for."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        soft = hard
    return 1 << 30 if soft == resource.RLIM_INFINITY else soft


def _bind(host: str, port: int) -> socket.socket:
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
        raise CairnError(place, f"can't listen there: {reason}", "choose another --port or --listen") from error
    return listener


def _show(address: tuple[object, ...]) -> str:
    host, port = address[0], address[1]
    return f"[{host}]:{port}" if ":" in str(host) else f"{host}:{port}"
