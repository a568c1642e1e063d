"""Tests of the ownership of queues, step by step: the paper's QueueOwnerHandler and QueueOwnership."""

from __future__ import annotations

from itertools import pairwise

import pytest

from cairnmq.cluster.replication.queue_ownership import SLICE_S
from cairnmq.cluster.replication.replica import Replica
from cairnmq.store.contract.wiring_rows import QueueRow
from tests.harness.cluster.cluster_harness import ACCEPT, REJECT, TICK_S, ClusterHarness, Receiver, Sender, started
from tests.harness.cluster.control_recorder import overhear


def replica(harness: ClusterHarness, node: int, name: str = "q") -> Replica:
    return harness[node].core.owners.replicas[name]


def handing_out(harness: ClusterHarness, name: str = "q") -> list[int]:
    """Return the members on which the queue is not paused, that is, may dispatch."""
    return [node for node, member in harness.members.items() if not replica(harness, node, name).queue.is_paused]


def test_only_the_owner_hands_out() -> None:  # D10, D11, D44, D46, D48
    harness = started("q", "p")
    assert handing_out(harness) == [], "a queue that nobody owns hands out nothing"
    receivers = {node: Receiver(harness[node]) for node in (1, 2, 3)}
    beside = Receiver(harness[2], "p")
    sender, sender_beside = Sender(harness[3]), Sender(harness[3], "p")
    harness.run(0.2)
    for receiver in receivers.values():
        receiver.request(1000)
    turns: set[int] = set()
    for number in range(100):
        before = {node: len(receiver.order) for node, receiver in receivers.items()}
        may = {*handing_out(harness)}
        assert len(may) <= 1
        sender.send([number])
        harness.tick()
        may |= {*handing_out(harness)}  # a member may have become the owner in this step
        got = {node for node, receiver in receivers.items() if len(receiver.order) > before[node]}
        assert got <= may, f"{got} got messages, {may} may hand them out"
        turns |= got
        for receiver in receivers.values():
            receiver.settle_as([*receiver.unsettled], ACCEPT)
    assert turns == {1, 2, 3}
    owner = replica(harness, 1).owner
    assert owner is not None
    harness.run(SLICE_S)
    locked = next(node for node in (1, 2, 3) if node not in handing_out(harness))
    here = Receiver(harness[locked], "p") if locked != 2 else beside
    here.request(10)
    harness.run(0.2)
    sender_beside.send([1])
    assert harness.until(lambda: len(here.order) == 1, 5), "its other queues do not wait for one that is locked"


def test_owners_follow_each_other_in_the_order_of_nodes() -> None:  # D12, D42, D45
    harness = ClusterHarness().start()
    sender = Sender(harness[1])
    harness.run(0.2)
    sender.send(range(50))
    assert harness.until(lambda: len(sender.confirmed) == 50)
    receivers = [Receiver(harness[node]) for node in (3, 1, 2)]
    harness.run(0.2)
    owners: list[int] = []
    ticks: list[int] = []
    for receiver in receivers:
        receiver.request(1000)
    for tick in range(300):
        for receiver in receivers:
            receiver.settle_as([*receiver.unsettled], ACCEPT)
        sender.send([1000 + tick])
        harness.tick()
        owner = replica(harness, 2).owner
        if owner is not None and (not owners or owners[-1] != owner.node):
            owners.append(owner.node)
            ticks.append(tick)
    assert len(owners) > 6
    assert all(after == before % 3 + 1 for before, after in pairwise(owners)), owners
    turns = [(after - before) * TICK_S for before, after in pairwise(ticks[1:])]
    assert all(SLICE_S <= turn_s < 2 * SLICE_S for turn_s in turns), turns


def test_the_first_consumer_is_told_and_the_last() -> None:  # D47, D72, D73, D79
    harness = started("q")
    said = overhear(harness, at=2)
    first = Receiver(harness[1])
    harness.run(0.2)
    assert [each.about["what"] for each in said] == ["consume"]
    assert all(replica(harness, node).owner == harness[1].core.state.me for node in (1, 2, 3)), (
        "who comes first owns it"
    )
    others = [Receiver(harness[1]), Receiver(harness[1])]
    harness.run(0.5)
    first.leave()
    others[0].leave()
    harness.run(0.5)
    assert len(said) == 1, "the second one was told, or that it went, or that the queue is passed on to nobody else"
    assert replica(harness, 2).owner == harness[1].core.state.me
    others[1].leave()
    harness.run(0.2)
    assert [each.about["what"] for each in said] == ["consume", "cancel"]
    assert all(replica(harness, node).owner is None for node in (1, 2, 3)), "nobody wants it, nobody owns it"
    assert handing_out(harness) == []


@pytest.mark.parametrize("goes", ["cancels", "dies"])
def test_who_wants_it_owns_it_when_the_owner_has_gone(goes: str) -> None:  # D42, D48, D73, D74
    harness = ClusterHarness().start()
    first, second = Receiver(harness[3]), Receiver(harness[1])
    harness.run(0.2)
    sender = Sender(harness[2])
    harness.run(0.1)
    if handing_out(harness) != [3]:  # the event of the other receiver was ordered first
        first, second = second, first
    owner, other = first.member.node, second.member.node
    if goes == "cancels":
        first.leave()
    else:
        harness[owner].kill()
    assert harness.until(lambda: replica(harness, 2).owner == harness[other].core.state.me, 10)
    assert {member.node for member in replica(harness, 2).interested} == {other}
    second.request(10)
    sender.send([1])
    assert harness.until(lambda: [number for number, _ in second.order] == [1])


def test_who_has_no_credit_passes_it_on_however_much_comes(monkeypatch: pytest.MonkeyPatch) -> None:  # D12
    monkeypatch.setattr("tests.harness.cluster.cluster_harness.TICK_S", 0.002)  # ticks shorter than an ownership slice
    harness = started("q")
    full, hungry, sender = Receiver(harness[1]), Receiver(harness[2]), Sender(harness[3])
    harness.run(0.1)
    full.request(3)
    hungry.request(1000)
    for number in range(500):
        sender.send([number])
        harness.tick()
    assert len(hungry.order) > 400, "the others wait as long as messages come"


def test_a_purge_by_who_owns_a_queue_again_leaves_what_its_consumers_had_all_along() -> None:  # D2, D54, rule 14
    harness = ClusterHarness().start()
    harness[1].do(harness[1].broker.nodes.create_queue, "q", {}, print)
    harness.run(0.2)
    sender, first = Sender(harness[3]), Receiver(harness[2])
    assert harness.until(lambda: sender.driver is not None and first.driver is not None)
    first.request(2)
    sender.send(range(5))
    assert harness.until(lambda: len(first.unsettled) == 2)
    second = Receiver(harness[1])
    assert harness.until(lambda: second.driver is not None)
    second.request(1)
    assert harness.until(lambda: len(second.unsettled) == 1), "the queue has changed hands"
    second.settle_as([*second.unsettled], ACCEPT)
    second.leave()
    there = replica(harness, 3)
    assert harness.until(lambda: there.owner == harness[2].core.state.me and len(there.acquired) == 2)
    purged: list[object] = []
    harness[1].do(harness[1].broker.nodes.queues["q"].order.purge, purged.append, "")
    assert harness.until(lambda: purged == [2])
    third = Receiver(harness[1])
    assert harness.until(lambda: third.driver is not None)
    third.request(10)
    harness.run(1)
    assert not third.order, "nobody gets what the first one has"
    assert harness.same_everywhere()
    first.settle_as([0, 1], ACCEPT)
    assert harness.until(lambda: len(first.accepted) == 2)
    harness.run(0.2)
    assert all(not member.contents("q") for member in harness.members.values())


def test_who_takes_back_its_word_before_it_was_its_turn_hands_out_nothing() -> None:  # D2, D3, D48, rule 14
    """The last consumer of the new owner cancels between the event that gives it the queue and the safety of that
    event, and another one attaches at once. The cancel is ordered first, so the members pass the queue on."""
    harness = ClusterHarness(detection_s=1.0).start()
    harness[1].do(harness[1].broker.nodes.create_queue, "q", {}, print)
    harness.run(0.1)
    sender, first, leaver = Sender(harness[2]), Receiver(harness[1]), Receiver(harness[3])
    assert harness.until(lambda: None not in (sender.driver, first.driver, leaver.driver))
    assert harness.until(lambda: replica(harness, 2).interested == {harness[1].core.state.me, harness[3].core.state.me})
    sender.send(range(20))
    assert harness.until(lambda: len(sender.confirmed) == 20)
    assert harness.until(lambda: handing_out(harness) == [1]), "nobody has credit, so they take turns"
    harness[3].is_disk_slow = True
    sender.send([20])  # events that are received after it are not safe on this member
    assert harness.until(lambda: replica(harness, 3).owner == harness[3].core.state.me), "it was passed on"
    harness.run(0.1)
    assert handing_out(harness) == []
    harness.network.pause_daemon(1)  # events that are sent are not delivered yet
    leaver.leave()
    late = Receiver(harness[3])
    harness[3].do(late.request, 100)
    harness[3].hurry_disk()
    harness.run(0.1)
    assert handing_out(harness) == []
    harness.network.resume_daemon(1)
    harness.run(0.1)
    first.request(100)
    for _ in range(100):
        for receiver in (first, late):
            receiver.settle_as([*receiver.unsettled], ACCEPT)
        harness.run(0.05)
    accepted = sorted(number for receiver in (first, late) for number in receiver.accepted)
    assert accepted == sorted(sender.confirmed), "each was accepted once"
    assert all(not member.contents("q") for member in harness.members.values())


def test_what_can_not_be_moved_away_is_the_next_owners() -> None:  # D45, rule 16
    """A message that waits for another attempt at dead-lettering moves with its queue to the next owner."""
    harness = started("q", **{"dead-letter-address": "dead"})
    for member in harness.members.values():  # a federated copy of a queue, which accepts no messages
        member.broker.nodes.copies["dead"] = QueueRow(0, "dead")
    first, sender = Receiver(harness[1]), Sender(harness[3])
    harness.run(0.2)
    first.request(1)
    sender.send([7])
    assert harness.until(lambda: 7 in first.unsettled)
    second = Receiver(harness[2])
    harness.run(0.2)
    second.request(10)
    first.settle_as([7], REJECT)
    harness.run(0.2)
    assert not second.unsettled
    first.leave()
    assert harness.until(lambda: 7 in second.unsettled, 5)
    second.settle_as([7], ACCEPT)
    assert harness.until(lambda: not any(member.contents("q") for member in harness.members.values()))
    assert harness.same_everywhere()
