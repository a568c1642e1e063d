"""A member that is behind has heard of messages that it shows nobody yet: what is said of them meanwhile holds."""

from __future__ import annotations

from typing import Any

import pytest

from .shaping import world_with
from .test_shaped import is_same, numbers, on_queue, takes
from .world import ACCEPT, FAIL, RELEASE, Receiver, Sender, World

SHAPES: tuple[dict[str, Any], ...] = (
    {}, {"priorities": True}, {"retry_delay_ms": 50}, {"priorities": True, "retry_delay_ms": 50},
)  # fmt: skip


def behind(world: World, count: int) -> Receiver:
    """The third member shows the first of six messages only. A client of the first one gets *count* of them."""
    sender, receiver = Sender(world[2]), Receiver(world[1])
    world.run(0.2)
    sender.send([0])
    assert world.until(lambda: sender.confirmed == [0])
    world.run(0.1)
    world[3].is_disk_slow = True
    sender.send(range(1, 6))
    receiver.request(count)
    assert world.until(lambda: len(sender.confirmed) == 6 and len(receiver.order) == count)
    return receiver


@pytest.mark.parametrize("shape", SHAPES)
def test_what_comes_back_before_it_is_shown_stands_in_its_place(shape: dict[str, Any]) -> None:  # D3, D4, D15
    world = world_with(**shape)
    receiver = behind(world, 6)
    receiver.settle_as([1, 4], FAIL, failed=True)
    receiver.request(100)
    assert world.until(lambda: len(receiver.order) == 8)
    receiver.settle_as([2], ACCEPT)
    assert world.until(lambda: receiver.accepted == [2])
    world[3].hurry_disk()
    is_same(world)
    receiver.settle_as([0, 4], ACCEPT)
    assert world.until(lambda: receiver.accepted == [2, 0, 4])
    is_same(world)
    receiver.leave()
    there = takes(world, 3, 3)
    there.request(10)
    world.run(0.3)
    assert there.order == [(1, True), (3, True), (5, True)]


@pytest.mark.parametrize("shape", [{}, {"priorities": True}])
def test_what_is_accepted_while_it_still_waits_here_is_off_the_queue(shape: dict[str, Any]) -> None:  # D3
    world = world_with(retry_delay_ms=500, **shape)
    sender, receiver = Sender(world[2]), Receiver(world[1])
    world.run(0.2)
    receiver.request(100)
    world[3].asleep = True  # it will hear all of it at once
    sender.send(range(5))
    assert world.until(lambda: len(receiver.order) == 5)
    receiver.settle_as([1, 3], FAIL, failed=True)
    assert world.until(lambda: len(receiver.order) == 7)
    receiver.settle_as(range(5), ACCEPT)
    assert world.until(lambda: len(receiver.accepted) == 5)
    world[3].asleep = False
    world.run(0.3)
    queue = world[3].core.owners.replicas["q"].queue
    assert (on_queue(world, 3), queue.messages, queue.delayed) == ([], 0, {})
    world.run(0.5)
    is_same(world)


def test_what_is_accepted_before_it_is_read_here_is_off_the_queue() -> None:  # D3, D27
    """A queue with priorities is sorted while its messages are brought: there is no such time."""
    world = world_with()
    sender = Sender(world[1])
    world.run(0.2)
    sender.send(range(5))
    assert world.until(lambda: len(sender.confirmed) == 5)
    world.run(0.2)
    for member in world.members.values():  # at once, so that all have the same: two are brought it
        member.core.leave()
        member.store.kick()
    for member in world.members.values():
        member.kill()
    world.run(0.5)
    for member in world.members.values():
        member.start()
    assert world.until(lambda: all(member.serves for member in world.members.values())), world.why()
    world[3].is_reader_slow = True
    receiver = takes(world, 1, 5)
    assert world[3].core.owners.replicas["q"].queue.backlog.count == 5, "nothing of it has been read"
    receiver.settle_as([1, 3], FAIL, failed=True)
    world.run(0.1)
    receiver.request(10)
    assert world.until(lambda: len(receiver.order) == 7)
    receiver.settle_as(range(4), ACCEPT)
    assert world.until(lambda: len(receiver.accepted) == 4)
    world.run(0.1)
    assert on_queue(world, 3) == [4]
    world[3].is_reader_slow = False
    is_same(world)
    receiver.leave()
    assert numbers(takes(world, 3, 1)) == [4]


@pytest.mark.parametrize("shape", [{}, {"priorities": True}])
def test_a_purge_leaves_what_consumers_have_and_is_not_shown_here(shape: dict[str, Any]) -> None:  # D1, D54
    world = world_with(**shape)
    receiver = behind(world, 3)
    purged: list[object] = []
    broker = world[1].broker
    world[1].do(broker.nodes.queues["q"].order.purge, purged.append, "")
    assert world.until(lambda: purged == [3])
    world[3].hurry_disk()
    is_same(world)
    assert on_queue(world, 3) == [0, 1, 2]
    receiver.leave()
    assert numbers(takes(world, 3, 3)) == [0, 1, 2]


@pytest.mark.parametrize("state", [FAIL, RELEASE])
def test_what_comes_back_before_it_is_shown_says_that_somebody_had_it(state: int) -> None:  # D2, D6
    world = world_with()
    world[3].broker.core.memory.limit_bytes = 0  # there a queue keeps ids only
    receiver = behind(world, 6)
    receiver.settle_as([1, 4], state, failed=state == FAIL)
    world.run(0.1)
    world[3].hurry_disk()
    is_same(world)
    assert takes(world, 3, 2).order == [(1, True), (4, True)]
