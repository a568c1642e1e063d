"""Tests of wiring changes on a full disk: they wait for a while, or for space if the majority needs the member."""

from __future__ import annotations

from typing import Any

import pytest

from cairnmq.cluster.replication import flow_control as flow
from tests.harness.cluster.cluster_harness import ACCEPT, ClusterHarness, Receiver, Sender

MANY = 40
"""The number of queues with long names, more than fit into the space that SQL has already."""


def name_of(number: int) -> str:
    return f"{number:02}" * 400


def sender_on(harness: ClusterHarness, node: int, address: str = "q") -> Sender:
    sender = Sender(harness[node], address)
    assert harness.until(lambda: sender.driver is not None), harness.reason()
    return sender


def with_full_disks(*nodes: int) -> tuple[ClusterHarness, list[Any]]:
    """Return a cluster that creates queues while disks are full, and a list that collects the results."""
    harness = ClusterHarness().start()
    sender = sender_on(harness, 1)
    sender.send(range(10))
    assert harness.until(lambda: len(sender.confirmed) == 10)
    for node in nodes:
        harness[node].wiring.fill()
    made: list[Any] = []
    for number in range(MANY):
        harness[1].do(harness[1].broker.nodes.create_queue, name_of(number), {}, made.append)
    assert harness.until(lambda: all(harness[node].core.flow.unwritten for node in nodes))
    return harness, made


def all_have_all(harness: ClusterHarness) -> bool:
    wanted = {name_of(number) for number in range(MANY)}
    return all(wanted <= harness[node].broker.nodes.queues.keys() for node in harness.members)


def test_one_member_is_waited_for_and_then_goes() -> None:  # D17
    harness, made = with_full_disks(3)
    harness.run(flow.FULL_S - 1)
    assert not harness[3].failures
    assert harness[1].core.flow.holds, "clients wait meanwhile"
    assert harness.until(lambda: bool(harness[3].failures))
    assert "its disk is full" in str(harness[3].failures[0])
    assert "free some space" in str(harness[3].failures[0])
    assert harness.until(lambda: len(made) == MANY)
    assert all(harness[node].serves for node in (1, 2))
    assert harness.until(lambda: not harness[1].core.flow.holds)
    sender = sender_on(harness, 2)
    sender.send(range(10, 15))
    assert harness.until(lambda: len(sender.confirmed) == 5)


def test_if_there_is_room_in_time_it_goes_on() -> None:  # D17, D58
    harness, made = with_full_disks(3)
    harness.run(1)
    harness[3].wiring.fill(False)
    assert harness.until(lambda: len(made) == MANY and all_have_all(harness))
    harness.run(2 * flow.FULL_S)
    assert not harness[3].failures
    assert not harness[1].core.flow.holds
    assert harness.same_everywhere()


@pytest.mark.parametrize("full", [(2, 3), (1, 2, 3), (1, 3)])
def test_if_the_others_are_no_majority_all_wait_for_room(full: tuple[int, ...]) -> None:  # D17
    harness, made = with_full_disks(*full)
    receiver = Receiver(harness[1])
    sender = sender_on(harness, 2)
    sender.send(range(10, 15))
    harness.run(4 * flow.FULL_S)
    assert not any(member.failures for member in harness.members.values())
    assert len(made) < MANY
    assert not sender.confirmed
    for node in full:
        harness[node].wiring.fill(False)
    assert harness.until(lambda: len(made) == MANY and all_have_all(harness)), harness.reason()
    assert harness.until(lambda: len(sender.confirmed) == 5)
    receiver.request(15)
    assert harness.until(lambda: len(receiver.unsettled) == 15)
    receiver.settle_as([*receiver.unsettled], ACCEPT)
    assert harness.until(lambda: len(receiver.accepted) == 15)
    harness.run(0.3)
    assert harness.same_everywhere()
    assert all(member.serves for member in harness.members.values())


def test_if_another_one_dies_meanwhile_who_waits_is_needed() -> None:  # D17
    harness, _ = with_full_disks(3)
    harness.run(flow.FULL_S / 2)
    harness[2].kill()
    harness.run(3 * flow.FULL_S)
    assert not harness[3].failures
    harness[3].wiring.fill(False)
    assert harness.until(lambda: all(harness[node].serves for node in (1, 3))), harness.reason()
    assert harness.until(lambda: name_of(MANY - 1) in harness[3].broker.nodes.queues)


def test_a_cluster_of_one_refuses_what_it_has_no_room_for() -> None:
    harness = ClusterHarness(1).start()
    harness[1].core.state.is_alone = True
    harness[1].wiring.fill()
    made: list[Any] = []
    for number in range(MANY):
        harness[1].do(harness[1].broker.nodes.create_queue, name_of(number), {}, made.append)
    assert harness.until(lambda: len(made) == MANY)
    assert "free some space" in str(made[-1])
    assert harness[1].serves
