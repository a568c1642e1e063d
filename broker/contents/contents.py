"""The messages on a queue: where each of them stands. An order object decides where new and requeued ones go.

Only durable messages are on the queue: a batch is added when its flush is done.

| part, in order | messages |
|---|---|
| `returned` | requeued ones; all that are in memory, if the queue is sorted |
| `ready` | held in memory |
| `backlog` | on the disk only, by their IDs; a few are held |
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Collection, Sequence
from heapq import heapify, nsmallest
from itertools import islice

import numpy as np

from ...base.errors import CairnError
from ..kernel.context import CoreContext
from ..kernel.memory_budget import ENTRY_BYTES
from ..kernel.queue_memory import QueueMemory
from ..messages.backlog import Backlog
from ..messages.entry import Entry
from .backlog_reader import BacklogReader
from .expiry import Expiry
from .ports import ContentsOwner, FilteringConsumer, MessageOrder


class QueueContents:
    """The messages of one queue that no consumer has. Core only."""

    def __init__(
        self,
        core: CoreContext,
        queue: ContentsOwner,
        memory: QueueMemory,
        selecting: Sequence[FilteringConsumer],
        make_order: OrderFactory,
    ) -> None:
        """*selecting*: the consumers of the queue that filter."""
        self.ready: deque[Entry] = deque()
        self.returned: list[Entry] = []
        """A heap of requeued messages, which precede `ready`."""
        self.backlog = Backlog()
        self.delayed: dict[Entry, None] = {}
        """Messages whose requeue is delayed, or that are being moved to another address."""
        self.delivered_below = core.loader.recovered_below
        """Messages on the disk with smaller IDs may have been delivered before the start, which is not recorded."""
        self.expiry: Expiry | None = None
        """The expiry of its messages, once there was a message with a time."""
        self.memory = memory
        self.selecting = selecting
        self.reader = BacklogReader(core.loader, core.store, queue, self)
        self.purged_below = 0
        """The position below which a purge removed messages before they were shown."""
        self._core = core
        self._queue = queue
        self.order = make_order(queue, self)
        self.add = self.order.add
        self.give_back = self.order.give_back
        self.is_away = self.order.is_away

    @property
    def depth(self) -> int:
        """The number of messages in memory and in the backlog, without those that are delayed."""
        return len(self.ready) + len(self.returned) + self.backlog.count - self.backlog.holes + self.order.parked_count

    def take_out(self, entry: Entry) -> Entry | None:
        """Take a message from its current place; return its entry, perhaps another object, or None if it has left."""
        position = entry.position
        place = self.ready_after(position) - 1
        if place >= 0 and self.ready[place].position == position:
            there = self.ready[place]
            del self.ready[place]
            return there
        if self.backlog.count and position >= self.backlog.first:
            found, held = self.backlog.take_out(position)
            if found and held is None:
                self.memory.hold(entry.held_bytes)
                return entry
            return held
        if entry not in self.returned:
            return None
        self.returned.remove(entry)
        heapify(self.returned)
        return entry

    def take_stored(self, message_ids: Collection[int]) -> list[Entry]:
        """Take messages out of the backlog that were stored before the broker started and were delivered since."""
        page = self.backlog.page(self.backlog.first - 1, self.backlog.count)
        wanted = np.fromiter(message_ids, np.uint64)
        entries: list[Entry] = []
        for place in np.flatnonzero(np.isin(np.frombuffer(page.ids, np.uint64), wanted)).tolist():
            entry = Entry(page.ids[place], page.first + place, None, ENTRY_BYTES)
            self._queue.mark(entry)
            self.backlog.take_out(entry.position)
            self.memory.hold(entry.held_bytes)
            entries.append(entry)
        return entries

    def ready_after(self, position: int) -> int:
        """Return the place in `ready` of the first message behind *position*."""
        return bisect_right(self.ready, position, key=lambda entry: entry.position)

    def stands(self, entry: Entry) -> bool:
        """Return whether a message is among those in memory that no consumer has."""
        place = self.ready_after(entry.position) - 1
        if (place >= 0 and self.ready[place] is entry) or entry in self.returned:
            return True
        return any(parked is entry for parked in self.order.parked())

    def mark_deleted(self) -> None:
        """Mark all messages in memory as dequeued."""
        for entry in (*self.ready, *self.returned, *self.delayed, *self.order.parked()):
            entry.is_dequeued = True

    def dispose(self, kept: Sequence[Entry], user: str) -> None:
        """Replace the containers of messages; the old ones are emptied later. Consumers have the messages *kept*.

        *user*: the user whose turns the rest of the work takes.
        """
        disposal, backlog = self._core.disposal, self.backlog
        disposal.add(self.ready, self.returned, self.delayed, backlog.held, user=user)
        self.ready, self.returned, self.delayed, self.backlog = deque(), [], {}, Backlog()
        if self.expiry is not None and not self._queue.order.finds_by_position:
            disposal.add(*self.expiry.emptied(), user=user)
        self.order.dispose(kept, user)
        self.reader.cancel()

    def watch(self, entry: Entry) -> None:
        """Watch a message in memory for its expiry."""
        if self.expiry is not None:
            self.expiry.watch((entry,))

    def is_timely(self, entry: Entry) -> bool:
        """Return whether a message may be dispatched now."""
        return self.expiry is None or self.expiry.is_timely(entry)

    def put_aside(self, entry: Entry, reason: CairnError) -> None:
        """Remove an unreadable message from the queue; it stays in the store, and the next start reads it again."""
        self._core.loader.set_aside(self._queue.name, entry.message_id, reason)
        entry.is_dequeued = True
        self.memory.release(entry.held_bytes)

    def take_delayed(self, position: int) -> Entry | None:
        """Take the message at *position* from the delayed ones; return None if it is not one of them."""
        if not self.delayed:
            return None
        found = next((entry for entry in self.delayed if entry.position == position), None)
        if found is not None:
            del self.delayed[found]
        return found

    def take_from_backlog(self, position: int) -> Entry | None:
        """Take the message at *position* out of the backlog; return None if it is not there."""
        ids = self.backlog.page(position - 1, 1).ids
        found, held = self.backlog.take_out(position)
        if not found:
            return None
        if position < self.reader.end:  # the read was for entries that are no longer there
            self.reader.cancel()
        if held is not None:
            return held
        entry = Entry(ids[0], position, None, ENTRY_BYTES)
        if entry.message_id < self.delivered_below:
            self._queue.mark(entry)
        self.memory.hold(ENTRY_BYTES)
        return entry

    def were_delivered(self, below: int) -> None:
        """Mark all messages as previously delivered, as the member that dispatched them left without a record.

        *below*: an id above those of all messages on the queue, and not above those of later messages.
        """
        for entry in (*self.ready, *self.returned, *self.delayed, *self.backlog.held.values(), *self.order.parked()):
            entry.previously_delivered = True
            entry.failures = max(1, entry.failures)
        self.delivered_below = max(self.delivered_below, below)

    def in_memory(self, after: int, most: int) -> list[Entry]:
        """Return the first messages in memory before the backlog with positions above *after*, in order."""
        seen = (entry for entry in self.unordered() if entry.position > after and not self.is_away(entry))
        return self.with_ready(nsmallest(most, seen), after, most)

    @property
    def unordered_count(self) -> int:
        """The number of messages that `in_memory` scans."""
        return len(self.returned) + self.order.parked_count

    def unordered(self) -> list[Entry]:
        """Return messages in memory that are not in order, some of which may be dequeued."""
        return [*self.returned, *self.order.parked()]

    def with_ready(self, found: list[Entry], after: int, most: int) -> list[Entry]:
        """Complete a page that begins with *found* by messages that are in order in memory."""
        if len(found) < most and self.ready and self.ready[-1].position > after:
            start = self.ready_after(after)
            found += islice(self.ready, start, start + most - len(found))
        return found


OrderFactory = Callable[[ContentsOwner, QueueContents], MessageOrder]
"""Makes the order of the contents of a queue."""
