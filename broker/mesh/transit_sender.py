"""Messages that come from a neighbour: to receivers here, and on to other brokers, or about the network (C29, C48).

A message names its address, and the brokers that it has passed: it is never sent to one of those, so none circulates
while brokers do not agree on the paths yet. A multicast message names the brokers that this copy is for, so no broker
gets it twice. Core only.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ...amqp.codec import hop_annotations as hop
from ...amqp.codec.annotated_message import AnnotatedMessage
from ...amqp.codec.hop_annotations import MOST_HEAD_BYTES, Hop
from ...amqp.codec.primitives import Cut, Malformed
from ...amqp.ports import ABORTED, MORE, SETTLED, Delivery, Error, Fragment, TerminalEnd
from ..kernel.context import CoreContext
from ..kernel.idle_driver import IdleDriver
from ..kernel.memory_budget import ENTRY_BYTES, NO_MEMORY
from ..passthrough.address import PassthroughAddress
from ..passthrough.delivery import TransitDelivery
from ..passthrough.sender import StreamingSender

CREDIT = 100_000
"""The number of messages of one priority that a neighbour may have sent without an outcome. The actual limit is the
credit of their senders, so an address with slow receivers leaves room for the others.
"""
MOST_SAID_BYTES = 32 << 20
"""The longest control message."""
_TOO_LONG = Error("amqp:decode-error", f"its annotations don't end within {MOST_HEAD_BYTES} bytes")


class TransitSender(StreamingSender):
    """The driver of a link on which a neighbour sends."""

    def __init__(
        self,
        core: CoreContext,
        me: str,
        place_at: Callable[[Hop], PassthroughAddress | None],
        ended: Callable[[str], None],
    ) -> None:
        """*place_at* returns the address that a message is for; *ended* is called when the link is closed."""
        super().__init__(core)
        self.received = 0
        self._me = me
        self._place_at = place_at
        self._ended = ended
        self._begun = b""
        """The beginning of a message whose address is not known yet."""

    def receive(self, fragments: Sequence[Fragment]) -> None:
        place: PassthroughAddress | None = None
        run: list[tuple[TransitDelivery, AnnotatedMessage]] = []
        for delivery, content, flags in fragments:
            if flags & (MORE | ABORTED) or self._current is not None or self._begun or self._wrong is not None:
                if place is not None:
                    self._put_on(place, run)
                    place, run = None, []
                self._grow(delivery, content, flags)
                continue
            self.received += 1
            try:
                said, parcel = hop.take_off(content)
            except Malformed as error:
                self.terminal.reject((delivery,), 1, "amqp:decode-error", str(error))
                continue
            there = self._place_of(delivery, said)
            if there is None:
                continue
            if place is not None and there is not place:
                self._put_on(place, run)
                run = []
            place = there
            settled = bool(flags & SETTLED)
            run.append((TransitDelivery(self, delivery, len(content) + ENTRY_BYTES, said, settled=settled), parcel))
        if place is not None:
            self._put_on(place, run)
        if self._streams or self._held:
            self._look()

    def _place_of(self, delivery: Delivery, said: Hop) -> PassthroughAddress | None:
        """Return the address that *said* names; None if the message was released because it names none."""
        place = None if self._me in said.trace else self._place_at(said)
        if place is None:
            self.terminal.hand_back((delivery,), 1)
        return place

    def _put_on(self, place: PassthroughAddress, run: list[tuple[TransitDelivery, AnnotatedMessage]]) -> None:
        if self._memory.free_bytes <= 0:
            deliveries = [passage.delivery for passage, _ in run]
            self.terminal.reject(deliveries, len(run), "amqp:resource-limit-exceeded", NO_MEMORY)
        else:
            self._memory.used_bytes += sum(passage.size_bytes for passage, _ in run)
            place.distribute(run)
        place.look_whether_over()

    def _grow(self, delivery: Delivery, data: bytes, flags: int) -> None:
        if flags & ABORTED:
            self._begun = b""
            self._take_back(delivery)
        elif self._current is not None:
            self._append(self._current, data, flags)
        else:
            if self._wrong is None:
                self._start(delivery, self._begun + data, flags)
            if not flags & MORE and self._wrong is not None:
                self._refuse(delivery)

    def _start(self, delivery: Delivery, begun: bytes, flags: int) -> None:
        """Parse the beginning of a message: enough may have arrived to determine its address."""
        self._begun = b""
        last = not flags & MORE
        try:
            said, parcel = hop.take_off(begun)
        except Cut as error:
            if not last and len(begun) < MOST_HEAD_BYTES:
                self._begun = begun
            else:
                self._wrong = Error("amqp:decode-error", str(error)) if last else _TOO_LONG
            return
        except Malformed as error:
            self._wrong = Error("amqp:decode-error", str(error))
            return
        self.received += 1
        place = None if self._me in said.trace else self._place_at(said)
        if place is None:  # an address without receivers: the message is released
            place = PassthroughAddress(said.to, multicast=said.targets is not None)
        passage = TransitDelivery(self, delivery, ENTRY_BYTES, said, settled=False)
        self._begin(passage, place)
        self._append(passage, parcel.head + parcel.rest[parcel.skip :], flags)

    def receive_in(self, connection: object, txn_id: bytes, fragments: Sequence[Fragment]) -> None:
        self.terminal.failure("amqp:not-allowed", "brokers have no transactions with each other")

    def close(self, returned: Sequence[Any], lost: bool, for_good: bool) -> None:
        """Close the sender: complete messages are forwarded, and their outcomes are discarded."""
        self.closed = True
        self._end_current()
        self._ended("it detached a link")


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
