"""What a client hears to be done is on the disks of a majority, whichever are slow, and whoever loses its power."""

from __future__ import annotations

from itertools import combinations

import pytest

from cairnmq.base.testing.memory_disk import MemoryDirectory

from .world import ACCEPT, Member, Receiver, Sender, World

NODES = (1, 2, 3)
SOME = [(*some,) for count in range(len(NODES) + 1) for some in combinations(NODES, count)]
PAIRS = [*combinations(NODES, 2)]


class LateMember(Member):
    """Its disk can keep to itself what it is given: a power cut loses that."""

    on_disk: MemoryDirectory | None = None
    """What there was when it began to."""

    def delay(self) -> None:
        self.is_disk_slow = True
        self.on_disk = self.disk.after_kill()

    def cut_power(self) -> None:
        self.kill()
        if self.on_disk is not None:
            self.disk, self.on_disk = self.on_disk, None


def member(world: World, node: int) -> LateMember:
    found = world[node]
    assert isinstance(found, LateMember)
    return found


@pytest.mark.parametrize("late", SOME)
@pytest.mark.parametrize("back", PAIRS)
def test_what_is_accepted_and_sent_is_on_a_majoritys_disks(late: tuple[int, ...], back: tuple[int, int]) -> None:
    """Rule 2, D1, D3: the power of all is cut, and any two come back."""
    world = World(member=LateMember).start()
    sender, receiver = Sender(world[1]), Receiver(world[1])
    world.run(0.2)
    sender.send(range(10))
    receiver.request(5)
    assert world.until(lambda: len(sender.confirmed) == 10 and len(receiver.unsettled) == 5)
    world.run(0.3)
    for node in late:
        member(world, node).delay()
    receiver.settle_as(range(5), ACCEPT)
    sender.send(range(10, 15))
    world.run(1)
    is_safe = 1 not in late and len(late) < 2
    assert receiver.accepted == ([*range(5)] if is_safe else []), "settled when it is flushed here and by a majority"
    assert len(sender.confirmed) == (15 if is_safe else 10)
    for node in NODES:
        member(world, node).cut_power()
    for node in back:
        world[node].start()
    assert world.until(lambda: all(world[node].serves for node in back), 60), world.why()
    world.run(0.3)
    there = [number for _, number in world[back[0]].contents("q")]
    if is_safe:
        assert there == [*range(5, 15)]
    else:
        assert {*range(5, 10)} <= {*there}
        assert len(there) == len({*there})
    for node in {*NODES} - {*back}:
        world[node].start()
    assert world.until(lambda: all(world[node].serves for node in NODES), 60), world.why()
    world.run(0.3)
    assert world.same_everywhere()
