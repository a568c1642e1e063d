"""Tests that confirmed operations are on the disks of a majority, with slow disks and power cuts."""

from __future__ import annotations

from itertools import combinations

import pytest

from cairnmq.base.testing.memory_disk import MemoryDirectory
from tests.harness.cluster.cluster_harness import ACCEPT, ClusterHarness, Receiver, Sender, SimulatedMember

NODES = (1, 2, 3)
SOME = [(*some,) for count in range(len(NODES) + 1) for some in combinations(NODES, count)]
PAIRS = [*combinations(NODES, 2)]


class LateMember(SimulatedMember):
    """A member whose disk can delay writes, which a power cut loses."""

    on_disk: MemoryDirectory | None = None
    """The state of the disk when the delay began."""

    def delay(self) -> None:
        self.is_disk_slow = True
        self.on_disk = self.disk.after_kill()

    def cut_power(self) -> None:
        self.kill()
        if self.on_disk is not None:
            self.disk, self.on_disk = self.on_disk, None


def member(harness: ClusterHarness, node: int) -> LateMember:
    found = harness[node]
    assert isinstance(found, LateMember)
    return found


@pytest.mark.parametrize("late", SOME)
@pytest.mark.parametrize("back", PAIRS)
def test_what_is_accepted_and_sent_is_on_a_majoritys_disks(late: tuple[int, ...], back: tuple[int, int]) -> None:
    """Rule 2, D1, D3: the power of all members is cut, and any two of them restart."""
    harness = ClusterHarness(member=LateMember).start()
    sender, receiver = Sender(harness[1]), Receiver(harness[1])
    harness.run(0.2)
    sender.send(range(10))
    receiver.request(5)
    assert harness.until(lambda: len(sender.confirmed) == 10 and len(receiver.unsettled) == 5)
    harness.run(0.3)
    for node in late:
        member(harness, node).delay()
    receiver.settle_as(range(5), ACCEPT)
    sender.send(range(10, 15))
    harness.run(1)
    is_safe = 1 not in late and len(late) < 2
    assert receiver.accepted == ([*range(5)] if is_safe else []), "settled when it is flushed here and by a majority"
    assert len(sender.confirmed) == (15 if is_safe else 10)
    for node in NODES:
        member(harness, node).cut_power()
    for node in back:
        harness[node].start()
    assert harness.until(lambda: all(harness[node].serves for node in back), 60), harness.reason()
    harness.run(0.3)
    there = [number for _, number in harness[back[0]].contents("q")]
    if is_safe:
        assert there == [*range(5, 15)]
    else:
        assert {*range(5, 10)} <= {*there}
        assert len(there) == len({*there})
    for node in {*NODES} - {*back}:
        harness[node].start()
    assert harness.until(lambda: all(harness[node].serves for node in NODES), 60), harness.reason()
    harness.run(0.3)
    assert harness.same_everywhere()
