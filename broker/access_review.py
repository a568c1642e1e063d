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
        self.why_gone: Callable[[ConnectionEnd], str] = _stays
        """Returns why a connection may not be open; empty if it may."""
        self._resolver = links.resolver
        self._subscriptions = links.subscriptions
        self._connections = connections
        self._endpoints = endpoints
        self._routes = routes

    def connection_opened(self, connection: ConnectionEnd) -> None:
        """Close *connection* if the rules were changed while it was opened, and it is denied now."""
        if why := self.why_gone(connection):
            connection.expel(why)

    def revise(self) -> int:
        """Close connections and detach links that would be denied now; return the number of them."""
        gone = 0
        for connection in list(self._connections.by_end.values()):
            if why := self.why_gone(connection.end):
                connection.end.expel(why)
                gone += 1
                continue
            for link in list(connection.links.values()):
                if why := self._why_not(link.wish):
                    link.terminal.failure("amqp:unauthorized-access", why)
                    gone += 1
        return gone

    def _why_not(self, wish: Open) -> str:
        """Return why a link may not be open; empty if it may.

        The node that was made for a link is its own, and the anonymous relay checks each message.
        """
        address, resolver = wish.terminus.address, self._resolver
        if address is None and wish.to_client and wish.terminus.absent:
            return self._subscriptions.why_not(wish)
        if address is None or wish.terminus.dynamic or wish.terminus.coordinator:
            return ""
        operation = operation_of(wish)
        if address.startswith(STREAM):
            return resolver.why_not(wish.user, BROWSE, address.removeprefix(STREAM))
        if address in self._endpoints:
            return resolver.why_not(wish.user, operation, address)
        place = resolver.place_of(address, wish.terminus.capabilities)
        may_lead_away = place is None or isinstance(place, PassthroughAddress)
        if may_lead_away and self._routes.find(address, to_client=wish.to_client):
            operation = operation_there(wish)
        name = addresses.parse(address, wish.terminus.capabilities).name if place is None else place.name
        return resolver.why_not_used(place, name, wish.user, operation, wish.connection)


def _stays(connection: ConnectionEnd) -> str:
    return ""
