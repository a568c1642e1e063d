"""Tests of events about messages that a lagging member has received, but not enqueued yet: they apply there, too."""

from __future__ import annotations

from typing import Any

import pytest

from tests.harness.cluster.cluster_harness import ACCEPT, FAIL, RELEASE, ClusterHarness, Receiver, Sender
from tests.harness.cluster.policy_queues import is_same, numbers, on_queue, takes, world_with

SHAPES: tuple[dict[str, Any], ...] = (
    {}, {"priorities": True}, {"retry_delay_ms": 50}, {"priorities": True, "retry_delay_ms": 50},
)  # fmt: skip


def behind(harness: ClusterHarness, count: int) -> Receiver:
    """Make member 3 show only the first of six messages; return a receiver of member 1 that has *count* of them."""
    sender, receiver = Sender(harness[2]), Receiver(harness[1])
    harness.run(0.2)
    sender.send([0])
    assert harness.until(lambda: sender.confirmed == [0])
    harness.run(0.1)
    harness[3].is_disk_slow = True
    sender.send(range(1, 6))
    receiver.request(count)
    assert harness.until(lambda: len(sender.confirmed) == 6 and len(receiver.order) == count)
    return receiver


@pytest.mark.parametrize("shape", SHAPES)
def test_what_comes_back_before_it_is_shown_stands_in_its_place(shape: dict[str, Any]) -> None:  # D3, D4, D15
    harness = world_with(**shape)
    receiver = behind(harness, 6)
    receiver.settle_as([1, 4], FAIL, failed=True)
    receiver.request(100)
    assert harness.until(lambda: len(receiver.order) == 8)
    receiver.settle_as([2], ACCEPT)
    assert harness.until(lambda: receiver.accepted == [2])
    harness[3].hurry_disk()
    is_same(harness)
    receiver.settle_as([0, 4], ACCEPT)
    assert harness.until(lambda: receiver.accepted == [2, 0, 4])
    is_same(harness)
    receiver.leave()
    there = takes(harness, 3, 3)
    there.request(10)
    harness.run(0.3)
    assert there.order == [(1, True), (3, True), (5, True)]


@pytest.mark.parametrize("shape", [{}, {"priorities": True}])
def test_what_is_accepted_while_it_still_waits_here_is_off_the_queue(shape: dict[str, Any]) -> None:  # D3
    harness = world_with(retry_delay_ms=500, **shape)
    sender, receiver = Sender(harness[2]), Receiver(harness[1])
    harness.run(0.2)
    receiver.request(100)
    harness[3].asleep = True  # it receives all these events at once later
    sender.send(range(5))
    assert harness.until(lambda: len(receiver.order) == 5)
    receiver.settle_as([1, 3], FAIL, failed=True)
    assert harness.until(lambda: len(receiver.order) == 7)
    receiver.settle_as(range(5), ACCEPT)
    assert harness.until(lambda: len(receiver.accepted) == 5)
    harness[3].asleep = False
    harness.run(0.3)
    queue = harness[3].core.owners.replicas["q"].queue
    assert (on_queue(harness, 3), queue.messages, queue.contents.delayed) == ([], 0, {})
    harness.run(0.5)
    is_same(harness)


def test_what_is_accepted_before_it_is_read_here_is_off_the_queue() -> None:  # D3, D27
    """Priority queues have no such time: they are sorted during the state transfer."""
    harness = world_with()
    sender = Sender(harness[1])
    harness.run(0.2)
    sender.send(range(5))
    assert harness.until(lambda: len(sender.confirmed) == 5)
    harness.run(0.2)
    for member in harness.members.values():  # at once, so that all stores are equal: two members get a transfer
        member.core.leave()
        member.store.kick()
    for member in harness.members.values():
        member.kill()
    harness.run(0.5)
    for member in harness.members.values():
        member.start()
    assert harness.until(lambda: all(member.serves for member in harness.members.values())), harness.reason()
    harness[3].is_reader_slow = True
    receiver = takes(harness, 1, 5)
    assert harness[3].core.owners.replicas["q"].queue.contents.backlog.count == 5, "nothing of it has been read"
    receiver.settle_as([1, 3], FAIL, failed=True)
    harness.run(0.1)
    receiver.request(10)
    assert harness.until(lambda: len(receiver.order) == 7)
    receiver.settle_as(range(4), ACCEPT)
    assert harness.until(lambda: len(receiver.accepted) == 4)
    harness.run(0.1)
    assert on_queue(harness, 3) == [4]
    harness[3].is_reader_slow = False
    is_same(harness)
    receiver.leave()
    assert numbers(takes(harness, 3, 1)) == [4]


@pytest.mark.parametrize("shape", [{}, {"priorities": True}])
def test_a_purge_leaves_what_consumers_have_and_is_not_shown_here(shape: dict[str, Any]) -> None:  # D1, D54
    harness = world_with(**shape)
    receiver = behind(harness, 3)
    purged: list[object] = []
    broker = harness[1].broker
    harness[1].do(broker.nodes.queues["q"].order.purge, purged.append, "")
    assert harness.until(lambda: purged == [3])
    harness[3].hurry_disk()
    is_same(harness)
    assert on_queue(harness, 3) == [0, 1, 2]
    receiver.leave()
    assert numbers(takes(harness, 3, 3)) == [0, 1, 2]


@pytest.mark.parametrize("state", [FAIL, RELEASE])
def test_what_comes_back_before_it_is_shown_says_that_somebody_had_it(state: int) -> None:  # D2, D6
    harness = world_with()
    harness[3].broker.core.memory.limit_bytes = 0  # queues of member 3 keep only IDs in memory
    receiver = behind(harness, 6)
    receiver.settle_as([1, 4], state, failed=state == FAIL)
    harness.run(0.1)
    harness[3].hurry_disk()
    is_same(harness)
    assert takes(harness, 3, 2).order == [(1, True), (4, True)]
