"""The ends of links: what a client sends on and receives on.

`Sender` and `Receiver` do what every link must; a load's own links add what they count. Delivery ids here are small:
no test sends 2**32 messages on one connection.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, Protocol

from ...base.errors import BrokerError
from ..codec import encode
from ..codec.primitives import Malformed
from ..codec.types import Described, Ubyte, Uint
from ..frames import performatives as p
from ..frames.frame_runs import Run, body_of

UNSETTLED, SETTLED = 0, 1


class Session(Protocol):
    """The session that links send on (`Wire`)."""

    next_id: int
    """The ID of the next delivery of the session."""
    window: int
    """The number of transfer frames that the broker accepts now."""
    max_frame: int

    def send(self, link: Outgoing, frames: bytes | memoryview, messages: int, frame_count: int, number: int) -> None:
        """Send transfer frames of *messages* messages; *number* is the number of the first one on its link."""

    def send_frames(self, frames: bytes) -> None:
        """Send frames that are no transfers."""

    def flow(self, link: Receiver) -> None:
        """Send the credit of *link* and the window of the session."""


class ClientLink:
    """One end of a link; the wire assigns its `handle`. An empty address is that of the anonymous relay."""

    is_receiver = False

    def __init__(self, wire: Session, name: str, address: str) -> None:
        self.wire = wire
        self.name = name
        self.address = address
        self.handle = -1
        self.attached = False
        self.closing = False
        self.credit = 0
        self.delivery_count = 0
        self.durability = 0
        """The durability that the terminus requests; with 1 a node that is created for the link outlasts the broker."""

    def terminus(self, code: int) -> Described:
        return p.described(code, self.address or None, *([Uint(self.durability)] if self.durability else []))

    def attach_frame(self) -> bytes:
        raise NotImplementedError

    def came_attach(self, fields: list[Any]) -> None:
        source, target = p.state_of(fields[5]), p.state_of(fields[6])
        there = source if self.is_receiver else target
        self.attached = there[0] != 0  # else a detach with the reason follows
        if self.is_receiver:
            self.delivery_count = fields[9] or 0

    def came_flow(self, delivery_count: int | None, credit: int, *, echo: bool) -> None:
        pass

    def came_window(self) -> None:
        """The session may take more frames now."""


class Outgoing(ClientLink):
    """A link on which messages go out."""

    settle_mode = UNSETTLED

    def attach_frame(self) -> bytes:
        return p.frame(
            p.ATTACH, self.name, Uint(self.handle), False, Ubyte(self.settle_mode), Ubyte(0),
            self.terminus(p.SOURCE), self.terminus(p.TARGET), None, None, Uint(0),
        )  # fmt: skip

    def came_flow(self, delivery_count: int | None, credit: int, *, echo: bool) -> None:
        self.credit = (delivery_count or 0) + credit - self.delivery_count

    def came_outcome(self, first: int, last: int, state: Any) -> None:
        """Process the outcome of the messages *first* to *last*."""
        raise NotImplementedError

    def is_settled(self, number: int) -> bool:
        """Return whether all messages up to *number* are settled."""
        raise NotImplementedError


class Sender(Outgoing):
    """Sends one message at a time, for those that are few: requests, and words between the roles of a test."""

    def __init__(self, wire: Session, name: str, address: str, *, coordinator: bool = False) -> None:
        super().__init__(wire, name, address)
        self._coordinator = coordinator
        self._number = 0
        self._then: dict[int, Callable[[Any], None]] = {}
        self._waiting: deque[tuple[bytes, Callable[[Any], None]]] = deque()
        self._frames: deque[bytes] = deque()
        """Rest of a message that has begun to go out."""

    def terminus(self, code: int) -> Described:
        is_coordinator = self._coordinator and code == p.TARGET
        return p.described(p.COORDINATOR, None) if is_coordinator else super().terminus(code)

    def came_flow(self, delivery_count: int | None, credit: int, *, echo: bool) -> None:
        super().came_flow(delivery_count, credit, echo=echo)
        self._post()

    def post(self, message: bytes, then: Callable[[Any], None] = lambda state: None) -> None:
        """Send an encoded message as soon as the link has credit; *then* is called with its state."""
        self._waiting.append((message, then))
        self._post()

    def is_settled(self, number: int) -> bool:
        return not self._then or number < next(iter(self._then))

    def came_outcome(self, first: int, last: int, state: Any) -> None:
        for number in range(first, last + 1):
            then = self._then.pop(number, None)
            if then is not None:
                then(state)

    def came_window(self) -> None:
        self._post()

    def _post(self) -> None:
        wire = self.wire
        while wire.window > 0 and self.attached:
            if self._frames:
                wire.send(self, self._frames.popleft(), 0, 1, self._number - 1)
            elif self._waiting and self.credit > 0:
                message, then = self._waiting.popleft()
                first, *rest = p.transfers(self.handle, wire.next_id, message, wire.max_frame)
                self._frames.extend(rest)
                self._then[self._number] = then
                wire.send(self, first, 1, 1, self._number)
                self._number += 1
                self.credit -= 1
                self.delivery_count += 1
            else:
                return


class Receiver(ClientLink):
    """Receives a message at a time and accepts it at once."""

    is_receiver = True
    in_runs = False
    drains = False
    """The broker sends what it has, and then takes the rest of the credit back."""

    def __init__(
        self, wire: Session, name: str, address: str, then: Callable[[bytes], None], *, settle: int = UNSETTLED,
        reply_to: bool = False,
    ) -> None:  # fmt: skip
        super().__init__(wire, name, address)
        self._then = then
        self._settle = settle
        self._reply_to = reply_to
        self.partial: list[bytes] = []
        """The pieces of a message that has not arrived completely."""
        self.partial_id = 0
        self.partial_settled = False

    def attach_frame(self) -> bytes:
        return p.frame(
            p.ATTACH, self.name, Uint(self.handle), True, Ubyte(self._settle), Ubyte(0),
            self.terminus(p.SOURCE), p.described(p.TARGET, self.name if self._reply_to else self.address),
        )  # fmt: skip

    def allow(self, more: int) -> None:
        """Grant credit for *more* messages."""
        self.credit += more
        self.wire.flow(self)

    def came_flow(self, delivery_count: int | None, credit: int, *, echo: bool) -> None:
        if delivery_count is not None and credit == 0:
            self.credit -= delivery_count - self.delivery_count
            self.delivery_count = delivery_count
        if echo:
            self.wire.flow(self)

    def took(self, count: int) -> None:
        """Count *count* received messages."""
        self.credit -= count
        self.delivery_count += count

    def came(self, delivery_id: int, message: bytes, settled: bool) -> None:
        self.took(1)
        if not settled:
            self.wire.send_frames(p.disposition(delivery_id, delivery_id, True))
        self._then(message)

    def came_run(self, run: Run) -> None:
        raise NotImplementedError  # of links that ask for runs


def data_message(body: bytes, *, durable: bool = False) -> bytes:
    """Return an encoded message of a header and one data section."""
    header = b"\x00\x53\x70\xc0\x02\x01" + encode.boolean(durable)
    return header + encode.described(0x75, encode.binary(body))


def data_of(message: bytes) -> bytes:
    """Return the body of a message that `data_message` made. Raises `BrokerError` if *message* has no data section."""
    try:
        begin, end = body_of(message)
    except Malformed as error:
        reason = f"a message is not part of the perftest protocol: {error}"
        raise BrokerError("a control queue", reason, "stop the other clients of its queues") from error
    return message[begin:end]
