"""A member that the group has gone on without, and that does not know it yet: what its clients may see, and may not."""

from __future__ import annotations

import pytest

from cairnmq.cluster.health.self_delivery_check import SILENT_S

from .histories import Broken, Histories
from .world import ACCEPT, Receiver, Sender, World


def test_who_was_left_behind_settles_nothing_and_is_told_in_the_end() -> None:  # D3, D6, rules 2 to 5
    world = World().start()
    sender, left = Sender(world[2]), Receiver(world[1])
    world.run(0.2)
    sender.send(range(10))
    left.request(5)
    assert world.until(lambda: len(sender.confirmed) == 10 and len(left.unsettled) == 5)
    world.network.pause_daemon(1)  # its broker hears nothing any more, not even that
    world.run(0.5)
    other = Receiver(world[2])
    assert world.until(lambda: other.driver is not None)
    other.request(10)
    assert world.until(lambda: len(other.unsettled) == 10)
    assert all(marked for _, marked in other.order), "some came to a client of the member that is gone"
    other.settle_as(range(10), ACCEPT)
    assert world.until(lambda: len(other.accepted) == 10)
    left.request(5)  # what was its member's to hand out it may still get, as a packet may be late
    world.run(0.2)
    left.settle_as([*left.unsettled], ACCEPT)
    world.run(2)
    assert left.accepted == [], "nobody hears of it"
    world.network.resume_daemon(1)
    assert world.until(lambda: left.is_dead)
    assert world.until(lambda: all(member.serves for member in world.members.values())), world.why()
    newer = Receiver(world[1])
    assert world.until(lambda: newer.driver is not None)
    newer.request(10)
    world.run(0.5)
    assert (left.accepted, newer.order) == ([], [])
    assert all(not member.contents("q") for member in world.members.values())


def with_some_handed_out(world: World) -> Receiver:
    """A client of the first member has five of ten messages."""
    sender, receiver = Sender(world[2]), Receiver(world[1])
    world.run(0.2)
    sender.send(range(10))
    receiver.request(5)
    assert world.until(lambda: len(sender.confirmed) == 10 and len(receiver.unsettled) == 5)
    world.run(0.2)
    return receiver


def test_who_hears_nothing_of_what_it_says_hands_out_nothing() -> None:  # D3, rules 4 and 15
    world = World().start()
    receiver = with_some_handed_out(world)
    world.network.pause_daemon(1)
    receiver.settle_as([0], ACCEPT)
    world.run(SILENT_S + 0.1)
    receiver.request(5)
    world.run(1)
    assert len(receiver.order) == 5


def test_who_hears_it_after_all_goes_on() -> None:
    world = World()
    world.network.detection_s = 4 * SILENT_S
    world.start()
    receiver = with_some_handed_out(world)
    world.network.pause_daemon(1)
    receiver.settle_as([0], ACCEPT)
    world.run(SILENT_S + 0.1)
    receiver.request(5)
    world.run(0.5)
    assert (len(receiver.order), receiver.accepted) == (5, [])
    world.network.resume_daemon(1)
    assert world.until(lambda: len(receiver.order) == 10 and receiver.accepted == [0])
    assert not world[1].core.view_change.lost_times, "nobody had noticed"


def test_only_who_was_left_behind_may_hand_out_what_was_accepted_for_good() -> None:  # D3: the simulation's own law
    histories = Histories()
    world = World().start()
    receivers = {node: Receiver(world[node]) for node in world.members}

    def forwarded(receiver: Receiver, number: int) -> None:
        histories.forwarded(receiver.member, "q", number, marked=True, presettled=False)

    histories.sends("q", (7, 8), 10)
    histories.is_final({("q", 7)}, world[2])
    for receiver in receivers.values():
        with pytest.raises(Broken, match="7 was accepted for good"):
            forwarded(receiver, 7)
    world.network.pause_daemon(1)
    world.run(0.5)
    with pytest.raises(Broken, match="7 was accepted for good"):
        forwarded(receivers[1], 7)  # it was in the group when that was said
    histories.is_final({("q", 8)}, world[2])
    forwarded(receivers[1], 8)
    with pytest.raises(Broken, match="8 was accepted for good"):
        forwarded(receivers[3], 8)
    world.network.resume_daemon(1)
    assert world.until(lambda: receivers[1].is_dead)
    assert world.until(lambda: all(member.serves for member in world.members.values())), world.why()
    with pytest.raises(Broken, match="8 was accepted for good"):
        forwarded(Receiver(world[1]), 8)  # it is in again, as a new member
