"""The review of open connections and links by the current access rules: closes those that are denied. Core only."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ..amqp.ports import ConnectionEnd, Open
from .federation.upstream import STREAM
from .kernel.connections import Connections
from .links.context import LinkContext
from .nodes import addresses
from .nodes.access_control import BROWSE
from .nodes.resolver import operation_of
from .nodes.targets import Endpoint
from .outbound.link_routes import LinkRoutes, operation_there
from .passthrough.address import PassthroughAddress


class AccessReview:
    """Reviews connections when they are opened, and all open ones when the rules have changed."""

    def __init__(
        self, links: LinkContext, connections: Connections, endpoints: Mapping[str, Endpoint], routes: LinkRoutes
    ) -> None:
        self.closing_reason: Callable[[ConnectionEnd], str] = lambda connection: ""
        """Returns why a connection may not be open; empty if it may."""
        self._resolver = links.resolver
        self._subscriptions = links.subscriptions
        self._connections = connections
        self._endpoints = endpoints
        self._routes = routes

    def connection_opened(self, connection: ConnectionEnd) -> None:
        """Close *connection* if the rules were changed while it was opened, and it is denied now."""
        if reason := self.closing_reason(connection):
            connection.expel(reason)

    def revise(self) -> int:
        """Close connections and detach links that would be denied now; return the number of them."""
        removed = 0
        for connection in list(self._connections.by_end.values()):
            if reason := self.closing_reason(connection.end):
                connection.end.expel(reason)
                removed += 1
                continue
            for link in list(connection.links.values()):
                if reason := self._denial_reason(link.attach):
                    link.terminal.failure("amqp:unauthorized-access", reason)
                    removed += 1
        return removed

    def _denial_reason(self, attach: Open) -> str:
        """Return why a link may not be open; empty if it may.

        The node that was made for a link is its own, and the anonymous relay checks each message.
        """
        address, resolver = attach.terminus.address, self._resolver
        if address is None and attach.to_client and attach.terminus.absent:
            return self._subscriptions.denial_reason(attach)
        if address is None or attach.terminus.dynamic or attach.terminus.coordinator:
            return ""
        operation = operation_of(attach)
        if address.startswith(STREAM):
            return resolver.denial_reason(attach.user, BROWSE, address.removeprefix(STREAM))
        if address in self._endpoints:
            return resolver.denial_reason(attach.user, operation, address)
        place = resolver.place_of(address, attach.terminus.capabilities)
        may_lead_away = place is None or isinstance(place, PassthroughAddress)
        if may_lead_away and self._routes.find(address, to_client=attach.to_client):
            operation = operation_there(attach)
        name = addresses.parse(address, attach.terminus.capabilities).name if place is None else place.name
        return resolver.use_denial_reason(place, name, attach.user, operation, attach.connection)
