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
from collections.abc import Sequence
from fnmatch import fnmatchcase
from heapq import heapify, heappop, heapreplace
from typing import TYPE_CHECKING

from ..amqp.proton import RELEASED
from ..channel.words import Cursor, Outcome
from .passing import Passage

if TYPE_CHECKING:
    from .direct_receiver import DirectReceiver
    from .direct_sender import DirectSender

Passing = tuple[Passage, bytes | Cursor]
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

    def __str__(self) -> str:
        return f"nothing is stored at {self.name!r}"

    @property
    def routable(self) -> bool:
        return bool(self.receivers)

    def add(self, receiver: DirectReceiver) -> None:
        self.receivers.append(receiver)
        if len(self.receivers) == 1:
            for sender in self.senders:
                sender.routable_again()

    def remove(self, receiver: DirectReceiver) -> None:
        if receiver not in self.receivers:
            return
        self.receivers.remove(receiver)
        if not self.receivers and self.waiting:
            waiting, self.waiting = self.waiting, deque()
            finish([passage for passage, _ in waiting if passage.hear(Outcome(None, None, RELEASED))])

    def put(self, passages: Sequence[tuple[Passage, bytes | None]]) -> None:
        """Messages came, whole, or the beginning of one that still comes in (None)."""
        if not self.receivers:
            finish([passage for passage, _ in passages])
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

    def take_back(self, passage: Passage) -> None:
        """Its sender did not finish it: nobody gets it any more."""
        self.waiting = deque([one for one in self.waiting if one[0] is not passage])
        for receiver in self.receivers:
            receiver.pending = deque([one for one in receiver.pending if one[0] is not passage])

    def hand_out(self) -> None:
        """Anycast: give what waits to receivers with credit."""
        waiting = self.waiting
        if not waiting:
            return
        ready = [receiver for receiver in self.receivers if receiver.room() > 0]
        if len(ready) == 1:
            receiver = ready[0]
            count = min(receiver.room(), len(waiting))
            receiver.take([waiting.popleft() for _ in range(count)])
        elif ready:
            for receiver, messages in self._share(ready).items():
                receiver.take(messages)

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

    def find(self, name: str) -> Direct | None:
        """The address *name*, if it is one of these."""
        found = self._places.get(name)
        if found is not None:
            return found
        if any(fnmatchcase(name, pattern) for pattern in self._anycast):
            found = Direct(name, multicast=False)
        elif any(fnmatchcase(name, pattern) for pattern in self._multicast):
            found = Direct(name, multicast=True)
        return found

    def use(self, place: Direct) -> None:
        """Somebody has a link there now."""
        self._places[place.name] = place

    def look_whether_over(self, place: Direct) -> None:
        """A link has gone; with the last one goes the place."""
        if not place.receivers and not place.senders:
            self._places.pop(place.name, None)


def _copy(passage: Passage, content: bytes | None) -> bytes | Cursor:
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
