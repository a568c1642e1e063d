"""Tests of the parts of a queue, with fakes instead of a broker: order of arrival, limits and expiry."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cairnmq.broker.messages.entry import Entry
from cairnmq.broker.messages.message_times import TimedEntry, Times
from cairnmq.broker.queues.limits import Staged
from cairnmq.store.contract.dequeue_reason import DequeueReason
from tests.harness.broker.queue_site import QueueSite


class Sender:
    """A sender link that records its granted credit."""

    def __init__(self) -> None:
        self.granted: list[int] = []

    def grant(self, credit: int) -> None:
        self.granted.append(credit)


def entries(*positions: int) -> list[Entry]:
    return [Entry(0, position, b"", 250) for position in positions]


@given(st.lists(st.sampled_from(["add", "take", "take", "return"]), max_size=40), st.randoms())
def test_arrival_order_keeps_positions_of_requeued_messages(steps: list[str], random: Any) -> None:
    site = QueueSite()
    queue = site.queue
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
        assert site.positions == there
        assert queue.depth == len(there)


@pytest.mark.parametrize(("overflow", "answer"), [("reject", "the queue 'q' is full: 3 of 3 messages"), ("drop", None)])
def test_full_queue_refuses_or_drops_another_message(overflow: str, answer: str | None) -> None:
    site = QueueSite(max_messages=3, overflow=overflow)
    limits = site.queue.limits
    assert limits is not None
    site.add(entries(1, 2))
    assert limits.look_at(b"", 0) == ""
    site.add(entries(3))
    assert limits.look_at(b"", 0) == answer


@given(st.lists(st.integers(1, 5), max_size=10))
def test_ring_keeps_the_newest_messages(batches: list[int]) -> None:
    site = QueueSite(max_messages=4, overflow="ring")
    last = 0
    for size in batches:
        site.add(entries(*range(last + 1, last + size + 1)))
        last += size
        assert site.positions == [*range(max(1, last - 3), last + 1)]
        assert [entry.position for entry in site.dropped] == [*range(1, last - 3)]
        assert site.reasons <= {DequeueReason.OVERFLOW}


@given(st.lists(st.integers(1, 200), max_size=15))
def test_ring_keeps_the_newest_bytes(sizes: list[int]) -> None:
    """A ring queue keeps the newest messages that fit; messages larger than its limit are refused earlier."""
    site = QueueSite(max_bytes=300, overflow="ring")
    for position, size in enumerate(sizes, 1):
        site.add([Entry(0, position, bytes(size), 250)])
        kept = [place for place in range(1, position + 1) if sum(sizes[place - 1 : position]) <= 300]
        assert site.positions == kept
        assert site.queue.limits is not None
        assert site.queue.limits.bytes == sum(sizes[place - 1] for place in kept)


@pytest.mark.parametrize("overflow", ["reject", "block", "ring", "drop"])
def test_message_larger_than_the_limit_is_refused_by_an_empty_queue(overflow: str) -> None:
    limits = QueueSite(max_bytes=100, overflow=overflow).queue.limits
    assert limits is not None
    assert limits.look_at(b"", 100) == ""
    assert limits.look_at(b"", 101) == "the queue 'q' has room for 100 bytes"


@pytest.mark.parametrize(("overflow", "accepts"), [("reject", False), ("drop", False), ("block", True), ("ring", True)])
def test_full_queue_of_each_overflow_policy(overflow: str, accepts: bool) -> None:
    site = QueueSite(max_messages=2, overflow=overflow)
    site.add(entries(1, 2))
    assert site.queue.limits is not None
    assert (site.queue.limits.look_at(b"", 0) == "") == accepts


def test_blocking_queue_withholds_credit_until_three_quarters_are_used() -> None:
    site = QueueSite(max_messages=4, overflow="block")
    limits = site.queue.limits
    sender: Any = Sender()
    assert limits is not None
    assert limits.credit(sender, 10) == 10
    messages = entries(1, 2, 3, 4)
    site.add(messages)
    assert [limits.credit(sender, 7), limits.credit(sender, 3)] == [0, 0]
    assert not sender.granted
    site.queue.count_dequeued(messages[:1])
    assert sender.granted == [10]
    site.queue.count_dequeued(messages[1:])
    assert sender.granted == [10]
    assert limits.credit(sender, 5) == 5


def test_blocking_queue_grants_nothing_to_a_closed_sender() -> None:
    site = QueueSite(max_messages=1, overflow="block")
    limits = site.queue.limits
    sender: Any = Sender()
    assert limits is not None
    messages = entries(1)
    site.add(messages)
    assert limits.credit(sender, 7) == 0
    site.core.users.throttles.link_closed(sender)
    site.queue.count_dequeued(messages)
    assert not sender.granted


def test_messages_of_open_transactions_count_until_these_end() -> None:
    site = QueueSite(max_messages=3, overflow="reject")
    limits, staged = site.queue.limits, Staged()
    assert limits is not None
    site.add(entries(1))
    for _ in range(2):
        assert limits.look_at(b"", 0, staged) == ""
        limits.stage(staged, b"", 0)
    assert limits.look_at(b"", 0) == "the queue 'q' is full: 1 of 3 messages, and 2 in open transactions"
    limits.unstage(staged)
    assert limits.look_at(b"", 0) == ""


def test_lower_limit_of_a_ring_drops_the_oldest_messages_at_once() -> None:
    site = QueueSite(max_messages=10, overflow="ring")
    site.add(entries(*range(1, 9)))
    site.queue.change({"max-messages": 3, "overflow": "ring"})
    assert site.positions == [6, 7, 8]


def test_limit_that_is_set_later_counts_messages_on_the_queue() -> None:
    site = QueueSite()
    site.add([Entry(0, position, bytes(40), 250) for position in (1, 2)])
    site.queue.change({"max-bytes": 100})
    assert site.queue.limits is not None
    assert site.queue.limits.bytes == 80
    assert site.queue.limits.look_at(b"", 21) == "the queue 'q' is full: 80 of 100 bytes"


@given(st.lists(st.integers(0, 9), min_size=1, max_size=20))
def test_messages_expire_at_their_times_and_not_before(seconds: list[int]) -> None:
    """Messages expire at their times, given in seconds from now; 0 stands for no expiry."""
    site = QueueSite()
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
    assert site.positions == [position for position, after in enumerate(seconds, 1) if not after]
