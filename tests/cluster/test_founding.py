"""Tests of bootstrap: which store is selected, and which members wait, while members join and leave."""

from __future__ import annotations

import pytest

from cairnmq.cluster.group.member_id import MemberId
from cairnmq.cluster.kernel import events
from cairnmq.cluster.kernel.commit_tracker import CommitTracker
from tests.harness.cluster.cluster_harness import ACCEPT, ClusterHarness, Receiver, Sender, send


def test_who_has_all_messages_goes_before_any_was_brought_and_comes_back() -> None:  # D19, rules 12 and 17
    harness = ClusterHarness().start()
    harness[1].kill()
    harness.run(0.5)
    send(harness, 2, range(10))
    harness[3].kill()
    harness.run(0.5)
    harness[1].start()
    harness[3].start()
    for member in harness.members.values():
        member.core.sender.serve = lambda *_: None  # type: ignore[method-assign]  # state transfer makes no progress
    assert harness.until(lambda: any(member.core.state.phase == "synchronized" for member in harness.members.values()))
    ahead = next(node for node, member in harness.members.items() if member.core.state.phase == "synchronized")
    others = [member for node, member in harness.members.items() if node != ahead]
    assert harness.until(lambda: all(member.core.state.phase == "buffering" for member in others))
    harness.network.partition([ahead], [member.node for member in others])
    harness.run(0.5)
    assert all(member.core.state.me is not None for member in others), "they are a majority, without any messages"
    for member in harness.members.values():
        del member.core.sender.serve
    harness.network.heal()
    assert harness.until(lambda: all(member.serves for member in harness.members.values()), 60), harness.reason()
    assert [number for _, number in harness[1].contents("q")] == [*range(10)]
    assert harness.same_everywhere()


@pytest.mark.parametrize(("how_old", "phase"), [(0, "synchronized"), (1, "bootstrapping")])
def test_what_was_said_of_a_store_counts_in_its_configuration(how_old: int, phase: str) -> None:  # rules 3 and 17
    harness = ClusterHarness().start()
    harness[3].stop()
    harness.run(0.5)
    send(harness, 1, range(10))
    for node in (1, 2):  # the members that would invite the joining member
        harness[node].core.sender.invite = lambda newcomer: None  # type: ignore[method-assign]
    harness[3].start()
    core = harness[3].core
    assert harness.until(lambda: core.state.phase == "bootstrapping")
    record = core.progress_record
    about = {"standing": record.standing._asdict(), "cluster": record.cluster, "empty": False}
    for node in (1, 2):  # as if it was sent during the bootstrap of these members
        clock_us = harness[node].clock.wall_us()
        state = events.control("state", view=core.state.view - how_old, clock_us=clock_us, **about)
        harness[node].core.broadcaster.send(state)
    harness.run(0.5)
    assert core.state.phase == phase


@pytest.mark.parametrize(("anew", "safe"), [(False, 1), (True, 0)])
def test_who_asks_anew_for_all_has_nothing_of_before(anew: bool, safe: int) -> None:  # D1, rules 1 and 9
    me, newcomer = MemberId(1, 100, 1), MemberId(2, 100, 2)
    completion = CommitTracker()
    completion.majority = 2
    completion.begin(me, 0, (me, newcomer))
    completion.follows(newcomer, 5, anew=True)
    completion.hears(me, 1, True)
    completion.when_safe(6, lambda: None)
    completion.applied(100, 7)
    completion.durable(100)
    completion.follows(newcomer, 9, anew=anew)
    completion.received(newcomer, {me: 2})
    assert len(completion.safe()) == safe
    completion.is_complete(newcomer)
    completion.received(newcomer, {me: 3})
    assert completion.backlog - len(completion.safe()) == 0


def test_what_was_brought_counts_where_an_operator_says_that_it_is_enough() -> None:  # rule 17
    harness = ClusterHarness(5).start()
    sender = Sender(harness[1])
    harness.run(0.2)
    harness[2].kill()
    sender.send(range(400), size_bytes=1000)
    assert harness.until(lambda: len(sender.confirmed) == 400)
    for node in (3, 4, 5):
        harness[node].kill()
    assert harness.until(lambda: harness[1].core.state.phase == "outside")
    harness[2].start()
    harness[2].core.state.is_forced = True
    go_on = harness[1].core.sender.resume
    batches = iter(range(4))
    harness[1].core.sender.resume = lambda: next(batches, None) is not None and go_on()  # type: ignore
    core = harness[2].core
    assert harness.until(lambda: core.state.phase == "transferring")
    harness.run(0.2)
    brought = len(core.owners.replicas["q"].front)
    assert 0 < brought < 400
    harness[1].kill()
    assert harness.until(lambda: harness[2].serves), harness.reason()
    receiver = Receiver(harness[2])
    assert harness.until(lambda: receiver.driver is not None)
    receiver.request(400)
    assert harness.until(lambda: len(receiver.order) == brought)
    assert [number for number, _ in receiver.order] == [*range(400 - brought, 400)]
    receiver.settle_as([*receiver.unsettled], ACCEPT)
    assert harness.until(lambda: len(receiver.accepted) == brought)
    assert harness[2].contents("q") == []


def test_stores_that_were_stopped_at_once_and_hold_messages_in_another_order() -> None:  # D1, D3, D15, rule 17
    harness = ClusterHarness().start()
    send(harness, 1, range(10))
    harness[3].kill()
    harness.run(0.5)
    harness[3].start()
    assert harness.until(lambda: harness[3].serves), harness.reason()
    harness.run(1)
    for member in harness.members.values():  # no member detects that the others leave
        member.core.leave()
        member.store.kick()
    marks = [member.core.progress_record for member in harness.members.values()]
    assert len({mark.standing for mark in marks}) == 1
    for member in harness.members.values():
        member.kill()
    for member in harness.members.values():
        member.start()
    assert harness.until(lambda: all(member.serves for member in harness.members.values()), 60), harness.reason()
    assert harness.same_everywhere()
    receiver = Receiver(harness[1])
    assert harness.until(lambda: receiver.driver is not None)
    receiver.request(3)
    assert harness.until(lambda: len(receiver.order) == 3)
    receiver.settle_as([0, 1, 2], ACCEPT)
    assert harness.until(lambda: len(receiver.accepted) == 3)
    harness.run(0.2)
    for member in harness.members.values():
        assert sorted(number for _, number in member.contents("q")) == [*range(3, 10)]
