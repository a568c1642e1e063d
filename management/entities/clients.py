"""Clients: their connections, and the links on them."""

from __future__ import annotations

from typing import Any

from ...amqp.codec.types import Timestamp
from ...broker.kernel.connections import ClientLink, Connection, Connections, Session
from ...broker.kernel.loader import Loader
from ...broker.links.consumer import Consumer
from ...broker.nodes.access_control import MANAGE
from ..protocol.call import Call
from ..protocol.entity import Operation, Type, boolean, number, string, time
from ..protocol.request import text

_TAKEN_DOWN = "management closed it"


class ConnectionType(Type):
    name = "connection"
    meaning = "A client's connection."

    def __init__(self, connections: Connections, loader: Loader) -> None:
        self._connections = connections
        self._loader = loader
        super().__init__(
            (
                string("container", "The AMQP container ID of the client.", lambda c: c.end.container),
                string("user", "The authenticated user; empty for an anonymous connection.", lambda c: c.end.user),
                time("since", "The time of the AMQP open.", lambda c: Timestamp(c.since_us // 1000)),
                number(
                    "idle-seconds",
                    "Time since the client last sent something, heartbeats included; null if the operating system "
                    "does not report it.",
                    lambda c: c.end.idle_s(),
                ),
                number("sessions", "Sessions of the connection.", lambda c: len(c.sessions)),
                number("links", "Links of the connection.", lambda c: len(c.links)),
            ),
            (
                Operation(
                    "DELETE", ("reason",),
                    "Closes the connection with `amqp:connection:forced`. Unsettled messages are requeued.",
                    self._delete,
                ),
            ),
        )  # fmt: skip

    def all(self) -> list[Any]:
        return list(self._connections.by_end.values())

    def name_of(self, entity: Connection) -> str:
        return entity.end.name

    def identity_of(self, entity: Connection) -> str:
        return entity.identity

    def is_there(self, entity: Connection) -> bool:
        return entity.end in self._connections.by_end

    def _delete(self, call: Call) -> None:
        reason = _reason(call)
        connection: Connection = self.wanted(call, MANAGE)
        end = connection.end
        call.subject = f"{connection.identity}: {end.name}, user {end.user!r}, AMQP container ID {end.container!r}"
        call.answer()
        self._loader.next_step(lambda: connection.end.expel(reason))  # it may be the caller's own


class SessionType(Type):
    name = "session"
    meaning = "A session of a client's connection."

    def __init__(self, connections: Connections) -> None:
        self._connections = connections
        super().__init__(
            (
                string("connection", "The identity of its connection.", lambda s: s.connection.identity),
                number("number", "The number of the session within the connection.", lambda s: s.number),
                time("since", "The time of the begin.", lambda s: Timestamp(s.since_us // 1000)),
                number("links", "Links of the session.",
                       lambda s: sum(link.attach.session == s.number for link in s.connection.links.values())),
            ),
        )  # fmt: skip

    def all(self) -> list[Any]:
        return [session for connection in self._connections.by_end.values() for session in connection.sessions.values()]

    def name_of(self, entity: Session) -> str:
        return entity.identity

    def is_there(self, entity: Session) -> bool:
        return entity.number in entity.connection.sessions


class LinkType(Type):
    name = "link"
    meaning = "A link of a client, described from the client's side."

    def __init__(self, connections: Connections, loader: Loader) -> None:
        self._loader = loader
        self._connections = connections
        super().__init__(
            (
                string("connection", "The identity of its connection.", lambda k: k.connection.identity),
                string("session", "The identity of its session.",
                       lambda k: f"{k.connection.identity}.{k.attach.session}"),
                string("role", "`receiver` or `sender`.", lambda k: "receiver" if k.attach.to_client else "sender"),
                string("address", "The address; null if each message names one or the broker chooses it.",
                       lambda k: k.attach.terminus.address),
                boolean("presettled", "Whether messages are sent settled, without confirmation.",
                        lambda k: k.attach.presettled),
                boolean("browsing", "Whether the link browses without consuming.",
                        lambda k: k.attach.terminus.browse and not isinstance(k.terminal.driver, Consumer)),
                boolean("open", "Whether the broker has answered the attach.", lambda k: k.terminal.driver is not None),
                number("unsettled", "Messages that the client holds unsettled.",
                       lambda k: len(k.terminal.driver.unsettled) if isinstance(k.terminal.driver, Consumer) else 0),
                number("credit", "Messages that the client has requested and not received yet, or that it may send.",
                       lambda k: getattr(k.terminal.driver, "credit", None)
                       if k.attach.to_client else k.terminal.credit),
                time("since", "The time of the attach.", lambda k: Timestamp(k.since_us // 1000)),
            ),
            (
                Operation(
                    "DELETE", ("reason",),
                    "Detaches the link with `amqp:link:detach-forced`. Unsettled messages are requeued.", self._delete,
                ),
            ),
        )  # fmt: skip

    def all(self) -> list[Any]:
        return list(self._connections.links.values())

    def find(self, name: str) -> ClientLink | None:
        number = name.partition("-")[0]
        connections = [one for one in self._connections.by_end.values() if one.identity == number]
        return next((link for one in connections for link in one.links.values() if link.identity == name), None)

    def name_of(self, entity: ClientLink) -> str:
        return entity.attach.link_name

    def identity_of(self, entity: ClientLink) -> str:
        return entity.identity

    def is_there(self, entity: ClientLink) -> bool:
        return entity.terminal in self._connections.links

    def resource_of(self, entity: ClientLink) -> str:
        return entity.attach.terminus.address or ""

    def _delete(self, call: Call) -> None:
        reason = _reason(call)
        link: ClientLink = self.wanted(call, MANAGE)
        call.check(MANAGE, self.resource_of(link))
        call.subject = f"{link.identity}: {link.attach.link_name!r} of user {link.attach.user!r}"
        call.answer()
        self._loader.next_step(lambda: link.terminal.failure("amqp:link:detach-forced", reason))


def _reason(call: Call) -> str:
    asked = call.asked()
    return text(asked, "reason", _TAKEN_DOWN)[:256]
