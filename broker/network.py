"""Brokers that are joined: the addresses that messages pass through at are theirs in common (router guide C42, C48).

What `topology` knows becomes ways of the addresses that are in use here: a sender has credit while there is a receiver
on any broker. Anycast takes the nearest: receivers here, and only if there are none, those where the way is cheapest.
Multicast takes all. Core only.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING

from ..amqp import decode
from ..amqp.codec import Malformed
from ..amqp.hop import Hop
from ..channel.outward import INTER_ROUTER, MOST_COST
from ..channel.words import ConnectionEnd, Fragment, Open, OutwardEnd, TerminalEnd
from .connectors import Connector
from .direct import Direct
from .neighbour import ADDRESSES, COST, Neighbour
from .topology import Said, Topology
from .way import Way

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .broker import Broker

log = logging.getLogger(__name__)


class Network:
    """This broker's part of it."""

    def __init__(self, broker: Broker, me: str) -> None:
        self.me = me
        self.topology = Topology(me, broker.clock.wall_us(), self._changed)
        self.neighbours: dict[str, list[Neighbour]] = {}
        """Those that are up. If there are several connections with one, the first is used."""
        self.coming: dict[object, Neighbour] = {}
        """By connection: those that opened it, up or not."""
        self._broker = broker
        self._places = broker.direct
        self._transit: dict[str, Direct] = {}
        """Addresses that are none of this broker's own, while messages pass on."""
        self._telling = False
        broker.direct.watch(self.fill, self._receivers_changed)
        for address, number in ADDRESSES.items():
            broker.endpoints[address] = _Port(partial(self._attached, number))

    # ---- neighbours -------------------------------------------------------------------------------------------------

    def came(self, connector: Connector, connection: OutwardEnd) -> None:
        """A connector has opened a connection."""
        if connector.target.role != INTER_ROUTER:
            return
        if why := self._why_not(connection.container):
            log.error("connector %s: %s", connector.name, why)
            connection.expel(why)
            return
        neighbour = Neighbour(self, self._broker, connection.container, connection, connector.target.cost)
        neighbour.attach_all(connection)

    def went(self, connector: Connector) -> None:
        """Its links hear of it by themselves."""

    def _why_not(self, name: str) -> str:
        if name == self.me or not name:
            return f"both brokers are called {name!r}: start each with a --container-id of its own"
        return ""

    def _attached(self, number: int, wish: Open, terminal: TerminalEnd) -> None:
        """Another broker attaches one of the links between brokers."""
        link = self._broker.connections.links.get(terminal)
        if why := self._why_not(wish.container):
            terminal.failure("amqp:not-allowed", why)
            return
        if link is None or wish.terminus.browse:
            terminal.failure("amqp:not-allowed", "that is for brokers")
            return
        neighbour = self.coming.get(wish.connection)
        if neighbour is None or neighbour.is_over:
            end: ConnectionEnd = link.connection.end
            neighbour = self.coming[wish.connection] = Neighbour(
                self, self._broker, wish.container, end, _cost_of(wish.terminus.properties)
            )
        neighbour.attached(number, terminal, to_client=wish.to_client)

    def up(self, neighbour: Neighbour) -> None:
        """All its links are there."""
        log.info("joined with broker %r at %s", neighbour.name, neighbour.connection.name)
        there = self.neighbours.setdefault(neighbour.name, [])
        there.append(neighbour)
        if len(there) == 1:
            self.topology.joined(neighbour.name, neighbour.cost, neighbour.tell)

    def down(self, neighbour: Neighbour, why: str) -> None:
        """It is over, or never came to be."""
        self.coming.pop(neighbour.connection, None)
        there = self.neighbours.get(neighbour.name, [])
        if neighbour not in there:
            log.warning("not joined with broker %r at %s: %s", neighbour.name, neighbour.connection.name, why)
            return
        log.warning("broker %r at %s is gone", neighbour.name, neighbour.connection.name)
        first = there[0] is neighbour
        there.remove(neighbour)
        if not there:
            del self.neighbours[neighbour.name]
        if first:
            self.topology.left(neighbour.name)
        if first and there:
            self.topology.joined(neighbour.name, there[0].cost, there[0].tell)

    def heard(self, neighbour: Neighbour, said: Said) -> None:
        self.topology.heard(neighbour.name, said)

    # ---- addresses --------------------------------------------------------------------------------------------------

    def place_of(self, said: Hop) -> Direct | None:
        """Where a message goes that came from a neighbour; None for nowhere."""
        multicast = said.targets is not None
        place = self._places.find(said.to) or self._transit.get(said.to)
        if place is None:
            place = Direct(said.to, multicast=multicast)
            place.over = lambda: self._transit.pop(said.to, None)
            self._transit[said.to] = place
            self.fill(place)
        elif place.multicast is not multicast:
            return None
        else:
            self._places.hold(place)
        return place

    def fill(self, place: Direct) -> None:
        """Have *place* know its ways to other brokers."""
        if not self.neighbours and not place.ways:
            return
        before = {way.neighbour: way for way in place.ways}
        ways: list[Way] = []
        for name, (cost, targets) in self.topology.receivers_of(place.name, multicast=place.multicast).items():
            neighbour = self.neighbours[name][0]
            way = before.pop(neighbour, None) or Way(place, neighbour, self.me)
            if (way.cost, way.targets) != (cost, targets):
                way.point(cost, targets)
            ways.append(way)
        place.lead(ways)

    def _changed(self, names: Iterable[str] | None) -> None:
        """Receivers on other brokers came or went, at *names* or anywhere."""
        places = [*self._places.in_use(), *self._transit.values()]
        for place in places:
            if names is None or place.name in names:
                self.fill(place)

    def _receivers_changed(self, place: Direct) -> None:
        """It has got its first receiver here, or lost the last one."""
        self.topology.has_receivers(place.name, place.multicast if place.receivers else None)
        if not self._telling:
            self._telling = True
            self._broker.later(self._tell)

    def _tell(self) -> None:
        self._telling = False
        self.topology.tell_changes()


class _Port:
    """An address that other brokers attach their links to (`places.Endpoint`)."""

    def __init__(self, attached: partial[None]) -> None:
        self._attached = attached

    def open(self, wish: Open, terminal: TerminalEnd) -> None:
        self._attached(wish, terminal)

    def post(self, fragments: Sequence[Fragment], terminal: TerminalEnd) -> None:
        deliveries = [delivery for delivery, _, _ in fragments]
        terminal.reject(deliveries, len(deliveries), "amqp:not-allowed", "that is for brokers")


def _cost_of(properties: bytes) -> int:
    """What the other side takes the way for; 1 if it says nothing that makes sense."""
    try:
        found = decode.value(properties, plain=True)[0] if properties else {}
    except Malformed:
        return 1
    cost = found.get(COST) if isinstance(found, dict) else None
    return cost if isinstance(cost, int) and 1 <= cost <= MOST_COST else 1
