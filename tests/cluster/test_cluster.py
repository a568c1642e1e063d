"""What the cluster promises to those that send and receive, each in one place: D1 to D6, ownership."""

from __future__ import annotations

import pytest

from cairnmq.cluster.kernel import events
from cairnmq.cluster.kernel.local_messages import NOTHING

from .overhearing import overhear
from .world import ACCEPT, FAIL, REJECT, RELEASE, Receiver, Sender, World


def test_what_is_confirmed_is_on_all_members() -> None:  # D1, D13, D15, D34
    world = World().start()
    senders = [Sender(world[node]) for node in (1, 2, 3)]
    world.run(0.2)
    for first, sender in enumerate(senders):
        sender.send(range(100 * first, 100 * first + 20))
    assert world.until(lambda: all(len(sender.confirmed) == 20 for sender in senders)), world.why()
    world.run(0.2)
    contents = world[1].contents("q")
    assert len(contents) == 60
    assert world.same_everywhere()


def test_a_message_goes_to_one_consumer_of_any_member() -> None:  # D2, D3, D10, D35
    world = World().start()
    receivers = [Receiver(world[node]) for node in (1, 2, 3)]
    sender = Sender(world[2])
    world.run(0.2)
    for receiver in receivers:
        receiver.request(1000)
    for batch in range(30):
        sender.send(range(10 * batch, 10 * batch + 10))
        world.run(0.05)
        for receiver in receivers:
            receiver.settle_as([*receiver.unsettled], ACCEPT)
    assert world.until(lambda: len(sender.confirmed) == 300)
    assert world.until(lambda: sum(len(receiver.accepted) for receiver in receivers) == 300)
    got = [number for receiver in receivers for number, _ in receiver.order]
    assert sorted(got) == [*range(300)]
    assert all(receiver.order == sorted(receiver.order) for receiver in receivers)
    assert all(not member.contents("q") for member in world.members.values())
    assert sum(1 for receiver in receivers if receiver.order) > 1, "no turns were taken"


def test_an_owner_that_dies_is_followed() -> None:  # D6, D36, D74
    world = World().start()
    sender, receiver = Sender(world[2]), Receiver(world[1])
    world.run(0.2)
    sender.send(range(10))
    receiver.request(5)
    assert world.until(lambda: len(receiver.unsettled) == 5)
    receiver.settle_as([0, 1], ACCEPT)
    assert world.until(lambda: receiver.accepted == [0, 1])
    world[1].kill()
    other = Receiver(world[3])
    world.run(0.1)
    other.request(100)
    assert world.until(lambda: len(other.order) == 8)
    assert other.order == [(number, True) for number in range(2, 10)]


def test_what_only_its_sender_heard_is_not_confirmed() -> None:  # rule 1
    world = World(detection_s=1.0).start()
    sender = Sender(world[1])
    world.run(0.2)
    sender.send(range(5))
    assert world.until(lambda: len(sender.confirmed) == 5)
    world.network.cut_egress(1)
    sender.send(range(5, 10))
    world.run(0.8)
    assert [number for _, number in world[1].contents("q")] == [*range(10)], "it hears itself"
    assert len(sender.confirmed) == 5
    world.run(1)
    assert sender.is_dead
    assert len(sender.confirmed) == 5
    world.network.heal()
    assert world.until(lambda: all(member.serves for member in world.members.values()), 60), world.why()
    assert [number for _, number in world[2].contents("q")][:5] == [*range(5)]
    assert world.same_everywhere()


def test_an_accept_is_settled_when_it_is_on_the_disks_of_a_majority() -> None:  # rule 2, D3, D14, D57, D75
    world = World().start()
    sender, receiver = Sender(world[1]), Receiver(world[1])
    world.run(0.2)
    sender.send(range(3))
    receiver.request(10)
    assert world.until(lambda: len(receiver.unsettled) == 3)
    world[2].asleep = world[3].asleep = True
    receiver.settle_as([0, 1, 2], ACCEPT)
    world.run(0.5)
    assert not world[1].contents("q")
    assert not receiver.accepted
    world[2].asleep = False
    assert world.until(lambda: receiver.accepted == [0, 1, 2])


def test_a_minority_serves_nobody_and_says_so() -> None:  # rule 4
    world = World().start()
    sender = Sender(world[1])
    world.run(0.2)
    world.network.partition([1], [2, 3])
    assert world.until(lambda: bool(sender.connection.expelled))
    assert "majority" in sender.connection.expelled
    late = Sender(world[1])
    world.run(0.2)
    assert late.connection.expelled
    assert late.failures == ["amqp:connection:forced"]
    other = Sender(world[2])
    world.run(0.2)
    other.send([1])
    assert world.until(lambda: other.confirmed == [1])


def test_who_was_excluded_while_it_slept_wipes_and_is_updated() -> None:  # rules 3 and 5
    world = World().start()
    sender = Sender(world[2])
    world.run(0.2)
    sender.send(range(5))
    assert world.until(lambda: len(sender.confirmed) == 5)
    world.network.pause_daemon(1)
    mute = Sender(world[1])
    world.run(0.02)
    mute.send([100])
    world.run(1)
    sender.send(range(5, 8))
    assert world.until(lambda: len(sender.confirmed) == 8)
    world.network.resume_daemon(1)
    assert world.until(lambda: world[1].core.view_change.lost_times > 0)
    assert world.until(lambda: all(member.serves for member in world.members.values()), 60), world.why()
    assert not mute.confirmed
    assert [number for _, number in world[1].contents("q")] == [*range(8)]
    assert world.same_everywhere()


def test_a_queue_with_consumers_on_one_member_costs_nothing_for_them() -> None:  # D22, D28
    world = World().start()
    sender, receiver = Sender(world[1]), Receiver(world[1])
    world.run(0.2)
    receiver.request(1000)
    world.run(0.2)
    moves = world[1].core.owners.moves
    said = overhear(world, at=2)
    sender.send(range(100))
    assert world.until(lambda: len(receiver.unsettled) == 100)
    world.run(1)
    assert {each.payload[0] for each in said} == {events.ENQUEUE}, "an acquire, or a change of the owner, was said"
    assert world[1].core.owners.moves == moves


def ten_for_two(world: World, sent_at: int) -> tuple[Receiver, Receiver]:
    """Ten messages: a receiver at the first member has four of them, one at the second six."""
    sender, first, second = Sender(world[sent_at]), Receiver(world[1]), Receiver(world[2])
    world.run(0.2)
    sender.send(range(10))
    first.request(4)
    assert world.until(lambda: len(first.unsettled) == 4)
    second.request(100)
    assert world.until(lambda: len(second.unsettled) == 6)
    return first, second


def test_what_a_former_owner_has_is_nobody_elses() -> None:  # D2, rule 14
    world = World().start()
    first, second = ten_for_two(world, 1)
    world.run(1)
    assert not {*first.unsettled} & {*second.unsettled}
    first.settle_as([0], ACCEPT)
    first.settle_as([1], FAIL, failed=True)
    assert world.until(lambda: first.accepted == [0])
    assert world.until(lambda: 1 in second.unsettled or 1 in first.unsettled, 5) or first.order[-1] == (1, True)
    first.leave(lost=True)
    assert world.until(lambda: len(second.unsettled) == 9)
    assert all(marked for number, marked in second.order if number in (1, 2, 3))


def test_a_rejected_message_is_once_among_the_dead_letters() -> None:  # D5, D16, D37, D77, rule 16
    world = World().start()
    nodes = world[1].broker.nodes
    world[1].do(nodes.create_queue, "dead", {}, print)
    world[1].do(nodes.create_queue, "q", {"dead-letter-address": "dead"}, print)
    world.run(0.2)
    sender, receiver = Sender(world[2]), Receiver(world[3])
    world.run(0.2)
    sender.send(range(3))
    receiver.request(10)
    assert world.until(lambda: len(receiver.unsettled) == 3)
    receiver.settle_as([1], REJECT)
    assert world.until(lambda: bool(receiver.settled))
    world.run(0.3)
    for member in world.members.values():
        assert [number for _, number in member.contents("dead")] == [1]
        assert [number for _, number in member.contents("q")] == [0, 2]


def test_long_messages_go_in_parts() -> None:  # D52, rule 7
    world = World().start()
    sender, receiver = Sender(world[1]), Receiver(world[3])
    world.run(0.2)
    sender.send([1], size_bytes=300_000)
    sender.send([2], size_bytes=300_000, durable=False)
    assert world.until(lambda: len(sender.confirmed) == 2)
    world.run(0.2)
    assert world.same_everywhere()
    receiver.request(10)
    assert world.until(lambda: [number for number, _ in receiver.order] == [1, 2])


def test_what_expires_goes_everywhere_by_one_word() -> None:  # D21, rule 16
    world = World().start()
    world[1].do(world[1].broker.nodes.create_queue, "q", {"message-ttl-ms": 500}, print)
    world.run(0.2)
    sender = Sender(world[2])
    world.run(0.2)
    sender.send(range(5))
    assert world.until(lambda: len(sender.confirmed) == 5)
    assert world.until(lambda: all(not member.contents("q") for member in world.members.values()), 5)
    assert all(member.broker.nodes.queues["q"].messages == 0 for member in world.members.values())


def test_a_ring_keeps_its_size_everywhere() -> None:  # D39, rule 16
    world = World().start()
    world[1].do(world[1].broker.nodes.create_queue, "q", {"max-messages": 3, "overflow": "ring"}, print)
    world.run(0.2)
    sender = Sender(world[2])
    world.run(0.2)
    sender.send(range(10))
    assert world.until(lambda: len(sender.confirmed) == 10)
    world.run(0.5)
    assert [number for _, number in world[1].contents("q")] == [7, 8, 9]
    assert world.same_everywhere()


def test_purging_and_deleting_are_everywhere() -> None:  # D49, D54, D58, D61
    world = World().start()
    sender, receiver = Sender(world[1]), Receiver(world[2])
    world.run(0.2)
    sender.send(range(10))
    receiver.request(2)
    assert world.until(lambda: len(receiver.unsettled) == 2)
    purged: list[object] = []
    broker = world[3].broker
    world[3].do(broker.nodes.queues["q"].order.purge, purged.append, "")
    assert world.until(lambda: purged == [8])
    world.run(0.2)
    receiver.settle_as([0], ACCEPT)
    receiver.settle_as([1], RELEASE)
    world.run(0.3)
    for member in world.members.values():
        assert [number for _, number in member.contents("q")] == [1]
        assert member.broker.nodes.queues["q"].messages == 1
    world[3].do(broker.nodes.delete_queue, broker.nodes.queues["q"], purged.append)
    assert world.until(lambda: not any("q" in member.broker.nodes.queues for member in world.members.values()))


def test_what_is_one_members_only_has_to_say_so() -> None:  # D24, D67
    world = World().start()
    made: list[object] = []
    nodes = world[1].broker.nodes
    world[1].do(nodes.create_queue, "all", {"priorities": True}, made.append)
    world[1].do(nodes.create_queue, "own", {"priorities": True, "replicated": False}, made.append)
    world.run(0.2)
    assert "all" in world[2].broker.nodes.queues
    assert "own" in nodes.queues
    assert "own" not in world[2].broker.nodes.queues


@pytest.mark.parametrize(
    "data",
    [
        *[b"\xff", b"\x09", b"\x09\x01\0\0\0\x09", b"\x09\x05\0\0\0\x06{}", b"\x01\x00\xff\xff\xff\xff\xff\xff"],
        *[b"\x06[]", b"\x02\x03", b"\x07\x02\x07"],
    ],
)
def test_bad_events_are_passed_by(data: bytes) -> None:
    world = World().start()
    world[1].core.locals.add(NOTHING)
    world[1].core.group.multicast(data)
    world.run(0.2)
    sender = Sender(world[2])
    world.run(0.2)
    sender.send([1])
    assert world.until(lambda: sender.confirmed == [1])
    assert [world[node].core.apply_loop.bad_events for node in (2, 3)] == [1, 1]


def test_a_member_that_nobody_hears_owns_nothing() -> None:  # rule 15
    world = World(detection_s=1.0).start()
    sender = Sender(world[2])
    world.run(0.2)
    sender.send(range(5))
    assert world.until(lambda: len(sender.confirmed) == 5)
    world.network.cut_egress(1)
    mute, other = Receiver(world[1]), Receiver(world[3])
    world.run(0.1)
    mute.request(10)
    other.request(10)
    world.run(0.5)
    assert not mute.order
    world.run(3)
    assert [number for number, _ in other.order] == [*range(5)]


def test_what_a_dead_member_had_comes_back_with_a_mark() -> None:  # D6, rule 13
    world = World().start()
    _, second = ten_for_two(world, 3)
    world[1].kill()
    assert world.until(lambda: len(second.unsettled) == 10, 10)
    assert second.order[6:] == [(number, True) for number in range(4)]


def test_what_is_said_after_the_group_was_left_is_not_said() -> None:  # rule 3
    """The group knows it first: it may be in again as a new member before the core has heard that it was out."""
    world = World().start()
    core = world[3].core
    old, core.state.me = core.state.me, core.state.me._replace(incarnation=1)  # type: ignore[union-attr]
    before = core.group.in_flight_bytes
    core.broadcaster.send(events.control("nothing"))
    assert core.group.in_flight_bytes == before
    core.state.me = old


def test_what_is_given_back_before_it_is_safe_is_found_again() -> None:  # D4, D15
    world = World().start()
    sender, receiver = Sender(world[1]), Receiver(world[1])
    world.run(0.2)
    receiver.request(1000)
    sender.send(range(300))
    assert world.until(lambda: len(receiver.unsettled) == 300)
    world[3].kill()
    world.run(0.3)
    world[3].start()
    assert world.until(lambda: world[3].serves)
    follower = world[3].core
    assert follower.owners.replicas["q"].queue.backlog.count
    is_safe = follower.commits._is_safe
    follower.commits._is_safe = lambda waiting: False  # type: ignore[method-assign]  # acknowledgements are slow
    sender.send(range(300, 310))
    assert world.until(lambda: len(receiver.unsettled) == 310)
    receiver.settle_as([303, 305], RELEASE)
    assert world.until(lambda: len(receiver.order) == 312)
    world.run(0.1)
    follower.commits._is_safe = is_safe  # type: ignore[method-assign]
    sender.send([310])
    assert world.until(lambda: len(receiver.unsettled) == 311)
    world.run(0.1)
    assert world.same_everywhere()
    for some in ([303, 305], [*range(311)]):
        receiver.settle_as(some, ACCEPT)
        world.run(0.1)
    assert world.until(lambda: len(receiver.accepted) == 311)
    world.run(0.1)
    assert all(not member.contents("q") for member in world.members.values())
    assert follower.owners.replicas["q"].queue.messages == 0
