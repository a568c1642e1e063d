"""Connectors, link routes, auto-links, and the brokers that this one is joined with."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...amqp.codec.types import Timestamp
from ...broker.mesh.network import Network
from ...broker.nodes.access_control import CONFIGURE, CONNECTOR_PREFIX, RECEIVE, SEND, USE
from ...broker.outbound.auto_links import IN, OUT, AutoLink, AutoLinks
from ...broker.outbound.connectors import Connectors
from ...broker.outbound.link_routes import BOTH, DIRECTIONS, LinkRoute, LinkRoutes
from ..protocol.call import Call
from ..protocol.entity import Attribute, Listed, Named, Operation, boolean, number, string, time
from ..protocol.request import BAD_REQUEST, CREATED, Refusal, shown, text


class ConnectorType(Named):
    name = "connector"
    prefix = CONNECTOR_PREFIX
    meaning = "A connection of the broker to another AMQP container. Passwords are not shown."

    def __init__(self, connectors: Connectors, link_routes: LinkRoutes) -> None:
        self._connectors = connectors
        super().__init__(
            self._connectors.by_name,
            (
                string("url", "The target, without secrets.", lambda c: c.target.place),
                string("user", "The user that the broker authenticates as; empty for anonymous.",
                       lambda c: c.target.identity.user),
                string("role", "`normal`, or `inter-router` for another broker of the network.",
                       lambda c: c.target.role),
                number("cost", "The cost of this hop.", lambda c: c.target.cost),
                string("state", "`connecting`, `up`, or `waiting` for the next attempt.", lambda c: c.state),
                time("since", "The time of the last state change.", lambda c: Timestamp(c.since_us // 1000)),
                string("container", "The AMQP container ID of the peer, while connected.",
                       lambda c: c.connection.container if c.connection else ""),
                number("opened", "Connections opened so far.", lambda c: c.opened),
                number("failures", "Failed attempts and broken connections.", lambda c: c.failures),
                string("reason", "The reason of the last failure.", lambda c: c.reason),
                number("links", "Client links routed over the connection.",
                       lambda c: sum(one.connector == c.name for one in link_routes.pairs)),
                boolean("kept", "Whether it was created by management and survives a restart.", lambda c: c.kept),
            ),
            (
                Operation("CREATE", ("url",),
                          "Creates a connector that survives restarts. A password in the URL is refused.",
                          self._create),
                self.deletion("Deletes the connector and closes its connection.", connectors.delete),
            ),
        )  # fmt: skip

    def _create(self, call: Call) -> None:
        name = self.new_name(call, CONFIGURE)
        made = call.then_answer(lambda _: self.map_of(self.by_name[name]), CREATED)
        self._connectors.create(name, text(call.asked(), "url"), made)


class LinkRouteType(Listed):
    name = "link-route"
    is_named_by_pattern = True
    meaning = "Addresses whose links go to another AMQP container. The name is a pattern; the first match applies."

    def __init__(self, link_routes: LinkRoutes) -> None:
        self._routes = link_routes
        super().__init__(
            lambda: link_routes.all,
            (
                string("connector", "The connector; it may be created later.", lambda r: r.connector),
                string("direction", "The permitted direction for clients: `send`, `receive` or `both`.",
                       lambda r: r.direction),
                string("strip", "The prefix to remove from addresses for the other container.", lambda r: r.prefix),
                boolean("kept", "Whether it was created by management and survives a restart.", lambda r: r.kept),
            ),
            (
                Operation("CREATE", ("connector", "direction", "strip"), "Creates a link route that survives restarts.",
                          self._create),
                self.deletion("Deletes the link route; existing links stay.", link_routes.delete),
            ),
        )  # fmt: skip

    def name_of(self, entity: LinkRoute) -> str:
        return entity.pattern

    def _create(self, call: Call) -> None:
        name, asked = self.new_name(call, CONFIGURE), call.asked()
        connector = text(asked, "connector")
        call.check(USE, CONNECTOR_PREFIX + connector)
        direction = text(asked, "direction", BOTH)
        if direction not in DIRECTIONS:
            raise Refusal(BAD_REQUEST, f"direction is to be one of {', '.join(DIRECTIONS)}, not {shown(direction)}")
        route = LinkRoute(name, connector, direction, text(asked, "strip", ""))
        self._routes.create(route, call.then_answer(lambda _: self.map_of(self.find(name)), CREATED))


class AutoLinkType(Named):
    name = "auto-link"
    prefix = "$auto-link/"
    meaning = "A link between a queue and an address of another container, without a client."

    def __init__(self, auto_links: AutoLinks) -> None:
        self._links = auto_links
        super().__init__(
            self._links.by_name,
            (
                string("direction", "`in` (from the other container) or `out` (to it).", lambda a: a.direction),
                string("address", "The local address: a queue; for `in`, also an exchange.", lambda a: a.address),
                string("connector", "The connector; it may be created later.", lambda a: a.connector),
                string("external", "The address at the other container; by default the same.", lambda a: a.external),
                string("state", "`waiting`, `attaching` or `up`.", lambda a: a.state),
                string("reason", "The last reason for a state other than `up`.", lambda a: a.reason),
                boolean("kept", "Whether it was created by management and survives a restart.", lambda a: a.kept),
            ),
            (
                Operation("CREATE", ("direction", "address", "connector", "external"),
                          "Creates an auto-link that survives restarts.",
                          self._create),
                self.deletion("Deletes the auto-link and detaches its link.", auto_links.delete),
            ),
        )  # fmt: skip

    def _create(self, call: Call) -> None:
        name, asked = self.new_name(call, CONFIGURE), call.asked()
        connector = text(asked, "connector")
        call.check(USE, CONNECTOR_PREFIX + connector)
        direction, address = text(asked, "direction"), text(asked, "address")
        if direction not in (IN, OUT):
            raise Refusal(BAD_REQUEST, f"direction is to be in or out, not {shown(direction)}")
        call.check_address(SEND if direction == IN else RECEIVE, address)  # the link itself may do everything
        link = AutoLink(name, direction, address, connector, text(asked, "external", ""))
        self._links.create(link, call.then_answer(lambda _: self.map_of(self.by_name[name]), CREATED))


class RouterType(Listed):
    name = "router"
    meaning = "A broker of the network that this one can reach, directly or over others."

    def __init__(self, network: Network) -> None:
        self._network = network
        topology = network.topology
        super().__init__(
            lambda: topology.next_hops,
            (
                string("next", "The next hop for messages to it.", lambda r: topology.next_hops[r][0]),
                number("cost", "The total cost of the route.", lambda r: topology.next_hops[r][1]),
                Attribute("map", "neighbours", "Its own neighbors, with the cost of each.",
                          lambda r: dict(topology.routers[r].links)),
                number("addresses", "Addresses with a receiver there.", lambda r: len(topology.routers[r].addresses)),
                number("sent", "For a neighbor: messages sent to it.",
                       lambda r: self._of_neighbour(r, lambda n: sum(s.sent for s in n.priority_links.values()))),
                number("received", "For a neighbor: messages received from it.",
                       lambda r: self._of_neighbour(r, lambda n: sum(s.received for s in n.senders.values()))),
            ),
        )  # fmt: skip

    def _of_neighbour(self, name: str, count: Callable[[Any], int]) -> int:
        return sum(count(one) for one in self._network.neighbours.get(name, ()))

    def name_of(self, entity: str) -> str:
        return entity
