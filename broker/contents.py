"""What is on a queue.

Order is by position. A message that comes back keeps its position and so goes out again before all later ones. Only
what is durable is on the queue: the broker puts a batch here when the flush that holds it is done.

A queue has three parts, in this order: `returned`, what came back; `ready`, held in memory; `backlog`, of which only
ids are. What comes goes to `ready` as long as there is no backlog and memory is left for it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from copy import copy
from heapq import heapify, heappop, heappush, nsmallest
from itertools import count, groupby, islice
from typing import TYPE_CHECKING, Any

import numpy as np

from ..base.errors import CairnError
from .backlog import Backlog, Page
from .entry import Entry
from .failures import FailureCounts
from .gate import Gate
from .memory import ALLOWANCE_BYTES, ENTRY_BYTES
from .policy import policy_of
from .reading import BATCH_MESSAGES
from .takers import Holder, Looker, Selecting, Taker
from .timing import Timing

if TYPE_CHECKING:
    from .broker import Broker

Driver = Any
"""Of a producer; the queue only knows that it is there."""


class Contents:
    """Of one queue. Core only."""

    def __init__(self, broker: Broker, name: str, queue_id: int, arguments: Mapping[str, Any]) -> None:
        """*arguments* say its policy. Raises `StoreError` if they are not right."""
        self.name = name
        self.queue_id = queue_id
        """The wiring's id; 0 for a queue that is not durable."""
        self.arguments = arguments
        self.policy = policy_of(name, arguments)
        self.gate: Gate | None = None
        """Looks at messages before they are taken, if the policy asks for that."""
        self.counts: FailureCounts | None = None
        """What its messages have failed, on the disk, if that is limited here."""
        self.maker: object = None
        """The driver it goes away with, if it was made for one channel."""
        self.owner: object = None
        """The connection it goes away with."""
        self.private = False
        """Only its owner may read it."""
        self.messages = 0
        """On the queue, those that consumers have and those that are not durable yet included."""
        self.taken = 0
        """Messages that were taken off it for good since the broker started."""
        self.dead_lettered = 0
        """Those of them that were rejected, or delivered too often."""
        self.expired = 0
        """Those of them whose time was over."""
        self.bindings = 0
        """How many lead here."""
        self._recovered = 0
        self.waiting = 0
        """Batches that are not durable yet: what comes behind them must wait too."""
        self.ready: deque[Entry] = deque()
        self.returned: list[Entry] = []
        """A heap of messages that came back: all of them stand before `ready`."""
        self.backlog = Backlog()
        self.held_bytes = 0
        """What all messages of this queue that are in memory count for, those that consumers have included."""
        self.away: dict[Entry, None] = {}
        """Messages that wait to come back, or are being moved to another address."""
        self._was_away: Entry | None = None
        self.locked: dict[Entry, None] = {}
        """Messages that open transactions take off."""
        self.draining: dict[Taker, None] = {}
        """Consumers that want what there is, now: they wait for what is being read."""
        self.consumers: list[Taker] = []
        self.browsers: list[Looker] = []
        """All who look for themselves: browsers, and consumers that select."""
        self.selecting: list[Selecting] = []
        """Those of them that take messages."""
        self.leavers: dict[Holder, None] = {}
        """Consumers that have gone, and messages on their way to them have not come back yet."""
        self.producers: dict[Driver, None] = {}
        self.was_linked = self.was_filled = False
        """There was a link, or a message, since the broker started; kept if the queue goes by itself."""
        self.positions = count(1)
        self.replicated = False
        """All members of a cluster have it: what happens to its messages is the cluster's to order."""
        self.stopped = False
        """Another member of the cluster hands out its messages, or none does just now."""
        self.decides = True
        """Here it is decided which messages are over, or too many."""
        self.delivered_below = broker.reader.recovered_below
        """Messages on the disk with smaller ids may have been handed out before: nobody can tell any more."""
        self.going = False
        """It is being deleted: nothing is put here any more."""
        self.when_gone: list[Callable[[], None]] = []
        """What waits for that."""
        self.gone = False
        self.timing: Timing | None = None
        """The clockwork, once there was a message with a time."""
        self._broker = broker
        self._memory = broker.memory
        self._reader = broker.reader
        self._reading: Page | None = None
        """The part of the backlog that is being read."""
        self._purged_below = 0
        """Messages at positions below it went before they were shown."""
        self.reading_end = 0
        """Behind its last position: nothing before that is taken out of the backlog meanwhile."""
        self._mark = BATCH_MESSAGES
        """The next batch is read when fewer messages than this are ready: as many as the last one had."""

    @property
    def depth(self) -> int:
        """Messages that can be taken now, or once they are read."""
        return len(self.ready) + len(self.returned) + self.backlog.count - self.backlog.holes

    @property
    def taker_count(self) -> int:
        """Consumers, those that select included."""
        return len(self.consumers) + len(self.selecting)

    @property
    def put(self) -> int:
        """Messages that were put here since the broker started."""
        return self.messages + self.taken - self._recovered

    # ---- memory ---------------------------------------------------------------------------------------------------

    @property
    def _allowance_bytes(self) -> int:
        return ALLOWANCE_BYTES - self.held_bytes if self.consumers else 0

    def has_room(self) -> bool:
        """Whether content that can be read back may be held."""
        return self.held_bytes < self._memory.free_bytes or self._allowance_bytes > 0

    def may_read(self) -> bool:
        """Whether the next batch may be read. What is in memory behind it must not keep it out for ever."""
        before_it = self.held_bytes - self.backlog.held_bytes
        return self.has_room() or bool(self.draining) or (bool(self.consumers) and before_it < ALLOWANCE_BYTES)

    def spare_bytes(self) -> int:
        """How much may be held that can't be read back."""
        return max(self._memory.free_bytes, self._allowance_bytes)

    def hold(self, size_bytes: int) -> None:
        """Count what this queue holds from now on, until `let_go`; a queue that is gone holds nothing."""
        if not self.gone:
            self.held_bytes += size_bytes
            self._memory.used_bytes += size_bytes

    def let_go(self, size_bytes: int) -> None:
        if not self.gone:
            self.held_bytes -= size_bytes
            self._memory.used_bytes -= size_bytes

    def took(self, entries: Sequence[Entry]) -> None:
        """These are off the queue for good."""
        self.messages -= len(entries)
        self.taken += len(entries)
        self.let_go(sum([entry.held_bytes for entry in entries]))
        for entry in entries:
            entry.gone = True
        if self.gate is not None:
            self.gate.took(entries)
        if self.counts is not None:
            self.counts.took(entries)

    def end(self) -> None:
        """The queue is gone, with all that is on it."""
        self.let_go(self.held_bytes)
        self.going = self.gone = True
        self._reading = None
        for entry in (*self.ready, *self.returned, *self.away, *self.with_consumers()):
            entry.gone = True

    # ---- messages -------------------------------------------------------------------------------------------------

    def recovered(self, ids: Sequence[int]) -> None:
        """What was on the queue when the store was opened."""
        self.messages = self._recovered = len(ids)
        if self.gate is not None:
            self.gate.recovered(ids)
        self.backlog.extend(1, ids)
        self.positions = count(1 + len(ids))

    def add(self, entries: Sequence[Entry]) -> None:
        """New messages, durable now if they are to be."""
        if self.is_purged(entries[0]):
            return
        backlog, timing = self.backlog, self.timing
        early: dict[Entry, None] = {}
        if timing is not None:
            early = timing.early(entries)
            timing.hold_up(early)
        if not backlog.count and self.has_room():
            self._admit([entry for entry in entries if entry not in early] if early else entries)
            return
        # what comes while the last of the backlog is being read stays in memory, or it would never end under traffic
        keep = 0 < backlog.stored <= BATCH_MESSAGES and self.has_room()
        for (is_early, held), group in groupby(entries, lambda entry: (entry in early, keep or not entry.message_id)):
            alike = list(group)
            if is_early:
                for entry in alike:
                    backlog.leave_hole(entry.position)
            elif not held:
                backlog.extend(alike[0].position, [entry.message_id for entry in alike])
                if timing is not None:
                    timing.watch_stored(alike)
            elif backlog.count:
                for entry in alike:
                    backlog.hold(entry)
                self.hold(sum([entry.held_bytes for entry in alike]))
            else:
                self._admit(alike)

    def is_purged(self, entry: Entry) -> bool:
        """Whether it went before it was shown, and all that came with it."""
        return entry.position < self._purged_below

    def _admit(self, entries: Sequence[Entry]) -> None:
        self.ready.extend(entries)
        self.hold(sum([entry.held_bytes for entry in entries]))
        if self.timing is not None:
            self.timing.watch(entries)

    def give_back(self, entry: Entry) -> None:
        """It is not wanted after all: back to where it was, before all or in the middle."""
        position = entry.position
        self.watch(entry)
        if self.backlog.first <= position < self.backlog.first + self.backlog.count:
            self.backlog.put_back(entry)
        elif self.ready and position > self.ready[0].position:
            self.ready.insert(self.ready_after(position), entry)
        else:
            heappush(self.returned, entry)
        for selecting in self.selecting:
            selecting.look_again(entry)

    def take_out(self, entry: Entry) -> Entry | None:
        """Take a message from wherever it is now, unless somebody else has; it may be another object by then."""
        position = entry.position
        place = self.ready_after(position) - 1
        if place >= 0 and self.ready[place].position == position:
            there = self.ready[place]
            del self.ready[place]
            return there
        if self.backlog.count and position >= self.backlog.first:
            found, held = self.backlog.take_out(position)
            if found and held is None:
                self.hold(entry.held_bytes)
                return entry
            return held
        if entry not in self.returned:
            return None
        self.returned.remove(entry)
        heapify(self.returned)
        return entry

    def take_stored(self, message_ids: Collection[int]) -> list[Entry]:
        """Take messages that were there when the broker started out of the backlog: somebody has had them since."""
        page = self.backlog.page(self.backlog.first - 1, self.backlog.count)
        wanted = np.fromiter(message_ids, np.uint64)
        entries: list[Entry] = []
        for place in np.flatnonzero(np.isin(np.frombuffer(page.ids, np.uint64), wanted)).tolist():
            entry = Entry(page.ids[place], page.first + place, None, ENTRY_BYTES)
            self.mark(entry)
            self.backlog.take_out(entry.position)
            self.hold(entry.held_bytes)
            entries.append(entry)
        return entries

    def ready_after(self, position: int) -> int:
        """The place in `ready` of the first message behind *position*."""
        return bisect_right(self.ready, position, key=lambda entry: entry.position)

    def take_oldest(self) -> Entry | None:
        """The first message that nobody has; it is among the others no longer."""
        for pop in (self._pop_returned, self._pop_ready):
            while (entry := pop()) is not None:
                if not (entry.gone or entry in self.away):
                    return entry
        if not self.backlog.count or self._reading is not None:
            return None
        page = self.backlog.page(self.backlog.first - 1, 1)
        self.backlog.drop(page)
        return page.held.get(page.first) or Entry(page.ids[0], page.first, None, 0)

    def _pop_returned(self) -> Entry | None:
        return heappop(self.returned) if self.returned else None

    def _pop_ready(self) -> Entry | None:
        return self.ready.popleft() if self.ready else None

    def stands(self, entry: Entry) -> bool:
        """Whether it is among those in memory that nobody has."""
        place = self.ready_after(entry.position) - 1
        return (place >= 0 and self.ready[place] is entry) or entry in self.returned

    def clear(self) -> int:
        """All messages that nobody has are gone; those that are not durable yet, as soon as they are."""
        count = self.messages
        kept = self.with_consumers()
        held_bytes = sum([entry.held_bytes for entry in kept])
        for entry in (*self.ready, *self.returned, *self.away):
            entry.gone = True
        self.ready.clear()
        self.returned.clear()
        self.away.clear()
        self.backlog = Backlog()
        self._purged_below = next(copy(self.positions))
        self._reading = None
        self.reading_end = 0
        self.messages = len(kept)
        self.taken += count - len(kept)
        self.let_go(self.held_bytes - held_bytes)
        if self.gate is not None:
            self.gate.emptied()
        if self.counts is not None:
            self.counts.emptied(kept)
        return count - len(kept)

    def is_held(self, entry: Entry) -> bool:
        """Whether a consumer has it, or a transaction takes it off."""
        return any(entry in unsettled for unsettled in self._unsettled())

    def with_consumers(self) -> list[Entry]:
        """The messages that consumers have, and those that transactions take off."""
        return [entry for unsettled in self._unsettled() for entry in unsettled]

    def _unsettled(self) -> list[dict[Entry, None]]:
        holders: tuple[Holder, ...] = (*self.consumers, *self.selecting, *self.leavers)
        return [self.locked, *[holder.unsettled for holder in holders]]

    def forget(self, entries: Sequence[Entry]) -> None:
        """Consumers have these, and what they say of them has no effect any more."""
        for unsettled in self._unsettled():
            for entry in entries:
                unsettled.pop(entry, None)

    def watch(self, entry: Entry) -> None:
        """It is in memory, and may expire there."""
        if self.timing is not None:
            self.timing.watch((entry,))

    def is_timely(self, entry: Entry) -> bool:
        """Whether it may be handed out now."""
        return self.timing is None or self.timing.is_timely(entry)

    def mark(self, entry: Entry) -> None:
        """It was there when the store was opened: whether it had been handed out is not known, so say that it was."""
        entry.acquired = True
        if self.replicated:
            entry.failures = 1
        else:  # what did not happen must not end it, not even if a limit comes later
            entry.failures, entry.least_shown = 0 if self.counts is None else self.counts.of(entry.message_id), 1

    def failed(self, entry: Entry) -> bool:
        """A delivery of it has failed; whether that was once too often."""
        entry.failures += 1
        is_over = 0 < self.policy.max_deliveries <= entry.failures
        if self.counts is not None and self.policy.max_deliveries and not is_over:
            self.counts.failed(entry)
        return is_over

    def put_aside(self, entry: Entry, why: CairnError) -> None:
        """It can't be read: it stays in the store, for the next start to try again, and holds nobody up."""
        self._reader.report(self.name, entry.message_id, why)
        entry.gone = True
        self.let_go(entry.held_bytes)

    # ---- looking --------------------------------------------------------------------------------------------------

    def in_memory(self, after: int, most: int) -> list[Entry]:
        """What can be seen now of the messages before the backlog with positions above *after*, in order: a part."""
        found = nsmallest(most, (entry for entry in self.returned if entry.position > after))
        if len(found) < most and self.ready and self.ready[-1].position > after:
            start = self.ready_after(after)
            found += islice(self.ready, start, start + most - len(found))
        return found
