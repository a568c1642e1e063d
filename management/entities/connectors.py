"""Connectors, link routes, auto-links, and the brokers that this one is joined with."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from ...amqp.codec.types import Timestamp
from ...broker.mesh.network import Network
from ...broker.nodes.access_control import CONFIGURE, CONNECTOR_PREFIX, RECEIVE, SEND, USE
from ...broker.outbound.auto_links import IN, OUT, AutoLink, AutoLinks
from ...broker.outbound.connectors import Connectors
from ...broker.outbound.link_routes import BOTH, DIRECTIONS, LinkRoute, LinkRoutes
from ..protocol.call import Call
from ..protocol.entity import Attribute, Named, Operation, Type
from ..protocol.request import BAD_REQUEST, CREATED, Refusal, only, shown, text
from .queues import check_name, gone


class ConnectorType(Named):
    name = "connector"
    prefix = CONNECTOR_PREFIX
    meaning = "A connection that the broker keeps to another container. Passwords are not shown."

    def __init__(self, connectors: Connectors, network: Network, link_routes: LinkRoutes) -> None:
        self._connectors = connectors
        self._network = network
        super().__init__(
            self._connectors.by_name,
            (
                Attribute("url", "string", "Where to, without any secret.", lambda c: c.target.place),
                Attribute("user", "string", "As whom; empty for nobody in particular.",
                          lambda c: c.target.identity.user),
                Attribute("role", "string", "`normal`, or `inter-router`: a broker to be joined with.",
                          lambda c: c.target.role),
                Attribute("cost", "number", "Of the way to that broker.", lambda c: c.target.cost),
                Attribute("state", "string", "`connecting`, `up`, or `waiting` for the next try.", lambda c: c.state),
                Attribute("since", "time", "When it came to be in that state.",
                          lambda c: Timestamp(c.since_us // 1000)),
                Attribute("container", "string", "The other one's container id, while it is connected.",
                          lambda c: c.connection.container if c.connection else ""),
                Attribute("opened", "number", "Connections so far.", lambda c: c.opened),
                Attribute("failures", "number", "Tries that failed, and connections that broke.", lambda c: c.failures),
                Attribute("why", "string", "Why the last of these did.", lambda c: c.why),
                Attribute("links", "number", "Links of clients that go on over it.",
                          lambda c: sum(one.connector == c.name for one in link_routes.pairs)),
                Attribute("kept", "boolean", "Management made it, and it comes back with the broker.",
                          lambda c: c.kept),
            ),
            (
                Operation("CREATE", ("url",), "Make one, and keep it. A password in the URL is refused.", self._create),
                Operation("DELETE", (), "Take it away, and end its connection.", self._delete),
            ),
        )  # fmt: skip

    def _create(self, call: Call) -> None:
        name = call.name()
        check_name(self.name, name)
        call.check(CONFIGURE, self.prefix + name)
        asked = call.request.map()
        only(asked, "url")
        made = call.then_answer(lambda: self.map_of(self.by_name[name]), CREATED)
        self._connectors.create(name, text(asked, "url"), made)

    def _delete(self, call: Call) -> None:
        self._connectors.delete(self.wanted(call, CONFIGURE), call.then(partial(gone, call)))


class LinkRouteType(Type):
    name = "link-route"
    is_named_by_pattern = True
    meaning = "Addresses whose links go on to another container. The name is a pattern; the first that fits is taken."

    def __init__(self, link_routes: LinkRoutes) -> None:
        self._routes = link_routes
        super().__init__(
            (
                Attribute("connector", "string", "Over which; it need not be there yet.", lambda r: r.connector),
                Attribute("direction", "string", "What clients may do: `send`, `receive` or `both`.",
                          lambda r: r.direction),
                Attribute("strip", "string", "What the other container's addresses don't begin with.",
                          lambda r: r.prefix),
                Attribute("kept", "boolean", "Management made it, and it comes back with the broker.",
                          lambda r: r.kept),
            ),
            (
                Operation("CREATE", ("connector", "direction", "strip"), "Make one, and keep it.", self._create),
                Operation("DELETE", (), "Forget it; links that there are stay.", self._delete),
            ),
        )  # fmt: skip

    def all(self) -> list[Any]:
        return list(self._routes.all)

    def find(self, name: str) -> LinkRoute | None:
        return next((route for route in self._routes.all if route.pattern == name), None)

    def name_of(self, entity: LinkRoute) -> str:
        return entity.pattern

    def is_there(self, entity: LinkRoute) -> bool:
        return entity in self._routes.all

    def resource_of(self, entity: LinkRoute) -> str:
        return entity.pattern

    def resource_named(self, name: str) -> str:
        return name

    def _create(self, call: Call) -> None:
        name = call.name()
        check_name(self.name, name)
        call.check(CONFIGURE, name, pattern=True)
        asked = call.request.map()
        only(asked, "connector", "direction", "strip")
        connector = text(asked, "connector")
        call.check(USE, CONNECTOR_PREFIX + connector)
        direction = text(asked, "direction", BOTH)
        if direction not in DIRECTIONS:
            raise Refusal(BAD_REQUEST, f"direction is to be one of {', '.join(DIRECTIONS)}, not {shown(direction)}")
        route = LinkRoute(name, connector, direction, text(asked, "strip", ""))
        self._routes.create(route, call.then_answer(lambda: self.map_of(self.find(name)), CREATED))

    def _delete(self, call: Call) -> None:
        self._routes.delete(self.wanted(call, CONFIGURE), call.then(partial(gone, call)))


class AutoLinkType(Named):
    name = "auto-link"
    prefix = "$auto-link/"
    meaning = "A queue that is joined with an address of another container, without a client in between."

    def __init__(self, auto_links: AutoLinks) -> None:
        self._links = auto_links
        super().__init__(
            self._links.by_name,
            (
                Attribute("direction", "string", "`in` from the other container, or `out` to it.",
                          lambda a: a.direction),
                Attribute("address", "string", "Here: a queue; for `in` it may be what an exchange takes.",
                          lambda a: a.address),
                Attribute("connector", "string", "Over which; it need not be there yet.", lambda a: a.connector),
                Attribute("external", "string", "The address at the other container; by default the same.",
                          lambda a: a.external),
                Attribute("state", "string", "`waiting`, `attaching` or `up`.", lambda a: a.state),
                Attribute("why", "string", "Why it is not up, or was not the last time.", lambda a: a.why),
                Attribute("kept", "boolean", "Management made it, and it comes back with the broker.",
                          lambda a: a.kept),
            ),
            (
                Operation("CREATE", ("direction", "address", "connector", "external"), "Make one, and keep it.",
                          self._create),
                Operation("DELETE", (), "Take it away, and end its link.", self._delete),
            ),
        )  # fmt: skip

    def _create(self, call: Call) -> None:
        name = call.name()
        check_name(self.name, name)
        call.check(CONFIGURE, self.prefix + name)
        asked = call.request.map()
        only(asked, "direction", "address", "connector", "external")
        connector = text(asked, "connector")
        call.check(USE, CONNECTOR_PREFIX + connector)
        direction, address = text(asked, "direction"), text(asked, "address")
        if direction not in (IN, OUT):
            raise Refusal(BAD_REQUEST, f"direction is to be in or out, not {shown(direction)}")
        call.check_address(SEND if direction == IN else RECEIVE, address)  # the link itself may do everything
        link = AutoLink(name, direction, address, connector, text(asked, "external", ""))
        self._links.create(link, call.then_answer(lambda: self.map_of(self.by_name[name]), CREATED))

    def _delete(self, call: Call) -> None:
        self._links.delete(self.wanted(call, CONFIGURE), call.then(partial(gone, call)))


class RouterType(Type):
    name = "router"
    meaning = "A broker that this one is joined with, directly or over others, and can reach."

    def __init__(self, network: Network) -> None:
        self._network = network
        topology = network.topology
        super().__init__(
            (
                Attribute("next", "string", "The neighbour that messages for it go to.",
                          lambda r: topology.next_hops[r][0]),
                Attribute("cost", "number", "Of the way there.", lambda r: topology.next_hops[r][1]),
                Attribute("neighbours", "map", "Whom it is joined with itself, and the cost.",
                          lambda r: dict(topology.routers[r].links)),
                Attribute("addresses", "number", "Addresses that have a receiver there.",
                          lambda r: len(topology.routers[r].addresses)),
                Attribute("sent", "number", "Messages sent to it, of a neighbour.",
                          lambda r: self._of_neighbour(r, lambda n: sum(s.sent for s in n.priority_links.values()))),
                Attribute("received", "number", "Messages received from it, of a neighbour.",
                          lambda r: self._of_neighbour(r, lambda n: sum(s.received for s in n.senders.values()))),
            ),
            (),
        )  # fmt: skip

    def _of_neighbour(self, name: str, count: Callable[[Any], int]) -> int:
        return sum(count(one) for one in self._network.neighbours.get(name, ()))

    def all(self) -> list[Any]:
        return list(self._network.topology.next_hops)

    def find(self, name: str) -> str | None:
        return name if name in self._network.topology.next_hops else None

    def name_of(self, entity: str) -> str:
        return entity

    def is_there(self, entity: str) -> bool:
        return entity in self._network.topology.next_hops
