"""The messages on a queue, in order, and the memory that they hold.

Order is by position. A message that is requeued keeps its position, so it is dispatched again before all later ones.
Only durable messages are on the queue: a batch is added when its flush is done.

| part, in order | messages |
|---|---|
| `returned` | requeued ones |
| `ready` | held in memory |
| `backlog` | on the disk only, by their IDs; a few are held |

New messages go to `ready` as long as there is no backlog and memory is left for them.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from copy import copy
from heapq import heapify, heappop, heappush, nsmallest
from itertools import count, groupby, islice
from typing import TYPE_CHECKING, Any

import numpy as np

from ...base.errors import CairnError
from ..contents.expiry import Expiry
from ..contents.policy import policy_of
from ..contents.ports import FilteringConsumer, LateSelector, QueueBrowser, QueueConsumer, UnsettledHolder
from ..contents.queue_order import QueueOrder
from ..kernel.loader import BATCH_MESSAGES, report_unreadable
from ..kernel.memory_budget import ENTRY_BYTES
from ..kernel.queue_memory import QueueMemory
from ..messages.backlog import Backlog, Page
from ..messages.entry import Entry
from .delivery_counts import DeliveryCounts
from .limits import QueueLimits
from .queue_lifetime import TABLE, LifetimeEvent, QueueLifetime

if TYPE_CHECKING:
    from ..kernel.context import CoreContext
    from ..scheduling.throttle import Throttle
    from ..users.user_accounts import UserAccount


class QueueContents:
    """The messages of one queue, without their dispatch. Core only."""

    order: QueueOrder

    def __init__(self, core: CoreContext, name: str, queue_id: int, arguments: Mapping[str, Any]) -> None:
        """Create an empty queue with the policy in *arguments*. Raise `StoreError` if they are not valid."""
        self.name = name
        self.queue_id = queue_id
        """The wiring's id; 0 for a queue that is not durable."""
        self.arguments = arguments
        self.policy = policy_of(name, arguments)
        self.limits: QueueLimits | None = None
        """Checks messages before they are enqueued, if the policy requires it."""
        self.delivery_counts: DeliveryCounts | None = None
        """Failed deliveries of its messages, on the disk, if the policy limits them."""
        self.maker: object = None
        """The driver of the link that the queue was made for, with which it is deleted."""
        self.account: UserAccount | None = None
        """The account of the user who owns the queue."""
        self.transient_bytes = 0
        """The memory of its messages that are not stored."""
        self.memory_throttle: Throttle | None = None
        """Throttles senders of transient messages while the queue holds its share of the memory."""
        self.charged_bytes = 0
        """Durable bytes on the queue, as the account of its owner counts them."""
        self.owner: object = None
        """The connection with which the queue is deleted."""
        self.private = False
        """True if only its owner may read it."""
        self.messages = 0
        """The messages on the queue, including those that consumers have and those that are not durable yet."""
        self.taken = 0
        """The messages that were dequeued since the broker started."""
        self.dead_lettered = 0
        """Dequeued messages that were rejected, or delivered too often."""
        self.expired = 0
        """Dequeued messages that expired."""
        self.bindings = 0
        """The number of bindings that lead to the queue."""
        self._recovered = 0
        self.waiting = 0
        """Batches that are not durable yet: later ones wait behind them."""
        self.ready: deque[Entry] = deque()
        self.returned: list[Entry] = []
        """A heap of requeued messages, which precede `ready`."""
        self.backlog = Backlog()
        self.delayed: dict[Entry, None] = {}
        """Messages whose requeue is delayed, or that are being moved to another address."""
        self._was_delayed: Entry | None = None
        self.locked: dict[Entry, None] = {}
        """Messages that open transactions take off."""
        self.draining: dict[QueueConsumer, None] = {}
        """Consumers that drain and wait for messages that are being read."""
        self.consumers: list[QueueConsumer] = []
        self.memory = QueueMemory(core.memory, self.consumers)
        self.browsers: list[QueueBrowser] = []
        """Browsers, and consumers that filter."""
        self.selecting: list[FilteringConsumer] = []
        """Consumers that filter."""
        self.detached_consumers: dict[UnsettledHolder, None] = {}
        """Closed consumers with messages that are not requeued yet."""
        self.producers: dict[Any, None] = {}
        """The drivers of producers, which the queue only counts."""
        self.was_linked = self.was_filled = False
        """True if there was a link, or a message, since the broker started; kept for automatically deleted queues."""
        self.positions = count(1)
        self.replicated = False
        """True if all members of a cluster have the queue, and order its changes."""
        self.is_paused = False
        """True if another member of the cluster dispatches its messages, or none does at present."""
        self.is_owner = True
        """True if this broker decides which messages expire, or exceed the limits."""
        self.delivered_below = core.loader.recovered_below
        """Messages on the disk with smaller IDs may have been delivered before the start, which is not recorded."""
        self.lifetime = QueueLifetime.ACTIVE
        self.is_deleting = False
        """The queue is not active: nothing is enqueued any more. `change_lifetime` sets it, and `is_deleted`."""
        self.when_gone: list[Callable[[], None]] = []
        """Actions that wait for the end of the deletion."""
        self.is_deleted = False
        self.expiry: Expiry | None = None
        """The expiry of its messages, once there was a message with a time."""
        self.late_selector: LateSelector | None = None
        """Applies the selector of a subscription to messages that it was not applied to before."""
        self._core = core
        self._loader = core.loader
        self._reading: Page | None = None
        """The part of the backlog that is being read."""
        self._purged_below = 0
        """The position below which a purge removed messages before they were shown."""
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
    def enqueued(self) -> int:
        """Messages that were enqueued since the broker started."""
        return self.messages + self.taken - self._recovered

    # ---- memory ---------------------------------------------------------------------------------------------------

    def may_read(self) -> bool:
        """Return whether the next batch may be read.

        Messages in memory behind the batch do not count, else they could keep it out forever."""
        memory = self.memory
        return memory.has_room() or bool(self.draining) or memory.is_within_allowance(self.backlog.held_bytes)

    def is_over_share(self, more_bytes: int) -> bool:
        """Return whether its transient messages, or all of its owner's, fill a share together with *more_bytes*."""
        held_bytes = self.transient_bytes
        if self.account is not None:
            held_bytes = max(held_bytes, self.account.transient_bytes)
        return held_bytes + more_bytes >= self._core.memory.share_bytes

    def _count_transient(self, size_bytes: int) -> None:
        size_bytes = max(size_bytes, -self.transient_bytes)  # those removed before they were shown do not count
        self.transient_bytes += size_bytes
        if self.account is not None:
            self.account.transient_bytes += size_bytes

    def note_change(self) -> None:
        """Schedule what has to be checked at the end of the step, as messages on the queue changed."""
        raise NotImplementedError

    def count_dequeued(self, entries: Sequence[Entry]) -> None:
        """Count messages that are off the queue for good, and release their memory."""
        self.messages -= len(entries)
        self.taken += len(entries)
        self.memory.release(sum([entry.held_bytes for entry in entries]))
        if self.transient_bytes:
            self._count_transient(-sum([entry.held_bytes for entry in entries if not entry.message_id]))
        self.note_change()
        for entry in entries:
            entry.gone = True
        if self.limits is not None:
            self.limits.count_dequeued(entries)
        if self.delivery_counts is not None:
            self.delivery_counts.count_dequeued(entries)

    def change_lifetime(self, event: LifetimeEvent) -> None:
        """Change the state of the queue, unless *event* is ignored in this state."""
        self.lifetime = TABLE.get((self.lifetime, event), self.lifetime)
        self.is_deleting = self.lifetime is not QueueLifetime.ACTIVE
        self.is_deleted = self.lifetime is QueueLifetime.DELETED

    def end(self) -> None:
        """Release all messages and memory of a queue that is deleted."""
        self.memory.close()
        self._count_transient(-self.transient_bytes)
        self.change_lifetime(LifetimeEvent.REMOVED)
        self._reading = None
        for entry in self.with_consumers():
            entry.gone = True
        self._dispose((), "")

    # ---- messages -------------------------------------------------------------------------------------------------

    def recovered(self, ids: Sequence[int]) -> None:
        """Add the messages that were on the queue when the store was opened."""
        self.messages = self._recovered = len(ids)
        if self.limits is not None:
            self.limits.recovered(ids)
        self.backlog.extend(1, ids)
        self.positions = count(1 + len(ids))

    def add(self, entries: Sequence[Entry]) -> None:
        """Add new messages, which are durable now if they are stored."""
        if entries[0].position < self._purged_below:
            return
        held_bytes = transient_bytes = 0
        for entry in entries:
            held_bytes += entry.held_bytes
            if not entry.message_id:
                transient_bytes += entry.held_bytes
        if transient_bytes:
            self._count_transient(transient_bytes)
        memory, budget = self.memory, self._core.memory
        if self.expiry is None and not self.backlog.count and (
            memory.held_bytes < budget.limit_bytes - budget.used_bytes or memory.is_within_allowance()  # `has_room`
        ):
            self.ready.extend(entries)
            if not self.is_deleted:  # `hold`, without a call
                memory.held_bytes += held_bytes
                budget.used_bytes += held_bytes
        else:
            self._add_behind(entries)

    def _add_behind(self, entries: Sequence[Entry]) -> None:
        """Add new messages behind the backlog, or those that may have times."""
        backlog, expiry = self.backlog, self.expiry
        early: dict[Entry, None] = {}
        if expiry is not None:
            early = expiry.early(entries)
            expiry.hold_up(early)
        if not backlog.count and self.memory.has_room():
            self._admit([entry for entry in entries if entry not in early] if early else entries)
            return
        # messages that arrive while the last of the backlog is being read stay in memory, or reading would never end
        keep = 0 < backlog.stored <= BATCH_MESSAGES and self.memory.has_room()
        for (is_early, held), group in groupby(entries, lambda entry: (entry in early, keep or not entry.message_id)):
            alike = list(group)
            if is_early:
                for entry in alike:
                    backlog.leave_hole(entry.position)
            elif not held:
                backlog.extend(alike[0].position, [entry.message_id for entry in alike])
                if expiry is not None:
                    expiry.watch_stored(alike)
            elif backlog.count:
                for entry in alike:
                    backlog.hold(entry)
                self.memory.hold(sum([entry.held_bytes for entry in alike]))
            else:
                self._admit(alike)

    def is_purged(self, entry: Entry) -> bool:
        """Return whether a message, and its whole batch, was purged before it was shown."""
        return entry.position < self._purged_below

    def _admit(self, entries: Sequence[Entry]) -> None:
        self.ready.extend(entries)
        self.memory.hold(sum([entry.held_bytes for entry in entries]))
        if self.expiry is not None:
            self.expiry.watch(entries)

    def give_back(self, entry: Entry) -> None:
        """Requeue a message at its position, before all others or between them."""
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
            self.mark(entry)
            self.backlog.take_out(entry.position)
            self.memory.hold(entry.held_bytes)
            entries.append(entry)
        return entries

    def ready_after(self, position: int) -> int:
        """Return the place in `ready` of the first message behind *position*."""
        return bisect_right(self.ready, position, key=lambda entry: entry.position)

    def take_oldest(self) -> Entry | None:
        """Remove and return the first message that no consumer has, or None."""
        while self.returned or self.ready:
            entry = heappop(self.returned) if self.returned else self.ready.popleft()
            if not (entry.gone or entry in self.delayed):
                return entry
        if not self.backlog.count or self._reading is not None:
            return None
        page = self.backlog.page(self.backlog.first - 1, 1)
        self.backlog.drop(page)
        return page.held.get(page.first) or Entry(page.ids[0], page.first, None, 0)

    def stands(self, entry: Entry) -> bool:
        """Return whether a message is among those in memory that no consumer has."""
        place = self.ready_after(entry.position) - 1
        return (place >= 0 and self.ready[place] is entry) or entry in self.returned

    def clear(self, user: str = "") -> int:
        """Remove all messages that no consumer has; return how many.

        Messages that are not durable yet are removed as soon as they are. *user*: the user whose turns the rest of the
        work takes (`disposal`).
        """
        count = self.messages
        kept = self.with_consumers()
        held_bytes = sum([entry.held_bytes for entry in kept])
        if self.order.finds_by_position:  # others find entries by position, and must see dequeued ones
            for entry in (*self.ready, *self.returned, *self.delayed, *self.parked()):
                entry.gone = True
        self._dispose(kept, user)
        self._purged_below = next(copy(self.positions))
        self._reading = None
        self.reading_end = 0
        self.messages = len(kept)
        self.taken += count - len(kept)
        self.memory.release(self.memory.held_bytes - held_bytes)
        kept_bytes = sum([entry.held_bytes for entry in kept if not entry.message_id])
        self._count_transient(kept_bytes - self.transient_bytes)
        self.note_change()
        disposal = self._core.disposal
        if self.limits is not None:
            disposal.add(self.limits.emptied(kept), user=user)
        if self.delivery_counts is not None:
            disposal.add(*self.delivery_counts.emptied(kept), user=user)
        return count - len(kept)

    def _dispose(self, kept: Sequence[Entry], user: str) -> None:
        """Replace the containers of messages; the old ones are emptied later. Consumers have the messages *kept*."""
        disposal, backlog = self._core.disposal, self.backlog
        disposal.add(self.ready, self.returned, self.delayed, backlog.take_all_held(), user=user)
        self.ready, self.returned, self.delayed, self.backlog = deque(), [], {}, Backlog()
        if self.expiry is not None and not self.order.finds_by_position:
            disposal.add(*self.expiry.emptied(), user=user)

    def is_held(self, entry: Entry) -> bool:
        """Return whether a consumer has a message, or a transaction dequeues it."""
        return any(entry in unsettled for unsettled in self._unsettled())

    def parked(self) -> Iterable[Entry]:
        """Return the messages that wait for one consumer, apart from the others."""
        return ()

    def with_consumers(self) -> list[Entry]:
        """Return the messages that consumers have, and those that transactions dequeue."""
        return [entry for unsettled in self._unsettled() for entry in unsettled]

    def _unsettled(self) -> list[dict[Entry, None]]:
        holders: tuple[UnsettledHolder, ...] = (*self.consumers, *self.selecting, *self.detached_consumers)
        return [self.locked, *[holder.unsettled for holder in holders]]

    def forget(self, entries: Sequence[Entry]) -> None:
        """Remove messages from the consumers that have them, whose outcomes then have no effect."""
        for unsettled in self._unsettled():
            for entry in entries:
                unsettled.pop(entry, None)

    def watch(self, entry: Entry) -> None:
        """Watch a message in memory for its expiry."""
        if self.expiry is not None:
            self.expiry.watch((entry,))

    def is_timely(self, entry: Entry) -> bool:
        """Return whether a message may be dispatched now."""
        return self.expiry is None or self.expiry.is_timely(entry)

    def mark(self, entry: Entry) -> None:
        """Mark a message as previously delivered, as the store does not record that for messages before its start."""
        entry.previously_delivered = True
        if not self.order.counts_failures:
            entry.failures = 1
        else:  # a cancelled change must not have effects, not even if a limit is set later
            counts = self.delivery_counts
            entry.failures = 0 if counts is None else counts.of(entry.message_id)
            entry.min_delivery_count = 1

    def failed(self, entry: Entry) -> bool:
        """Count a failed delivery of a message; return whether that reaches the limit."""
        entry.failures += 1
        is_over = 0 < self.policy.max_deliveries <= entry.failures
        if self.delivery_counts is not None and self.policy.max_deliveries and not is_over:
            self.delivery_counts.failed(entry)
        return is_over

    def put_aside(self, entry: Entry, why: CairnError) -> None:
        """Remove an unreadable message from the queue; it stays in the store, and the next start reads it again."""
        report_unreadable(self.name, entry.message_id, why)
        entry.gone = True
        self.memory.release(entry.held_bytes)

    # ---- changes that the members of a cluster order ----------------------------------------------------------------

    def pick(self, position: int) -> Entry | None:
        """Take the message at *position* from its place; return None if a consumer of this member has it."""
        ready = self.ready
        self._forget_delayed(position)
        if ready and ready[0].position <= position <= ready[-1].position:
            place = 0 if ready[0].position == position else self.ready_after(position) - 1
            entry = ready[place]
            if entry.position == position:
                del ready[place]
                return entry
        if self.backlog.count and position >= self.backlog.first:
            found = self._pick_backlog(position)
            if found is not None:
                return found
        entries = [entry for entry in self.returned if entry.position == position]
        if entries:
            self.returned.remove(entries[0])
            heapify(self.returned)
            return entries[0]
        away, self._was_delayed = self._was_delayed, None
        return away

    def _forget_delayed(self, position: int) -> None:
        self._was_delayed = None
        if self.delayed:
            self._was_delayed = next((entry for entry in self.delayed if entry.position == position), None)
            if self._was_delayed is not None:
                del self.delayed[self._was_delayed]

    def _pick_backlog(self, position: int) -> Entry | None:
        ids = self.backlog.page(position - 1, 1).ids
        found, held = self.backlog.take_out(position)
        if not found:
            return None
        if position < self.reading_end:  # the read was for entries that are no longer there
            self._reading, self.reading_end = None, 0
        if held is not None:
            return held
        entry = Entry(ids[0], position, None, ENTRY_BYTES)
        if entry.message_id < self.delivered_below:
            self.mark(entry)
        self.memory.hold(ENTRY_BYTES)
        return entry

    def were_delivered(self, below: int) -> None:
        """Mark all messages as previously delivered, as the member that dispatched them left without a record.

        *below*: an id above those of all messages on the queue, and not above those of later messages.
        """
        for entry in (*self.ready, *self.returned, *self.delayed, *self.backlog.held()):
            entry.previously_delivered = True
            entry.failures = max(1, entry.failures)
        self.delivered_below = max(self.delivered_below, below)

    def leave_hole(self, position: int) -> None:
        """Leave a hole for a message that was dequeued before it was shown."""
        self.backlog.leave_hole(position)

    def now_decides(self) -> None:
        """Start to apply expiry and limits on this member."""
        if self.expiry is not None:
            self.expiry.wake()
        if self.limits is not None:
            self.limits.shown()

    def put_before(self, front: Sequence[Entry], end: int) -> None:
        """Put messages in order before all others; *end*: the position of the next message that is added."""
        if not front:
            return
        first = front[0].position
        ids = [0] * (front[-1].position + 1 - first)
        held: dict[int, Entry] = {}
        for entry in front:
            if entry.content is None and not entry.previously_delivered:
                ids[entry.position - first] = entry.message_id
            else:
                held[entry.position] = entry
        backlog = Backlog()
        backlog.restore(first, ids, held)
        for entry in sorted((*self.ready, *self.returned)):
            backlog.restore(entry.position, (0,), {entry.position: entry})
        while self.backlog.count:
            page = self.backlog.page(0, BATCH_MESSAGES)
            self.backlog.drop(page)
            backlog.restore(page.first, page.ids, page.held)
        backlog.restore(end, (), {})
        self.ready.clear()
        self.returned.clear()
        self.memory.hold(sum([entry.held_bytes for entry in held.values()]))
        self.backlog = backlog
        self._reading, self.reading_end = None, 0

    # ---- looking --------------------------------------------------------------------------------------------------

    def in_memory(self, after: int, most: int) -> list[Entry]:
        """Return the first messages in memory before the backlog with positions above *after*, in order."""
        seen = (entry for entry in self.unordered() if entry.position > after and not self.is_away(entry))
        return self.with_ready(nsmallest(most, seen), after, most)

    @property
    def unordered_count(self) -> int:
        """The number of messages that `in_memory` scans."""
        return len(self.returned)

    def unordered(self) -> list[Entry]:
        """Return messages in memory that are not in order, some of which may be dequeued."""
        return [*self.returned]

    def is_away(self, entry: Entry) -> bool:
        """Return whether a message is hidden from browsers."""
        return entry.gone

    def with_ready(self, found: list[Entry], after: int, most: int) -> list[Entry]:
        """Complete a page that begins with *found* by messages that are in order in memory."""
        if len(found) < most and self.ready and self.ready[-1].position > after:
            start = self.ready_after(after)
            found += islice(self.ready, start, start + most - len(found))
        return found
