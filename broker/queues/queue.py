"""A queue: messages in order, and consumers that take turns.

The messages are in `contents`; here they are dispatched. Consumers take from `ready` only; while they take one batch,
the next one is read ahead of them from the backlog.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from heapq import heappop, heappush
from typing import Any

from ...base.errors import CairnError
from ..contents.expiry import Expiry
from ..contents.policy import policy_of
from ..contents.ports import InternalQueues, LateSelector, QueueConsumer
from ..contents.queue_order import QueueOrder
from ..kernel.context import CoreContext
from ..kernel.loader import BATCH_MESSAGES, Beginning, Loaded, report_unreadable
from ..kernel.memory_budget import ENTRY_BYTES
from ..messages.backlog import Page
from ..messages.entry import Entry
from ..messages.message_times import TimedEntry, times_of
from ..users.user_accounts import OWNER
from .contents import QueueContents
from .delivery_counts import DeliveryCounts
from .limits import QueueLimits

_NOT_LOADED = object()


@dataclass(frozen=True, slots=True)
class QueueServices:
    """The functions of the upper parts of the broker that queues call."""

    internal_queues: InternalQueues
    dead_letter: Callable[[Queue, Entry, str, Callable[[int], None]], None]
    """Moves a message off its queue for a reason; the callback gets the LSN to wait for."""
    local_order: Callable[[Queue], QueueOrder]
    """Makes the order of a queue that this broker alone has."""
    check_lifetime: Callable[[Queue], None]
    """Deletes a queue if its lifetime is over."""


class Queue(QueueContents):
    """A queue of messages. Core only."""

    is_sorted = False
    """True if the order or the consumers of messages depend on their content."""

    def __init__(
        self, core: CoreContext, services: QueueServices, name: str, queue_id: int, arguments: Mapping[str, Any]
    ) -> None:
        """Create an empty queue with the policy in *arguments*. Raise `StoreError` if that is not valid."""
        super().__init__(core, name, queue_id, arguments)
        self._services = services
        self.order = services.local_order(self)
        self.has_lifetime = bool(self.policy.auto_delete)
        """The queue is deleted automatically; that does not change."""
        if self.policy.has_limits:
            self.limits = QueueLimits(core, self, services.internal_queues)

    def change(self, arguments: Mapping[str, Any]) -> None:
        """Apply other arguments, of which only changeable ones differ. A ring drops messages beyond its new limits."""
        if arguments.get(OWNER) != self.arguments.get(OWNER):
            self._core.users.queue_went(self)
            self.arguments = arguments
            self._core.users.queue_came(self)
        self.arguments = arguments
        self.policy = policy_of(self.name, arguments)
        if self.limits is not None:
            self.limits.change(self.policy)
        elif self.policy.has_limits:
            self.limits = QueueLimits(self._core, self, self._services.internal_queues)
            self.limits.begin()
        self.keep_counts()
        self._core.schedule_dispatch(self)

    def keep_counts(self) -> None:
        """Start or stop to count failed deliveries on the disk, by the policy; replicated queues do not count them."""
        if self.policy.max_deliveries and self.delivery_counts is None and self.queue_id and self.order.counts_failures:
            self.delivery_counts = DeliveryCounts(self._core, self, self._services.internal_queues)
        elif not self.policy.max_deliveries and self.delivery_counts is not None:
            self.delivery_counts.emptied(())

    def recovered(self, ids: Sequence[int]) -> None:
        super().recovered(ids)
        if len(ids) and (self.policy.message_ttl_ms or self.policy.expiry_address):
            self._core.post(self._look_at_times)
        if self.limits is not None:
            self._core.post(self.trim)

    def trim(self) -> None:
        """Apply an overflow policy that drops messages to the messages that were in the store at its start.

        A crash may come between the record of a message and those of the messages that it displaced.
        """
        if self.limits is not None and not self.is_deleted:
            self.limits.shown()

    def _look_at_times(self) -> None:
        """Start the expiry of messages that were stored before the broker started, without waiting for consumers."""
        if not self.is_deleted:
            self.begin_timing()
            assert self.expiry is not None
            self.expiry.walk()

    def begin_timing(self) -> None:
        """Create the expiry of the queue, for its first message with a time."""
        if self.expiry is None:
            self.expiry = Expiry(self._core, self, partial(self._services.dead_letter, self))

    def new_entries(self, kept: Sequence[tuple[bytes, bool]], ids: Sequence[int], timed: bool) -> list[Entry]:
        """Return entries of new messages, in the order of *ids*; *kept* has each content, and whether it is stored.

        *timed*: some may have times.
        """
        positions = self.positions
        if not self.queue_id:
            ids = ()
        entries: list[Entry] = []
        if len(ids) == len(kept) and not timed:
            for (content, _), message_id in zip(kept, ids, strict=True):
                entries.append(Entry(message_id, next(positions), content, len(content) + ENTRY_BYTES))
            return entries
        fresh = iter(ids)
        for content, stored in kept:
            message_id, position = next(fresh) if stored and ids else 0, next(positions)
            times = times_of(content, self.policy.message_ttl_ms) if timed else None
            if times is None:
                entries.append(Entry(message_id, position, content, len(content) + ENTRY_BYTES))
            else:
                self.begin_timing()
                entries.append(TimedEntry(message_id, position, content, len(content) + ENTRY_BYTES, times))
        return entries

    def stop_consumers(self) -> None:
        """Pause dispatch (D44). Messages that are being read stay on the queue."""
        self.is_paused = True

    def start_consumers(self) -> None:
        """Resume dispatch at the end of the step."""
        self.is_paused = False
        self._core.schedule_dispatch(self)

    def note_change(self) -> None:
        """Schedule checks of the queue's lifetime and of the owner's account for the end of the step."""
        if self.has_lifetime:
            self._core.schedule_dispatch(self)
        if self.account is not None:
            self._core.users.changed[self] = None

    def check_lifetime(self) -> None:
        """Delete the queue if its lifetime has ended."""
        self._services.check_lifetime(self)

    # ---- dispatch -------------------------------------------------------------------------------------------------

    def dispatch(self) -> None:
        """Dispatch messages to consumers, which take turns, and read ahead."""
        if self.expiry is not None and not self.expiry.expire():
            return  # expired messages must not be dispatched; a later step, scheduled by now, calls this again
        if self.policy.paused or (self.is_paused and not self.depth):
            self._end_drains()
        elif self.consumers and not self.is_paused:
            if self.late_selector is not None:
                self._dispatch_selected(self.late_selector)
            else:
                if self.returned or self.is_sorted:
                    self._dispatch_returned()
                if self.ready and not self.returned:
                    dispatch_ready(self.ready, self.consumers)
                if self.backlog.count:
                    self._read_ahead()
                if self.draining:
                    self._end_drains()
        for browser in self.browsers:
            browser.look()

    def _dispatch_selected(self, selector: LateSelector) -> None:
        """Dispatch the messages that the selector matches, as far as it was applied."""
        behind, behind_returned, waits = selector.sift()
        if self.returned or self.is_sorted:
            self._dispatch_returned()
        if self.ready and not self.returned:
            dispatch_ready(self.ready, self.consumers)
        if self.backlog.count and not (behind or behind_returned):
            self._read_ahead()
        if not waits:
            self._end_drains()
        selector.put_back(behind, behind_returned)

    def _end_drains(self) -> None:
        """Return the rest of their credit to consumers that drain, and for which no message is being read."""
        for consumer in list(self.draining):
            consumer.dispatched()

    def is_reading_for(self, taker: QueueConsumer) -> bool:
        """Return whether *taker* may get more messages, from a batch that is being read."""
        return self._reading is not None and not self.ready and taker.room() > 0

    def _read_ahead(self) -> None:
        if self._reading is not None or len(self.ready) >= self._mark:
            return
        if self.may_read():
            self.read_first(self._read)
        else:
            self._core.memory.starved[self] = None

    def read_first(self, then: Callable[[Page, list[Entry], int], None]) -> None:
        """Read the first page of the backlog; *then* gets it, its messages, and the number of their places.

        No message of it is removed meanwhile. Not to be called while another page is being read.
        """
        assert self._reading is None
        self._reading = page = self.backlog.page(self.backlog.first - 1, BATCH_MESSAGES)
        self.reading_end = page.first + len(page.ids)
        self.load(page, lambda contents: self._read_first(page, contents, then))

    def load(self, page: Page, then: Callable[[list[Loaded]], None]) -> None:
        """Load the contents of *page*, as many as fit into a batch; *then* gets them, on the core."""
        self._loader.load(page.stored, self.expiry is not None, then)

    def entries_of(self, page: Page, contents: Sequence[Loaded]) -> tuple[list[Entry], int]:
        """Return the messages of *page*, as far as *contents* go, and the number of its places that these cover.

        Unreadable messages are reported and omitted.
        """
        entries: list[Entry] = []
        loaded = iter(contents)
        delivered_below = self.delivered_below
        done = 0
        for position, message_id in enumerate(page.ids, page.first):
            if not message_id:
                held = page.held.get(position)
                if held is None:  # a gap
                    done += 1
                    continue
                entry = held
            else:
                content = next(loaded, _NOT_LOADED)
                if type(content) is bytes:
                    entry = Entry(message_id, position, content, len(content) + ENTRY_BYTES)
                elif content is None or type(content) is Beginning:
                    entry = Entry(message_id, position, None, ENTRY_BYTES)
                elif content is _NOT_LOADED:
                    break
                else:
                    assert isinstance(content, CairnError)
                    done += 1
                    if self._core.store.holds(message_id):  # else it was dequeued while a browser read it
                        report_unreadable(self.name, message_id, content)
                    continue
                recovered = message_id < delivered_below
                if recovered or self.expiry is not None:
                    entry = self._with_times(entry, content)
                if recovered:
                    self.mark(entry)
            entries.append(entry)
            done += 1
        return entries, done

    def _with_times(self, entry: Entry, content: object) -> Entry:
        """Return *entry*, or a timed one in its place if its message has times."""
        start = content.content if isinstance(content, Beginning) else content
        times = times_of(start, self.policy.message_ttl_ms) if isinstance(start, bytes) else None
        if times is not None:
            self.begin_timing()
            entry = TimedEntry(entry.message_id, entry.position, entry.content, entry.held_bytes, times)
        if isinstance(content, Beginning):
            entry.first_bytes = content.content
        return entry

    def _read_first(self, page: Page, contents: list[Loaded], then: Callable[[Page, list[Entry], int], None]) -> None:
        if self._reading is not page:  # the queue was purged meanwhile
            return
        self._reading = None
        self.reading_end = 0
        page = self.backlog.page(page.first - 1, len(page.ids))  # again, with messages that were requeued meanwhile
        entries, done = self.entries_of(page, contents)
        then(page, entries, done)

    def leave_out(self, page: Page, entries: Sequence[Entry]) -> None:
        """Remove the first page from the backlog: *entries* were read from it, and are held from now on."""
        self.backlog.drop(page)
        self.memory.hold(sum([entry.held_bytes for entry in entries]))
        self.memory.release(sum([entry.held_bytes for entry in page.held.values()]))  # they were counted before

    @property
    def is_reading(self) -> bool:
        return self._reading is not None

    def _read(self, page: Page, entries: list[Entry], done: int) -> None:
        self.leave_out(page.cut(done), entries)
        expiry = self.expiry
        if expiry is not None:
            early = expiry.early(entries)
            self.memory.release(sum([entry.held_bytes for entry in early]))
            expiry.hold_up(early)
            entries = [entry for entry in entries if entry not in early]
            expiry.watch(entries)
        self.ready.extend(entries)
        self.ready.extend(self.backlog.take_held())
        self._mark = max(1, len(entries))
        self.dispatch()

    def _dispatch_returned(self) -> None:
        """Dispatch requeued messages; those that wait for an absent consumer do not hold up `ready`."""
        if dispatch_returned(self.returned, self.consumers) and self.ready:
            dispatch_ready(self.ready, self.consumers)


def dispatch_ready(ready: deque[Entry], consumers: list[QueueConsumer]) -> None:
    """Dispatch messages in order, one to each consumer in turn, as far as they have room.

    Moves the consumer whose turn is next to the front.
    """
    if len(consumers) == 1:
        room = consumers[0].room()
        if room > 0:
            if room >= len(ready):
                batch = list(ready)
                ready.clear()
            else:
                batch = [ready.popleft() for _ in range(room)]
            consumers[0].take(batch)
        return
    shares: list[tuple[QueueConsumer, int, list[Entry]]] = []
    for consumer in consumers:
        room = consumer.room()
        if room > 0:
            shares.append((consumer, room, []))
    turn = 0
    while ready and shares:
        turn %= len(shares)
        consumer, room, share = shares[turn]
        share.append(ready.popleft())
        if len(share) < room:
            turn += 1
        else:
            consumer.take(share)
            del shares[turn]
    if shares:  # the next batch begins with the consumer whose turn it is
        first = consumers.index(shares[turn % len(shares)][0])
        consumers[:] = consumers[first:] + consumers[:first]
    for consumer, _, share in shares:
        if share:
            consumer.take(share)


def dispatch_returned(returned: list[Entry], consumers: list[QueueConsumer]) -> bool:
    """Dispatch requeued messages, a heap, one at a time; a consumer may be excluded from a message.

    Return whether only messages remain that wait for another consumer: they must not hold up the messages behind them.
    """
    held: list[Entry] = []
    while returned:
        entry = heappop(returned)
        taker = next(
            (
                consumer
                for consumer in consumers
                if consumer.room() > 0 and not (entry.excluded and consumer in entry.excluded)
            ),
            None,
        )
        if taker is not None:
            consumers.remove(taker)
            consumers.append(taker)
            taker.take([entry])
            continue
        held.append(entry)
        if not any(consumer.room() > 0 for consumer in consumers):
            break
    for entry in held:
        heappush(returned, entry)
    return bool(held) and all(entry.excluded for entry in returned)
