"""Tests of a member's death at each step of a joint operation, and of stops and restarts of all in each order."""

from __future__ import annotations

from itertools import permutations, product

import pytest

from cairnmq.broker.nodes.replication_port import Kept
from cairnmq.cluster.kernel import events
from cairnmq.cluster.kernel.local_messages import LocalEvent
from tests.harness.broker.world import message
from tests.harness.cluster.cluster_harness import ACCEPT, ClusterHarness, Receiver, Sender
from tests.harness.thorough import EVERY

ORDERS = [*product(permutations((1, 2, 3)), repeat=2)]
LONG_BYTES = 200_000
KEPT = Kept([(message(7, LONG_BYTES, True), True)], False)
PARTS = [*events.parts_of(events.enqueue(["q"], KEPT.messages, False))]


def send(harness: ClusterHarness, node: int, numbers: range, *, size_bytes: int = 10) -> None:
    """Send messages from a client of *node*, and wait until they are confirmed."""
    sender = Sender(harness[node])
    assert harness.until(lambda: sender.driver is not None)
    sender.send(numbers, size_bytes=size_bytes)
    assert harness.until(lambda: len(sender.confirmed) == len(numbers)), harness.reason()
    sender.leave()


def accept(harness: ClusterHarness, node: int, count: int) -> None:
    """Accept *count* messages with a client of *node*, and wait until they are dequeued."""
    receiver = Receiver(harness[node])
    assert harness.until(lambda: receiver.driver is not None)
    receiver.request(count)
    assert harness.until(lambda: len(receiver.unsettled) == count)
    receiver.settle_as([*receiver.unsettled], ACCEPT)
    assert harness.until(lambda: len(receiver.accepted) == count)
    receiver.leave()


def numbers_at(harness: ClusterHarness, node: int) -> list[int]:
    return [number for _, number in harness[node].contents("q")]


@pytest.mark.parametrize(("kills", "starts"), ORDERS[::EVERY])
def test_all_go_down_and_come_back(kills: tuple[int, ...], starts: tuple[int, ...]) -> None:  # rule 17, D27, D32
    harness = ClusterHarness().start()
    send(harness, kills[2], range(10))
    harness[kills[0]].kill()
    harness.run(0.5)
    send(harness, kills[1], range(10, 20))
    accept(harness, kills[2], 5)
    for node in kills[1:]:
        harness[node].kill()
        harness.run(0.5)
    for node in starts[:2]:
        harness[node].start()
        harness.run(0.3)
    assert harness.until(lambda: all(harness[node].serves for node in starts[:2])), harness.reason()
    accept(harness, starts[0], 5)
    send(harness, starts[1], range(20, 25))
    harness[starts[2]].start()
    assert harness.until(lambda: harness[starts[2]].serves), harness.reason()
    harness.run(0.5)
    assert harness.same_everywhere()
    assert numbers_at(harness, 1) == [*range(10, 25)]


@pytest.mark.parametrize("said", range(1, len(PARTS) + 1))
def test_who_sends_a_long_message_dies_at_each_fragment(said: int) -> None:  # rule 7, D52
    harness = ClusterHarness().start()
    send(harness, 1, range(3))
    core = harness[2].core
    core.locals.add(LocalEvent(lambda: None, kept=KEPT, names=["q"]))
    assert all(core.group.multicast(part) for part in PARTS[:said])
    core.group.flush()
    assert harness.until(lambda: (harness[1].core.apply_loop.reassembly.size_bytes > 0) == (said < len(PARTS)))
    harness.run(0.05)
    harness[2].kill()
    harness.run(0.5)
    assert harness[1].core.apply_loop.reassembly.size_bytes == harness[3].core.apply_loop.reassembly.size_bytes == 0
    send(harness, 3, range(8, 10))
    complete = [7] if said == len(PARTS) else []
    assert numbers_at(harness, 1) == [0, 1, 2, *complete, 8, 9]
    harness[2].start()
    assert harness.until(lambda: harness[2].serves), harness.reason()
    harness.run(0.3)
    assert harness.same_everywhere()


@pytest.mark.parametrize("step", ["bootstrapping", "discarding", "requesting", *range(0, 10, EVERY)])
def test_who_brings_all_to_a_newcomer_dies_at_each_step(step: str | int) -> None:  # rule 12, D19
    harness = ClusterHarness(5).start()
    send(harness, 1, range(400), size_bytes=1000)
    harness[3].kill()
    harness.run(0.5)
    updater = harness[4].core.sender
    go_on, taken = updater.resume, 0

    def one_more() -> None:
        nonlocal taken
        if not isinstance(step, int) or taken < step:
            taken += 1
            go_on()

    updater.resume = one_more  # type: ignore[method-assign]
    harness[3].start()
    harness[3].is_disk_slow = step == "discarding"
    if isinstance(step, str):
        assert harness.until(lambda: harness[3].core.state.phase_name == step)
    else:
        assert harness.until(lambda: updater.is_busy)
        assert harness.until(lambda: taken == step)
        harness.run(0.05)
    harness[4].kill()
    harness[3].hurry_disk()
    sender = Sender(harness[1])
    assert harness.until(lambda: sender.driver is not None)
    sender.send(range(400, 410))
    assert harness.until(lambda: harness[3].serves, 60), harness.reason()
    assert harness.until(lambda: len(sender.confirmed) == 10)
    harness.run(0.3)
    assert harness.same_everywhere()
    assert numbers_at(harness, 3) == [*range(410)]
