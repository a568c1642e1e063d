"""Tests of transient messages on replicated queues: they survive as long as one member runs."""

from __future__ import annotations

from tests.harness.cluster.cluster_harness import ACCEPT, RELEASE, ClusterHarness, Receiver, Sender


def test_what_is_not_durable_outlives_members_and_newcomers_get_it() -> None:  # D1, D3, D4, D6, D31, D59
    harness = ClusterHarness().start()
    sender, receiver = Sender(harness[1]), Receiver(harness[2])
    harness.run(0.2)
    sender.send(range(50), durable=False)
    assert harness.until(lambda: len(sender.confirmed) == 50)
    receiver.request(20)
    assert harness.until(lambda: len(receiver.unsettled) == 20)
    receiver.settle_as(range(5), ACCEPT)
    receiver.settle_as(range(5, 10), RELEASE)
    assert harness.until(lambda: len(receiver.accepted) == 5)
    harness[1].kill()
    harness.run(0.3)
    harness[1].start()
    assert harness.until(lambda: harness[1].serves), harness.reason()
    harness[2].kill()
    other = Receiver(harness[3])
    assert harness.until(lambda: other.driver is not None)
    other.request(100)
    assert harness.until(lambda: len(other.order) == 45)
    assert [number for number, _ in other.order] == [*range(5, 50)]
    assert all(marked for number, marked in other.order if number < 20), "a client had had these"
    harness.run(0.2)
    assert [number for _, number in harness[1].contents("q")] == [*range(5, 50)], "who came anew got all of it"
    other.settle_as(range(5, 50), ACCEPT)
    assert harness.until(lambda: len(other.accepted) == 45)
    harness.run(0.2)
    assert harness[1].contents("q") == harness[3].contents("q") == []


def test_what_is_not_durable_goes_with_the_last_member() -> None:  # D31
    harness = ClusterHarness().start()
    sender = Sender(harness[1])
    harness.run(0.2)
    sender.send(range(5), durable=False)
    sender.send([5])
    assert harness.until(lambda: len(sender.confirmed) == 6)
    for member in harness.members.values():
        member.kill()
    harness.run(0.5)
    for member in harness.members.values():
        member.start()
    assert harness.until(lambda: all(member.serves for member in harness.members.values()), 60), harness.reason()
    assert [number for _, number in harness[1].contents("q")] == [5]
    assert harness.same_everywhere()
