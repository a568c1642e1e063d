"""The order of a sorted queue: by priority, and by last values, groups or a single consumer that depend on messages.

All available messages are in one heap by their positions, and a position begins with the priority, so the heap's order
is the order of delivery. A message that takes 8 bytes in the backlog of a plain queue is an entry here, without its
content if memory is short: such a queue needs some 250 bytes for each message. After a start it reads all its messages
once, and dispatches none before that.

*Last value*: a message replaces an older one with the same value, unless a consumer has that at present.

*Groups*: a group belongs to the consumer that got its first message, until that one is closed. While it has no credit,
the messages of the group wait for it separately, and do not block others.

In a cluster all members sort the same messages the same way, and find them by the order of arrival; the decider
determines which of them are replaced. Core only.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from heapq import heapify, heappop, heappush
from itertools import chain

from ...amqp.codec import header, sections
from ...amqp.codec.primitives import Malformed
from ...base.errors import CairnError
from ...store.contract.dequeue_reason import DequeueReason
from ..kernel.context import CoreContext
from ..kernel.memory_budget import ENTRY_BYTES
from ..messages.backlog import Page
from ..messages.entry import ARRIVAL_BITS, ARRIVAL_MASK, Entry, HeldContent
from .contents import QueueContents
from .ports import ContentsOwner, QueueConsumer

HIGHEST = 9
"""The highest priority; higher ones count as this one."""


class SortedOrder:
    """The order of the messages of a sorted queue, and the choice of their consumers."""

    is_sorted = True

    def __init__(self, core: CoreContext, queue: ContentsOwner, contents: QueueContents) -> None:
        self._core = core
        self._queue = queue
        self._contents = contents
        self._values: dict[str, Entry] = {}
        """The newest message of each value."""
        self._value_of: dict[Entry, str] = {}
        self._group_of: dict[Entry, str] = {}
        self._owners: dict[str, QueueConsumer] = {}
        """The consumer that owns each group."""
        self._parked: dict[QueueConsumer, list[Entry]] = {}
        """Heaps of messages that wait for the owner of their group."""
        self._stale: dict[Entry, None] = {}
        """Messages that a newer one with the same value replaced."""
        self._by_arrival: dict[int, Entry] = {}
        """All sorted messages of a replicated queue, by arrival."""
        if queue.queue_id:
            core.post(self._sort)

    @property
    def parked_count(self) -> int:
        return sum(map(len, self._parked.values()))

    def parked(self) -> Iterable[Entry]:
        return chain.from_iterable(self._parked.values())

    def is_away(self, entry: Entry) -> bool:
        return entry.is_dequeued or entry in self._contents.delayed

    # ---- arrivals -------------------------------------------------------------------------------------------------

    def _sort(self) -> None:
        """Sort the messages that were stored when the store was opened, a page at a time."""
        contents = self._contents
        if contents.backlog.count and not contents.reader.is_reading and not self._queue.is_deleted:
            contents.reader.read_first(self._sorted)

    def _sorted(self, page: Page, entries: list[Entry], done: int) -> None:
        contents = self._contents
        contents.reader.leave_out(page.cut(done), ())
        if entries:  # else none of the page can be read
            self.add(entries)
        self._sort()
        if not contents.backlog.count:
            self._queue.trim()
            self._core.schedule_dispatch(self._queue)

    def add(self, entries: Sequence[Entry]) -> None:
        if entries[0].position >= self._contents.purged_below:
            self._add(entries)

    def _add(self, entries: Sequence[Entry]) -> None:
        contents = self._contents
        expiry, memory = contents.expiry, contents.memory
        early = {} if expiry is None else expiry.early(entries)
        for entry in entries:
            self._classify(entry)
            if not memory.has_room() and entry.message_id and entry.content is not None:
                entry.content, entry.held_bytes = None, ENTRY_BYTES
            entry.first_bytes = b""
            if entry in early:
                continue
            memory.hold(entry.held_bytes)
            if expiry is not None:
                expiry.watch((entry,))
            heappush(contents.returned, entry)
            for selecting in contents.selecting:
                selecting.look_again(entry)
        if early and expiry is not None:
            expiry.hold_up(early)
        self._drop_stale()

    def put_before(self, front: Sequence[Entry], end: int) -> None:
        if front:
            self._add(front)

    def leave_hole(self, position: int) -> None:
        """Do nothing, as sorted messages are not found by their places."""

    def _classify(self, entry: Entry) -> None:
        """Set the priority, group and value of a message from its content; a malformed message has none of them."""
        policy = self._queue.policy
        start = self._start_of(entry)
        if self._queue.order.finds_by_position:
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
        return getattr(entry, "first_bytes", b"")

    def _replace(self, value: str, entry: Entry) -> None:
        before = self._values.get(value)
        self._value_of[entry] = value
        if before is not None and before.position & ARRIVAL_MASK > entry.position & ARRIVAL_MASK:
            before, entry = entry, before
        self._values[value] = entry
        if before is not None and not before.is_dequeued and before is not entry:
            self._stale[before] = None

    def _drop_stale(self) -> None:
        """Dequeue replaced messages, or those that a consumer has when they are requeued."""
        if not self._stale or not self._queue.is_owner:
            return
        stale, self._stale = self._stale, {}
        self._queue.order.drop_free([*stale], DequeueReason.REPLACED, self._take_away)

    def now_decides(self) -> None:
        self._drop_stale()

    def note_dequeued(self, entries: Sequence[Entry]) -> None:
        for entry in entries:
            self._group_of.pop(entry, None)
            value = self._value_of.pop(entry, None)
            if value is not None and self._values.get(value) is entry:
                del self._values[value]
            self._stale.pop(entry, None)
            self._by_arrival.pop(entry.position & ARRIVAL_MASK, None)

    def give_back(self, entry: Entry) -> None:
        if self._queue.order.finds_by_position and entry.position & ARRIVAL_MASK not in self._by_arrival:
            if entry.content is None and not getattr(entry, "first_bytes", b""):
                self._contents.delayed[entry] = None
                self._core.loader.load_beginnings([entry.message_id], lambda found: self._read_begun(entry, found[0]))
                return
            self._classify(entry)  # it was dequeued before it was shown here
        value = self._value_of.get(entry)
        is_stale = value is not None and self._values.get(value) is not entry
        if is_stale and self._queue.order.drop_returned(entry, DequeueReason.REPLACED):
            return
        self._contents.watch(entry)
        heappush(self._contents.returned, entry)
        for selecting in self._contents.selecting:
            selecting.look_again(entry)
        if is_stale:
            self._stale[entry] = None
            self._drop_stale()

    def _read_begun(self, entry: Entry, found: bytes | CairnError) -> None:
        """Sort a requeued message by its beginning, which is loaded now."""
        if entry.is_dequeued:
            return
        entry.first_bytes = found if isinstance(found, bytes) else b""
        self._classify(entry)
        if entry in self._contents.delayed:
            del self._contents.delayed[entry]
            self.give_back(entry)
            self._core.schedule_dispatch(self._queue)

    def pick(self, position: int) -> Entry | None:
        entry = self._by_arrival.get(position)
        if entry is None:
            found = self._contents.take_delayed(position)  # its requeue is pending, and it was never sorted
            if found is None and self._contents.backlog.count and position >= self._contents.backlog.first:
                found = self._contents.take_from_backlog(position)
                self._core.post(self._sort)  # messages of the interrupted read may have to be read again
            return found
        if entry in self._contents.delayed:
            del self._contents.delayed[entry]
            self._take_away(entry)
            return entry
        return entry if not entry.is_dequeued and self._take_away(entry) else None

    def _take_away(self, entry: Entry) -> bool:
        """Remove a message that no consumer has; return whether it was waiting."""
        return any(take_from_heap(heap, entry) for heap in (self._contents.returned, *self._parked.values()))

    def take_oldest(self) -> Entry | None:
        """Remove and return the oldest message of the lowest priority, or None."""
        waiting = [one for one in self._contents.returned if not (one.is_dequeued or one in self._contents.delayed)]
        if not waiting:
            return None
        oldest = max(waiting, key=lambda entry: (entry.position >> ARRIVAL_BITS, -entry.position))
        self._contents.returned.remove(oldest)
        heapify(self._contents.returned)
        return oldest

    def dispose(self, kept: Sequence[Entry], user: str) -> None:
        disposal, values = self._core.disposal, self._values
        disposal.add(*self._parked.values(), user=user)
        self._parked = {}
        if self._queue.order.finds_by_position:  # members that have its messages report which are kept
            self._value_of = {entry: value for entry, value in self._value_of.items() if not entry.is_dequeued}
            self._group_of = {entry: group for entry, group in self._group_of.items() if not entry.is_dequeued}
            self._values = {value: entry for value, entry in values.items() if not entry.is_dequeued}
            self._stale = {entry: None for entry in self._stale if not entry.is_dequeued}
            self._by_arrival = {arrival: entry for arrival, entry in self._by_arrival.items() if not entry.is_dequeued}
            return
        value_of, group_of, stale = self._value_of, self._group_of, self._stale
        self._value_of = {entry: value_of.pop(entry) for entry in kept if entry in value_of}
        self._group_of = {entry: group_of.pop(entry) for entry in kept if entry in group_of}
        self._stale = {entry: None for entry in kept if stale.pop(entry, self) is None}
        self._values = {
            value: values.pop(value) for entry, value in self._value_of.items() if values.get(value) is entry
        }
        disposal.add(value_of, group_of, stale, values, user=user)

    # ---- dispatch -------------------------------------------------------------------------------------------------

    def is_reading_for(self, taker: QueueConsumer) -> bool:
        return self._contents.backlog.count > 0 and taker.room() > 0

    def read_ahead(self) -> None:
        """Do nothing, as `_sort` reads the backlog."""

    def dispatch_returned(self, consumers: list[QueueConsumer]) -> bool:
        contents = self._contents
        if contents.backlog.count:
            return not contents.returned
        self._forget_leavers(consumers)
        is_single = self._queue.policy.single_active_consumer
        eligible = consumers[:1] if is_single else list(consumers)
        shares = _Shares(eligible)
        self._share_parked(shares)
        held: list[Entry] = []
        turn = 0
        while contents.returned and shares.has_any_room():
            entry = heappop(contents.returned)
            if self.is_away(entry):
                continue
            group = self._group_of.get(entry)
            owner = None if group is None else self._owners.get(group)
            if owner is not None and not shares.has_room(owner):
                heappush(self._parked.setdefault(owner, []), entry)
                continue
            taker = shares.first_taker([owner] if owner is not None else eligible[turn:] + eligible[:turn], entry)
            if taker is None:
                held.append(entry)
                continue
            shares.add(taker, entry)
            if group is not None:
                self._owners[group] = taker
            turn = (eligible.index(taker) + 1) % len(eligible)
        for entry in held:
            heappush(contents.returned, entry)
        if turn and not is_single:
            consumers[:] = eligible[turn:] + eligible[:turn]
        shares.dispatch()
        return not contents.returned

    def _share_parked(self, shares: _Shares) -> None:
        """Dispatch messages that wait for the owners of their groups, as far as these have room."""
        for owner, parked in self._parked.items():
            while parked and shares.has_room(owner):
                entry = heappop(parked)
                if not self.is_away(entry):
                    shares.add(owner, entry)

    def _forget_leavers(self, consumers: Sequence[QueueConsumer]) -> None:
        """Release the groups of closed consumers, and requeue the messages that waited for them."""
        leavers = {owner for owner in (*self._owners.values(), *self._parked) if owner not in consumers}
        if not leavers:
            return
        self._owners = {group: owner for group, owner in self._owners.items() if owner not in leavers}
        for leaver in leavers:
            self._contents.returned += self._parked.pop(leaver, [])
        heapify(self._contents.returned)


class _Shares:
    """The messages that each consumer gets in one dispatch."""

    def __init__(self, consumers: Sequence[QueueConsumer]) -> None:
        self._rooms = {consumer: consumer.room() for consumer in consumers}
        self._shares: dict[QueueConsumer, list[Entry]] = {consumer: [] for consumer in consumers}

    def has_room(self, consumer: QueueConsumer) -> bool:
        return self._rooms.get(consumer, 0) > 0

    def has_any_room(self) -> bool:
        return any(room > 0 for room in self._rooms.values())

    def first_taker(self, consumers: Sequence[QueueConsumer], entry: Entry) -> QueueConsumer | None:
        """Return the first of *consumers* that has room, and is not excluded from the message."""
        for consumer in consumers:
            if self._rooms[consumer] > 0 and not (entry.excluded and consumer in entry.excluded):
                return consumer
        return None

    def add(self, consumer: QueueConsumer, entry: Entry) -> None:
        self._rooms[consumer] -= 1
        self._shares[consumer].append(entry)

    def dispatch(self) -> None:
        for consumer, share in self._shares.items():
            if share:
                consumer.take(share)


def take_from_heap(heap: list[Entry], entry: Entry) -> bool:
    """Remove *entry* from *heap*; return whether it was in it. Mostly it is one of the first."""
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


def _value(content: bytes, key: str) -> str | None:
    """Return the type and text of application property *key*, or the text of the subject; None if it is missing."""
    if key == "subject":
        return sections.properties(content, sections.find(content, sections.PROPERTIES)).subject
    found = sections.application_properties(content, sections.find(content, sections.APPLICATION_PROPERTIES))
    value = found.get(key)
    return None if value is None else f"{type(value).__name__} {value}"
