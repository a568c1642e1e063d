"""A queue: messages in order, and consumers that take turns.

Its messages are in `contents`, which sorts them by an order object; here they are counted, and dispatched.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from functools import partial
from itertools import count, repeat
from typing import Any

from ..contents.contents import OrderFactory, QueueContents
from ..contents.expiry import Expiry
from ..contents.internal_queues import InternalQueues
from ..contents.policy import policy_of
from ..contents.ports import FilteringConsumer, LateSelector, QueueBrowser, QueueConsumer, UnsettledHolder
from ..contents.queue_order import QueueOrder
from ..kernel.context import CoreContext
from ..kernel.memory_budget import ENTRY_BYTES
from ..kernel.queue_memory import QueueMemory
from ..messages.entry import Entry
from ..messages.message_times import TimedEntry, times_of
from ..scheduling.throttle import Throttle
from ..users.user_accounts import OWNER, UserAccount
from .delivery_counts import DeliveryCounts
from .limits import QueueLimits
from .queue_lifetime import TABLE, LifetimeEvent, QueueLifetime


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


class Queue:
    """A queue of messages. Core only."""

    __slots__ = (
        "_core", "_note_dequeued", "_recovered", "_services", "account", "add", "arguments", "bindings",
        "browsers", "charged_bytes", "consumers", "contents", "dead_lettered", "delivery_counts",
        "detached_consumers", "draining", "expired", "has_lifetime", "is_deleted", "is_deleting", "is_owner",
        "is_paused", "late_selector", "lifetime", "limits", "locked", "maker", "memory", "memory_throttle",
        "messages", "name", "order", "owner", "policy", "positions", "private", "producers", "queue_id",
        "replicated", "selecting", "silence", "taken", "transient_bytes", "waiting", "was_filled", "was_linked",
        "when_deleted"
    )  # fmt: skip

    def __init__(
        self,
        core: CoreContext,
        services: QueueServices,
        make_order: OrderFactory,
        name: str,
        queue_id: int,
        arguments: Mapping[str, Any],
    ) -> None:
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
        self.silence = ""
        """The last consumer that lost messages because it sent no heartbeats, with the remedy; empty for none."""
        self.bindings = 0
        """The number of bindings that lead to the queue."""
        self._recovered = 0
        self.waiting = 0
        """Batches that are not durable yet: later ones wait behind them."""
        self.locked: dict[Entry, None] = {}
        """Messages that open transactions take off."""
        self.draining: dict[QueueConsumer, None] = {}
        """Consumers that drain and wait for messages that are being read."""
        self.consumers: list[QueueConsumer] = []
        self.browsers: list[QueueBrowser] = []
        """Browsers, and consumers that filter."""
        self.selecting: list[FilteringConsumer] = []
        """Consumers that filter."""
        self.memory = QueueMemory(core.memory, self.consumers, self.selecting, self.locked)
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
        self.lifetime = QueueLifetime.ACTIVE
        self.is_deleting = False
        """The queue is not active: nothing is enqueued any more. `change_lifetime` sets it, and `is_deleted`."""
        self.when_deleted: list[Callable[[], None]] = []
        """Actions that wait for the end of the deletion."""
        self.is_deleted = False
        self.late_selector: LateSelector | None = None
        """Applies the selector of a subscription to messages that it was not applied to before."""
        self._core = core
        self._services = services
        self.contents = QueueContents(core, self, self.memory, self.selecting, make_order)
        self.add = self.contents.add
        self._note_dequeued = self.contents.order.note_dequeued
        self.order: QueueOrder = services.local_order(self)
        self.has_lifetime = bool(self.policy.auto_delete)
        """The queue is deleted automatically; that does not change."""
        if self.policy.has_limits:
            self.limits = QueueLimits(core, self, services.internal_queues)

    @property
    def depth(self) -> int:
        """Messages that can be taken now, or once they are read."""
        return self.contents.depth

    @property
    def taker_count(self) -> int:
        """Consumers, those that select included."""
        return len(self.consumers) + len(self.selecting)

    @property
    def enqueued(self) -> int:
        """Messages that were enqueued since the broker started."""
        return self.messages + self.taken - self._recovered

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

    # ---- memory ---------------------------------------------------------------------------------------------------

    def may_read(self) -> bool:
        """Return whether the next batch may be read.

        Messages in memory behind the batch do not count, else they could keep it out forever."""
        memory = self.memory
        return memory.has_room() or memory.is_within_allowance(self.contents.backlog.held_bytes)

    def may_select(self) -> bool:
        """Return whether consumers with selectors may read on."""
        return self.memory.may_select()

    @property
    def is_starved(self) -> bool:
        """Return whether more messages are available as soon as memory is released."""
        return self.contents.backlog.count > 0 and self in self._core.memory.starved and not self.policy.paused

    def is_over_share(self, more_bytes: int) -> bool:
        """Return whether its transient messages, or all of its owner's, fill a share together with *more_bytes*."""
        held_bytes = self.transient_bytes
        if self.account is not None:
            held_bytes = max(held_bytes, self.account.transient_bytes)
        return held_bytes + more_bytes >= self._core.memory.share_bytes

    def count_transient(self, size_bytes: int) -> None:
        """Count memory of messages that are not stored, for the queue and for its owner."""
        size_bytes = max(size_bytes, -self.transient_bytes)  # those removed before they were shown do not count
        self.transient_bytes += size_bytes
        if self.account is not None:
            self.account.transient_bytes += size_bytes

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

    def count_dequeued(self, entries: Sequence[Entry]) -> None:
        """Count dequeued messages, and release their memory."""
        self.messages -= len(entries)
        self.taken += len(entries)
        self.memory.release(sum([entry.held_bytes for entry in entries]))
        if self.transient_bytes:
            self.count_transient(-sum([entry.held_bytes for entry in entries if not entry.message_id]))
        self.note_change()
        for entry in entries:
            entry.is_dequeued = True
        if self.limits is not None:
            self.limits.count_dequeued(entries)
        if self.delivery_counts is not None:
            self.delivery_counts.count_dequeued(entries)
        if self._note_dequeued is not None:
            self._note_dequeued(entries)

    def replace_content(self, entry: Entry, message_id: int, content: bytes) -> None:
        """Give a message that no consumer has another content, which is stored as *message_id*, or 0."""
        if self.limits is not None:
            self.limits.count_dequeued([entry])
        if self.delivery_counts is not None:
            self.delivery_counts.count_dequeued([entry])
        held_bytes = len(content) + ENTRY_BYTES if not message_id or entry.content is not None else entry.held_bytes
        self.memory.release(entry.held_bytes - held_bytes)
        if not message_id:
            self.count_transient(held_bytes - entry.held_bytes)
        entry.message_id, entry.held_bytes = message_id, held_bytes
        entry.content = content if not message_id or entry.content is not None else None
        if self.limits is not None:
            self.limits.count([entry])
        if self.delivery_counts is not None and entry.failures:
            self.delivery_counts.failed(entry)

    def change_lifetime(self, event: LifetimeEvent) -> None:
        """Change the state of the queue, unless *event* is ignored in this state."""
        self.lifetime = TABLE.get((self.lifetime, event), self.lifetime)
        self.is_deleting = self.lifetime is not QueueLifetime.ACTIVE
        self.is_deleted = self.lifetime is QueueLifetime.DELETED

    def end(self) -> None:
        """Release all messages and memory of a queue that is deleted."""
        self.memory.close()
        self.count_transient(-self.transient_bytes)
        self.change_lifetime(LifetimeEvent.REMOVED)
        for entry in self.with_consumers():
            entry.is_dequeued = True
        self.contents.dispose((), "")

    # ---- messages -------------------------------------------------------------------------------------------------

    def recovered(self, ids: Sequence[int]) -> None:
        """Add the messages that were on the queue when the store was opened."""
        self.messages = self._recovered = len(ids)
        if self.limits is not None:
            self.limits.recovered(ids)
        self.contents.backlog.extend(1, ids)
        self.positions = count(1 + len(ids))
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
            assert self.contents.expiry is not None
            self.contents.expiry.walk()

    def begin_timing(self) -> None:
        """Create the expiry of the queue, for its first message with a time."""
        if self.contents.expiry is None:
            self.contents.expiry = Expiry(self._core, self, partial(self._services.dead_letter, self))

    def new_entries(self, kept: Sequence[tuple[bytes, bool]], ids: Sequence[int], timed: bool) -> list[Entry]:
        """Return entries of new messages, in the order of *ids*; *kept* has each content, and whether it is stored.

        *timed*: some may have times.
        """
        if not self.queue_id:
            ids = ()
        if not timed and len(ids) in (0, len(kept)):
            return [
                Entry(message_id, position, content, len(content) + ENTRY_BYTES)
                for (content, _), message_id, position in zip(kept, ids or repeat(0), self.positions, strict=False)
            ]
        entries: list[Entry] = []
        fresh = iter(ids)
        for content, stored in kept:
            message_id, position = next(fresh) if stored and ids else 0, next(self.positions)
            times = times_of(content, self.policy.message_ttl_ms) if timed else None
            if times is None:
                entries.append(Entry(message_id, position, content, len(content) + ENTRY_BYTES))
            else:
                self.begin_timing()
                entries.append(TimedEntry(message_id, position, content, len(content) + ENTRY_BYTES, times))
        return entries

    def clear(self, user: str = "") -> int:
        """Remove all messages that no consumer has; return how many.

        Messages that are not durable yet are removed as soon as they are. *user*: the user whose turns the rest of the
        work takes (`disposal`).
        """
        count = self.messages
        kept = self.with_consumers()
        held_bytes = sum([entry.held_bytes for entry in kept])
        if self.order.finds_by_position:  # others find entries by position, and must see dequeued ones
            self.contents.mark_deleted()
        self.contents.dispose(kept, user)
        self.contents.purged_below = next(copy(self.positions))
        self.messages = len(kept)
        self.taken += count - len(kept)
        self.memory.release(self.memory.held_bytes - held_bytes)
        kept_bytes = sum([entry.held_bytes for entry in kept if not entry.message_id])
        self.count_transient(kept_bytes - self.transient_bytes)
        self.note_change()
        disposal = self._core.disposal
        if self.limits is not None:
            disposal.add(self.limits.emptied(kept), user=user)
        if self.delivery_counts is not None:
            disposal.add(*self.delivery_counts.emptied(kept), user=user)
        return count - len(kept)

    def is_held(self, entry: Entry) -> bool:
        """Return whether a consumer has a message, or a transaction dequeues it."""
        return any(entry in unsettled for unsettled in self._unsettled())

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

    def now_decides(self) -> None:
        """Start to apply expiry and limits on this member."""
        if self.contents.expiry is not None:
            self.contents.expiry.wake()
        if self.limits is not None:
            self.limits.shown()
        self.contents.order.now_decides()

    # ---- dispatch -------------------------------------------------------------------------------------------------

    def dispatch(self) -> None:
        """Dispatch messages to consumers, which take turns, and read ahead."""
        contents = self.contents
        if contents.expiry is not None and not contents.expiry.expire():
            return  # expired messages must not be dispatched; a later step, scheduled by now, calls this again
        if self.policy.paused or (self.is_paused and not contents.depth):
            self._end_drains()
        elif self.consumers and not self.is_paused:
            if self.late_selector is not None:
                self._dispatch_selected(self.late_selector)
            else:
                order = contents.order
                is_free = order.dispatch_returned(self.consumers) if contents.returned or order.is_sorted else True
                if contents.ready and is_free:
                    dispatch_ready(contents.ready, self.consumers)
                if contents.backlog.count:
                    order.read_ahead()
                if self.draining:
                    self._end_drains()
        for browser in self.browsers:
            browser.look()

    def _dispatch_selected(self, selector: LateSelector) -> None:
        """Dispatch the messages that the selector matches, as far as it was applied."""
        contents, order = self.contents, self.contents.order
        behind, behind_returned, waits = selector.sift()
        is_free = order.dispatch_returned(self.consumers) if contents.returned or order.is_sorted else True
        if contents.ready and is_free:
            dispatch_ready(contents.ready, self.consumers)
        if contents.backlog.count and not (behind or behind_returned):
            order.read_ahead()
        if not waits:
            self._end_drains()
        selector.put_back(behind, behind_returned)

    def _end_drains(self) -> None:
        """Return the rest of their credit to consumers that drain, and for which no message is being read."""
        for consumer in list(self.draining):
            consumer.dispatched()


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
