"""Tests of requeued messages whose delay differs between members: events about them apply meanwhile."""

from __future__ import annotations

from cairnmq.broker.queues.queue import Queue
from tests.harness.cluster.cluster_harness import ACCEPT, FAIL, RELEASE, ClusterHarness, Receiver, Sender

DELAY_MS = 50


def test_what_fails_again_while_it_waits_here_is_still_here() -> None:  # D4, D15
    harness = ClusterHarness().start()
    harness[1].do(harness[1].broker.nodes.create_queue, "q", {"retry-delay-ms": DELAY_MS}, print)
    harness.run(0.2)
    sender, receiver = Sender(harness[2]), Receiver(harness[1])
    harness.run(0.2)
    receiver.request(100)
    sender.send(range(10))
    assert harness.until(lambda: len(receiver.unsettled) == 10)
    harness[3].kill()
    harness.run(0.3)
    harness[3].start()
    assert harness.until(lambda: harness[3].serves)
    sender.send(range(10, 20))
    assert harness.until(lambda: len(receiver.unsettled) == 20)
    follower: Queue = harness[3].core.owners.replicas["q"].queue
    assert follower.contents.backlog.count, "what was brought stands there, and so what comes behind it"
    harness[3].asleep = True
    for failures in (1, 2):  # member 3 will receive both at once
        receiver.settle_as([4, 7, 15], FAIL, failed=True)
        assert harness.until(lambda many=20 + 3 * failures: len(receiver.order) == many)  # type: ignore[misc]
    harness[3].asleep = False
    harness.run(0.02)
    assert len(follower.contents.delayed) == 3, "there they still wait"
    harness.run(0.5)
    assert harness.same_everywhere()
    receiver.settle_as(range(20), ACCEPT)
    assert harness.until(lambda: len(receiver.accepted) == 20)
    harness.run(0.1)
    assert all(not member.contents("q") for member in harness.members.values())
    assert (follower.messages, follower.contents.delayed) == (0, {})


def test_what_is_on_its_way_back_when_a_newcomer_asks_is_brought_to_it() -> None:  # D1, D4, rule 9
    harness = ClusterHarness().start()
    harness[1].do(harness[1].broker.nodes.create_queue, "q", {}, print)
    harness.run(0.2)
    sender, receiver = Sender(harness[2]), Receiver(harness[1])
    harness.run(0.2)
    receiver.request(5)
    sender.send(range(10))
    assert harness.until(lambda: len(sender.confirmed) == 10 and len(receiver.unsettled) == 5)
    harness[3].kill()
    harness.run(0.3)
    harness[3].start()
    harness[3].is_disk_slow = True
    assert harness.until(lambda: harness[3].core.state.phase == "discarding")
    harness.network.try_again(1, 1000)  # the owner's events are ordered after the request of the joining member
    receiver.settle_as([1, 2], RELEASE)
    receiver.settle_as([3], FAIL, failed=True)
    receiver.settle_as([4], ACCEPT)
    harness.run(0.1)
    harness[3].hurry_disk()
    assert harness.until(lambda: harness[1].core.sender.is_busy)
    harness.network.quiet()
    assert harness.until(lambda: harness[3].serves), harness.reason()
    harness.run(0.2)
    assert [number for _, number in harness[3].contents("q")] == [0, 1, 2, 3, 5, 6, 7, 8, 9]
    assert harness.same_everywhere()
    harness[1].kill()
    taker = Receiver(harness[3])
    assert harness.until(lambda: taker.driver is not None)
    taker.request(10)
    assert harness.until(lambda: len(taker.order) == 9)
    assert sorted(taker.order)[:4] == [(number, True) for number in (0, 1, 2, 3)]
