"""The entry of clients' connections and links into the broker, and of a worker's questions about users."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from ..amqp.ports import ConnectionEnd, TerminalEnd
from .federation.upstream import STREAM
from .kernel.connections import Connections
from .links.attach import LinkOpener
from .links.context import LinkContext
from .parts import RemoteParts


class BrokerDrivers:
    """Fulfills `amqp.ports.Drivers`. Core only, but for the methods that the port allows to any thread."""

    def __init__(self, links: LinkContext, connections: Connections, opener: LinkOpener, remote: RemoteParts) -> None:
        self._events = links.core.events
        self._users = links.core.users
        self._commits = links.core.commits
        self.scheduler = links.core.scheduler
        self._members = links.members
        self._shares_queues = links.members.shares_queues
        self._connections = connections
        self._link_routes = remote.link_routes
        # calls that are these parts' alone
        self.is_manager, self.denial_reason_in = links.resolver.is_manager, links.resolver.denial_reason_in
        self.connected, self.disconnected = remote.connectors.connected, remote.connectors.disconnected
        self.session_begun, self.session_ended = connections.session_came, connections.session_went
        self.open = opener.open

    def is_routed(self, address: str | None) -> bool:
        return address is not None and (address.startswith(STREAM) or self._link_routes.may_fit(address))

    def core_share(self, user: str) -> int:
        return self._users.quotas.of(user).core_share

    def most_connections(self, user: str) -> int:
        return self._users.quotas.of(user).max_connections

    def connection_opened(self, connection: ConnectionEnd) -> None:
        self._connections.came(connection)
        self._users.of(connection.user).connections += 1
        for opened in self._events.connection_opened:
            opened(connection)
        if denial_reason := self._members.not_serving_reason():
            connection.expel(denial_reason, elsewhere=True)

    def connection_closed(self, connection: object) -> None:
        for closed in self._events.connection_closed:
            closed(connection)
        there = self._connections.by_end.get(connection)
        if there is not None:
            self._users.connection_closed(there.end.user)
        self._connections.went(connection)

    def link_closed(self, terminal: TerminalEnd) -> None:
        link = self._connections.links.get(terminal)
        if link is not None:
            self._users.link_closed(link.attach.user, terminal)
        self._connections.link_went(terminal)
        for closed in self._events.link_closed:
            closed(terminal)

    def when_answered(self, action: Callable[[], None]) -> None:
        self._members.when_answered(partial(self._commits.when_durable, 0, action))

    def held_up(self, then: Callable[[], None]) -> bool:
        return self._commits.held_up(then) or (self._shares_queues and self._members.held_up(then))
