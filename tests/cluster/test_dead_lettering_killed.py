"""Tests of kills during a reject: the message is dead-lettered once, or is still on its queue."""

from __future__ import annotations

import random
from typing import Any

import pytest

from cairnmq.base.testing.memory_disk import MemoryDirectory
from tests.harness.cluster.cluster_harness import REJECT, ClusterHarness, Receiver, Sender, SimulatedMember
from tests.harness.thorough import EVERY

OPERATIONS = 2
"""The disk operations of a reject on each member: its block is written and synced."""
POWERS = [None, *range(0, 12, EVERY)]
"""Seeds that select the sectors of the block that survive a power cut; None for a kill."""
SIZE_BYTES = 1500
"""The message size: its dead letter is written in a block of several sectors."""


class Killed(BaseException):
    """An exception that ends the process of a member."""


class KillableMember(SimulatedMember):
    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.disk = MemoryDirectory()

    left = -1
    """The number of disk operations before the kill; negative for none."""
    power: random.Random | None = None
    was_killed = False

    def kill_after(self, operations: int, power: random.Random | None) -> None:
        self.left, self.power = operations, power
        self.disk.on_operation = self._count

    def _count(self, _: str) -> None:
        self.left -= 1
        if self.left < 0:
            raise Killed

    def step(self) -> None:
        try:
            super().step()
        except Killed:
            self.was_killed = True
            self.disk.on_operation = None
            self.kill(self.power)


def dead_and_alive(harness: ClusterHarness, node: int) -> tuple[list[int], list[int]]:
    found = [[number for _, number in harness[node].contents(name)] for name in ("dead", "q")]
    return found[0], found[1]


@pytest.mark.parametrize("all_go", [False, True])
@pytest.mark.parametrize("victim", [1, 2, 3])
def test_who_is_killed_at_each_step_of_a_reject(victim: int, all_go: bool) -> None:
    """Rule 16, D5, D77: *victim* is killed, member 2 has the client; with *all_go*, the others are killed later."""
    became = set()
    for power in POWERS:
        for step in range(OPERATIONS + 1):
            was_killed, dead = reject_and_kill(victim, all_go, power, step)
            assert was_killed == (step < OPERATIONS)
            became.add(bool(dead))
    assert True in became


def reject_and_kill(victim: int, all_go: bool, power: int | None, step: int) -> tuple[bool, list[int]]:
    """Kill *victim* after *step* disk operations; return whether that happened, and the final dead letters."""
    harness = ClusterHarness(member=KillableMember).start()
    nodes = harness[1].broker.nodes
    harness[1].do(nodes.create_queue, "dead", {}, print)
    harness[1].do(nodes.create_queue, "q", {"dead-letter-address": "dead"}, print)
    harness.run(0.2)
    sender, receiver = Sender(harness[1]), Receiver(harness[2])
    harness.run(0.2)
    sender.send(range(3), size_bytes=SIZE_BYTES)
    receiver.request(3)
    assert harness.until(lambda: len(sender.confirmed) == 3 and len(receiver.unsettled) == 3)
    harness.run(0.3)
    member = harness[victim]
    assert isinstance(member, KillableMember)
    member.kill_after(step, None if power is None else random.Random(power))
    receiver.settle_as([1], REJECT)
    harness.until(lambda: member.was_killed, 1)
    if all_go:
        for other in harness.members.values():
            if other.running:
                other.kill(None if power is None else random.Random(power + other.node))
    else:
        harness.run(0.5)
    for other in harness.members.values():
        other.disk.on_operation = None
        if not other.running:
            other.start()
    assert harness.until(lambda: all(one.serves for one in harness.members.values()), 60), harness.reason()
    harness.run(0.3)
    found = [dead_and_alive(harness, node) for node in harness.members]
    assert found[0] == found[1] == found[2]
    dead, alive = found[0]
    assert sorted(dead + alive) == [0, 1, 2], "neither lost nor in two places"
    assert dead in ([], [1])
    assert not receiver.settled or dead == [1], "what was settled is done"
    return member.was_killed, dead
