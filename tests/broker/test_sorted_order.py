"""Tests of the order of sorted queues without a broker: priorities, last values, groups, a single consumer."""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heapify
from itertools import chain, count
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cairnmq.amqp.codec import header, sections
from cairnmq.broker.contents.sorted_order import take_from_heap
from cairnmq.broker.messages.entry import ARRIVAL_MASK, Entry
from cairnmq.store.contract.dequeue_reason import DequeueReason
from tests.harness.broker.queue_site import QueueSite, Taker


def with_priority(arrival: int, priority: int) -> Entry:
    return Entry(0, arrival, sections.header_section(header.Header(priority=priority)), 250)


def with_group(arrival: int, group: str | None) -> Entry:
    return Entry(0, arrival, sections.properties_section(sections.Properties(group_id=group)), 250)


def with_value(arrival: int, value: object) -> Entry:
    return Entry(0, arrival, sections.application_properties_section({"key": value}), 250)


def arrivals(entries: Sequence[Entry] | dict[Entry, None]) -> list[int]:
    return [entry.position & ARRIVAL_MASK for entry in entries]


def on_queue(site: QueueSite) -> list[int]:
    return [position & ARRIVAL_MASK for position in site.positions]


# ---- priorities -----------------------------------------------------------------------------------------------------


@given(st.lists(st.integers(0, 20), min_size=1, max_size=30), st.integers(1, 30))
def test_highest_priority_is_dispatched_first_and_in_order_of_arrival(priorities: list[int], credit: int) -> None:
    """Messages are dispatched by priority, then in order of arrival; priorities above 9 count as 9."""
    site = QueueSite(priorities=True)
    taker = site.consumer(credit)
    site.add([with_priority(arrival, priority) for arrival, priority in enumerate(priorities)])
    site.queue.dispatch()
    expected = sorted(range(len(priorities)), key=lambda arrival: (-min(priorities[arrival], 9), arrival))
    assert arrivals(taker.unsettled) == expected[:credit]
    assert on_queue(site) == expected[credit:]


@given(st.lists(st.sampled_from(["add", "take", "take", "return"]), max_size=40), st.randoms())
def test_requeued_message_returns_to_its_place(steps: list[str], random: Any) -> None:
    site = QueueSite(priorities=True)
    taker = site.consumer(0)
    free: list[tuple[int, int]] = []
    held: list[tuple[int, int]] = []
    for arrival, step in enumerate(steps):
        if step == "add":
            priority = random.randrange(10)
            site.add([with_priority(arrival, priority)])
            free = sorted([*free, (-priority, arrival)])
        elif step == "take":
            taker.credit = len(taker.unsettled) + 1
            held += free[:1]
            del free[:1]
            site.queue.dispatch()
        elif held:
            back = held.pop(random.randrange(len(held)))
            (entry,) = [entry for entry in taker.unsettled if entry.position & ARRIVAL_MASK == back[1]]
            taker.credit = 0
            site.requeue(taker, entry)
            free = sorted([*free, back])
        assert sorted(arrivals(taker.unsettled)) == sorted(arrival for _, arrival in held)
        assert on_queue(site) == [arrival for _, arrival in free]
        assert site.queue.depth == len(free)


@given(st.lists(st.integers(0, 9), min_size=1, max_size=20))
def test_oldest_message_of_the_lowest_priority_is_dropped_first(priorities: list[int]) -> None:
    order = QueueSite(priorities=True)
    order.add([with_priority(arrival, priority) for arrival, priority in enumerate(priorities)])
    take_oldest = order.queue.contents.order.take_oldest
    taken = [entry.position & ARRIVAL_MASK for entry in iter(take_oldest, None)]
    assert taken == sorted(range(len(priorities)), key=lambda arrival: (priorities[arrival], arrival))


@given(st.lists(st.integers(0, 9), max_size=20))
def test_ring_keeps_the_messages_of_the_highest_priority(priorities: list[int]) -> None:
    site = QueueSite(priorities=True, max_messages=4, overflow="ring")
    kept: list[tuple[int, int]] = []
    for arrival, priority in enumerate(priorities):
        site.add([with_priority(arrival, priority)])
        kept = sorted([*kept, (-priority, arrival)])
        if len(kept) > 4:
            lowest = max(negative for negative, _ in kept)
            kept.remove(min(one for one in kept if one[0] == lowest))
        assert on_queue(site) == [arrival for _, arrival in kept]


def test_consumer_does_not_get_a_message_that_it_cannot_process() -> None:
    site = QueueSite(priorities=True)
    first, second = site.consumer(5), site.consumer(1)
    entries = [with_priority(arrival, 4) for arrival in range(3)]
    for entry in entries[:2]:
        entry.excluded = {first}
    site.add(entries)
    site.queue.dispatch()
    assert arrivals(second.unsettled) == [0]
    assert arrivals(first.unsettled) == [2]
    assert on_queue(site) == [1]


# ---- last values ----------------------------------------------------------------------------------------------------


@given(st.lists(st.one_of(st.none(), st.sampled_from(["a", "b", "c", 1])), max_size=30))
def test_newest_message_of_each_value_stays(values: list[str | int | None]) -> None:
    """The newest message of each value replaces earlier ones; a message without the property is never replaced."""
    site = QueueSite(last_value_key="key")
    for arrival, value in enumerate(values):
        site.add([Entry(0, arrival, b"", 250) if value is None else with_value(arrival, value)])
    newest = {value: arrival for arrival, value in enumerate(values)}
    stay = [arrival for arrival, value in enumerate(values) if value is None or newest[value] == arrival]
    assert on_queue(site) == stay
    assert site.queue.messages == len(stay)
    assert len(site.dropped) == len(values) - len(stay)
    assert site.reasons <= {DequeueReason.REPLACED}


def test_values_of_different_types_differ() -> None:
    site = QueueSite(last_value_key="key")
    site.add([with_value(0, 1), with_value(1, "1"), with_value(2, True)])
    assert on_queue(site) == [0, 1, 2]


def test_subject_can_be_the_value() -> None:
    site = QueueSite(last_value_key="subject")
    subjects = ["x", "y", "x"]
    contents = [sections.properties_section(sections.Properties(subject=subject)) for subject in subjects]
    site.add([Entry(0, arrival, content, 250) for arrival, content in enumerate(contents)])
    assert on_queue(site) == [1, 2]


def test_replaced_message_with_a_consumer_is_dropped_when_it_is_requeued() -> None:
    site = QueueSite(last_value_key="key")
    taker = site.consumer(1)
    site.add([with_value(0, "a")])
    site.queue.dispatch()
    taker.credit = 0
    site.add([with_value(1, "a")])
    (entry,) = taker.unsettled
    assert not entry.is_dequeued
    site.requeue(taker, entry)
    assert on_queue(site) == [1]
    assert site.dropped == [entry]
    assert entry.is_dequeued


def test_requeued_message_without_a_newer_one_stays() -> None:
    site = QueueSite(last_value_key="key")
    taker = site.consumer(1)
    site.add([with_value(0, "a"), with_value(1, "b")])
    site.queue.dispatch()
    taker.credit = 0
    site.requeue(taker, next(iter(taker.unsettled)))
    assert on_queue(site) == [0, 1]
    assert not site.dropped


def test_member_that_does_not_decide_drops_replaced_messages_when_it_starts_to_decide() -> None:
    site = QueueSite(last_value_key="key")
    site.queue.is_owner = False
    site.add([with_value(0, "a"), with_value(1, "a")])
    assert on_queue(site) == [0, 1]
    site.queue.is_owner = True
    site.queue.now_decides()
    assert on_queue(site) == [1]


# ---- groups ---------------------------------------------------------------------------------------------------------


@given(
    st.lists(st.one_of(st.none(), st.sampled_from("abc")), min_size=1, max_size=30),
    st.lists(st.integers(1, 8), min_size=1, max_size=4),
    st.randoms(),
)
def test_each_group_goes_to_one_consumer_in_order(groups: list[str | None], credits: list[int], random: Any) -> None:
    site = QueueSite(message_groups=True)
    takers = [site.consumer(credit) for credit in credits]
    received: dict[Taker, list[int]] = {taker: [] for taker in takers}
    site.add([with_group(arrival, group) for arrival, group in enumerate(groups)])
    while site.queue.messages:
        site.queue.dispatch()
        busy = [taker for taker in takers if taker.unsettled]
        assert busy, "every consumer has credit, so none may wait"
        taker = random.choice(busy)
        entry = next(iter(taker.unsettled))
        received[taker].append(entry.position)
        site.accept(taker, entry)
    assert sorted(chain.from_iterable(received.values())) == list(range(len(groups)))
    for group in {*groups} - {None}:
        owners = [taker for taker in takers if any(groups[arrival] == group for arrival in received[taker])]
        assert len(owners) == 1
        of_group = [arrival for arrival in received[owners[0]] if groups[arrival] == group]
        assert of_group == sorted(of_group)


def test_group_without_credit_does_not_block_others() -> None:
    site = QueueSite(message_groups=True)
    first, second = site.consumer(1), site.consumer(2)
    site.add([with_group(arrival, group) for arrival, group in enumerate("abaab")])
    site.queue.dispatch()
    assert arrivals(first.unsettled) == [0]
    assert arrivals(second.unsettled) == [1, 4]
    assert site.queue.contents.order.parked_count == 2
    assert on_queue(site) == [2, 3]
    assert site.queue.depth == 2


def test_group_of_a_closed_consumer_goes_to_another_one() -> None:
    site = QueueSite(message_groups=True)
    first, second = site.consumer(1), site.consumer(1)
    site.add([with_group(arrival, group) for arrival, group in enumerate("abaa")])
    site.queue.dispatch()
    assert (arrivals(first.unsettled), arrivals(second.unsettled)) == ([0], [1])
    site.queue.consumers.remove(first)
    site.requeue(first, next(iter(first.unsettled)))
    second.credit = 9
    site.queue.dispatch()
    assert arrivals(second.unsettled) == [1, 0, 2, 3]


# ---- a single consumer ----------------------------------------------------------------------------------------------


@given(st.integers(1, 10), st.integers(0, 10))
def test_first_consumer_gets_all_messages_until_it_is_closed(messages: int, credit: int) -> None:
    site = QueueSite(single_active_consumer=True)
    first, second = site.consumer(credit), site.consumer(20)
    site.add([Entry(0, arrival, b"", 250) for arrival in range(messages)])
    for _ in range(2):
        site.queue.dispatch()
    assert arrivals(first.unsettled) == [*range(min(messages, credit))]
    assert not second.unsettled
    site.queue.consumers.remove(first)
    site.queue.dispatch()
    assert arrivals(second.unsettled) == [*range(min(messages, credit), messages)]


# ---- damaged messages, and the heap ---------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", [{"message_groups": True}, {"last_value_key": "key"}, {"priorities": True}])
def test_malformed_message_is_kept_and_dispatched(policy: dict[str, object]) -> None:
    site = QueueSite(**policy)
    taker = site.consumer(5)
    damaged = [b"\x00\x53\x70\xc0\xff", b"\x00\x53\x73\xc0\xff", b"\x00\x53\x74\xc1\x02\x02\x01"]
    site.add([Entry(0, arrival, content, 250) for arrival, content in enumerate(damaged)])
    site.queue.dispatch()
    assert sorted(arrivals(taker.unsettled)) == [0, 1, 2]


@given(st.lists(st.integers(0, 50), max_size=40, unique=True), st.randoms())
def test_heap_stays_a_heap_without_any_of_its_entries(positions: list[int], random: Any) -> None:
    numbers = count(1)
    heap = [Entry(next(numbers), position, b"", 0) for position in positions]
    heapify(heap)
    left = list(heap)
    while left:
        entry = left.pop(random.randrange(len(left)))
        assert take_from_heap(heap, entry)
        assert not take_from_heap(heap, entry)
        assert sorted(heap) == sorted(left)
        assert all(not heap[place] < heap[(place - 1) // 2] for place in range(1, len(heap)))
