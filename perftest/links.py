"""The ends of links: what a client sends on and receives on.

`Sender` and `Receiver` do what every link must; a load's own links add what they count. Delivery ids here are small:
no test sends 2**32 messages on one connection.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from ..amqp import encode
from ..amqp.codec import Malformed
from ..amqp.values import Described, Ubyte, Uint
from . import performatives as p
from .errors import BrokerError
from .runs import Run, body_of
from .wire import Wire

UNSETTLED, SETTLED = 0, 1


class Link:
    """One end; `handle` is given by the wire."""

    is_receiver = False

    def __init__(self, wire: Wire, name: str, address: str) -> None:
        self.wire = wire
        self.name = name
        self.address = address
        self.handle = -1
        self.attached = False
        self.closing = False
        self.credit = 0
        self.delivery_count = 0
        self.remote_address = ""
        self.durability = 0
        """What its terminus asks of the node: 1 has it outlast the broker, where the broker makes it for the link."""

    def terminus(self, code: int) -> Described:
        return p.described(code, self.address, *([Uint(self.durability)] if self.durability else []))

    def attach_frame(self) -> bytes:
        raise NotImplementedError

    def came_attach(self, fields: list[Any]) -> None:
        source, target = p.state_of(fields[5]), p.state_of(fields[6])
        there = source if self.is_receiver else target
        self.attached = there[0] != 0  # else a detach that says why follows
        if there[0] in (p.SOURCE, p.TARGET) and there[1] and isinstance(there[1][0], str):
            self.remote_address = there[1][0]
        if self.is_receiver:
            self.delivery_count = fields[9] or 0

    def came_flow(self, delivery_count: int | None, credit: int, *, echo: bool) -> None:
        pass

    def came_settled(self, first: int, last: int, state: Any) -> None:
        """The sender of deliveries that came here settled them."""


class Outgoing(Link):
    """One that messages go out on."""

    def came_outcome(self, first: int, last: int, settled: bool, state: Any) -> None:
        """What became of messages with these numbers."""
        raise NotImplementedError

    def is_settled(self, number: int) -> bool:
        """Whether all up to that message are."""
        raise NotImplementedError


class Sender(Outgoing):
    """Sends one message at a time, for those that are few: requests, and words between the roles of a test."""

    def __init__(
        self,
        wire: Wire,
        name: str,
        address: str,
        *,
        coordinator: bool = False,
        settle: int = UNSETTLED,
        durable: bool = False,
    ) -> None:
        super().__init__(wire, name, address)
        self._coordinator = coordinator
        self._settle = settle
        self._durable = durable
        self._number = 0
        self._then: dict[int, Callable[[Any], None]] = {}
        self._waiting: deque[tuple[bytes, Callable[[Any], None]]] = deque()

    def attach_frame(self) -> bytes:
        target = p.described(p.COORDINATOR, None) if self._coordinator else self.terminus(p.TARGET)
        source = self.terminus(p.SOURCE)
        return p.frame(
            p.ATTACH, self.name, Uint(self.handle), False, Ubyte(self._settle), Ubyte(0), source, target,
            None, None, Uint(0),
        )  # fmt: skip

    def came_flow(self, delivery_count: int | None, credit: int, *, echo: bool) -> None:
        self.credit = (delivery_count or 0) + credit - self.delivery_count
        self._post()

    def post(self, message: bytes, then: Callable[[Any], None] = lambda state: None) -> None:
        """Send an encoded message as soon as there is credit; *then* hears its state."""
        self._waiting.append((message, then))
        self._post()

    def is_settled(self, number: int) -> bool:
        return not self._then or number < min(self._then)

    def came_outcome(self, first: int, last: int, settled: bool, state: Any) -> None:
        for number in range(first, last + 1):
            then = self._then.pop(number, None)
            if then is not None:
                then(state)

    def _post(self) -> None:
        while self._waiting and self.credit > 0 and self.wire.window > 0 and self.attached:
            message, then = self._waiting.popleft()
            delivery_id = self.wire.next_id
            transfer = p.frame(
                p.TRANSFER,
                Uint(self.handle),
                Uint(delivery_id),
                delivery_id.to_bytes(4),
                Uint(0),
                False,
                payload=message,
            )
            self._then[self._number] = then
            self.wire.send(self, transfer, 1, 1, self._number)
            self._number += 1
            self.credit -= 1
            self.delivery_count += 1


class Receiver(Link):
    """Receives a message at a time and accepts it at once."""

    is_receiver = True
    in_runs = False

    def __init__(
        self, wire: Wire, name: str, address: str, then: Callable[[bytes], None], *, settle: int = UNSETTLED,
        reply_to: bool = False,
    ) -> None:  # fmt: skip
        super().__init__(wire, name, address)
        self._then = then
        self._settle = settle
        self._reply_to = reply_to
        self.drained = False
        self.partial: list[bytes] = []
        """Of a message that has come in part."""
        self.partial_id = 0
        self.partial_settled = False

    def attach_frame(self) -> bytes:
        return p.frame(
            p.ATTACH, self.name, Uint(self.handle), True, Ubyte(self._settle), Ubyte(0),
            self.terminus(p.SOURCE), p.described(p.TARGET, self.name if self._reply_to else self.address),
        )  # fmt: skip

    def allow(self, more: int, *, drain: bool = False) -> None:
        """Take so many more messages."""
        self.credit += more
        self.drained = False
        self.wire.flow(self, drain=drain)

    def came_flow(self, delivery_count: int | None, credit: int, *, echo: bool) -> None:
        if delivery_count is not None and credit == 0:
            self.credit -= delivery_count - self.delivery_count
            self.delivery_count = delivery_count
            self.drained = self.credit <= 0
        if echo:
            self.wire.flow(self)

    def took(self, count: int) -> None:
        """So many came."""
        self.credit -= count
        self.delivery_count += count

    def came(self, delivery_id: int, message: bytes, settled: bool) -> None:
        self.took(1)
        if not settled:
            self.wire.put(p.disposition(delivery_id, delivery_id, True))
        self._then(message)

    def came_run(self, run: Run) -> None:
        raise NotImplementedError  # of links that ask for runs


def data_message(body: bytes, *, durable: bool = False) -> bytes:
    """A message of nothing but a data section."""
    header = b"\x00\x53\x70\xc0\x02\x01" + encode.boolean(durable)
    return header + encode.described(0x75, encode.binary(body))


def data_of(message: bytes) -> bytes:
    """What such a message says. Raises `BrokerError` if it is none."""
    try:
        begin, end = body_of(message)
    except Malformed as error:
        raise BrokerError("a control queue", f"what came is no word of a perftest: {error}") from error
    return message[begin:end]
