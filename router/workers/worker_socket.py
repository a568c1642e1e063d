"""A socket of a worker, with its place in the worker's loop."""

from __future__ import annotations

import select
import socket

from ..connections.connection import Conversation

READ, WRITE = select.EPOLLIN, select.EPOLLOUT
FIRST_READ_BYTES = 16 << 10
"""The first read size of a connection; doubled after each read that was filled and contained messages."""


class WorkerSocket:
    """A socket, its conversation, and the reasons for which it is not read or written now."""

    __slots__ = (
        "behind", "blocked", "closed_s", "discards", "ended", "events", "full", "is_counted", "more", "opened_s",
        "passed_over", "read_bytes", "sock", "terminal", "waiting",
    )  # fmt: skip

    def __init__(self, sock: socket.socket, terminal: Conversation, now_s: float) -> None:
        self.sock = sock
        self.terminal = terminal
        self.opened_s = now_s
        self.closed_s = 0.0
        self.discards = False
        """True if bytes that came after the connection was closed were discarded since the last tick."""
        self.is_counted = False
        """True while it counts among the connections that are not authenticated."""
        self.blocked = False
        """The peer accepts no data at present."""
        self.passed_over = False
        """True if the socket is read first in the next turn: its user's share of this turn is used up."""
        self.ended = False
        """True if all output was written."""
        self.more = False
        """True if more output is to be written in the next turn."""
        self.waiting = False
        """True if the socket is to be read, and no bucket is free for it."""
        self.behind = False
        """True while a part of the bytes that were read is not processed."""
        self.full = False
        """Too much waits on its held links. It is read only when its client has closed it."""
        self.read_bytes = FIRST_READ_BYTES
        """Bytes that one read of the socket takes at most."""
        self.events = READ
        """The epoll events that the socket is registered for."""
