"""Tests of a member that does not know yet that the others continue without it: its clients settle no messages."""

from __future__ import annotations

import pytest

from cairnmq.cluster.health.self_delivery_check import SILENT_S
from tests.harness.cluster.cluster_harness import ACCEPT, ClusterHarness, Receiver, Sender
from tests.harness.cluster.histories import Broken, Histories


def test_who_was_left_behind_settles_nothing_and_is_told_in_the_end() -> None:  # D3, D6, rules 2 to 5
    harness = ClusterHarness().start()
    sender, left = Sender(harness[2]), Receiver(harness[1])
    harness.run(0.2)
    sender.send(range(10))
    left.request(5)
    assert harness.until(lambda: len(sender.confirmed) == 10 and len(left.unsettled) == 5)
    harness.network.pause_daemon(1)  # its broker receives nothing any more, not even this change
    harness.run(0.5)
    other = Receiver(harness[2])
    assert harness.until(lambda: other.driver is not None)
    other.request(10)
    assert harness.until(lambda: len(other.unsettled) == 10)
    assert all(marked for _, marked in other.order), "some came to a client of the member that is gone"
    other.settle_as(range(10), ACCEPT)
    assert harness.until(lambda: len(other.accepted) == 10)
    left.request(5)  # a member may still dispatch from its own queue, as a packet may be late
    harness.run(0.2)
    left.settle_as([*left.unsettled], ACCEPT)
    harness.run(2)
    assert left.accepted == [], "nobody hears of it"
    harness.network.resume_daemon(1)
    assert harness.until(lambda: left.is_dead)
    assert harness.until(lambda: all(member.serves for member in harness.members.values())), harness.reason()
    newer = Receiver(harness[1])
    assert harness.until(lambda: newer.driver is not None)
    newer.request(10)
    harness.run(0.5)
    assert (left.accepted, newer.order) == ([], [])
    assert all(not member.contents("q") for member in harness.members.values())


def with_some_handed_out(harness: ClusterHarness) -> Receiver:
    """Return a receiver of member 1 that holds five of ten messages."""
    sender, receiver = Sender(harness[2]), Receiver(harness[1])
    harness.run(0.2)
    sender.send(range(10))
    receiver.request(5)
    assert harness.until(lambda: len(sender.confirmed) == 10 and len(receiver.unsettled) == 5)
    harness.run(0.2)
    return receiver


def test_who_hears_nothing_of_what_it_says_hands_out_nothing() -> None:  # D3, rules 4 and 15
    harness = ClusterHarness().start()
    receiver = with_some_handed_out(harness)
    harness.network.pause_daemon(1)
    receiver.settle_as([0], ACCEPT)
    harness.run(SILENT_S + 0.1)
    receiver.request(5)
    harness.run(1)
    assert len(receiver.order) == 5


def test_who_hears_it_after_all_goes_on() -> None:
    harness = ClusterHarness()
    harness.network.detection_s = 4 * SILENT_S
    harness.start()
    receiver = with_some_handed_out(harness)
    harness.network.pause_daemon(1)
    receiver.settle_as([0], ACCEPT)
    harness.run(SILENT_S + 0.1)
    receiver.request(5)
    harness.run(0.5)
    assert (len(receiver.order), receiver.accepted) == (5, [])
    harness.network.resume_daemon(1)
    assert harness.until(lambda: len(receiver.order) == 10 and receiver.accepted == [0])
    assert not harness[1].core.view_change.lost_times, "nobody had noticed"


def test_only_who_was_left_behind_may_hand_out_what_was_accepted_for_good() -> None:  # D3: a check of the simulation
    histories = Histories()
    harness = ClusterHarness().start()
    receivers = {node: Receiver(harness[node]) for node in harness.members}

    def forwarded(receiver: Receiver, number: int) -> None:
        histories.forwarded(receiver.member, "q", number, marked=True, presettled=False)

    histories.sends("q", (7, 8), 10)
    histories.is_final({("q", 7)}, harness[2])
    for receiver in receivers.values():
        with pytest.raises(Broken, match="7 was accepted for good"):
            forwarded(receiver, 7)
    harness.network.pause_daemon(1)
    harness.run(0.5)
    with pytest.raises(Broken, match="7 was accepted for good"):
        forwarded(receivers[1], 7)  # the member was in the group when 7 became final
    histories.is_final({("q", 8)}, harness[2])
    forwarded(receivers[1], 8)
    with pytest.raises(Broken, match="8 was accepted for good"):
        forwarded(receivers[3], 8)
    harness.network.resume_daemon(1)
    assert harness.until(lambda: receivers[1].is_dead)
    assert harness.until(lambda: all(member.serves for member in harness.members.values())), harness.reason()
    with pytest.raises(Broken, match="8 was accepted for good"):
        forwarded(Receiver(harness[1]), 8)  # the member has rejoined, as a new one
