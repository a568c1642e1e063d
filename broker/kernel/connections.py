"""The open connections, sessions and links of clients. Core only.

No state is kept here per message. The driver of a link has its current state.
"""

from __future__ import annotations

from itertools import count
from typing import NamedTuple

from ...amqp.ports import ConnectionEnd, Open, TerminalEnd
from ...base.clock import Clock


class ClientLink(NamedTuple):
    """A client's link, from its attach until it is detached; it may not have been answered yet."""

    identity: str
    connection: Connection
    attach: Open
    terminal: TerminalEnd
    since_us: int


class Session(NamedTuple):
    """A client's session."""

    identity: str
    number: int
    connection: Connection
    since_us: int


class Connection:
    """A connection on which the client has opened AMQP."""

    def __init__(self, number: int, end: ConnectionEnd, since_us: int) -> None:
        self.identity = str(number)
        self.end = end
        self.since_us = since_us
        self.links: dict[object, ClientLink] = {}
        self.sessions: dict[int, Session] = {}


class Connections:
    """All open connections, by their ends, and all links, by their terminals."""

    def __init__(self, clock: Clock) -> None:
        self.by_end: dict[object, Connection] = {}
        self.opened = 0
        """The number of connections that were opened so far."""
        self.links: dict[object, ClientLink] = {}
        self._clock = clock
        self._numbers = count(1)

    def came(self, end: ConnectionEnd) -> None:
        self.opened += 1
        self.by_end[end] = Connection(self.opened, end, self._clock.wall_us())

    def went(self, end: object) -> None:
        self.by_end.pop(end, None)

    def session_came(self, end: object, number: int) -> None:
        connection = self.by_end.get(end)
        if connection is not None:
            identity = f"{connection.identity}.{number}"
            connection.sessions[number] = Session(identity, number, connection, self._clock.wall_us())

    def session_went(self, end: object, number: int) -> None:
        connection = self.by_end.get(end)
        if connection is not None:
            connection.sessions.pop(number, None)

    def link_came(self, attach: Open, terminal: TerminalEnd) -> bool:
        """Add a link; return False if its connection is unknown or closed."""
        connection = self.by_end.get(attach.connection)
        if connection is not None:
            identity = f"{connection.identity}-{next(self._numbers)}"
            link = ClientLink(identity, connection, attach, terminal, self._clock.wall_us())
            connection.links[terminal] = self.links[terminal] = link
        return connection is not None

    def is_same(self, terminal: object, attach: Open) -> bool:
        """Return whether an open link has the name, AMQP container ID, user and direction of one to be attached."""
        there = self.links.get(terminal)
        return there is not None and bool(attach.container) and _whose(there.attach) == _whose(attach)

    def link_went(self, terminal: TerminalEnd) -> None:
        link = self.links.pop(terminal, None)
        if link is not None:
            del link.connection.links[terminal]


def _whose(attach: Open) -> tuple[str, str, str, bool]:
    return attach.user, attach.container, attach.link_name, attach.to_client
