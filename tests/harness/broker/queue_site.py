"""One queue without a broker: a real queue with fake collaborators, and consumers that record their messages."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, partial
from types import SimpleNamespace
from typing import Any, cast

from cairnmq.base.testing.manual_clock import ManualClock
from cairnmq.broker.contents.arrival_order import ArrivalOrder
from cairnmq.broker.contents.policy import policy_of
from cairnmq.broker.contents.ports import LinkErrors
from cairnmq.broker.contents.sorted_order import SortedOrder
from cairnmq.broker.kernel.context import CoreContext
from cairnmq.broker.messages.entry import Entry
from cairnmq.broker.queues.queue import Queue, QueueServices
from cairnmq.store.contract.dequeue_reason import DequeueReason
from cairnmq.store.mapped.memory_store import MemoryStore


@cache
def _store() -> MemoryStore:
    """Return a store that stays empty: a queue without an ID stores nothing."""
    return MemoryStore()


class QueueSite:
    """One queue, with fakes of its services and of the order of its changes."""

    finds_by_position = counts_failures = remembers_together = limits_events = False

    def __init__(self, **arguments: object) -> None:
        """Create the queue with *arguments*, whose names have underscores instead of dashes."""
        self.clock = ManualClock()
        self.dropped: list[Entry] = []
        self.reasons: set[DequeueReason] = set()
        """The reasons for which messages were dropped."""
        self.dead: list[tuple[int, str]] = []
        """The positions of dead-lettered messages, with the reasons."""
        post: Any = lambda action, *args: None  # noqa: E731
        self.core = CoreContext.build(
            _store(), self.clock, post, post, memory_limit_bytes=1 << 20, quotas=None, notes=None
        )
        services = QueueServices(
            internal_queues=cast(Any, SimpleNamespace(queues={})),
            dead_letter=self._dead_letter,
            local_order=lambda queue: cast(Any, self),
            check_lifetime=lambda queue: None,
        )
        policy = {name.replace("_", "-"): value for name, value in arguments.items()}
        make_order = partial(SortedOrder, self.core) if policy_of("q", policy).is_sorted else ArrivalOrder
        self.queue = Queue(self.core, services, make_order, "q", 0, policy)

    def add(self, entries: Sequence[Entry]) -> None:
        """Add messages as if their flush had completed."""
        self.queue.messages += len(entries)
        if self.queue.limits is not None:
            self.queue.limits.count_enqueued(entries)
        self.queue.add(entries)
        if self.queue.limits is not None:
            self.queue.limits.shown()

    def consumer(self, credit: int) -> Taker:
        """Add a consumer with *credit*."""
        taker = Taker(credit)
        self.queue.consumers.append(taker)
        return taker

    def accept(self, taker: Taker, entry: Entry) -> None:
        """Dequeue a message that its consumer has accepted."""
        del taker.unsettled[entry]
        self.queue.count_dequeued([entry])

    def requeue(self, taker: Taker, entry: Entry) -> None:
        """Return a message of a consumer to the queue."""
        del taker.unsettled[entry]
        self.queue.contents.give_back(entry)

    @property
    def positions(self) -> list[int]:
        """The positions of the messages that no consumer holds, in order."""
        return [entry.position for entry in self.queue.contents.in_memory(-1, 1000)]

    # ---- order of changes -----------------------------------------------------------------------------------------

    def drop(self, entries: Sequence[Entry], reason: DequeueReason, then: Callable[[], None]) -> None:
        self.dropped += entries
        self.reasons.add(reason)
        self.queue.count_dequeued(entries)
        then()

    def drop_free(self, entries: Sequence[Entry], reason: DequeueReason, take_out: Callable[[Entry], bool]) -> None:
        self.drop([entry for entry in entries if take_out(entry)], reason, lambda: None)

    def drop_returned(self, entry: Entry, reason: DequeueReason) -> bool:
        self.drop([entry], reason, lambda: None)
        return True

    def _dead_letter(self, queue: Queue, entry: Entry, reason: str, then: Callable[[int], None]) -> None:
        self.dead.append((entry.position, reason))
        queue.count_dequeued([entry])
        then(0)


class Taker:
    """A consumer with a number of credits, which records its messages."""

    terminal: LinkErrors

    def __init__(self, credit: int) -> None:
        self.credit = credit
        self.unsettled: dict[Entry, None] = {}

    def room(self) -> int:
        return self.credit - len(self.unsettled)

    def take(self, entries: list[Entry]) -> None:
        self.unsettled.update(dict.fromkeys(entries))

    def dispatched(self) -> None:
        raise AssertionError("no consumer drains")

    @property
    def positions(self) -> list[int]:
        return [entry.position for entry in self.unsettled]
