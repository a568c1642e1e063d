"""Queues on which order or choice depends on what is in the messages: priorities, last values, groups, one consumer.

All messages that can be taken stand in one heap by their positions, and a position begins with the priority, so the
heap's order is the order of delivery. What a plain queue keeps as 8 bytes in a backlog is an entry here, without its
content if memory is short: such a queue costs some 250 bytes for each message. After a start it reads all its messages
once, and hands out none before that is done.

*Last value*: a message takes the place of an older one with the same value, unless a consumer has that just now.
*Groups*: a group belongs to the consumer that got its first message, until that one leaves; while it has no credit, its
messages wait for it apart, in nobody's way.

In a cluster all members sort the same messages the same way, and find them by the order of arrival; which of them are
replaced is said by the one who decides. Core only.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from heapq import heapify, heappop, heappush, nsmallest
from itertools import chain
from typing import TYPE_CHECKING, Any

from ..amqp import header, sections
from ..amqp.codec import Malformed
from ..base.errors import CairnError
from ..store.why import Why
from .backlog import Page
from .entry import ARRIVAL_BITS, ARRIVAL_MASK, Entry, HeldContent
from .memory import ENTRY_BYTES
from .queue import Queue
from .takers import Taker

if TYPE_CHECKING:
    from .broker import Broker

HIGHEST = 9
"""Of priorities."""


class ShapedQueue(Queue):
    """One of them."""

    def __init__(self, broker: Broker, name: str, queue_id: int, arguments: Mapping[str, Any]) -> None:
        super().__init__(broker, name, queue_id, arguments)
        self._values: dict[str, Entry] = {}
        """Of each value the newest message."""
        self._value_of: dict[Entry, str] = {}
        self._group_of: dict[Entry, str] = {}
        self._owners: dict[str, Taker] = {}
        """Whose group it is."""
        self._parked: dict[Taker, list[Entry]] = {}
        """Heaps of messages that wait for the owner of their group."""
        self._stale: dict[Entry, None] = {}
        """Messages of which a newer one has the value."""
        self._by_arrival: dict[int, Entry] = {}
        """Of a replicated queue: all that were sorted."""
        if queue_id:
            broker.later(self._sort)

    @property
    def depth(self) -> int:
        return super().depth + sum(map(len, self._parked.values()))

    # ---- messages that come ---------------------------------------------------------------------------------------

    def _sort(self) -> None:
        """What was there when the store was opened takes its place, a page at a time."""
        if self.backlog.count and not self.is_reading and not self.gone:
            self.read_first(self._sorted)

    def _sorted(self, page: Page, entries: list[Entry], done: int) -> None:
        self.leave_out(page.cut(done), ())
        self.add(entries)
        self._sort()
        if not self.backlog.count:
            self._broker.touch(self)

    def add(self, entries: Sequence[Entry]) -> None:
        if not self.is_purged(entries[0]):
            self._add(entries)

    def _add(self, entries: Sequence[Entry]) -> None:
        early = {} if self.timing is None else self.timing.early(entries)
        for entry in entries:
            self._classify(entry)
            if not self.has_room() and entry.message_id and entry.content is not None:
                entry.content, entry.held_bytes = None, ENTRY_BYTES
            entry.beginning = b""
            if entry in early:
                continue
            self.hold(entry.held_bytes)
            if self.timing is not None:
                self.timing.watch((entry,))
            heappush(self.returned, entry)
            for selecting in self.selecting:
                selecting.look_again(entry)
        if early and self.timing is not None:
            self.timing.hold_up(early)
        self._drop_stale()

    def put_before(self, front: Sequence[Entry], end: int) -> None:
        if front:
            self._add(front)

    def leave_hole(self, position: int) -> None:
        """Nothing here is found by its place."""

    def _classify(self, entry: Entry) -> None:
        """Find its place, from what is in it; a message that can't be read right has none of all that."""
        policy = self.policy
        start = self._start_of(entry)
        if self.replicated:
            self._by_arrival[entry.position & ARRIVAL_MASK] = entry
        try:
            if policy.priorities:
                priority = min(header.parse(start).priority, HIGHEST)
                entry.position |= (HIGHEST - priority) << ARRIVAL_BITS
            if policy.message_groups:
                group = sections.properties(start, sections.find(start, sections.PROPERTIES)).group_id
                if group is not None:
                    self._group_of[entry] = group
            if policy.last_value_key:
                value = _value(start, policy.last_value_key)
                if value is not None:
                    self._replace(value, entry)
        except Malformed:
            pass

    def _start_of(self, entry: Entry) -> bytes:
        content = entry.content
        if isinstance(content, bytes):
            return content
        if isinstance(content, HeldContent):
            return content.piece(0)
        return getattr(entry, "beginning", b"")

    def _replace(self, value: str, entry: Entry) -> None:
        before = self._values.get(value)
        self._value_of[entry] = value
        if before is not None and before.position & ARRIVAL_MASK > entry.position & ARRIVAL_MASK:
            before, entry = entry, before
        self._values[value] = entry
        if before is not None and not before.gone and before is not entry:
            self._stale[before] = None

    def _drop_stale(self) -> None:
        """What was replaced goes, unless a consumer has it: then when it comes back."""
        if not self._stale or (self.replicated and not self.decides):
            return
        stale, self._stale = self._stale, {}
        if not self.replicated:
            for entry in stale:
                if not (entry.gone or self.is_held(entry)):
                    self._drop(entry)
            return
        cluster = self._broker.cluster
        assert cluster is not None
        out = [entry for entry in stale if not entry.gone and self._take_away(entry)]
        if out:
            cluster.take(self, out, Why.REPLACED, _nothing)

    def now_decides(self) -> None:
        super().now_decides()
        self._drop_stale()

    def _drop(self, entry: Entry) -> None:
        """A newer one has its value."""
        self.took([entry])
        if entry.message_id:
            now_us = self._broker.clock.wall_us()
            self._broker.store.dequeue(entry.message_id, self.queue_id, now_us, Why.REPLACED)

    def took(self, entries: Sequence[Entry]) -> None:
        super().took(entries)
        for entry in entries:
            self._group_of.pop(entry, None)
            value = self._value_of.pop(entry, None)
            if value is not None and self._values.get(value) is entry:
                del self._values[value]
            self._stale.pop(entry, None)
            self._by_arrival.pop(entry.position & ARRIVAL_MASK, None)

    def give_back(self, entry: Entry) -> None:
        if self.replicated and entry.position & ARRIVAL_MASK not in self._by_arrival:
            if entry.content is None and not getattr(entry, "beginning", b""):
                self.away[entry] = None
                self._broker.reader.load_beginnings([entry.message_id], lambda found: self._read_begun(entry, found[0]))
                return
            self._classify(entry)  # it went before it was shown here
        value = self._value_of.get(entry)
        is_stale = value is not None and self._values.get(value) is not entry
        if is_stale and not self.replicated:
            self._drop(entry)
            return
        self.watch(entry)
        heappush(self.returned, entry)
        for selecting in self.selecting:
            selecting.look_again(entry)
        if is_stale:
            self._stale[entry] = None
            self._drop_stale()

    def _read_begun(self, entry: Entry, found: bytes | CairnError) -> None:
        """How a message begins that comes back before it was sorted."""
        if entry.gone:
            return
        entry.beginning = found if isinstance(found, bytes) else b""
        self._classify(entry)
        if entry in self.away:
            del self.away[entry]
            self.give_back(entry)
            self._broker.touch(self)

    def pick(self, position: int) -> Entry | None:
        entry = self._by_arrival.get(position)
        if entry is None:
            self._forget_away(position)  # it waits to come back, and was never sorted
            found, self._was_away = self._was_away, None
            if found is None and self.backlog.count and position >= self.backlog.first:
                found = self._pick_backlog(position)
                self._broker.later(self._sort)  # what was being read of it may have to be read anew
            return found
        if entry in self.away:
            del self.away[entry]
            self._take_away(entry)
            return entry
        return entry if not entry.gone and self._take_away(entry) else None

    def _take_away(self, entry: Entry) -> bool:
        """Whether it was among those that nobody has; it is not any more."""
        return any(take_from_heap(heap, entry) for heap in (self.returned, *self._parked.values()))

    def parked(self) -> Iterable[Entry]:
        return chain.from_iterable(self._parked.values())

    def were_delivered(self, below: int) -> None:
        super().were_delivered(below)
        for entry in self.parked():
            entry.acquired = True
            entry.failures = max(1, entry.failures)

    def stands(self, entry: Entry) -> bool:
        return super().stands(entry) or any(entry in parked for parked in self._parked.values())

    def take_oldest(self) -> Entry | None:
        """Of the lowest priority."""
        waiting = [entry for entry in self.returned if not (entry.gone or entry in self.away)]
        if not waiting:
            return None
        oldest = max(waiting, key=lambda entry: (entry.position >> ARRIVAL_BITS, -entry.position))
        self.returned.remove(oldest)
        heapify(self.returned)
        return oldest

    def clear(self) -> int:
        for parked in self._parked.values():
            self.returned += parked
        self._parked.clear()
        count = super().clear()
        self._value_of = {entry: value for entry, value in self._value_of.items() if not entry.gone}
        self._group_of = {entry: group for entry, group in self._group_of.items() if not entry.gone}
        self._values = {value: entry for value, entry in self._values.items() if not entry.gone}
        self._stale = {entry: None for entry in self._stale if not entry.gone}
        self._by_arrival = {arrival: entry for arrival, entry in self._by_arrival.items() if not entry.gone}
        return count

    # ---- handing out ----------------------------------------------------------------------------------------------

    def is_reading_for(self, taker: Taker) -> bool:
        return self.backlog.count > 0 and taker.room() > 0

    def _read_ahead(self) -> None:
        """`_sort` reads."""

    def _dispatch_returned(self) -> None:
        if self.backlog.count:
            return
        self._forget_leavers()
        eligible = self.consumers[:1] if self.policy.single_active_consumer else list(self.consumers)
        rooms = {taker: taker.room() for taker in eligible}
        shares: dict[Taker, list[Entry]] = {taker: [] for taker in eligible}
        for taker, parked in self._parked.items():
            while parked and rooms.get(taker, 0) > len(shares[taker]):
                entry = heappop(parked)
                if not self._is_dead(entry):
                    shares[taker].append(entry)
        held: list[Entry] = []
        turn = 0
        while self.returned and any(rooms[taker] > len(shares[taker]) for taker in eligible):
            entry = heappop(self.returned)
            if self._is_dead(entry):
                continue
            owner = self._owners.get(self._group_of.get(entry, ""))
            if owner is not None and rooms.get(owner, 0) <= len(shares.get(owner, ())):
                heappush(self._parked.setdefault(owner, []), entry)
                continue
            choice = [owner] if owner is not None else eligible[turn:] + eligible[:turn]
            taker_found = next(
                (
                    taker
                    for taker in choice
                    if rooms[taker] > len(shares[taker]) and not (entry.excluded and taker in entry.excluded)
                ),
                None,
            )
            if taker_found is None:
                held.append(entry)
                continue
            shares[taker_found].append(entry)
            if entry in self._group_of:
                self._owners[self._group_of[entry]] = taker_found
            turn = (eligible.index(taker_found) + 1) % len(eligible)
        for entry in held:
            heappush(self.returned, entry)
        if turn and not self.policy.single_active_consumer:
            self.consumers[:] = eligible[turn:] + eligible[:turn]
        for taker, share in shares.items():
            if share:
                taker.take(share)

    def _is_dead(self, entry: Entry) -> bool:
        return entry.gone or entry in self.away

    def _forget_leavers(self) -> None:
        """Groups of consumers that have left belong to nobody, and what waited for them to all."""
        leavers = {owner for owner in (*self._owners.values(), *self._parked) if owner not in self.consumers}
        if not leavers:
            return
        self._owners = {group: owner for group, owner in self._owners.items() if owner not in leavers}
        for leaver in leavers:
            self.returned += self._parked.pop(leaver, [])
        heapify(self.returned)

    def in_memory(self, after: int, most: int) -> list[Entry]:
        waiting = [*self.returned, *self.parked()]
        return nsmallest(most, (entry for entry in waiting if entry.position > after and not self._is_dead(entry)))


def take_from_heap(heap: list[Entry], entry: Entry) -> bool:
    """Whether *entry* was in the heap, which it has left. Mostly it is one of the first."""
    try:
        at = heap.index(entry)
    except ValueError:
        return False
    last = heap.pop()
    if at == len(heap):
        return True
    while at and last < heap[(at - 1) // 2]:
        heap[at] = heap[(at - 1) // 2]
        at = (at - 1) // 2
    while (child := 2 * at + 1) < len(heap):
        if child + 1 < len(heap) and heap[child + 1] < heap[child]:
            child += 1
        if not heap[child] < last:
            break
        heap[at] = heap[child]
        at = child
    heap[at] = last
    return True


def _nothing() -> None:
    """Nobody waits to hear that a message was replaced."""


def _value(content: bytes, key: str) -> str | None:
    """The text of that application property, or of the subject."""
    if key == "subject":
        return sections.properties(content, sections.find(content, sections.PROPERTIES)).subject
    found = sections.application_properties(content, sections.find(content, sections.APPLICATION_PROPERTIES))
    value = found.get(key)
    return None if value is None else f"{type(value).__name__} {value}"
