"""A client that works in transactions: a connection with a coordinator, and a sender and a receiver for each queue."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import count
from typing import Any

from cairnmq.amqp.ports import Delivery, Forward, Open, Outcome, Terminus
from tests.harness.broker.declarations import declare, discharge
from tests.harness.broker.world import FakeTerminal, message, number_of
from tests.harness.cluster.cluster_harness import ACCEPT, Connection, SimulatedMember


class Link(FakeTerminal):
    """A link of a transactional client."""

    def __init__(
        self, member: SimulatedMember, connection: Connection, *, to_client: bool = False, **terminus: Any
    ) -> None:
        super().__init__()
        self.why_rejected: dict[Delivery, str] = {}
        member.do(member.broker.drivers.open, Open(to_client, Terminus(**terminus), False, connection), self)

    def reject(self, deliveries: Sequence[Delivery], credit: int, condition: str, description: str) -> None:
        super().reject(deliveries, credit, condition, description)
        self.why_rejected.update(dict.fromkeys(deliveries, description))


class Source(Link):
    """A link on which the client receives."""

    def __init__(self, member: SimulatedMember, connection: Connection, address: str) -> None:
        super().__init__(member, connection, to_client=True, address=address)
        self.member = member
        self.address = address
        self.presettled = False
        self.unsettled: dict[int, Any] = {}
        """The unsettled entries of the client, by message number."""
        self.on_forward: Callable[[Any, Any, bool], None] = lambda *_: None
        """Called with the link, the content of each message, and False, like `cluster_harness.Receiver.on_forward`."""

    def forward(self, messages: Sequence[Forward]) -> None:
        for entry, content in messages:
            self.unsettled[number_of(content)] = entry
            self.on_forward(self, content, False)

    def settle_in(self, deliveries: Sequence[tuple[Delivery, int, Any]], done: Callable[[], None]) -> None:
        for number, _, _ in deliveries:
            self.unsettled.pop(int(number), None)
        super().settle_in(deliveries, done)


class Transactor:
    """A client that runs one transaction at a time."""

    def __init__(self, member: SimulatedMember, queues: Sequence[str] = ("q", "r")) -> None:
        self.member = member
        self.life = member.lives
        self.closed = False
        self.connection = Connection()
        self.queues = queues
        self.write = message
        """Returns the content of a message with the given number, size and durability."""
        self._requests = count(1)
        self.do: Callable[..., None] = member.do
        self._limits = dict.fromkeys(queues, 0)
        member.do(member.broker.drivers.connection_opened, self.connection)
        self.control = Link(member, self.connection, coordinator=True, address=None)
        self.senders = {name: Link(member, self.connection, address=name) for name in queues}
        self.receivers = {name: Source(member, self.connection, name) for name in queues}
        member.clients.append(self)

    @property
    def links(self) -> list[Link]:
        return [self.control, *self.senders.values(), *self.receivers.values()]

    @property
    def is_ready(self) -> bool:
        return not self.is_dead and all(link.driver is not None for link in self.links)

    @property
    def is_dead(self) -> bool:
        failed = any(link.failures for link in self.links)
        return bool(self.closed or not self.member.runs(self.life) or failed or self.connection.expelled)

    def ask(self, request: bytes) -> int:
        """Send a request to the coordinator; return its delivery number, which the response refers to."""
        number = next(self._requests)
        self.do(self.control.driver.receive, [(number, request, 0)])
        return number

    def declare(self, xid: bytes = b"") -> int:
        return self.ask(declare(xid))

    @property
    def txn_id(self) -> bytes:
        """The ID of the transaction declared last."""
        return self.control.declared_ids[-1]

    def send(self, name: str, numbers: Sequence[int], *, size_bytes: int = 10, durable: bool = True) -> None:
        fragments = [(number, self.write(number, size_bytes, durable), 0) for number in numbers]
        self.do(self.senders[name].driver.receive_in, self.connection, self.txn_id, fragments)

    def request(self, name: str, credit: int) -> None:
        self._limits[name] += credit
        self.do(self.receivers[name].driver.request, self._limits[name], False)

    def take(self, name: str, numbers: Sequence[int], state: int = ACCEPT, *, settled: bool = False) -> None:
        unsettled = self.receivers[name].unsettled
        for number in numbers:
            outcome = Outcome(None if settled else number, unsettled[number], state, False, False)
            driver = self.receivers[name].driver
            self.do(driver.outcomes_in, self.connection, [(self.txn_id, outcome)])
            if settled:
                del unsettled[number]

    def discharge(self, *, fail: bool = False) -> int:
        return self.ask(discharge(self.txn_id, fail=fail))

    def at_once(self) -> None:
        """Call the broker directly from now on, so that no event is processed before the next request."""
        self.do = lambda action, *args: action(*args)

    def leave(self, *, lost: bool = False) -> None:
        """Close the connection; *lost*: without a close frame."""
        if self.closed:
            return
        self.closed = True
        if self in self.member.clients:
            self.member.clients.remove(self)
        if self.member.runs(self.life):
            self.member.do(self._close, lost)

    def _close(self, lost: bool) -> None:
        for link in self.links:
            if link.driver is not None:
                held = [*link.unsettled.values()] if isinstance(link, Source) else []
                link.driver.close(tuple(held), lost, not lost)
            self.member.broker.drivers.link_closed(link)  # type: ignore[arg-type]  # tests' terminals have fewer methods
        self.member.broker.drivers.connection_closed(self.connection)
