"""Messages that come from a neighbour: to receivers here, and on to other brokers (router guide C29, C48).

Each says what address it is for, and by which brokers it has come: never back to one of those, so that none goes in a
circle while brokers don't agree yet on the ways. One for all receivers says which brokers this copy is for: so none
gets it twice. Core only.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ..amqp import hop
from ..amqp.codec import Cut, Malformed
from ..amqp.hop import MOST_HEAD_BYTES, Hop
from ..amqp.parcel import Parcel
from ..channel.words import ABORTED, MORE, SETTLED, Delivery, Error, Fragment, Outcome
from .direct import Direct
from .direct_sender import StreamingSender
from .memory import ENTRY_BYTES, NO_MEMORY
from .passing import Crossing

if TYPE_CHECKING:
    from .broker import Broker
    from .neighbour import Neighbour
    from .network import Network

CREDIT = 100_000
"""Messages of one priority that a neighbour may have sent without an outcome. What bounds them is the credit of those
who send them: an address whose receivers are slow leaves the others their part."""
_TOO_LONG = Error("amqp:decode-error", f"its annotations don't end within {MOST_HEAD_BYTES} bytes")


class CrossingSender(StreamingSender):
    """The driver of a link on which a neighbour sends."""

    def __init__(self, broker: Broker, network: Network, neighbour: Neighbour) -> None:
        super().__init__(broker)
        self.received = 0
        self._network = network
        self._neighbour = neighbour
        self._begun = b""
        """How a message begins that has not said yet where it goes."""
        self._wrong: Error | None = None
        """Why the one that is coming in is refused at its end."""

    def post(self, fragments: Sequence[Fragment]) -> None:
        place: Direct | None = None
        run: list[tuple[Crossing, Parcel]] = []
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
            run.append((Crossing(self, delivery, len(content) + ENTRY_BYTES, said, settled=settled), parcel))
        if place is not None:
            self._put_on(place, run)
        if self._streams:
            self._look()

    def _place_of(self, delivery: Delivery, said: Hop) -> Direct | None:
        """Where it goes; None if it was told that it goes nowhere."""
        place = None if self._network.me in said.trace else self._network.place_of(said)
        if place is None:
            self.terminal.hand_back((delivery,), 1)
        return place

    def _put_on(self, place: Direct, run: list[tuple[Crossing, Parcel]]) -> None:
        if self._memory.free_bytes <= 0:
            deliveries = [passage.delivery for passage, _ in run]
            self.terminal.reject(deliveries, len(run), "amqp:resource-limit-exceeded", NO_MEMORY)
        else:
            self._memory.used_bytes += sum(passage.size_bytes for passage, _ in run)
            place.put(run)
        place.look_whether_over()

    # ---- messages in pieces -----------------------------------------------------------------------------------------

    def _grow(self, delivery: Delivery, data: bytes, flags: int) -> None:
        passage = self._current
        last = not flags & MORE
        if flags & ABORTED:
            self._current, self._begun, self._wrong = None, b"", None
            if passage is not None and not passage.done:
                self._abort(passage)
            self.terminal.release((delivery,), 1)
        elif passage is None:
            if self._wrong is None:
                self._start(delivery, self._begun + data, last=last, settled=bool(flags & SETTLED))
            if last and self._wrong is not None:
                wrong, self._wrong = self._wrong, None
                self.terminal.reject((delivery,), 1, *wrong[:2])
        else:
            arriving = passage.arriving
            assert arriving is not None
            if not passage.done:
                arriving.write(data, last=last)
                arriving.wake()
            if last:
                arriving.ended = True
                self._current = None
                passage.settled = bool(flags & SETTLED)
                if passage.done:
                    self._answer((passage,))
                else:
                    self._all_came(passage, arriving, settled=passage.settled)

    def _start(self, delivery: Delivery, begun: bytes, *, last: bool, settled: bool) -> None:
        """More has come of a message's beginning: perhaps enough to say where it goes."""
        self._begun = b""
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
        place = None if self._network.me in said.trace else self._network.place_of(said)
        if place is None:
            place = Direct(said.to, multicast=said.targets is not None)  # one without receivers: it is released
        passage = Crossing(self, delivery, ENTRY_BYTES, said, settled=False)
        self._begin(passage, place)
        clean = parcel.head + parcel.rest[parcel.skip :]
        if last:
            self._current = None
        if passage.arriving is not None and not passage.done:
            passage.arriving.write(clean, last=last)
            passage.arriving.wake()
        if last and passage.arriving is not None:
            passage.arriving.ended = True
            passage.settled = settled
            if passage.done:
                self._answer((passage,))
            else:
                self._all_came(passage, passage.arriving, settled=settled)

    # ---- the rest of a driver ---------------------------------------------------------------------------------------

    def post_in(self, connection: object, txn_id: bytes, fragments: Sequence[Fragment]) -> None:
        self.terminal.failure("amqp:not-allowed", "brokers have no transactions with each other")

    def request(self, limit: int, drain: bool) -> None:
        """It sends, and wants nothing."""

    def outcomes(self, outcomes: Sequence[Outcome]) -> None:
        """Nothing was forwarded on this channel."""

    def outcomes_in(self, connection: object, provisional: Sequence[tuple[bytes, Outcome]]) -> None:
        """The same."""

    def close(self, returned: Sequence[Any], lost: bool, for_good: bool) -> None:
        """What came whole goes on, though nobody hears what becomes of it."""
        self.closed = True
        self._end_current()
        self._neighbour.ended("it detached a link")
