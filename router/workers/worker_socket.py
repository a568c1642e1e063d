"""A socket of a worker, with its place in the worker's loop."""

from __future__ import annotations

import select
import socket
from collections.abc import Callable
from dataclasses import dataclass

from ..amqp091.terminal import Terminal091
from ..connections.secured_terminal import Conversation as Conversation10

Conversation = Conversation10 | Terminal091
"""A connection of either protocol; `Terminal` documents its methods."""
READ, WRITE = select.EPOLLIN, select.EPOLLOUT
FIRST_READ_BYTES = 16 << 10
"""The first read size of a connection; doubled after each read that was filled and contained messages."""


@dataclass(eq=False, slots=True)
class WorkerSocket:
    """A socket, its conversation, and the reasons for which it is not read or written now."""

    sock: socket.socket
    terminal: Conversation
    opened_s: float
    heard_s: float
    """The time at which a connection that is not open last sent something, or got an answer."""
    closed_s: float = 0.0
    discards: bool = False
    """True if bytes that came after the connection was closed were discarded since the last tick."""
    is_counted: bool = False
    """True while it counts among the connections that are not authenticated."""
    blocked: bool = False
    """The peer accepts no data at present."""
    passed_over: bool = False
    """True if the socket is read first in the next turn: its user's share of this turn is used up."""
    ended: bool = False
    """True if all output was written."""
    more: bool = False
    """True if more output is to be written in the next turn."""
    waiting: bool = False
    """True if the socket is to be read, and no bucket is free for it."""
    behind: bool = False
    """True while a part of the bytes that were read is not processed."""
    full: bool = False
    """Too much waits on its held links. It is read only when its client has closed it."""
    read_bytes: int = FIRST_READ_BYTES
    """Bytes that one read of the socket takes at most."""
    other: Callable[[], Conversation] | None = None
    """Creates the terminal for AMQP 0-9-1, if the client begins with its header. None once that is known."""
    first: bytes = b""
    """The first bytes of the client, until that is known."""
    events: int = READ
    """The epoll events that the socket is registered for."""
