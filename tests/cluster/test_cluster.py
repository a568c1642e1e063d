"""Tests of the cluster's guarantees to senders and receivers, one per test: D1 to D6, ownership."""

from __future__ import annotations

import pytest

from cairnmq.cluster.kernel import events
from cairnmq.cluster.kernel.local_messages import NOTHING
from tests.harness.cluster.cluster_harness import ACCEPT, FAIL, REJECT, RELEASE, ClusterHarness, Receiver, Sender
from tests.harness.cluster.control_recorder import overhear


def test_what_is_confirmed_is_on_all_members() -> None:  # D1, D13, D15, D34
    harness = ClusterHarness().start()
    senders = [Sender(harness[node]) for node in (1, 2, 3)]
    harness.run(0.2)
    for first, sender in enumerate(senders):
        sender.send(range(100 * first, 100 * first + 20))
    assert harness.until(lambda: all(len(sender.confirmed) == 20 for sender in senders)), harness.reason()
    harness.run(0.2)
    contents = harness[1].contents("q")
    assert len(contents) == 60
    assert harness.same_everywhere()


def test_a_message_goes_to_one_consumer_of_any_member() -> None:  # D2, D3, D10, D35
    harness = ClusterHarness().start()
    receivers = [Receiver(harness[node]) for node in (1, 2, 3)]
    sender = Sender(harness[2])
    harness.run(0.2)
    for receiver in receivers:
        receiver.request(1000)
    for batch in range(30):
        sender.send(range(10 * batch, 10 * batch + 10))
        harness.run(0.05)
        for receiver in receivers:
            receiver.settle_as([*receiver.unsettled], ACCEPT)
    assert harness.until(lambda: len(sender.confirmed) == 300)
    assert harness.until(lambda: sum(len(receiver.accepted) for receiver in receivers) == 300)
    got = [number for receiver in receivers for number, _ in receiver.order]
    assert sorted(got) == [*range(300)]
    assert all(receiver.order == sorted(receiver.order) for receiver in receivers)
    assert all(not member.contents("q") for member in harness.members.values())
    assert sum(1 for receiver in receivers if receiver.order) > 1, "no turns were taken"


def test_an_owner_that_dies_is_followed() -> None:  # D6, D36, D74
    harness = ClusterHarness().start()
    sender, receiver = Sender(harness[2]), Receiver(harness[1])
    harness.run(0.2)
    sender.send(range(10))
    receiver.request(5)
    assert harness.until(lambda: len(receiver.unsettled) == 5)
    receiver.settle_as([0, 1], ACCEPT)
    assert harness.until(lambda: receiver.accepted == [0, 1])
    harness[1].kill()
    other = Receiver(harness[3])
    harness.run(0.1)
    other.request(100)
    assert harness.until(lambda: len(other.order) == 8)
    assert other.order == [(number, True) for number in range(2, 10)]


def test_what_only_its_sender_heard_is_not_confirmed() -> None:  # rule 1
    harness = ClusterHarness(detection_s=1.0).start()
    sender = Sender(harness[1])
    harness.run(0.2)
    sender.send(range(5))
    assert harness.until(lambda: len(sender.confirmed) == 5)
    harness.network.cut_egress(1)
    sender.send(range(5, 10))
    harness.run(0.8)
    assert [number for _, number in harness[1].contents("q")] == [*range(10)], "it hears itself"
    assert len(sender.confirmed) == 5
    harness.run(1)
    assert sender.is_dead
    assert len(sender.confirmed) == 5
    harness.network.heal()
    assert harness.until(lambda: all(member.serves for member in harness.members.values()), 60), harness.reason()
    assert [number for _, number in harness[2].contents("q")][:5] == [*range(5)]
    assert harness.same_everywhere()


def test_an_accept_is_settled_when_it_is_on_the_disks_of_a_majority() -> None:  # rule 2, D3, D14, D57, D75
    harness = ClusterHarness().start()
    sender, receiver = Sender(harness[1]), Receiver(harness[1])
    harness.run(0.2)
    sender.send(range(3))
    receiver.request(10)
    assert harness.until(lambda: len(receiver.unsettled) == 3)
    harness[2].asleep = harness[3].asleep = True
    receiver.settle_as([0, 1, 2], ACCEPT)
    harness.run(0.5)
    assert not harness[1].contents("q")
    assert not receiver.accepted
    harness[2].asleep = False
    assert harness.until(lambda: receiver.accepted == [0, 1, 2])


def test_a_minority_serves_nobody_and_says_so() -> None:  # rule 4
    harness = ClusterHarness().start()
    sender = Sender(harness[1])
    harness.run(0.2)
    harness.network.partition([1], [2, 3])
    assert harness.until(lambda: bool(sender.connection.expelled))
    assert "majority" in sender.connection.expelled
    late = Sender(harness[1])
    harness.run(0.2)
    assert late.connection.expelled
    assert late.failures == ["amqp:connection:forced"]
    other = Sender(harness[2])
    harness.run(0.2)
    other.send([1])
    assert harness.until(lambda: other.confirmed == [1])


def test_who_was_excluded_while_it_slept_wipes_and_is_updated() -> None:  # rules 3 and 5
    harness = ClusterHarness().start()
    sender = Sender(harness[2])
    harness.run(0.2)
    sender.send(range(5))
    assert harness.until(lambda: len(sender.confirmed) == 5)
    harness.network.pause_daemon(1)
    mute = Sender(harness[1])
    harness.run(0.02)
    mute.send([100])
    harness.run(1)
    sender.send(range(5, 8))
    assert harness.until(lambda: len(sender.confirmed) == 8)
    harness.network.resume_daemon(1)
    assert harness.until(lambda: harness[1].core.view_change.lost_times > 0)
    assert harness.until(lambda: all(member.serves for member in harness.members.values()), 60), harness.reason()
    assert not mute.confirmed
    assert [number for _, number in harness[1].contents("q")] == [*range(8)]
    assert harness.same_everywhere()


def test_a_queue_with_consumers_on_one_member_costs_nothing_for_them() -> None:  # D22, D28
    harness = ClusterHarness().start()
    sender, receiver = Sender(harness[1]), Receiver(harness[1])
    harness.run(0.2)
    receiver.request(1000)
    harness.run(0.2)
    moves = harness[1].core.owners.moves
    said = overhear(harness, at=2)
    sender.send(range(100))
    assert harness.until(lambda: len(receiver.unsettled) == 100)
    harness.run(1)
    assert {each.payload[0] for each in said} == {events.ENQUEUE}, "an acquire, or a change of the owner, was said"
    assert harness[1].core.owners.moves == moves


def ten_for_two(harness: ClusterHarness, sent_at: int) -> tuple[Receiver, Receiver]:
    """Send ten messages; return a receiver on member 1 that holds four of them, and one on member 2 that holds six."""
    sender, first, second = Sender(harness[sent_at]), Receiver(harness[1]), Receiver(harness[2])
    harness.run(0.2)
    sender.send(range(10))
    first.request(4)
    assert harness.until(lambda: len(first.unsettled) == 4)
    second.request(100)
    assert harness.until(lambda: len(second.unsettled) == 6)
    return first, second


def test_what_a_former_owner_has_is_nobody_elses() -> None:  # D2, rule 14
    harness = ClusterHarness().start()
    first, second = ten_for_two(harness, 1)
    harness.run(1)
    assert not {*first.unsettled} & {*second.unsettled}
    first.settle_as([0], ACCEPT)
    first.settle_as([1], FAIL, failed=True)
    assert harness.until(lambda: first.accepted == [0])
    assert harness.until(lambda: 1 in second.unsettled or 1 in first.unsettled, 5) or first.order[-1] == (1, True)
    first.leave(lost=True)
    assert harness.until(lambda: len(second.unsettled) == 9)
    assert all(marked for number, marked in second.order if number in (1, 2, 3))


def test_a_rejected_message_is_once_among_the_dead_letters() -> None:  # D5, D16, D37, D77, rule 16
    harness = ClusterHarness().start()
    nodes = harness[1].broker.nodes
    harness[1].do(nodes.create_queue, "dead", {}, print)
    harness[1].do(nodes.create_queue, "q", {"dead-letter-address": "dead"}, print)
    harness.run(0.2)
    sender, receiver = Sender(harness[2]), Receiver(harness[3])
    harness.run(0.2)
    sender.send(range(3))
    receiver.request(10)
    assert harness.until(lambda: len(receiver.unsettled) == 3)
    receiver.settle_as([1], REJECT)
    assert harness.until(lambda: bool(receiver.settled))
    harness.run(0.3)
    for member in harness.members.values():
        assert [number for _, number in member.contents("dead")] == [1]
        assert [number for _, number in member.contents("q")] == [0, 2]


def test_long_messages_go_in_parts() -> None:  # D52, rule 7
    harness = ClusterHarness().start()
    sender, receiver = Sender(harness[1]), Receiver(harness[3])
    harness.run(0.2)
    sender.send([1], size_bytes=300_000)
    sender.send([2], size_bytes=300_000, durable=False)
    assert harness.until(lambda: len(sender.confirmed) == 2)
    harness.run(0.2)
    assert harness.same_everywhere()
    receiver.request(10)
    assert harness.until(lambda: [number for number, _ in receiver.order] == [1, 2])


def test_what_expires_goes_everywhere_by_one_word() -> None:  # D21, rule 16
    harness = ClusterHarness().start()
    harness[1].do(harness[1].broker.nodes.create_queue, "q", {"message-ttl-ms": 500}, print)
    harness.run(0.2)
    sender = Sender(harness[2])
    harness.run(0.2)
    sender.send(range(5))
    assert harness.until(lambda: len(sender.confirmed) == 5)
    assert harness.until(lambda: all(not member.contents("q") for member in harness.members.values()), 5)
    assert all(member.broker.nodes.queues["q"].messages == 0 for member in harness.members.values())


def test_a_ring_keeps_its_size_everywhere() -> None:  # D39, rule 16
    harness = ClusterHarness().start()
    harness[1].do(harness[1].broker.nodes.create_queue, "q", {"max-messages": 3, "overflow": "ring"}, print)
    harness.run(0.2)
    sender = Sender(harness[2])
    harness.run(0.2)
    sender.send(range(10))
    assert harness.until(lambda: len(sender.confirmed) == 10)
    harness.run(0.5)
    assert [number for _, number in harness[1].contents("q")] == [7, 8, 9]
    assert harness.same_everywhere()


def test_purging_and_deleting_are_everywhere() -> None:  # D49, D54, D58, D61
    harness = ClusterHarness().start()
    sender, receiver = Sender(harness[1]), Receiver(harness[2])
    harness.run(0.2)
    sender.send(range(10))
    receiver.request(2)
    assert harness.until(lambda: len(receiver.unsettled) == 2)
    purged: list[object] = []
    broker = harness[3].broker
    harness[3].do(broker.nodes.queues["q"].order.purge, purged.append, "")
    assert harness.until(lambda: purged == [8])
    harness.run(0.2)
    receiver.settle_as([0], ACCEPT)
    receiver.settle_as([1], RELEASE)
    harness.run(0.3)
    for member in harness.members.values():
        assert [number for _, number in member.contents("q")] == [1]
        assert member.broker.nodes.queues["q"].messages == 1
    harness[3].do(broker.nodes.delete_queue, broker.nodes.queues["q"], purged.append)
    assert harness.until(lambda: not any("q" in member.broker.nodes.queues for member in harness.members.values()))


def test_what_is_one_members_only_has_to_say_so() -> None:  # D24, D67
    harness = ClusterHarness().start()
    made: list[object] = []
    nodes = harness[1].broker.nodes
    harness[1].do(nodes.create_queue, "all", {"priorities": True}, made.append)
    harness[1].do(nodes.create_queue, "own", {"priorities": True, "replicated": False}, made.append)
    harness.run(0.2)
    assert "all" in harness[2].broker.nodes.queues
    assert "own" in nodes.queues
    assert "own" not in harness[2].broker.nodes.queues


@pytest.mark.parametrize(
    "data",
    [
        *[b"\xff", b"\x09", b"\x09\x01\0\0\0\x09", b"\x09\x05\0\0\0\x06{}", b"\x01\x00\xff\xff\xff\xff\xff\xff"],
        *[b"\x06[]", b"\x02\x03", b"\x07\x02\x07"],
    ],
)
def test_bad_events_are_passed_by(data: bytes) -> None:
    harness = ClusterHarness().start()
    harness[1].core.locals.add(NOTHING)
    harness[1].core.group.multicast(data)
    harness.run(0.2)
    sender = Sender(harness[2])
    harness.run(0.2)
    sender.send([1])
    assert harness.until(lambda: sender.confirmed == [1])
    assert [harness[node].core.apply_loop.bad_events for node in (2, 3)] == [1, 1]


def test_a_member_that_nobody_hears_owns_nothing() -> None:  # rule 15
    harness = ClusterHarness(detection_s=1.0).start()
    sender = Sender(harness[2])
    harness.run(0.2)
    sender.send(range(5))
    assert harness.until(lambda: len(sender.confirmed) == 5)
    harness.network.cut_egress(1)
    mute, other = Receiver(harness[1]), Receiver(harness[3])
    harness.run(0.1)
    mute.request(10)
    other.request(10)
    harness.run(0.5)
    assert not mute.order
    harness.run(3)
    assert [number for number, _ in other.order] == [*range(5)]


def test_what_a_dead_member_had_comes_back_with_a_mark() -> None:  # D6, rule 13
    harness = ClusterHarness().start()
    _, second = ten_for_two(harness, 3)
    harness[1].kill()
    assert harness.until(lambda: len(second.unsettled) == 10, 10)
    assert second.order[6:] == [(number, True) for number in range(4)]


def test_what_is_said_after_the_group_was_left_is_not_said() -> None:  # rule 3
    """An event is dropped if the group has a newer identity of this member than the core, which lags behind it."""
    harness = ClusterHarness().start()
    core = harness[3].core
    old, core.state.me = core.state.me, core.state.me._replace(incarnation=1)  # type: ignore[union-attr]
    before = core.group.in_flight_bytes
    core.broadcaster.send(events.control("nothing"))
    assert core.group.in_flight_bytes == before
    core.state.me = old


def test_what_is_given_back_before_it_is_safe_is_found_again() -> None:  # D4, D15
    harness = ClusterHarness().start()
    sender, receiver = Sender(harness[1]), Receiver(harness[1])
    harness.run(0.2)
    receiver.request(1000)
    sender.send(range(300))
    assert harness.until(lambda: len(receiver.unsettled) == 300)
    harness[3].kill()
    harness.run(0.3)
    harness[3].start()
    assert harness.until(lambda: harness[3].serves)
    follower = harness[3].core
    assert follower.owners.replicas["q"].queue.contents.backlog.count
    is_safe = follower.commits._is_safe
    follower.commits._is_safe = lambda waiting: False  # type: ignore[method-assign]  # acknowledgements are slow
    sender.send(range(300, 310))
    assert harness.until(lambda: len(receiver.unsettled) == 310)
    receiver.settle_as([303, 305], RELEASE)
    assert harness.until(lambda: len(receiver.order) == 312)
    harness.run(0.1)
    follower.commits._is_safe = is_safe  # type: ignore[method-assign]
    sender.send([310])
    assert harness.until(lambda: len(receiver.unsettled) == 311)
    harness.run(0.1)
    assert harness.same_everywhere()
    for some in ([303, 305], [*range(311)]):
        receiver.settle_as(some, ACCEPT)
        harness.run(0.1)
    assert harness.until(lambda: len(receiver.accepted) == 311)
    harness.run(0.1)
    assert all(not member.contents("q") for member in harness.members.values())
    assert follower.owners.replicas["q"].queue.messages == 0
