"""Somebody dies at each step of what several do together, and all go down and come back in each order."""

from __future__ import annotations

from itertools import permutations, product

import pytest

from cairnmq.broker.nodes.replication_port import Kept
from cairnmq.cluster.kernel import events
from cairnmq.cluster.kernel.local_messages import LocalEvent

from ..broker.world import message
from ..thorough import EVERY
from .world import ACCEPT, Receiver, Sender, World

ORDERS = [*product(permutations((1, 2, 3)), repeat=2)]
LONG_BYTES = 200_000
KEPT = Kept([(message(7, LONG_BYTES, True), True)], False)
PARTS = [*events.parts_of(events.enqueue(["q"], KEPT.messages, False))]


def send(world: World, node: int, numbers: range, *, size_bytes: int = 10) -> None:
    """A client of that node does, and hears that they are safe."""
    sender = Sender(world[node])
    assert world.until(lambda: sender.driver is not None)
    sender.send(numbers, size_bytes=size_bytes)
    assert world.until(lambda: len(sender.confirmed) == len(numbers)), world.why()
    sender.leave()


def accept(world: World, node: int, count: int) -> None:
    """A client of that node does, and hears that they are off the queue."""
    receiver = Receiver(world[node])
    assert world.until(lambda: receiver.driver is not None)
    receiver.request(count)
    assert world.until(lambda: len(receiver.unsettled) == count)
    receiver.settle_as([*receiver.unsettled], ACCEPT)
    assert world.until(lambda: len(receiver.accepted) == count)
    receiver.leave()


def numbers_at(world: World, node: int) -> list[int]:
    return [number for _, number in world[node].contents("q")]


@pytest.mark.parametrize(("kills", "starts"), ORDERS[::EVERY])
def test_all_go_down_and_come_back(kills: tuple[int, ...], starts: tuple[int, ...]) -> None:  # rule 17, D27, D32
    world = World().start()
    send(world, kills[2], range(10))
    world[kills[0]].kill()
    world.run(0.5)
    send(world, kills[1], range(10, 20))
    accept(world, kills[2], 5)
    for node in kills[1:]:
        world[node].kill()
        world.run(0.5)
    for node in starts[:2]:
        world[node].start()
        world.run(0.3)
    assert world.until(lambda: all(world[node].serves for node in starts[:2])), world.why()
    accept(world, starts[0], 5)
    send(world, starts[1], range(20, 25))
    world[starts[2]].start()
    assert world.until(lambda: world[starts[2]].serves), world.why()
    world.run(0.5)
    assert world.same_everywhere()
    assert numbers_at(world, 1) == [*range(10, 25)]


@pytest.mark.parametrize("said", range(1, len(PARTS) + 1))
def test_who_sends_a_long_message_dies_at_each_fragment(said: int) -> None:  # rule 7, D52
    world = World().start()
    send(world, 1, range(3))
    core = world[2].core
    core.locals.add(LocalEvent(lambda: None, kept=KEPT, names=["q"]))
    assert all(core.group.multicast(part) for part in PARTS[:said])
    core.group.flush()
    assert world.until(lambda: (world[1].core.apply_loop.reassembly.size_bytes > 0) == (said < len(PARTS)))
    world.run(0.05)
    world[2].kill()
    world.run(0.5)
    assert world[1].core.apply_loop.reassembly.size_bytes == world[3].core.apply_loop.reassembly.size_bytes == 0
    send(world, 3, range(8, 10))
    whole = [7] if said == len(PARTS) else []
    assert numbers_at(world, 1) == [0, 1, 2, *whole, 8, 9]
    world[2].start()
    assert world.until(lambda: world[2].serves), world.why()
    world.run(0.3)
    assert world.same_everywhere()


@pytest.mark.parametrize("step", ["founding", "wiping", "asking", *range(0, 10, EVERY)])
def test_who_brings_all_to_a_newcomer_dies_at_each_step(step: str | int) -> None:  # rule 12, D19
    world = World(5).start()
    send(world, 1, range(400), size_bytes=1000)
    world[3].kill()
    world.run(0.5)
    updater = world[4].core.sender
    go_on, taken = updater.resume, 0

    def one_more() -> None:
        nonlocal taken
        if not isinstance(step, int) or taken < step:
            taken += 1
            go_on()

    updater.resume = one_more  # type: ignore[method-assign]
    world[3].start()
    world[3].is_disk_slow = step == "wiping"
    if isinstance(step, str):
        assert world.until(lambda: world[3].core.state.phase_name == step)
    else:
        assert world.until(lambda: updater.is_busy)
        assert world.until(lambda: taken == step)
        world.run(0.05)
    world[4].kill()
    world[3].hurry_disk()
    sender = Sender(world[1])
    assert world.until(lambda: sender.driver is not None)
    sender.send(range(400, 410))
    assert world.until(lambda: world[3].serves, 60), world.why()
    assert world.until(lambda: len(sender.confirmed) == 10)
    world.run(0.3)
    assert world.same_everywhere()
    assert numbers_at(world, 3) == [*range(410)]
