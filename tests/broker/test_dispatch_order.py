"""The order of dispatch among consumers, without a broker."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from heapq import heapify

from hypothesis import given
from hypothesis import strategies as st

from cairnmq.broker.contents.arrival_order import dispatch_returned
from cairnmq.broker.contents.ports import QueueConsumer
from cairnmq.broker.messages.entry import Entry
from cairnmq.broker.queues.queue import dispatch_ready
from tests.harness.broker.queue_site import Taker


def entries(positions: Iterable[int]) -> list[Entry]:
    return [Entry(position, position, b"", 0) for position in positions]


def test_single_consumer_gets_messages_in_order_up_to_its_credit() -> None:
    taker, ready = Taker(3), deque(entries(range(5)))
    dispatch_ready(ready, [taker])
    assert taker.positions == [0, 1, 2]
    assert [entry.position for entry in ready] == [3, 4]


def test_consumers_take_turns_and_the_next_batch_begins_with_the_next_one() -> None:
    first, second = Taker(9), Taker(9)
    consumers: list[QueueConsumer] = [first, second]
    dispatch_ready(deque(entries(range(3))), consumers)
    assert (first.positions, second.positions) == ([0, 2], [1])
    assert consumers == [second, first]


def test_consumer_without_credit_is_passed_over() -> None:
    idle, taker = Taker(0), Taker(2)
    dispatch_ready(deque(entries(range(2))), [idle, taker])
    assert (idle.positions, taker.positions) == ([], [0, 1])


@given(st.lists(st.integers(0, 5), min_size=1, max_size=5), st.integers(0, 20))
def test_dispatch_uses_all_credit_or_all_messages_and_keeps_order(credits: list[int], count: int) -> None:
    takers = [Taker(credit) for credit in credits]
    consumers: list[QueueConsumer] = [*takers]
    ready = deque(entries(range(count)))
    dispatch_ready(ready, consumers)
    given_out = sorted(position for taker in takers for position in taker.positions)
    assert given_out == [*range(min(count, sum(credits)))]
    assert [entry.position for entry in ready] == [*range(len(given_out), count)]
    assert all(taker.positions == sorted(taker.positions) for taker in takers)
    fewest = min([len(taker.positions) for taker in takers if taker.room()], default=count)
    assert all(len(taker.positions) <= fewest + 1 for taker in takers), "nobody gets more while another has credit"
    assert {*consumers} == {*takers}


def test_requeued_message_waits_for_a_consumer_that_is_not_excluded() -> None:
    excluded, other = Taker(5), Taker(1)
    returned = entries([2, 1])
    for entry in returned:
        entry.excluded = {excluded}
    heapify(returned)
    assert dispatch_returned(returned, [excluded, other]), "the rest must not hold up other messages"
    assert (excluded.positions, other.positions) == ([], [1])
    assert [entry.position for entry in returned] == [2]


def test_requeued_message_holds_up_later_ones_while_nobody_has_credit() -> None:
    returned = entries([1])
    assert not dispatch_returned(returned, [Taker(0)])
    assert [entry.position for entry in returned] == [1]
