"""Parts of a queue without a broker: the order of arrival, limits and expiry, in a context of fakes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cairnmq.base.testing.manual_clock import ManualClock
from cairnmq.broker.contents.arrival_order import ArrivalOrder
from cairnmq.broker.kernel.context import CoreContext
from cairnmq.broker.messages.entry import Entry
from cairnmq.broker.messages.message_times import TimedEntry, Times
from cairnmq.broker.queues.queue import Queue, QueueServices
from cairnmq.store.contract.dequeue_reason import Why
from cairnmq.store.mapped.memory_store import MemoryStore


class Site:
    """One queue without a broker, with the calls that it makes to the parts above it."""

    finds_by_position = counts_failures = remembers_together = limits_events = False

    def __init__(self, **arguments: object) -> None:
        self.clock = ManualClock()
        self.dropped: list[Entry] = []
        self.dead: list[tuple[int, str]] = []
        post: Any = lambda action, *args: None  # noqa: E731
        self.core = CoreContext.build(
            MemoryStore(), self.clock, post, post, memory_limit_bytes=1 << 20, quotas=None, notes=None
        )
        services = QueueServices(
            internal_queues=cast(Any, SimpleNamespace(queues={})),
            dead_letter=self._dead_letter,
            local_order=lambda queue: cast(Any, self),
            check_lifetime=lambda queue: None,
        )
        policy = {name.replace("_", "-"): value for name, value in arguments.items()}
        self.queue = Queue(self.core, services, ArrivalOrder, "q", 0, policy)

    def add(self, entries: Sequence[Entry]) -> None:
        self.queue.messages += len(entries)
        self.queue.add(entries)
        if self.queue.limits is not None:
            self.queue.limits.count_enqueued(entries)
            self.queue.limits.shown()

    def drop(self, entries: Sequence[Entry], why: Why, then: Callable[[], None]) -> None:
        """Drop messages, as the order of a queue does."""
        assert why is Why.OVERFLOW
        self.dropped += entries
        self.queue.count_dequeued(entries)
        then()

    def _dead_letter(self, queue: Queue, entry: Entry, reason: str, then: Callable[[int], None]) -> None:
        self.dead.append((entry.position, reason))
        queue.count_dequeued([entry])
        then(0)


def entries(*positions: int) -> list[Entry]:
    return [Entry(0, position, b"", 250) for position in positions]


def on_queue(queue: Queue) -> list[int]:
    return [entry.position for entry in queue.contents.in_memory(-1, 1000)]


@given(st.lists(st.sampled_from(["add", "take", "take", "return"]), max_size=40), st.randoms())
def test_arrival_order_keeps_positions_of_requeued_messages(steps: list[str], random: Any) -> None:
    queue = Site().queue
    there: list[int] = []
    out: list[Entry] = []
    for position, step in enumerate(steps, 1):
        if step == "add":
            queue.add(entries(position))
            there.append(position)
        elif step == "take" and there:
            oldest = queue.contents.order.take_oldest()
            assert oldest is not None
            assert oldest.position == there.pop(0)
            out.append(oldest)
        elif step == "return" and out:
            back = out.pop(random.randrange(len(out)))
            queue.contents.give_back(back)
            there = sorted([*there, back.position])
        assert on_queue(queue) == there
        assert queue.depth == len(there)


@pytest.mark.parametrize(("overflow", "answer"), [("reject", "the queue 'q' is full: 3 of 3 messages"), ("drop", None)])
def test_full_queue_refuses_or_drops_another_message(overflow: str, answer: str | None) -> None:
    site = Site(max_messages=3, overflow=overflow)
    limits = site.queue.limits
    assert limits is not None
    site.add(entries(1, 2))
    assert limits.look_at(b"", 0) == ""
    site.add(entries(3))
    assert limits.look_at(b"", 0) == answer


@given(st.lists(st.integers(1, 5), max_size=10))
def test_ring_keeps_the_newest_messages(batches: list[int]) -> None:
    site = Site(max_messages=4, overflow="ring")
    last = 0
    for size in batches:
        site.add(entries(*range(last + 1, last + size + 1)))
        last += size
        assert on_queue(site.queue) == [*range(max(1, last - 3), last + 1)]
        assert [entry.position for entry in site.dropped] == [*range(1, last - 3)]


@given(st.lists(st.integers(0, 9), min_size=1, max_size=20))
def test_messages_expire_at_their_times_and_not_before(seconds: list[int]) -> None:
    """Each message has a time in seconds from now; 0 for none."""
    site = Site()
    now_us = site.clock.wall_us()
    site.queue.begin_timing()
    site.add(
        [
            TimedEntry(0, position, b"", 250, Times(0, now_us + after * 1_000_000 if after else 0))
            for position, after in enumerate(seconds, 1)
        ]
    )
    expiry = site.queue.contents.expiry
    assert expiry is not None
    for second in range(11):
        site.core.background.end_step()
        assert expiry.expire()
        expected = {position for position, after in enumerate(seconds, 1) if 0 < after <= second}
        assert site.dead == [*dict.fromkeys(site.dead)]
        assert {position for position, _ in site.dead} == expected
        site.clock.advance(1)
    expiry.clean(thoroughly=True)
    assert on_queue(site.queue) == [position for position, after in enumerate(seconds, 1) if not after]
