"""Queues on which order or choice depends on what is in the messages: priorities, last values, groups, one consumer.

All messages that can be taken stand in one heap by their positions, and a position begins with the priority, so the
heap's order is the order of delivery. What a plain queue keeps as 8 bytes in a backlog is an entry here, without its
content if memory is short: such a queue costs some 250 bytes for each message. After a start it reads all its messages
once, and hands out none before that is done.

*Last value*: a message takes the place of an older one with the same value, unless a consumer has that just now.
*Groups*: a group belongs to the consumer that got its first message, until that one leaves; while it has no credit, its
messages wait for it apart, in nobody's way. Core only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from heapq import heapify, heappop, heappush, nsmallest
from typing import TYPE_CHECKING, Any

from ..amqp import header, sections
from ..amqp.codec import Malformed
from .backlog import Page
from .entry import ARRIVAL_BITS, Entry, HeldContent
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
        if self.is_purged(entries[0]):
            return
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

    def _classify(self, entry: Entry) -> None:
        """Find its place, from what is in it; a message that can't be read right has none of all that."""
        policy = self.policy
        start = self._start_of(entry)
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
        self._values[value] = entry
        self._value_of[entry] = value
        if before is not None and not before.gone and not self.is_held(before):
            self._drop(before)

    def _drop(self, entry: Entry) -> None:
        """A newer one has its value."""
        self.took([entry])
        if entry.message_id:
            self._broker.store.dequeue(entry.message_id, self.queue_id, self._broker.clock.wall_us())

    def took(self, entries: Sequence[Entry]) -> None:
        super().took(entries)
        for entry in entries:
            self._group_of.pop(entry, None)
            value = self._value_of.pop(entry, None)
            if value is not None and self._values.get(value) is entry:
                del self._values[value]

    def give_back(self, entry: Entry) -> None:
        value = self._value_of.get(entry)
        if value is not None and self._values.get(value) is not entry:
            self._drop(entry)
            return
        self.watch(entry)
        heappush(self.returned, entry)
        for selecting in self.selecting:
            selecting.look_again(entry)

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
        held = set(self.with_consumers())
        self._value_of = {entry: value for entry, value in self._value_of.items() if entry in held}
        self._group_of = {entry: group for entry, group in self._group_of.items() if entry in held}
        self._values = {value: entry for value, entry in self._values.items() if entry in held}
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
        waiting = [*self.returned, *(entry for parked in self._parked.values() for entry in parked)]
        return nsmallest(most, (entry for entry in waiting if entry.position > after and not self._is_dead(entry)))


def _value(content: bytes, key: str) -> str | None:
    """The text of that application property, or of the subject."""
    if key == "subject":
        return sections.properties(content, sections.find(content, sections.PROPERTIES)).subject
    found = sections.application_properties(content, sections.find(content, sections.APPLICATION_PROPERTIES))
    value = found.get(key)
    return None if value is None else f"{type(value).__name__} {value}"
