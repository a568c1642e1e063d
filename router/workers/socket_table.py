"""The open sockets of a worker, and the epoll events that each of them needs."""

from __future__ import annotations

import logging
import select
import socket
from collections.abc import Callable

from ...amqp091.frames import PROTOCOL_HEADER
from ...base.clock import Clock
from ..admission.openings import Openings
from ..kernel.core import Core
from .worker_socket import READ, WRITE, Conversation, WorkerSocket

log = logging.getLogger(__name__)

MOST_UNANSWERED = 4096
"""The number of unanswered requests for sessions and links, beyond which a connection is not read."""


class SocketTable:
    """The open sockets of one worker, by descriptor and by terminal; its thread only."""

    def __init__(self, epoll: select.epoll, core: Core, clock: Clock, most_opening: int) -> None:
        """*most_opening*: the maximum number of unauthenticated connections."""
        self.by_fd: dict[int, WorkerSocket] = {}
        self.by_terminal: dict[Conversation, WorkerSocket] = {}
        self.openings = Openings(most_opening, lambda held: isinstance(held, WorkerSocket) and held.terminal.is_checked)
        self._epoll = epoll
        self._core = core
        self._clock = clock

    def add(
        self, sock: socket.socket, terminal: Conversation, address: str, other: Callable[[], Conversation] | None
    ) -> WorkerSocket:
        """Add a new connection, and register it for input.

        *address*: of the peer, if it must authenticate; if too many such connections are open, another one is closed.
        *other*: see `WorkerSocket`.
        """
        now_s = self._clock.monotonic_s()
        held = WorkerSocket(sock, terminal, now_s, now_s, other=other)
        self.by_fd[sock.fileno()] = held
        self.by_terminal[terminal] = held
        self._epoll.register(sock.fileno(), READ)
        if address:
            self._count(held, address)
        return held

    def _count(self, held: WorkerSocket, address: str) -> None:
        """Count an unauthenticated connection; if there are too many, another one is closed."""
        held.is_counted = True
        oldest = self.openings.add(held, address, held.opened_s)
        if isinstance(oldest, WorkerSocket):
            text = "%s: closed: too many connections wait for a login, this one is silent; see --max-unauthenticated"
            log.info(text, oldest.terminal.name)
            self.close(oldest)

    def choose(self, held: WorkerSocket, data: memoryview) -> bytes:
        """Give a new connection the terminal of its protocol; return its first bytes, or nothing if more are needed."""
        held.first += data
        if len(held.first) < len(PROTOCOL_HEADER) and PROTOCOL_HEADER.startswith(held.first):
            return b""
        if held.first.startswith(PROTOCOL_HEADER) and held.other is not None:
            del self.by_terminal[held.terminal]
            held.terminal.free()
            held.terminal = held.other()
            self.by_terminal[held.terminal] = held
        first, held.first, held.other = held.first, b"", None
        return first

    def note_progress(self, held: WorkerSocket) -> None:
        """Note that an unauthenticated connection has sent something, or got an answer."""
        held.heard_s = self._clock.monotonic_s()
        self.openings.received(held, held.heard_s)

    def stop_counting(self, held: WorkerSocket) -> None:
        """Remove a connection from those that are not authenticated."""
        held.is_counted = False
        self.openings.remove(held)

    def update_events(self, held: WorkerSocket) -> None:
        """Register the epoll events that are needed now."""
        events = WRITE if held.blocked or held.more else 0
        held.full = held.terminal.is_full()
        if held.full:
            events |= select.EPOLLRDHUP
        elif not (held.waiting or held.behind or (held.blocked and held.terminal.unanswered() > MOST_UNANSWERED)):
            events |= READ
        if events != held.events:
            held.events = events
            self._epoll.modify(held.sock.fileno(), events)

    def abort(self, held: WorkerSocket) -> None:
        """Close a connection whose input triggered a defect; call it with the exception at hand."""
        event = {"event": "broker.internal-error"}
        log.exception("%s: internal error, the connection is closed", held.terminal.name, extra=event)
        held.terminal.give_up()
        self.close(held)

    def close(self, held: WorkerSocket) -> None:
        """Close the socket. The terminal's content is released by the actions that it posts."""
        fd = held.sock.fileno()
        if fd < 0:
            return
        self.stop_counting(held)
        held.terminal.give_up()
        del self.by_fd[fd]
        del self.by_terminal[held.terminal]
        self._epoll.unregister(fd)
        held.sock.close()
        held.terminal.free()
        self._core.run()

    def close_all(self) -> None:
        """Close the sockets that are left."""
        for held in list(self.by_fd.values()):
            self.close(held)
