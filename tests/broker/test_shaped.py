"""Tests of sorted and exclusive queues: priorities, last values, groups and single consumers."""

from __future__ import annotations

from heapq import heapify, heappop
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cairnmq.amqp.native.proton_ffi import ACCEPTED, RELEASED
from cairnmq.broker.contents.sorted_order import take_from_heap
from cairnmq.broker.messages.entry import Entry
from tests.harness.broker.policies import Policed, decoded, either
from tests.harness.broker.world import FakeTerminal

small = pytest.mark.parametrize("memory", [10_000, 1 << 20], ids=["little memory", "enough memory"])


def bodies(taker: FakeTerminal) -> list[Any]:
    return [decoded(content).body for _, content in taker.forwarded]


@given(st.lists(st.tuples(st.integers(0, 12), st.booleans()), max_size=30), st.booleans(), st.integers(0, 30))
@settings(max_examples=25)
def test_higher_priorities_go_first_and_equal_ones_in_order(
    messages: list[tuple[int, bool]], restart: bool, taken: int
) -> None:
    policed = Policed(6_000)
    policed.make("q", priorities=True)
    left: list[tuple[int, int]] = []
    for number, (priority, durable) in enumerate(messages):
        answer = policed.send("q", (number, "x" * 200), priority=priority, durable=durable)
        assert answer == "accepted" or not durable  # transient messages may exceed the memory limit
        if answer == "accepted":
            left.append((-min(priority, 9), number))
    left.sort()
    first = policed.open("q", taken)
    assert [body[0] for body in bodies(first)] == [number for _, number in left[:taken]]
    for tag, _ in first.forwarded[::2]:
        policed.world.settle(first, tag, ACCEPTED)
    kept = [one for place, one in enumerate(left) if place >= taken or place % 2]
    if restart:
        policed.restart()
        kept = [one for one in kept if messages[one[1]][1]]
    else:
        policed.world.do(first.driver.close, [tag for tag, _ in first.forwarded[1::2]], False, False)
    assert [body[0] for body in policed.bodies("q")] == [number for _, number in kept]


def test_a_long_message_has_its_priority_also_after_a_restart() -> None:
    policed = Policed()
    policed.make("q", priorities=True)
    policed.send("q", "first", priority=4)
    terminal = policed.senders["q"]
    from proton import Message

    content = bytes(Message(body="long" * 50_000, durable=True, priority=9).encode())
    policed.world.send(terminal, (99, content[:100_000], 1), (99, content[100_000:], 0))
    taker = policed.open("q")
    assert bodies(taker)[0].startswith("long")
    policed.restart()
    assert policed.bodies("q")[0].startswith("long")


@either
@small
def test_only_the_last_value_of_each_key_stays(durable: bool, memory: int) -> None:
    policed = Policed(memory)
    policed.make("q", last_value_key="stock")
    for number in range(60):
        policed.send("q", (number, "x" * 200), durable=durable, properties={"stock": f"s{number % 3}"})
    policed.send("q", ("none", ""), durable=durable)
    if durable:
        policed.restart()
    assert [body[0] for body in policed.bodies("q")] == [57, 58, 59, "none"]


def test_a_value_that_a_consumer_has_is_replaced_when_it_comes_back(policed: Policed) -> None:
    policed.make("q", last_value_key="subject")
    policed.send("q", 1, subject="a")
    taker = policed.open("q", 1)
    policed.send("q", 2, subject="a")
    policed.world.settle(taker, taker.forwarded[0][0], RELEASED)
    assert policed.bodies("q") == [2]
    assert policed.world.queue().messages == 0


def test_a_group_stays_with_its_consumer(policed: Policed) -> None:
    policed.make("q", message_groups=True)
    one, other = policed.open("q", 3), policed.open("q", 100)
    for number in range(20):
        policed.send("q", number, group_id=f"g{number % 2}")
    groups = [{body % 2 for body in bodies(taker)} for taker in (one, other)]
    assert groups in ([{0}, {1}], [{1}, {0}])
    assert (len(bodies(one)), len(bodies(other))) == (3, 10)  # messages that wait for `one` don't delay `other`
    policed.world.do(one.driver.request, 100, False)
    assert len(bodies(one)) == 10
    assert bodies(one) == sorted(bodies(one))
    tags = [tag for tag, _ in one.forwarded]
    policed.world.settle(one, tags[0], ACCEPTED)
    policed.world.do(one.driver.close, tags[1:], False, False)
    assert len(bodies(other)) == 19  # including the group of the closed consumer
    assert bodies(other)[10:] == sorted(bodies(other)[10:])


def test_one_consumer_is_active_at_a_time(policed: Policed) -> None:
    policed.make("q", single_active_consumer=True)
    one, other = policed.open("q", 2), policed.open("q", 100)
    for number in range(5):
        policed.send("q", number)
    assert (bodies(one), bodies(other)) == ([0, 1], [])
    policed.world.do(one.driver.close, [tag for tag, _ in one.forwarded], False, False)
    assert bodies(other) == [0, 1, 2, 3, 4]


def test_an_exclusive_queue_has_one_consumer(policed: Policed) -> None:
    policed.make("q", exclusive=True)
    one, other = policed.open("q", 1), policed.world.open(to_client=True, address="q")
    assert other.failures == ["amqp:resource-locked"]
    policed.world.do(one.driver.close, (), False, False)
    assert policed.world.open(to_client=True, address="q").failures == []


@pytest.fixture
def policed() -> Policed:
    return Policed()


@given(st.lists(st.integers(0, 20), min_size=1, max_size=30), st.data())
@settings(max_examples=100)
def test_a_heap_stays_one_when_something_is_taken_from_its_middle(positions: list[int], data: st.DataObject) -> None:
    entries = [Entry(0, position, None, 0) for position in positions]
    heap = [*entries]
    heapify(heap)
    out = data.draw(st.lists(st.sampled_from(entries), unique=True))
    for entry in out:
        assert take_from_heap(heap, entry)
        assert not take_from_heap(heap, entry)
    left = [heappop(heap) for _ in range(len(heap))]
    assert [entry.position for entry in left] == sorted(entry.position for entry in entries if entry not in out)
