"""Tests of queues with policies in a cluster of three members, with changes of the owner (D9, D24)."""

from __future__ import annotations

from typing import Any

import pytest

from cairnmq.base.errors import StoreError
from tests.harness.cluster.cluster_harness import ACCEPT, FAIL, ClusterHarness, Receiver, Sender
from tests.harness.cluster.policy_queues import content, is_same, numbers, on_queue, sent, takes, world_with
from tests.harness.cluster.transaction_client import Transactor


def come_back(harness: ClusterHarness, node: int) -> None:
    harness[node].start()
    assert harness.until(lambda: harness[node].serves, 60), harness.reason()
    is_same(harness)


def test_priorities_hold_on_whichever_member() -> None:
    harness = world_with(priorities=True)
    sent(harness, 1, {number: content(number, priority=number % 3) for number in range(12)})
    order = [2, 5, 8, 11, 1, 4, 7, 10, 0, 3, 6, 9]
    first = takes(harness, 2, 3)
    assert numbers(first) == order[:3]
    first.settle_as([2], ACCEPT)
    first.settle_as([5], FAIL, failed=True)
    harness.run(0.2)
    first.leave()  # requeues 8, too
    second = takes(harness, 3, 4)
    assert numbers(second) == [5, 8, 11, 1]
    second.settle_as([5, 8, 11, 1], ACCEPT)
    harness.run(0.3)
    is_same(harness)
    harness[3].kill()
    third = takes(harness, 1, 7)
    assert numbers(third) == [4, 7, 10, 0, 3, 6, 9]
    third.settle_as([4, 0], ACCEPT)
    harness.run(0.3)
    come_back(harness, 3)
    third.leave()
    harness.run(0.3)
    assert numbers(takes(harness, 3, 5)) == [7, 10, 3, 6, 9]


def test_long_messages_keep_their_priority_for_newcomers() -> None:
    harness = world_with(priorities=True)
    harness[3].kill()
    harness.run(0.5)
    long = {number: content(number, priority=number, subject="s" * 200_000) for number in (1, 2)}
    sent(harness, 1, {0: content(0, priority=0), **long})
    come_back(harness, 3)
    assert numbers(takes(harness, 3, 3)) == [2, 1, 0]


def test_the_newest_value_is_everywhere() -> None:
    harness = world_with(last_value_key="subject")
    sent(harness, 1, {number: content(number, subject=str(number % 3)) for number in range(9)})
    harness.run(0.3)
    assert on_queue(harness, 2) == [6, 7, 8]
    is_same(harness)
    first = takes(harness, 2, 2)
    sent(harness, 3, {number: content(number, subject=str(number % 3)) for number in (9, 10)})
    harness.run(0.3)
    assert on_queue(harness, 1) == [6, 7, 8, 9, 10], "a consumer has the old ones"
    first.leave()
    harness.run(0.3)
    assert on_queue(harness, 1) == [8, 9, 10]
    is_same(harness)
    first = takes(harness, 2, 1)
    sent(harness, 1, {11: content(11, subject="2")})
    harness[2].kill()  # the owner, which had sent no event about 8
    assert harness.until(lambda: on_queue(harness, 1) == [9, 10, 11], 10)
    come_back(harness, 2)
    sent(harness, 2, {12: content(12, subject="0")})
    harness.run(0.3)
    assert on_queue(harness, 3) == [10, 11, 12]
    is_same(harness)


def test_a_group_has_one_consumer_in_the_whole_cluster() -> None:
    harness = world_with(message_groups=True)
    first, other, second = Receiver(harness[1]), Receiver(harness[1]), Receiver(harness[2])
    harness.run(0.2)
    for receiver in (first, other, second):
        receiver.request(100)
    sender = Sender(harness[3])
    harness.run(0.1)
    for batch in range(0, 40, 4):  # for longer than an ownership slice
        sender.send_whole({number: content(number, group_id=f"g{number % 4}") for number in range(batch, batch + 4)})
        harness.run(0.1)
        first.settle_as([*first.unsettled], ACCEPT)
    assert harness.until(lambda: len(first.order) + len(other.order) == 40)
    assert not second.order, "one member's consumers have all groups"
    groups = [{number % 4 for number in numbers(receiver)} for receiver in (first, other)]
    assert not groups[0] & groups[1]
    assert len(groups[0] | groups[1]) == 4
    first.settle_as(numbers(first), ACCEPT)
    harness.run(0.2)
    first.leave()
    held = numbers(other)
    harness[1].kill()
    assert harness.until(lambda: sorted(numbers(second)) == sorted(held), 10)
    assert all(marked for _, marked in second.order)
    assert numbers(second) == sorted(held), "in order"


def test_one_consumer_is_active_in_the_whole_cluster() -> None:
    harness = world_with(single_active_consumer=True)
    first, second, third = (Receiver(harness[node]) for node in (1, 2, 2))
    harness.run(0.2)
    for receiver in (third, second, first):
        receiver.request(100)
    sent(harness, 3, {number: content(number) for number in range(20)})
    harness.run(1)
    active = next(receiver for receiver in (first, second, third) if receiver.order)
    assert numbers(active) == [*range(20)]
    assert sum(bool(receiver.order) for receiver in (first, second, third)) == 1
    active.settle_as(range(5), ACCEPT)
    harness.run(0.2)
    active.leave()
    harness.run(1)
    assert sorted(len(receiver.order) for receiver in (first, second, third)) == [0, 15, 20]


def test_an_exclusive_queue_has_one_consumer_in_the_whole_cluster() -> None:
    harness = world_with(exclusive=True)
    first = takes(harness, 1, 0)
    second = Receiver(harness[2])
    harness.run(0.2)
    assert second.failures == ["amqp:resource-locked"]
    first.leave()
    harness.run(0.2)
    one, other = Receiver(harness[2]), Receiver(harness[3])  # for both members, the queue has no consumer
    harness.run(0.3)
    assert sorted(one.failures + other.failures) == ["amqp:resource-locked"]
    refused = one if one.failures else other
    kept = other if one.failures else one
    refused.leave()
    kept.request(10)
    sent(harness, 1, {1: content(1)})
    assert harness.until(lambda: numbers(kept) == [1])


def test_the_same_message_id_is_taken_once_by_all() -> None:
    harness = world_with(duplicate_window=5)
    one, other = Sender(harness[1]), Sender(harness[2])
    harness.run(0.2)
    for number in range(4):  # concurrently on two members, before each receives the other's event
        one.send_whole({number: content(number, id=f"m{number}")})
        other.send_whole({number + 100: content(number, id=f"m{number}")})
    assert harness.until(lambda: len(one.confirmed) == len(other.confirmed) == 4)
    harness.run(0.3)
    assert sorted(on_queue(harness, 3)) == [0, 1, 2, 3]
    is_same(harness)
    takes(harness, 3, 4).settle_as(range(4), ACCEPT)
    harness.run(0.3)
    harness[3].kill()
    harness.run(0.5)
    sent(harness, 1, {4: content(4, id="m4")})
    come_back(harness, 3)
    sent(harness, 3, {number: content(number, id=f"m{number}") for number in range(6)})
    harness.run(0.3)
    assert on_queue(harness, 1) == [4, 5], "a newcomer remembers what went before it came"
    is_same(harness)
    sent(harness, 2, {0: content(0, id="m0")})
    harness.run(0.3)
    assert on_queue(harness, 1) == [4, 5, 0], "the oldest is forgotten by all"
    is_same(harness)
    for node in (1, 2, 3):
        harness[node].stop()
    for node in (1, 2, 3):
        harness[node].start()
    assert harness.until(lambda: all(member.serves for member in harness.members.values()), 60), harness.reason()
    sent(harness, 2, {number: content(number, id=f"m{number}") for number in (0, 2, 3, 4, 5, 1)})
    harness.run(0.3)
    assert on_queue(harness, 1) == [4, 5, 0, 1]
    is_same(harness)


def test_a_transaction_puts_no_message_id_again() -> None:
    harness = world_with(duplicate_window=5)
    sent(harness, 1, {0: content(0, id="m0")})
    client = Transactor(harness[2], ["q"])
    assert harness.until(lambda: client.is_ready)
    client.declare()
    assert harness.until(lambda: bool(client.control.declared_ids))
    messages = [(number, content(number, id=f"m{number}"), 0) for number in (1, 0, 2)]
    harness[2].do(client.senders["q"].driver.receive_in, client.connection, client.txn_id, messages)
    request = client.discharge()
    assert harness.until(lambda: request in client.control.confirmed), client.control.rejected
    harness.run(0.3)
    assert on_queue(harness, 3) == [0, 1, 2]
    is_same(harness)


def test_what_can_not_be_remembered_by_newcomers_is_refused() -> None:
    harness = ClusterHarness(1).start()
    made: list[object] = []
    harness[1].do(harness[1].broker.nodes.create_queue, "q", {"duplicate-window": 1 << 20}, made.append)
    harness.run(0.1)
    assert isinstance(made[0], StoreError)
    assert "exceeds the limit of 65536" in str(made[0])


def test_deliveries_are_counted_across_members() -> None:
    harness = world_with(max_deliveries=2, dead_letter_address="dead")
    sent(harness, 1, {0: content(0), 1: content(1)})
    first = takes(harness, 2, 2)
    first.settle_as([0], FAIL, failed=True)
    harness.run(0.1)
    first.leave()
    second = takes(harness, 3, 2)
    second.settle_as([0, 1], FAIL, failed=True)
    harness.run(0.5)
    for node in harness.members:
        assert on_queue(harness, node) == [1]
        assert on_queue(harness, node, "dead") == [0]
    is_same(harness)


def test_a_failed_message_waits_also_when_the_owner_changes() -> None:
    harness = world_with(retry_delay_ms=5000)
    sent(harness, 1, {0: content(0)})
    first = takes(harness, 2, 1)
    first.settle_as([0], FAIL, failed=True)
    harness.run(0.3)
    first.leave()
    second = Receiver(harness[3])
    harness.run(0.1)
    second.request(1)
    harness.run(3)
    assert not second.order
    assert harness.until(lambda: second.order == [(0, True)], 4)
    is_same(harness)


@pytest.mark.parametrize("shape", [{}, {"priorities": True}], ids=["plain", "priorities"])
def test_a_delayed_message_waits_on_whichever_member(shape: dict[str, Any]) -> None:
    harness = world_with(**shape)
    sent(harness, 1, {0: content(0, annotations={"x-opt-delivery-delay": 5000}), 1: content(1)})
    first = takes(harness, 2, 1)
    assert numbers(first) == [1]
    first.settle_as([1], ACCEPT)
    harness.run(0.2)
    harness[2].kill()
    second = Receiver(harness[3])
    harness.run(0.1)
    second.request(1)
    harness.run(3)
    assert not second.order
    come_back(harness, 2)
    assert harness.until(lambda: numbers(second) == [0], 10)
    is_same(harness)


@pytest.mark.parametrize("shape", [{}, {"priorities": True}], ids=["plain", "priorities"])
def test_what_expires_does_so_also_without_the_owner(shape: dict[str, Any]) -> None:
    harness = world_with(expiry_address="dead", **shape)
    sent(harness, 1, {0: content(0, ttl=3), 1: content(1), 2: content(2, ttl=3)})
    first = takes(harness, 2, 1)
    harness.run(0.3)
    harness[2].kill()
    assert first.order
    assert harness.until(lambda: sorted(on_queue(harness, 3, "dead")) == [0, 2], 10)
    assert on_queue(harness, 1) == [1]
    come_back(harness, 2)


@pytest.mark.parametrize("overflow", ["reject", "drop"])
def test_a_full_queue_takes_no_more_on_any_member(overflow: str) -> None:
    harness = world_with(max_messages=3, overflow=overflow)
    sent(harness, 1, {0: content(0), 1: content(1), 2: content(2)})
    late = Sender(harness[2])
    harness.run(0.1)
    late.send_whole({3: content(3)})
    assert harness.until(lambda: bool(late.rejected if overflow == "reject" else late.confirmed))
    taker = takes(harness, 3, 1)
    taker.settle_as([0], ACCEPT)
    harness.run(0.3)
    sent(harness, 2, {4: content(4)})
    harness.run(0.2)
    assert on_queue(harness, 1) == [1, 2, 4]
    is_same(harness)


LIMITS: list[dict[str, int]] = [{"max_messages": 3}, {"max_bytes": 3 * len(content(0))}]


@pytest.mark.parametrize("limit", LIMITS, ids=["messages", "bytes"])
@pytest.mark.parametrize("overflow", ["reject", "drop"])
def test_a_limit_is_exceeded_only_by_what_is_on_its_way_on_other_members(overflow: str, limit: dict[str, int]) -> None:
    """Each member admits messages up to the limit, counted by the events that it has received."""
    harness = world_with(overflow=overflow, **limit)
    one, *others = [Sender(harness[node]) for node in (1, 2, 3)]
    harness.run(0.1)
    one.send_whole({number: content(number) for number in range(50)})
    harness.run(0.3)
    assert on_queue(harness, 2) == [0, 1, 2]
    assert len(one.rejected if overflow == "reject" else one.confirmed) == (47 if overflow == "reject" else 50)
    taker = takes(harness, 3, 3)
    taker.settle_as(range(3), ACCEPT)
    harness.run(0.3)
    harness.network.pause_daemon(2)  # no member receives any events
    for node, sender in enumerate((one, *others), 1):
        sender.send_whole({number: content(number) for number in range(100 * node, 100 * node + 50)})
    harness.run(0.05)
    harness.network.resume_daemon(2)
    harness.run(0.3)
    assert on_queue(harness, 1) == [100 * node + number for node in (1, 2, 3) for number in range(3)]
    is_same(harness)


def test_what_is_never_heard_does_not_count_for_ever() -> None:
    """Lost messages count towards the limit neither on joining members nor on the member that was bootstrapped from."""
    harness = world_with(max_messages=3, overflow="reject")
    lost = [Sender(harness[node]) for node in (1, 2, 3)]
    harness.run(0.1)
    harness.network.partition([1], [2], [3])
    for sender in lost:
        sender.send_whole({number: content(number) for number in range(3)})
    harness.run(1)
    harness.network.heal()
    assert harness.until(lambda: all(member.serves for member in harness.members.values())), harness.reason()
    for node in (1, 2, 3):
        sent(harness, node, {number: content(number) for number in range(3)})
        taker = takes(harness, 1, 3)
        taker.settle_as(range(3), ACCEPT)
        harness.run(0.3)
        taker.leave()


def test_a_blocking_queue_gives_credit_again_on_all_members() -> None:
    harness = world_with(max_messages=4, overflow="block")
    sent(harness, 1, {number: content(number) for number in range(5)})
    late = Sender(harness[2])
    harness.run(0.1)
    assert late.credit == 0
    taker = takes(harness, 3, 5)
    taker.settle_as(range(5), ACCEPT)
    assert harness.until(lambda: late.credit > 0)


def test_a_ring_that_is_filled_on_several_members_at_once_is_exact_when_they_come_to_rest() -> None:
    """A ring has its exact size at rest, although removals and concurrent arrivals overlap before they are safe."""
    harness = world_with(max_messages=3, overflow="ring")
    senders = [Sender(harness[node]) for node in (1, 2, 3)]
    harness.run(0.1)
    for node, sender in enumerate(senders):
        sender.send_whole({number: content(number) for number in range(100 * node, 100 * node + 100)})
    harness.run(0.5)
    assert len(on_queue(harness, 1)) == 3
    is_same(harness)


@pytest.mark.parametrize("limit", [{"max_messages": 3}, {"max_bytes": 1200}], ids=["messages", "bytes"])
@pytest.mark.parametrize("shape", [{}, {"priorities": True}], ids=["plain", "priorities"])
def test_a_ring_is_the_same_ring_on_another_member(shape: dict[str, Any], limit: dict[str, int]) -> None:
    harness = world_with(overflow="ring", **shape, **limit)
    sent(harness, 1, {number: content(number) for number in range(6)})
    harness.run(0.3)
    assert on_queue(harness, 2) == [3, 4, 5]
    taker = takes(harness, 2, 1)
    harness.run(0.1)
    harness[2].kill()
    harness.run(0.5)
    assert numbers(taker) == [3]
    sent(harness, 3, {6: content(6)})
    harness.run(0.3)
    assert on_queue(harness, 1) == [4, 5, 6]
    come_back(harness, 2)


def test_purging_leaves_what_consumers_have_of_a_shaped_queue() -> None:  # D54
    harness = world_with(priorities=True)
    sent(harness, 1, {number: content(number, priority=number % 2) for number in range(6)})
    first = takes(harness, 2, 2)
    assert numbers(first) == [1, 3]
    second = Receiver(harness[3])
    second.request(0)
    harness.run(0.5)
    purged: list[object] = []
    broker = harness[3].broker
    harness[3].do(broker.nodes.queues["q"].order.purge, purged.append, "")
    assert harness.until(lambda: purged == [4])
    harness.run(0.2)
    assert on_queue(harness, 1) == [1, 3]
    first.leave()
    is_same(harness)
    assert numbers(takes(harness, 3, 2)) == [1, 3]


@pytest.mark.parametrize("shape", [{"priorities": True}, {"last_value_key": "subject"}, {"message_groups": True}])
def test_all_go_down_and_sort_anew(shape: dict[str, Any]) -> None:  # D27
    harness = world_with(**shape)
    messages = {
        number: content(number, priority=number % 3, subject=str(number), group_id=str(number % 2))
        for number in range(30)
    }
    sent(harness, 1, messages)
    for node in harness.members:
        harness[node].kill()
    harness.run(0.5)
    for node in harness.members:
        harness[node].start()
    assert harness.until(lambda: all(member.serves for member in harness.members.values()), 60), harness.reason()
    is_same(harness)
    order = sorted(messages, key=lambda number: (-(number % 3), number)) if "priorities" in shape else [*messages]
    first = takes(harness, 2, 10)
    assert numbers(first) == order[:10]
    first.settle_as(order[:5], ACCEPT)
    harness.run(0.2)
    first.leave()
    is_same(harness)
    second = takes(harness, 3, 25)
    assert numbers(second) == order[5:]
    sent(harness, 1, {30: content(30, subject="29")})
    second.settle_as(order[5:], ACCEPT)
    harness.run(0.3)
    assert on_queue(harness, 1) == [30]
    is_same(harness)
