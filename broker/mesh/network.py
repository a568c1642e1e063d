"""A network of brokers, which share their passthrough addresses (router guide C42, C48).

The paths of `topology` become next hops of the addresses that are used here: a sender has credit while there is a
receiver on any broker. Anycast takes the nearest: receivers here, and only without any the cheapest path. Multicast
takes all.

A neighbour is another broker that this one has a connection with, opened by either. The broker that opened it attaches
all links: one each way for each priority, which carry messages, and one each way for control messages. The neighbour is
up when all links are open; when one closes, all are closed. Core only.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from functools import partial

from ...amqp.codec import decode, encode
from ...amqp.codec.hop_annotations import Hop
from ...amqp.codec.primitives import Malformed
from ...amqp.codec.types import Symbol
from ...amqp.connector_target import INTER_ROUTER, MOST_COST
from ...amqp.links.attach import ABSENT, PRIORITY, SETTLED, SOURCE, TARGET, Attach, End
from ...amqp.ports import ConnectionEnd, Fragment, Open, OutwardEnd, TerminalEnd
from ..kernel.connections import Connections
from ..kernel.context import CoreContext
from ..nodes.targets import Endpoint
from ..outbound.connectors import Connector, Connectors
from ..passthrough.address import PassthroughAddress, PassthroughTable
from .next_hop import PRIORITIES, LinkToNeighbour, NextHop, PriorityLink
from .topology import Said, Topology, Wrong
from .transit_sender import CREDIT, ControlReceiver, TransitSender

log = logging.getLogger(__name__)
_UP, _DOWN = {"event": "neighbor.up"}, {"event": "neighbor.down"}

CONTROL = "$router.control"
ADDRESSES = {f"$router.{number}": number for number in PRIORITIES} | {CONTROL: -1}
"""Addresses of the links between brokers by priority; -1 for the control link."""
HIGHEST = 9
CONTROL_CREDIT = 1000
COST = "cairnmq:cost"
_SAYS = b"\x00\x53\x77"


class Neighbour:
    """A connection with another broker."""

    def __init__(self, network: Network, core: CoreContext, name: str, connection: ConnectionEnd, cost: int) -> None:
        self.name = name
        self.connection = connection
        self.cost = cost
        self.priority_links: dict[int, PriorityLink] = {}
        self.senders: dict[int, TransitSender] = {}
        self.is_up = self.is_over = False
        self._network = network
        self._core = core
        self._telling: LinkToNeighbour | None = None
        self._hearing: ControlReceiver | None = None
        self._due = 0
        """Links that were asked for and not answered."""

    def attach_all(self, connection: OutwardEnd) -> None:
        """Attach all links of a connection that this broker has opened."""
        for address, number in ADDRESSES.items():
            for sends in (True, False):
                self._due += 1
                self._attach(connection, address, number, sends=sends)

    def _attach(self, connection: OutwardEnd, address: str, number: int, *, sends: bool) -> None:
        priority = HIGHEST if number < 0 else number
        end = End(TARGET if sends else SOURCE, address, properties=encode.value({Symbol(COST): self.cost}))
        own = End(SOURCE if sends else TARGET, address)
        asked = Attach(
            f"{self._network.me}-{address}-{'out' if sends else 'in'}",
            own if sends else end,
            end if sends else own,
            **({"snd_settle_mode": SETTLED} if number < 0 else {}),
            properties=encode.value({Symbol(PRIORITY): priority}),
        )

        def answered(found: Attach) -> None:
            if (found.target if sends else found.source).kind == ABSENT:
                return  # its detach follows
            self._due -= 1
            if not sends:
                driver.terminal.ask(CREDIT if number >= 0 else CONTROL_CREDIT, drain=False)
            self._look()

        driver = self._driver(number, sends=sends)
        driver.terminal = connection.attach(asked, driver, answered, sends=sends, priority=priority)

    def attached(self, number: int, terminal: TerminalEnd, *, to_client: bool) -> None:
        """Open a link that the neighbour attaches."""
        there = (number in self.priority_links if to_client else number in self.senders) if number >= 0 else (
            self._telling if to_client else self._hearing
        )  # fmt: skip
        if there:
            terminal.failure("amqp:not-allowed", "there is one of these already")
            return
        driver = self._driver(number, sends=to_client)
        driver.terminal = terminal
        terminal.opened(driver, None, 0 if to_client else CREDIT if number >= 0 else CONTROL_CREDIT)
        self._look()

    def _driver(self, number: int, *, sends: bool) -> LinkToNeighbour | TransitSender | ControlReceiver:
        if number < 0 and sends:
            self._telling = LinkToNeighbour(self.ended)
            return self._telling
        if number < 0:
            self._hearing = ControlReceiver(self._received, self.ended)
            return self._hearing
        if sends:
            lane = self.priority_links[number] = PriorityLink(self.ended)
            return lane
        sender = self.senders[number] = TransitSender(self._core, self._network.me, self._network.place_of, self.ended)
        return sender

    def _look(self) -> None:
        all_there = len(self.priority_links) == len(self.senders) == len(PRIORITIES) and self._telling and self._hearing
        if all_there and not self._due and not self.is_up and not self.is_over:
            self.is_up = True
            self._network.up(self)

    def flush(self) -> None:
        """Send the messages that next hops have queued."""
        for lane in self.priority_links.values():
            if lane.pending:
                lane.flush()

    def tell(self, said: Said) -> None:
        assert self._telling is not None
        self._telling.pending.append((None, _SAYS + encode.value(dict(said))))
        self._telling.flush()

    def _received(self, content: bytes) -> None:
        try:
            if not content.startswith(_SAYS):
                raise Wrong("it sent a message that is not a value")
            said, _ = decode.value(content, len(_SAYS), plain=True)
            if not isinstance(said, dict):
                raise Wrong("it sent a message that is not a map")
            if not self.is_over:
                self._network.topology.received(self.name, said)
        except (Malformed, Wrong) as error:
            self.ended(f"it sent an invalid message: {error}")

    def ended(self, reason: str) -> None:
        """End the connection: one of its links is closed, or can't be continued."""
        if not self.is_over:
            self.is_over = True
            self._network.down(self, reason)
            self.connection.expel(f"the link between the brokers is over: {reason}")


class Network:
    """The joined brokers, as this one sees them."""

    def __init__(
        self,
        core: CoreContext,
        connections: Connections,
        connectors: Connectors,
        direct: PassthroughTable,
        endpoints: dict[str, Endpoint],
        me: str,
    ) -> None:
        """*endpoints*: other brokers attach their links to these."""
        self.me = me
        self.topology = Topology(me, core.clock.wall_us(), self._changed)
        self.neighbours: dict[str, list[Neighbour]] = {}
        """Connected neighbours by name. Of several connections with one neighbour, the first is used."""
        self.coming: dict[object, Neighbour] = {}
        """Neighbours that opened the connection, by connection, whether all links are open or not."""
        self._core = core
        self._connections = connections
        self._places = direct
        self._transit: dict[str, PassthroughAddress] = {}
        """Addresses that are none of this broker's own, while messages pass on."""
        self._telling = False
        direct.watch(self.fill, self._receivers_changed)
        connectors.opened.append(self._connector_opened)
        for address, number in ADDRESSES.items():
            endpoints[address] = _Port(partial(self._attached, number))

    def _connector_opened(self, connector: Connector, connection: OutwardEnd) -> None:
        """Begin a neighbour on the connection that a connector has opened."""
        if connector.target.role != INTER_ROUTER:
            return
        if reason := self._denial_reason(connection.container):
            log.error("connector %s: %s", connector.name, reason, extra={"event": "neighbor.refused"})
            connection.expel(reason)
            return
        neighbour = Neighbour(self, self._core, connection.container, connection, connector.target.cost)
        neighbour.attach_all(connection)

    def _denial_reason(self, name: str) -> str:
        if name == self.me or not name:
            return f"both brokers are called {name!r}: start each with a --container-id of its own"
        return ""

    def _attached(self, number: int, attach: Open, terminal: TerminalEnd) -> None:
        """Handle that another broker attaches one of the links between brokers."""
        link = self._connections.links.get(terminal)
        if reason := self._denial_reason(attach.container):
            terminal.failure("amqp:not-allowed", reason)
            return
        if link is None or attach.terminus.browse:
            terminal.failure("amqp:not-allowed", "that is for brokers")
            return
        neighbour = self.coming.get(attach.connection)
        if neighbour is None or neighbour.is_over:
            end: ConnectionEnd = link.connection.end
            neighbour = self.coming[attach.connection] = Neighbour(
                self, self._core, attach.container, end, _cost_of(attach.terminus.properties)
            )
        neighbour.attached(number, terminal, to_client=attach.to_client)

    def up(self, neighbour: Neighbour) -> None:
        """Add *neighbour*, all of whose links are open, to the network."""
        log.info("neighbor %r at %s: connected", neighbour.name, neighbour.connection.name, extra=_UP)
        there = self.neighbours.setdefault(neighbour.name, [])
        there.append(neighbour)
        if len(there) == 1:
            self.topology.joined(neighbour.name, neighbour.cost, neighbour.tell)

    def down(self, neighbour: Neighbour, reason: str) -> None:
        """Remove *neighbour*, whose connection has ended or was never established."""
        self.coming.pop(neighbour.connection, None)
        there = self.neighbours.get(neighbour.name, [])
        address = neighbour.connection.name
        log.warning("neighbor %r at %s: not connected: %s", neighbour.name, address, reason, extra=_DOWN)
        if neighbour not in there:
            return
        first = there[0] is neighbour
        there.remove(neighbour)
        if not there:
            del self.neighbours[neighbour.name]
        if first:
            self.topology.left(neighbour.name)
        if first and there:
            self.topology.joined(neighbour.name, there[0].cost, there[0].tell)

    def place_of(self, said: Hop) -> PassthroughAddress | None:
        """Return the address of a message from a neighbour; None if the routing (anycast, multicast) does not match."""
        multicast = said.targets is not None
        place = self._places.find(said.to) or self._transit.get(said.to)
        if place is None:
            place = PassthroughAddress(said.to, multicast=multicast)
            place.over = lambda: self._transit.pop(said.to, None)
            self._transit[said.to] = place
            self.fill(place)
        elif place.multicast is not multicast:
            return None
        else:
            self._places.hold(place)
        return place

    def fill(self, place: PassthroughAddress) -> None:
        """Set the next hops of *place*."""
        if not self.neighbours and not place.next_hops:
            return
        before = {next_hop.neighbour: next_hop for next_hop in place.next_hops if isinstance(next_hop, NextHop)}
        next_hops: list[NextHop] = []
        for name, (cost, targets) in self.topology.receivers_of(place.name, multicast=place.multicast).items():
            neighbour = self.neighbours[name][0]
            next_hop = before.pop(neighbour, None) or NextHop(place, neighbour, self.me)
            if (next_hop.cost, next_hop.targets) != (cost, targets):
                next_hop.point(cost, targets)
            next_hops.append(next_hop)
        place.lead(next_hops)

    def _changed(self, names: Iterable[str] | None) -> None:
        """Update next hops after receivers on other brokers were added or removed, at *names* or anywhere."""
        places = [*self._places.in_use(), *self._transit.values()]
        for place in places:
            if names is None or place.name in names:
                self.fill(place)

    def _receivers_changed(self, place: PassthroughAddress) -> None:
        """Announce that an address has its first receiver here, or lost the last one."""
        self.topology.has_receivers(place.name, place.multicast if place.receivers else None)
        if not self._telling:
            self._telling = True
            self._core.post(self._tell)

    def _tell(self) -> None:
        self._telling = False
        self.topology.tell_changes()


class _Port:
    """An address that other brokers attach their links to (`places.Endpoint`)."""

    def __init__(self, attached: partial[None]) -> None:
        self._attached = attached

    def open(self, attach: Open, terminal: TerminalEnd) -> None:
        self._attached(attach, terminal)

    def handle(self, fragments: Sequence[Fragment], terminal: TerminalEnd) -> None:
        deliveries = [delivery for delivery, _, _ in fragments]
        terminal.reject(deliveries, len(deliveries), "amqp:not-allowed", "that is for brokers")


def _cost_of(properties: bytes) -> int:
    """Return the cost of the path that the other side declares in *properties*; 1 if it is absent or invalid."""
    try:
        found = decode.value(properties, plain=True)[0] if properties else {}
    except Malformed:
        return 1
    cost = found.get(COST) if isinstance(found, dict) else None
    return cost if isinstance(cost, int) and 1 <= cost <= MOST_COST else 1
