"""What is given back waits on each member by its own clock, and for the order: what is said of it meanwhile holds."""

from __future__ import annotations

from cairnmq.broker.queues.queue import Queue

from .world import ACCEPT, FAIL, RELEASE, Receiver, Sender, World

DELAY_MS = 50


def test_what_fails_again_while_it_waits_here_is_still_here() -> None:  # D4, D15
    world = World().start()
    world[1].do(world[1].broker.nodes.create_queue, "q", {"retry-delay-ms": DELAY_MS}, print)
    world.run(0.2)
    sender, receiver = Sender(world[2]), Receiver(world[1])
    world.run(0.2)
    receiver.request(100)
    sender.send(range(10))
    assert world.until(lambda: len(receiver.unsettled) == 10)
    world[3].kill()
    world.run(0.3)
    world[3].start()
    assert world.until(lambda: world[3].serves)
    sender.send(range(10, 20))
    assert world.until(lambda: len(receiver.unsettled) == 20)
    follower: Queue = world[3].core.owners.replicas["q"].queue
    assert follower.backlog.count, "what was brought stands there, and so what comes behind it"
    world[3].asleep = True
    for failures in (1, 2):  # it will hear both at once
        receiver.settle_as([4, 7, 15], FAIL, failed=True)
        assert world.until(lambda many=20 + 3 * failures: len(receiver.order) == many)  # type: ignore[misc]
    world[3].asleep = False
    world.run(0.02)
    assert len(follower.delayed) == 3, "there they still wait"
    world.run(0.5)
    assert world.same_everywhere()
    receiver.settle_as(range(20), ACCEPT)
    assert world.until(lambda: len(receiver.accepted) == 20)
    world.run(0.1)
    assert all(not member.contents("q") for member in world.members.values())
    assert (follower.messages, follower.delayed) == (0, {})


def test_what_is_on_its_way_back_when_a_newcomer_asks_is_brought_to_it() -> None:  # D1, D4, rule 9
    world = World().start()
    world[1].do(world[1].broker.nodes.create_queue, "q", {}, print)
    world.run(0.2)
    sender, receiver = Sender(world[2]), Receiver(world[1])
    world.run(0.2)
    receiver.request(5)
    sender.send(range(10))
    assert world.until(lambda: len(sender.confirmed) == 10 and len(receiver.unsettled) == 5)
    world[3].kill()
    world.run(0.3)
    world[3].start()
    world[3].is_disk_slow = True
    assert world.until(lambda: world[3].core.state.phase == "wiping")
    world.network.try_again(1, 1000)  # what the owner says goes out behind what the newcomer asks
    receiver.settle_as([1, 2], RELEASE)
    receiver.settle_as([3], FAIL, failed=True)
    receiver.settle_as([4], ACCEPT)
    world.run(0.1)
    world[3].hurry_disk()
    assert world.until(lambda: world[1].core.sender.is_busy)
    world.network.quiet()
    assert world.until(lambda: world[3].serves), world.why()
    world.run(0.2)
    assert [number for _, number in world[3].contents("q")] == [0, 1, 2, 3, 5, 6, 7, 8, 9]
    assert world.same_everywhere()
    world[1].kill()
    taker = Receiver(world[3])
    assert world.until(lambda: taker.driver is not None)
    taker.request(10)
    assert world.until(lambda: len(taker.order) == 9)
    assert sorted(taker.order)[:4] == [(number, True) for number in (0, 1, 2, 3)]
