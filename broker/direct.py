"""Addresses that messages pass through without being stored, from the senders' links to the receivers' (C10, C11).

*Anycast*: each message goes to one receiver that has credit, of these to the one with the fewest unsettled. It waits
for credit, in the order of arrival, and its sender waits with it. *Multicast*: each message goes to all receivers there
are, to each in order, and the slowest of them sets the pace.

Such an address is routable while it has a receiver: then its senders have credit, which comes back with each settlement
(C15, C16). When the last receiver goes they keep what they have, since credit can't be taken back from who is using it;
what they spend it on is released, and comes back when there is a receiver again. Core only.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase
from heapq import heapify, heappop, heapreplace
from typing import TYPE_CHECKING

from ..amqp.parcel import Parcel
from ..amqp.proton import RELEASED
from ..channel.words import Cursor, Outcome
from .passing import Crossing, Passage

if TYPE_CHECKING:
    from .direct_receiver import DirectReceiver
    from .direct_sender import DirectSender
    from .way import Way

Passing = tuple[Passage, bytes | Parcel | Cursor]
"""A message, and the copy of it that one receiver gets."""


class Direct:
    """One such address."""

    def __init__(self, name: str, *, multicast: bool) -> None:
        self.name = name
        self.multicast = multicast
        self.receivers: list[DirectReceiver] = []
        self.senders: dict[DirectSender, None] = {}
        self.waiting: deque[Passing] = deque()
        """Of anycast: messages for which no receiver has credit."""
        self.ways: list[Way] = []
        """To receivers on other brokers."""
        self.receivers_changed: Callable[[Direct], None] | None = None
        """Hears when there is a first receiver, or none any more."""
        self.over: Callable[[], object] | None = None
        """Called when it is not in use any more, if it is not known by its links."""

    def __str__(self) -> str:
        return f"nothing is stored at {self.name!r}"

    @property
    def routable(self) -> bool:
        return bool(self.receivers or self.ways)

    def add(self, receiver: DirectReceiver) -> None:
        self.receivers.append(receiver)
        if len(self.receivers) == 1:
            if self.receivers_changed is not None:
                self.receivers_changed(self)
            if not self.ways:
                self._routable_again()

    def _routable_again(self) -> None:
        for sender in self.senders:
            sender.routable_again()

    def remove(self, receiver: DirectReceiver) -> None:
        if receiver not in self.receivers:
            return
        self.receivers.remove(receiver)
        if not self.receivers:
            if self.receivers_changed is not None:
                self.receivers_changed(self)
            self._look_at_waiting()

    def lead(self, ways: list[Way]) -> None:
        """These are its ways to other brokers now."""
        was_routable, self.ways = self.routable, ways
        if self.routable and not was_routable:
            self._routable_again()
        if not self.receivers:
            self._look_at_waiting()

    def _look_at_waiting(self) -> None:
        """There are no receivers here: what waits goes to another broker, or back."""
        if self.ways:
            self.hand_out()
        elif self.waiting:
            waiting, self.waiting = self.waiting, deque()
            finish([passage for passage, _ in waiting if passage.hear(Outcome(None, None, RELEASED))])

    def look_whether_over(self) -> None:
        """Of one that is not known by its links: it may not be in use any more."""
        idle = not self.waiting and not any(way.unsettled for way in self.ways)
        if self.over is not None and idle:
            self.over()

    def put(self, passages: Sequence[tuple[Passage, bytes | Parcel | None]]) -> None:
        """Messages came, whole, or the beginning of one that still comes in (None)."""
        if not self.receivers and not self.ways:
            finish([passage for passage, _ in passages])
        elif self.multicast and (self.ways or isinstance(passages[0][0], Crossing)):
            self._put_across(passages)
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

    def _put_across(self, passages: Sequence[tuple[Passage, bytes | Parcel | None]]) -> None:
        """Multicast: to all receivers here, and to all brokers that have some; of those that it is for."""
        finished: list[Passage] = []
        for passage, content in passages:
            ways = [(way, way.targets) for way in self.ways]
            if isinstance(passage, Crossing):  # each copy is for some of them only, so nobody gets it twice
                found = [(way, tuple(one for one in way.targets if one in passage.targets)) for way in self.ways]
                ways = [(way, targets) for way, targets in found if targets]
            passage.legs = len(self.receivers) + len(ways)
            if not passage.legs:
                finished.append(passage)
            for receiver in self.receivers:
                receiver.pending.append((passage, _copy(passage, content)))
            for way, targets in ways:
                if way.carry(passage, _copy(passage, content), targets):
                    finished.append(passage)
        for receiver in self.receivers:
            receiver.send_pending()
        for way in self.ways:
            way.neighbour.flush()
        finish(finished)

    def take_back(self, passage: Passage) -> None:
        """Its sender did not finish it: nobody gets it any more."""
        self.waiting = deque([one for one in self.waiting if one[0] is not passage])
        for receiver in self.receivers:
            receiver.pending = deque([one for one in receiver.pending if one[0] is not passage])
        for way in self.ways:
            way.take_back(passage)

    def hand_out(self) -> None:
        """Anycast: give what waits to receivers with credit."""
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
        """Nobody receives here: to the nearest brokers where somebody does, never back where a message has been."""
        waiting = self.waiting
        finished: list[Passage] = []
        used: dict[Way, None] = {}
        while waiting:
            passage, copy = waiting.popleft()
            ways = self.ways
            if isinstance(passage, Crossing):
                trace = passage.trace
                ways = [way for way in ways if way.neighbour.name not in trace]
            if not ways:
                if passage.hear(Outcome(None, None, RELEASED)):
                    finished.append(passage)
                continue
            way = min(ways, key=_nearest)
            used[way] = None
            if way.carry(passage, copy, way.targets):
                finished.append(passage)
        for way in used:
            way.neighbour.flush()
        finish(finished)

    def _share(self, ready: list[DirectReceiver]) -> dict[DirectReceiver, list[Passing]]:
        """Who gets which: always the one with the fewest unsettled, in turn where these are as many."""
        waiting = self.waiting
        room = {receiver: receiver.room() for receiver in ready}
        heap = [(receiver.unsettled, receiver.served, number, receiver) for number, receiver in enumerate(ready)]
        heapify(heap)
        shares: dict[DirectReceiver, list[Passing]] = {}
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


class DirectAddresses:
    """Which addresses are of that kind, and those that are in use."""

    def __init__(self, anycast: Sequence[str], multicast: Sequence[str]) -> None:
        """Patterns of names; what several fit is multicast only if no anycast pattern fits."""
        self._anycast = tuple(anycast)
        self._multicast = tuple(multicast)
        self._places: dict[str, Direct] = {}
        self._fill: Callable[[Direct], None] | None = None
        self._receivers_changed: Callable[[Direct], None] | None = None

    def watch(self, fill: Callable[[Direct], None], receivers_changed: Callable[[Direct], None]) -> None:
        """*fill* has a new one know its ways to other brokers; *receivers_changed*: as of `Direct`."""
        self._fill, self._receivers_changed = fill, receivers_changed

    def in_use(self) -> list[Direct]:
        return list(self._places.values())

    def find(self, name: str) -> Direct | None:
        """The address *name*, if it is one of these."""
        found = self._places.get(name)
        if found is not None:
            return found
        if any(fnmatchcase(name, pattern) for pattern in self._anycast):
            found = Direct(name, multicast=False)
        elif any(fnmatchcase(name, pattern) for pattern in self._multicast):
            found = Direct(name, multicast=True)
        if found is not None and self._fill is not None:
            found.receivers_changed = self._receivers_changed
            self._fill(found)
        return found

    def use(self, place: Direct) -> None:
        """Somebody has a link there now."""
        self._places[place.name] = place

    def hold(self, place: Direct) -> None:
        """Messages for it come from another broker: it is in use until they are answered."""
        if place.name not in self._places and place.over is None:
            self._places[place.name] = place
            place.over = lambda: self._over(place)

    def _over(self, place: Direct) -> None:
        if not place.receivers and not place.senders:
            self._places.pop(place.name, None)
        place.over = None

    def look_whether_over(self, place: Direct) -> None:
        """A link has gone; with the last one goes the place."""
        if not place.receivers and not place.senders and not place.waiting:
            self._places.pop(place.name, None)


def _nearest(way: Way) -> tuple[int, int]:
    return way.cost, way.unsettled


def _copy(passage: Passage, content: bytes | Parcel | None) -> bytes | Parcel | Cursor:
    if content is not None:
        return content
    assert passage.arriving is not None
    return passage.arriving.copy()


def finish(passages: Sequence[Passage]) -> None:
    """Nothing is awaited for these any more: tell their senders (C12)."""
    if not passages:
        return
    first = passages[0].sender
    if all(passage.sender is first for passage in passages):
        first.finish(passages)
        return
    by_sender: dict[DirectSender, list[Passage]] = {}
    for passage in passages:
        by_sender.setdefault(passage.sender, []).append(passage)
    for sender, its in by_sender.items():
        sender.finish(its)
