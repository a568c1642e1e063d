"""Passthrough addresses: messages go from the senders' links to the receivers' without being stored (C10, C11).

*Anycast*: each message goes to one receiver with credit, the one with the fewest unsettled messages. It waits for
credit, in the order of arrival, and so does its sender. *Multicast*: each message goes to all present receivers, to
each in order, at the pace of the slowest of them.

An address is routable while it has a receiver: then its senders have credit, which is returned with each settlement
(C15, C16). When the last receiver leaves they keep their credit, since it cannot be revoked from a sender that uses it.
The messages that they send with it are released, and the credit is returned when there is a receiver again. Core only.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase
from heapq import heapify, heappop, heapreplace
from typing import Protocol

from ...amqp.codec.annotated_message import AnnotatedMessage
from ...amqp.native.proton_ffi import RELEASED
from ...amqp.ports import Outcome, StreamCursor
from .delivery import ForwardedDelivery, SenderPort, TransitDelivery

PassthroughCopy = tuple[ForwardedDelivery, bytes | AnnotatedMessage | StreamCursor]
"""A message, and the copy of it that one receiver gets."""


class ReceiverPort(Protocol):
    """A receiver from an address."""

    pending: deque[PassthroughCopy]
    unsettled: int
    served: int

    def room(self) -> int:
        """Return how many messages it has credit for."""

    def take(self, messages: Sequence[PassthroughCopy]) -> None:
        """Send messages."""

    def send_pending(self) -> None:
        """Send the pending messages that it has credit for."""


class NeighbourPort(Protocol):
    """Another broker, to which messages are sent."""

    name: str

    def flush(self) -> None:
        """Send the messages that were carried to it."""


class NextHopPort(Protocol):
    """A way to the receivers on other brokers."""

    cost: int
    targets: tuple[str, ...]
    """The brokers with receivers that the next hop leads to."""
    unsettled: int

    @property
    def neighbour(self) -> NeighbourPort: ...

    def carry(
        self, passage: ForwardedDelivery, copy: bytes | AnnotatedMessage | StreamCursor, targets: tuple[str, ...]
    ) -> bool:
        """Queue a copy for *targets*. Return whether the sender gets its outcome now."""

    def take_back(self, passage: ForwardedDelivery) -> None:
        """Drop the copies of a message that its sender did not finish."""


class PassthroughAddress:
    """An address that messages pass through."""

    def __init__(self, name: str, *, multicast: bool) -> None:
        self.name = name
        self.multicast = multicast
        self.receivers: list[ReceiverPort] = []
        self.senders: dict[SenderPort, None] = {}
        self.waiting: deque[PassthroughCopy] = deque()
        """Anycast messages for which no receiver has credit."""
        self.next_hops: Sequence[NextHopPort] = ()
        """The next hops to receivers on other brokers."""
        self.receivers_changed: Callable[[PassthroughAddress], None] | None = None
        """The callback for the first receiver, and for the loss of the last one."""
        self.over: Callable[[], object] | None = None
        """The callback for the end of its use, if it is not known by its links."""

    def __str__(self) -> str:
        return f"nothing is stored at {self.name!r}"

    @property
    def routable(self) -> bool:
        return bool(self.receivers or self.next_hops)

    def add(self, receiver: ReceiverPort) -> None:
        self.receivers.append(receiver)
        if len(self.receivers) == 1:
            if self.receivers_changed is not None:
                self.receivers_changed(self)
            if not self.next_hops:
                self._routable_again()

    def _routable_again(self) -> None:
        for sender in self.senders:
            sender.routable_again()

    def remove(self, receiver: ReceiverPort) -> None:
        if receiver not in self.receivers:
            return
        self.receivers.remove(receiver)
        if not self.receivers:
            if self.receivers_changed is not None:
                self.receivers_changed(self)
            self._look_at_waiting()

    def lead(self, next_hops: Sequence[NextHopPort]) -> None:
        """Set the next hops to other brokers."""
        was_routable, self.next_hops = self.routable, next_hops
        if self.routable and not was_routable:
            self._routable_again()
        if not self.receivers:
            self._look_at_waiting()

    def _look_at_waiting(self) -> None:
        """Forward waiting messages to another broker, or return them: the address has no receivers here."""
        if self.next_hops:
            self.hand_out()
        elif self.waiting:
            waiting, self.waiting = self.waiting, deque()
            finish([passage for passage, _ in waiting if passage.hear(Outcome(None, None, RELEASED))])

    def look_whether_over(self) -> None:
        """Remove the address if it is not in use any more, and is not known by its links."""
        idle = not self.waiting and not any(next_hop.unsettled for next_hop in self.next_hops)
        if self.over is not None and idle:
            self.over()

    def distribute(self, passages: Sequence[tuple[ForwardedDelivery, bytes | AnnotatedMessage | None]]) -> None:
        """Pass complete messages, or the beginning of one that still arrives (None), to the receivers."""
        if not self.receivers and not self.next_hops:
            finish([passage for passage, _ in passages])
        elif self.multicast and (self.next_hops or isinstance(passages[0][0], TransitDelivery)):
            self._distribute_across(passages)
        elif self.multicast:
            for passage, content in passages:
                passage.legs = len(self.receivers)
                for receiver in self.receivers:
                    receiver.pending.append((passage, _copy(passage, content)))
            for receiver in self.receivers:
                receiver.send_pending()
        else:
            for passage, content in passages:
                passage.legs = 1
                self.waiting.append((passage, _copy(passage, content)))
            self.hand_out()

    def _distribute_across(self, passages: Sequence[tuple[ForwardedDelivery, bytes | AnnotatedMessage | None]]) -> None:
        """Multicast: to all receivers here, and to all brokers that have some; of those that it is for."""
        finished: list[ForwardedDelivery] = []
        for passage, content in passages:
            next_hops = [(next_hop, next_hop.targets) for next_hop in self.next_hops]
            if isinstance(passage, TransitDelivery):  # each copy is for some of them only, so no broker gets it twice
                found = [
                    (next_hop, tuple(one for one in next_hop.targets if one in passage.targets))
                    for next_hop in self.next_hops
                ]
                next_hops = [(next_hop, targets) for next_hop, targets in found if targets]
            passage.legs = len(self.receivers) + len(next_hops)
            if not passage.legs:
                finished.append(passage)
            for receiver in self.receivers:
                receiver.pending.append((passage, _copy(passage, content)))
            for next_hop, targets in next_hops:
                if next_hop.carry(passage, _copy(passage, content), targets):
                    finished.append(passage)
        for receiver in self.receivers:
            receiver.send_pending()
        for next_hop in self.next_hops:
            next_hop.neighbour.flush()
        finish(finished)

    def take_back(self, passage: ForwardedDelivery) -> None:
        """Withdraw a message that its sender did not finish."""
        self.waiting = deque([one for one in self.waiting if one[0] is not passage])
        for receiver in self.receivers:
            receiver.pending = deque([one for one in receiver.pending if one[0] is not passage])
        for next_hop in self.next_hops:
            next_hop.take_back(passage)

    def hand_out(self) -> None:
        """Pass waiting anycast messages to receivers with credit."""
        waiting = self.waiting
        if not waiting:
            return
        if not self.receivers:
            self._hand_across()
            return
        ready = [receiver for receiver in self.receivers if receiver.room() > 0]
        if len(ready) == 1:
            receiver = ready[0]
            count = min(receiver.room(), len(waiting))
            receiver.take([waiting.popleft() for _ in range(count)])
        elif ready:
            for receiver, messages in self._share(ready).items():
                receiver.take(messages)

    def _hand_across(self) -> None:
        """Forward messages to the nearest brokers with a receiver, but never to a broker that they have passed."""
        waiting = self.waiting
        finished: list[ForwardedDelivery] = []
        used: dict[NextHopPort, None] = {}
        while waiting:
            passage, copy = waiting.popleft()
            next_hops = self.next_hops
            if isinstance(passage, TransitDelivery):
                trace = passage.trace
                next_hops = [next_hop for next_hop in next_hops if next_hop.neighbour.name not in trace]
            if not next_hops:
                if passage.hear(Outcome(None, None, RELEASED)):
                    finished.append(passage)
                continue
            next_hop = min(next_hops, key=_nearest)
            used[next_hop] = None
            if next_hop.carry(passage, copy, next_hop.targets):
                finished.append(passage)
        for next_hop in used:
            next_hop.neighbour.flush()
        finish(finished)

    def _share(self, ready: list[ReceiverPort]) -> dict[ReceiverPort, list[PassthroughCopy]]:
        """Assign waiting copies: to the receiver with the fewest unsettled ones, in turn where these are equal."""
        waiting = self.waiting
        room = {receiver: receiver.room() for receiver in ready}
        heap = [(receiver.unsettled, receiver.served, number, receiver) for number, receiver in enumerate(ready)]
        heapify(heap)
        shares: dict[ReceiverPort, list[PassthroughCopy]] = {}
        turn = 0
        last = max(receiver.served for receiver in ready)
        while waiting and heap:
            unsettled, _, number, receiver = heap[0]
            shares.setdefault(receiver, []).append(waiting.popleft())
            turn += 1
            receiver.served = last + turn
            room[receiver] -= 1
            if room[receiver]:
                heapreplace(heap, (unsettled + 1, receiver.served, number, receiver))
            else:
                heappop(heap)
        return shares


class PassthroughTable:
    """The patterns of passthrough addresses, and the addresses in use."""

    def __init__(self, anycast: Sequence[str], multicast: Sequence[str]) -> None:
        """*anycast*, *multicast*: patterns of names; an address that matches both is anycast."""
        self._anycast = tuple(anycast)
        self._multicast = tuple(multicast)
        self._places: dict[str, PassthroughAddress] = {}
        self._fill: Callable[[PassthroughAddress], None] | None = None
        self._receivers_changed: Callable[[PassthroughAddress], None] | None = None

    def watch(
        self, fill: Callable[[PassthroughAddress], None], receivers_changed: Callable[[PassthroughAddress], None]
    ) -> None:
        """*fill* sets the next hops of a new address; *receivers_changed*: see `PassthroughAddress`."""
        self._fill, self._receivers_changed = fill, receivers_changed

    def in_use(self) -> list[PassthroughAddress]:
        return list(self._places.values())

    def find(self, name: str) -> PassthroughAddress | None:
        """Return the address *name*, if it is a passthrough address."""
        found = self._places.get(name)
        if found is not None:
            return found
        if any(fnmatchcase(name, pattern) for pattern in self._anycast):
            found = PassthroughAddress(name, multicast=False)
        elif any(fnmatchcase(name, pattern) for pattern in self._multicast):
            found = PassthroughAddress(name, multicast=True)
        if found is not None and self._fill is not None:
            found.receivers_changed = self._receivers_changed
            self._fill(found)
        return found

    def use(self, place: PassthroughAddress) -> None:
        """Register the address of a link that opens."""
        self._places[place.name] = place

    def hold(self, place: PassthroughAddress) -> None:
        """Return the address for messages of another broker: it is in use until they are answered."""
        if place.name not in self._places and place.over is None:
            self._places[place.name] = place
            place.over = lambda: self._over(place)

    def _over(self, place: PassthroughAddress) -> None:
        if not place.receivers and not place.senders:
            self._places.pop(place.name, None)
        place.over = None

    def look_whether_over(self, place: PassthroughAddress) -> None:
        """Remove a link; the last one removes the address."""
        if not place.receivers and not place.senders and not place.waiting:
            self._places.pop(place.name, None)


def _nearest(next_hop: NextHopPort) -> tuple[int, int]:
    return next_hop.cost, next_hop.unsettled


def _copy(
    passage: ForwardedDelivery, content: bytes | AnnotatedMessage | None
) -> bytes | AnnotatedMessage | StreamCursor:
    if content is not None:
        return content
    assert passage.arriving is not None
    return passage.arriving.copy()


def finish(passages: Sequence[ForwardedDelivery]) -> None:
    """Report the outcomes of messages whose receivers have all answered to the senders (C12)."""
    if not passages:
        return
    first = passages[0].sender
    if all(passage.sender is first for passage in passages):
        first.finish(passages)
        return
    by_sender: dict[SenderPort, list[ForwardedDelivery]] = {}
    for passage in passages:
        by_sender.setdefault(passage.sender, []).append(passage)
    for sender, its in by_sender.items():
        sender.finish(its)
