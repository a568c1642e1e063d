"""A wiring for which a disk has no room waits, as messages do: for a while, or for room where all need its member."""

from __future__ import annotations

from typing import Any

import pytest

from cairnmq.cluster.replication import flow_control as flow

from .world import ACCEPT, Receiver, Sender, World

MANY = 40
"""Queues with long names: more than fit into what SQL has at hand."""


def name_of(number: int) -> str:
    return f"{number:02}" * 400


def sender_on(world: World, node: int, address: str = "q") -> Sender:
    sender = Sender(world[node], address)
    assert world.until(lambda: sender.driver is not None), world.why()
    return sender


def with_full_disks(*nodes: int) -> tuple[World, list[Any]]:
    """There are messages on a queue, and all are to make some more queues."""
    world = World().start()
    sender = sender_on(world, 1)
    sender.send(range(10))
    assert world.until(lambda: len(sender.confirmed) == 10)
    for node in nodes:
        world[node].wiring.fill()
    made: list[Any] = []
    for number in range(MANY):
        world[1].do(world[1].broker.nodes.create_queue, name_of(number), {}, made.append)
    assert world.until(lambda: all(world[node].core.flow.unwritten for node in nodes))
    return world, made


def all_have_all(world: World) -> bool:
    wanted = {name_of(number) for number in range(MANY)}
    return all(wanted <= world[node].broker.nodes.queues.keys() for node in world.members)


def test_one_member_is_waited_for_and_then_goes() -> None:  # D17
    world, made = with_full_disks(3)
    world.run(flow.FULL_S - 1)
    assert not world[3].failures
    assert world[1].core.flow.holds, "clients wait meanwhile"
    assert world.until(lambda: bool(world[3].failures))
    assert "its disk is full" in str(world[3].failures[0])
    assert "free some space" in str(world[3].failures[0])
    assert world.until(lambda: len(made) == MANY)
    assert all(world[node].serves for node in (1, 2))
    assert world.until(lambda: not world[1].core.flow.holds)
    sender = sender_on(world, 2)
    sender.send(range(10, 15))
    assert world.until(lambda: len(sender.confirmed) == 5)


def test_if_there_is_room_in_time_it_goes_on() -> None:  # D17, D58
    world, made = with_full_disks(3)
    world.run(1)
    world[3].wiring.fill(False)
    assert world.until(lambda: len(made) == MANY and all_have_all(world))
    world.run(2 * flow.FULL_S)
    assert not world[3].failures
    assert not world[1].core.flow.holds
    assert world.same_everywhere()


@pytest.mark.parametrize("full", [(2, 3), (1, 2, 3), (1, 3)])
def test_if_the_others_are_no_majority_all_wait_for_room(full: tuple[int, ...]) -> None:  # D17
    world, made = with_full_disks(*full)
    receiver = Receiver(world[1])
    sender = sender_on(world, 2)
    sender.send(range(10, 15))
    world.run(4 * flow.FULL_S)
    assert not any(member.failures for member in world.members.values())
    assert len(made) < MANY
    assert not sender.confirmed
    for node in full:
        world[node].wiring.fill(False)
    assert world.until(lambda: len(made) == MANY and all_have_all(world)), world.why()
    assert world.until(lambda: len(sender.confirmed) == 5)
    receiver.request(15)
    assert world.until(lambda: len(receiver.unsettled) == 15)
    receiver.settle_as([*receiver.unsettled], ACCEPT)
    assert world.until(lambda: len(receiver.accepted) == 15)
    world.run(0.3)
    assert world.same_everywhere()
    assert all(member.serves for member in world.members.values())


def test_if_another_one_dies_meanwhile_who_waits_is_needed() -> None:  # D17
    world, _ = with_full_disks(3)
    world.run(flow.FULL_S / 2)
    world[2].kill()
    world.run(3 * flow.FULL_S)
    assert not world[3].failures
    world[3].wiring.fill(False)
    assert world.until(lambda: all(world[node].serves for node in (1, 3))), world.why()
    assert world.until(lambda: name_of(MANY - 1) in world[3].broker.nodes.queues)


def test_a_cluster_of_one_refuses_what_it_has_no_room_for() -> None:
    world = World(1).start()
    world[1].core.state.is_alone = True
    world[1].wiring.fill()
    made: list[Any] = []
    for number in range(MANY):
        world[1].do(world[1].broker.nodes.create_queue, name_of(number), {}, made.append)
    assert world.until(lambda: len(made) == MANY)
    assert "free some space" in str(made[-1])
    assert world[1].serves
