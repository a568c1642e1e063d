"""Next hops: the path of one address over one neighbour, and the links that these paths share (C29, C48).

A neighbour has a link each way for each priority. Its traffic is limited by the credit of the senders, which is
returned with the outcome of the final receiver, however many brokers away it is (C16). So nothing is sent settled
between brokers: slow receivers hold back the sender of settled messages, too. Core only.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Protocol

from ...amqp.codec import header
from ...amqp.codec import hop_annotations as hop
from ...amqp.codec.annotated_message import AnnotatedMessage
from ...amqp.codec.hop_annotations import Hop
from ...amqp.codec.primitives import Malformed
from ...amqp.links.values import DEFAULT_PRIORITY
from ...amqp.native.proton_ffi import MODIFIED, REJECTED, RELEASED
from ...amqp.ports import Delivery, Error, Outcome, StreamCursor, TerminalEnd
from ..kernel.idle_driver import CreditDriver
from ..passthrough.address import NeighbourPort, PassthroughAddress, finish
from ..passthrough.delivery import ForwardedDelivery, TransitDelivery

PRIORITIES = range(10)

Copy = bytes | AnnotatedMessage | StreamCursor
_RELEASED = Outcome(None, None, RELEASED)


class NeighbourLinks(NeighbourPort, Protocol):
    """The links to a neighbour, as the ways over it see them."""

    priority_links: dict[int, PriorityLink]
    """The links by priority."""


class InFlight:
    """A copy of a message on its way to a neighbour."""

    __slots__ = ("lane", "passage", "way")

    presettled = False
    tells_of_settled = True

    def __init__(self, next_hop: NextHop, link: PriorityLink, passage: ForwardedDelivery) -> None:
        self.way = next_hop
        self.lane = link
        self.passage = passage

    @property
    def terminal(self) -> TerminalEnd:
        return self.lane.terminal

    def taken_back(self) -> None:
        self.way.unsettled -= 1
        self.way.look_whether_over()


class NextHop:
    """The path to one address over one neighbour."""

    def __init__(self, place: PassthroughAddress, neighbour: NeighbourLinks, me: str) -> None:
        self.neighbour = neighbour
        self.cost = 0
        """The cost of the cheapest path to the address over the neighbour."""
        self.targets: tuple[str, ...] = ()
        """The brokers with receivers that the hop leads to."""
        self.unsettled = 0
        self._place = place
        self._me = me
        self._section = b""

    def point(self, cost: int, targets: tuple[str, ...]) -> None:
        """Set the cost of the hop and the targets it leads to."""
        self.cost, self.targets = cost, targets
        self._section = hop.section_of(Hop(self._place.name, (self._me,), targets if self._place.multicast else None))

    def carry(self, passage: ForwardedDelivery, copy: Copy, targets: tuple[str, ...]) -> bool:
        """Queue a message for the neighbour's next `flush`. Return whether the sender gets its outcome now.

        *targets*: of multicast, the brokers that this copy is for.
        """
        section = self._section
        if isinstance(passage, TransitDelivery):
            trace = (*passage.trace, self._me)
            section = hop.section_of(Hop(self._place.name, trace, targets if self._place.multicast else None))
        elif targets is not self.targets:
            section = hop.section_of(Hop(self._place.name, (self._me,), targets))
        try:
            link = self.neighbour.priority_links[_priority_of(copy)]
            if isinstance(copy, StreamCursor):
                copy.rewrite(partial(hop.annotated_beginning, section=section))
            else:
                copy = hop.annotated(copy, section)
        except Malformed as error:
            return passage.hear(Outcome(None, None, REJECTED, error=Error("amqp:decode-error", str(error))))
        leg = InFlight(self, link, passage)
        self.unsettled += 1
        link.pending.append((leg, copy))
        if isinstance(copy, StreamCursor) and passage.arriving is not None:
            passage.arriving.copies[copy] = leg
        return False

    def take_back(self, passage: ForwardedDelivery) -> None:
        """Drop copies of a message that its sender did not finish."""
        for link in self.neighbour.priority_links.values():
            link.pending = deque([one for one in link.pending if one[0].passage is not passage])

    def look_whether_over(self) -> None:
        if not self.unsettled:
            self._place.look_whether_over()


class LinkToNeighbour(CreditDriver):
    """The driver of a link on which this broker sends to a neighbour."""

    def __init__(self, ended: Callable[[str], None]) -> None:
        """*ended* is called with the reason when the link is closed."""
        super().__init__()
        self.pending: deque[tuple[Any, Copy]] = deque()
        """Messages that wait for credit, with their tags."""
        self._ended = ended

    @property
    def sent(self) -> int:
        """The messages that were sent, and the credit that was returned."""
        return self._forwarded

    def request(self, limit: int, drain: bool) -> None:
        self._limit = limit
        self.flush()
        if drain:
            self.terminal.drained(self._spend(limit))

    def flush(self) -> None:
        count = min(self._limit - self._forwarded, len(self.pending))
        if count > 0:
            self._forwarded += count
            self.terminal.forward([self.pending.popleft() for _ in range(count)])

    def close(self, returned: Sequence[Any], lost: bool, for_good: bool) -> None:
        self._ended("it detached a link")


class PriorityLink(LinkToNeighbour):
    """A link for messages of one priority; their tags are `InFlight`."""

    def outcomes(self, outcomes: Sequence[Outcome]) -> None:
        """Pass the neighbour's outcomes on to the senders (C12, C58)."""
        settle: list[tuple[Delivery, int]] = []
        finished: list[ForwardedDelivery] = []
        next_hops: dict[NextHop, None] = {}
        for outcome in outcomes:
            leg: InFlight = outcome.tag
            leg.way.unsettled -= 1
            next_hops[leg.way] = None
            if leg.passage.hear(outcome):
                finished.append(leg.passage)
            if outcome.delivery is not None:
                settle.append((outcome.delivery, outcome.state))
        finish(finished)
        if settle:
            self.terminal.settle(settle)
        for next_hop in next_hops:
            next_hop.look_whether_over()

    def close(self, returned: Sequence[Any], lost: bool, for_good: bool) -> None:
        """Close the hop: messages that were sent have an unknown outcome; messages that were not sent are released."""
        super().close(returned, lost, for_good)  # first, so that nothing more is sent this way
        left = Outcome(None, None, MODIFIED, True)
        finished = [leg.passage for leg in returned if self._drop(leg, left)]
        while self.pending:
            leg, _ = self.pending.popleft()
            if self._drop(leg, _RELEASED):
                finished.append(leg.passage)
        finish(finished)

    def _drop(self, leg: InFlight, outcome: Outcome) -> bool:
        leg.way.unsettled -= 1
        if leg.passage.arriving is not None:
            leg.passage.arriving.drop(leg)
        return leg.passage.hear(outcome)


def _priority_of(copy: Copy) -> int:
    """Return the priority in the message's header. Raises `Malformed`."""
    begin = copy if isinstance(copy, bytes) else copy.head if isinstance(copy, AnnotatedMessage) else b""
    return min(header.parse(begin).priority, 9) if begin else DEFAULT_PRIORITY
