"""The check of open connections and links against new access rules: closes those that are denied. Core only."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..channel.ports import Open
from .federation.upstream import STREAM
from .nodes import addresses
from .nodes.access_control import BROWSE
from .nodes.resolver import operation_of
from .nodes.targets import ExchangeTarget
from .outbound.link_routes import operation_there
from .queues.queue import Queue

if TYPE_CHECKING:
    from .broker import Broker


def revise(broker: Broker) -> int:
    """Close connections and detach links that would not be let in now; how many these are."""
    gone = 0
    for connection in list(broker.connections.by_end.values()):
        why = broker.why_gone(connection.end)
        if why:
            connection.end.expel(why)
            gone += 1
            continue
        for link in list(connection.links.values()):
            why = _why_not(broker, link.wish)
            if why:
                link.terminal.failure("amqp:unauthorized-access", why)
                gone += 1
    return gone


def _why_not(broker: Broker, wish: Open) -> str:
    """Why a link may not be there; what was made for it is its own, and the anonymous relay asks for each message."""
    address = wish.terminus.address
    if address is None and wish.to_client and wish.terminus.absent:
        return broker.subscriptions.why_not(wish)
    if address is None or wish.terminus.dynamic or wish.terminus.coordinator:
        return ""
    operation = operation_of(wish)
    if address.startswith(STREAM):
        return broker.resolver.why_not(wish.user, BROWSE, address.removeprefix(STREAM))
    if address in broker.endpoints:
        return broker.resolver.why_not(wish.user, operation, address)
    place = broker.resolver.place_of(address, wish.terminus.capabilities)
    if not isinstance(place, Queue | ExchangeTarget) and broker.link_routes.find(address, to_client=wish.to_client):
        operation = operation_there(wish)
    name = addresses.parse(address, wish.terminus.capabilities).name if place is None else place.name
    return broker.resolver.why_not_used(place, name, wish.user, operation, wish.connection)
