"""The ways of messages to another broker: of one address over one neighbour, and the links that they share (C29, C48).

A neighbour has a link each way for each priority. What goes over it is bounded by the credit of the senders, which
comes back with the outcome of whoever receives at the far end, however many brokers that is away (C16). So between
brokers nothing is sent settled: the sender of settled messages, too, is held back by slow receivers. Core only.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from ..amqp import header, hop
from ..amqp.codec import Malformed
from ..amqp.hop import Hop
from ..amqp.link import DEFAULT_PRIORITY
from ..amqp.parcel import Parcel
from ..amqp.proton import MODIFIED, REJECTED, RELEASED
from ..channel.words import Cursor, Delivery, Error, Fragment, Outcome, TerminalEnd
from .direct import finish
from .passing import Crossing, Passage

if TYPE_CHECKING:
    from .direct import Direct
    from .neighbour import Neighbour

PRIORITIES = range(10)

Copy = bytes | Parcel | Cursor
_RELEASED = Outcome(None, None, RELEASED)


class Leg:
    """One copy of a message on its way to a neighbour."""

    __slots__ = ("lane", "passage", "way")

    presettled = False
    tells_of_settled = True

    def __init__(self, way: Way, lane: Lane, passage: Passage) -> None:
        self.way = way
        self.lane = lane
        self.passage = passage

    @property
    def terminal(self) -> TerminalEnd:
        return self.lane.terminal

    def taken_back(self) -> None:
        self.way.unsettled -= 1
        self.way.look_whether_over()


class Way:
    """One address over one neighbour."""

    def __init__(self, place: Direct, neighbour: Neighbour, me: str) -> None:
        self.neighbour = neighbour
        self.cost = 0
        """Of the cheapest way there over it."""
        self.targets: tuple[str, ...] = ()
        """The brokers with receivers that it leads to."""
        self.unsettled = 0
        self._place = place
        self._me = me
        self._section = b""

    def point(self, cost: int, targets: tuple[str, ...]) -> None:
        """Where it leads to now."""
        self.cost, self.targets = cost, targets
        self._section = hop.section_of(Hop(self._place.name, (self._me,), targets if self._place.multicast else None))

    def carry(self, passage: Passage, copy: Copy, targets: tuple[str, ...]) -> bool:
        """Take a message along, to be sent with the neighbour's next `flush`. Whether its sender is to be told now.

        *targets*: of multicast, the brokers that this copy is for.
        """
        section = self._section
        if isinstance(passage, Crossing):
            trace = (*passage.trace, self._me)
            section = hop.section_of(Hop(self._place.name, trace, targets if self._place.multicast else None))
        elif targets is not self.targets:
            section = hop.section_of(Hop(self._place.name, (self._me,), targets))
        try:
            lane = self.neighbour.lanes[_priority_of(copy)]
            if isinstance(copy, Cursor):
                copy.rewrite(partial(hop.annotated_beginning, section=section))
            else:
                copy = hop.annotated(copy, section)
        except Malformed as error:
            return passage.hear(Outcome(None, None, REJECTED, error=Error("amqp:decode-error", str(error))))
        leg = Leg(self, lane, passage)
        self.unsettled += 1
        lane.pending.append((leg, copy))
        if isinstance(copy, Cursor) and passage.arriving is not None:
            passage.arriving.copies[copy] = leg
        return False

    def take_back(self, passage: Passage) -> None:
        """Its sender did not finish it."""
        for lane in self.neighbour.lanes.values():
            lane.pending = deque([one for one in lane.pending if one[0].passage is not passage])

    def look_whether_over(self) -> None:
        if not self.unsettled:
            self._place.look_whether_over()


class Lane:
    """A link to a neighbour, for messages of one priority: the driver of its channel."""

    terminal: TerminalEnd

    def __init__(self, neighbour: Neighbour) -> None:
        self.pending: deque[tuple[Leg, Parcel | Cursor | bytes]] = deque()
        """What waits for credit."""
        self.sent = 0
        self._neighbour = neighbour
        self._limit = 0

    def post(self, fragments: Sequence[Fragment]) -> None:
        """Nothing comes on it."""

    def post_in(self, connection: object, txn_id: bytes, fragments: Sequence[Fragment]) -> None:
        """The same."""

    def request(self, limit: int, drain: bool) -> None:
        self._limit = limit
        self.flush()
        if drain:
            spent = max(0, limit - self.sent)
            self.sent += spent
            self.terminal.drained(spent)

    def flush(self) -> None:
        count = min(self._limit - self.sent, len(self.pending))
        if count > 0:
            self.sent += count
            self.terminal.forward([self.pending.popleft() for _ in range(count)])

    def outcomes(self, outcomes: Sequence[Outcome]) -> None:
        """What the neighbour said goes to the senders (C12, C58)."""
        settle: list[tuple[Delivery, int]] = []
        finished: list[Passage] = []
        ways: dict[Way, None] = {}
        for outcome in outcomes:
            leg: Leg = outcome.tag
            leg.way.unsettled -= 1
            ways[leg.way] = None
            if leg.passage.hear(outcome):
                finished.append(leg.passage)
            if outcome.delivery is not None:
                settle.append((outcome.delivery, outcome.state))
        finish(finished)
        if settle:
            self.terminal.settle(settle)
        for way in ways:
            way.look_whether_over()

    def outcomes_in(self, connection: object, provisional: Sequence[tuple[bytes, Outcome]]) -> None:
        """Brokers have no transactions with each other."""

    def close(self, returned: Sequence[Any], lost: bool, for_good: bool) -> None:
        """The neighbour is gone. Nobody knows what it made of what was sent; what was not sent is released."""
        self._neighbour.ended("it detached a link")  # first, so that nothing more is sent this way
        left = Outcome(None, None, MODIFIED, True)
        finished = [leg.passage for leg in returned if self._drop(leg, left)]
        while self.pending:
            leg, _ = self.pending.popleft()
            if self._drop(leg, _RELEASED):
                finished.append(leg.passage)
        finish(finished)

    def _drop(self, leg: Leg, outcome: Outcome) -> bool:
        leg.way.unsettled -= 1
        if leg.passage.arriving is not None:
            leg.passage.arriving.drop(leg)
        return leg.passage.hear(outcome)


def _priority_of(copy: Copy) -> int:
    """Of the message's header. Raises `Malformed`."""
    begin = copy if isinstance(copy, bytes) else copy.head if isinstance(copy, Parcel) else b""
    return min(header.parse(begin).priority, 9) if begin else DEFAULT_PRIORITY
