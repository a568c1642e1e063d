"""A neighbour: another broker that this one has a connection with, opened by either (router guide C48).

The broker that opened the connection attaches all links: one each way for each priority, which carry messages, and one
each way for control messages. The neighbour is up when all links are open; when one closes, all are closed. Core only.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from ...amqp.codec import decode, encode
from ...amqp.codec.hop_annotations import Hop
from ...amqp.codec.primitives import Malformed
from ...amqp.codec.types import Symbol
from ...amqp.links.attach import ABSENT, PRIORITY, SETTLED, SOURCE, TARGET, Attach, End
from ...amqp.ports import ABORTED, MORE, ConnectionEnd, Fragment, OutwardEnd, TerminalEnd
from ..kernel.context import CoreContext
from ..kernel.idle_driver import IdleDriver
from ..passthrough.address import PassthroughAddress
from .next_hop import PRIORITIES, LinkToNeighbour, PriorityLink
from .topology import Said, Wrong
from .transit_sender import CREDIT, TransitSender

CONTROL = "$router.control"
ADDRESSES = {f"$router.{number}": number for number in PRIORITIES} | {CONTROL: -1}
"""Addresses of the links between brokers by priority; -1 for the control link."""
HIGHEST = 9
CONTROL_CREDIT = 1000
MOST_SAID_BYTES = 32 << 20
COST = "cairnmq:cost"
_SAYS = b"\x00\x53\x77"


class Mesh(Protocol):
    """The network, as a connection with another broker sees it."""

    me: str
    """The name of this broker."""

    def up(self, neighbour: Neighbour) -> None:
        """Use a connection whose links are all open."""

    def down(self, neighbour: Neighbour, reason: str) -> None:
        """Give up a connection."""

    def received(self, neighbour: Neighbour, said: Said) -> None:
        """Apply a neighbour's message about the network. Raises `Wrong`."""

    def place_of(self, said: Hop) -> PassthroughAddress | None:
        """Return the address that a message from another broker is for; None for none."""


class Neighbour:
    """A connection with another broker."""

    def __init__(self, network: Mesh, core: CoreContext, name: str, connection: ConnectionEnd, cost: int) -> None:
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
        said = {Symbol(PRIORITY): priority}
        end = End(TARGET if sends else SOURCE, address, properties=encode.value({Symbol(COST): self.cost}))
        own = End(SOURCE if sends else TARGET, address)
        asked = Attach(
            f"{self._network.me}-{address}-{'out' if sends else 'in'}",
            own if sends else end,
            end if sends else own,
            **({"snd_settle_mode": SETTLED} if number < 0 else {}),
            properties=encode.value(said),
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
                self._network.received(self, said)
        except (Malformed, Wrong) as error:
            self.ended(f"it sent an invalid message: {error}")

    def ended(self, reason: str) -> None:
        """End the connection: one of its links is closed, or can't be continued."""
        if not self.is_over:
            self.is_over = True
            self._network.down(self, reason)
            self.connection.expel(f"the link between the brokers is over: {reason}")


class ControlReceiver(IdleDriver):
    """The driver of the link on which a broker receives the state of a neighbour."""

    terminal: TerminalEnd

    def __init__(self, received: Callable[[bytes], None], ended: Callable[[str], None]) -> None:
        self._received = received
        self._ended = ended
        self._pieces: list[bytes] = []
        self._size_bytes = 0

    def receive(self, fragments: Sequence[Fragment]) -> None:
        for delivery, data, flags in fragments:
            self._pieces.append(data)
            self._size_bytes += len(data)
            if self._size_bytes > MOST_SAID_BYTES:
                self._ended(f"it sent a message of more than {MOST_SAID_BYTES} bytes")
                return
            if flags & MORE:
                continue
            content = b"".join(self._pieces)
            self._pieces, self._size_bytes = [], 0
            self.terminal.release((delivery,), 1)
            if not flags & ABORTED:
                self._received(content)

    def receive_in(self, connection: object, txn_id: bytes, fragments: Sequence[Fragment]) -> None:
        self._ended("brokers have no transactions with each other")

    def close(self, returned: Sequence[Any], lost: bool, for_good: bool) -> None:
        self._ended("it detached a link")
