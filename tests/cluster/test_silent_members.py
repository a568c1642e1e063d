"""Tests of silent members: they are expelled, others lead their queues, and they detect this before they dispatch."""

from __future__ import annotations

import logging

import pytest

from cairnmq.amqp.ports import Outcome
from cairnmq.broker_plugin.cluster_exposition import CLUSTER_FAMILIES
from cairnmq.cluster.group.member_id import MemberId
from cairnmq.cluster.health.delays import LATE_S
from cairnmq.cluster.health.liveness import SILENCE_S
from cairnmq.cluster.kernel.control_messages import ControlMessage
from tests.harness.cluster.cluster_harness import ACCEPT, ClusterHarness, Receiver, Sender


def figure(harness: ClusterHarness, node: int, name: str) -> object:
    (family,) = [family for family in CLUSTER_FAMILIES if family.name == name]
    return family.value(harness[node].core)


def with_a_leader(seed: int = 0) -> tuple[ClusterHarness, Sender, Receiver, Receiver]:
    """Return a cluster whose node 1 leads the queue, a sender, and consumers of nodes 1 and 2."""
    harness = ClusterHarness(seed=seed).start()
    sender = Sender(harness[3])
    first, second = Receiver(harness[1]), Receiver(harness[2])
    harness.run(0.2)
    first.request(10)
    harness.run(0.2)
    sender.send(range(20))
    assert harness.until(lambda: len(first.order) == 10)
    assert harness.until(lambda: harness[2].core.owners.replicas["q"].owner == harness[1].core.state.me)
    return harness, sender, first, second


def come_together(harness: ClusterHarness) -> None:
    assert harness.until(lambda: all(member.serves for member in harness.members.values()), 60), harness.reason()
    harness.run(0.5)
    assert "q" not in harness[1].core.owners.replicas or harness.same_everywhere()


def lines_of(caplog: pytest.LogCaptureFixture, event: str) -> list[str]:
    return [record.getMessage() for record in caplog.records if getattr(record, "event", "") == event]


def test_member_that_is_killed_and_returns_is_in_the_logs_of_others(caplog: pytest.LogCaptureFixture) -> None:  # T6
    caplog.set_level(logging.INFO)
    harness, *_ = with_a_leader()
    caplog.clear()
    harness[2].kill()
    assert harness.until(lambda: len(lines_of(caplog, "cluster.member-left")) == 2)
    assert all("node 2 (process" in line for line in lines_of(caplog, "cluster.member-left"))
    harness[2].start()
    assert harness.until(lambda: sum("node 2" in line for line in lines_of(caplog, "cluster.member-joined")) == 2)


def test_events_in_time_are_reported_only_after_late_ones(caplog: pytest.LogCaptureFixture) -> None:  # T9
    """Delays within a minute of a report are not reported, and neither are their ends."""
    caplog.set_level(logging.INFO)
    harness, sender, *_ = with_a_leader()
    for number in range(3):
        harness[1].asleep = harness[2].asleep = True
        sender.send(range(20 + number, 21 + number))
        harness.run(LATE_S + 2)
        harness[1].asleep = harness[2].asleep = False
        harness.run(2)
    assert len(lines_of(caplog, "cluster.late")) == len(lines_of(caplog, "cluster.in-time")) == 1


def test_silent_leader_is_replaced_within_the_bound(caplog: pytest.LogCaptureFixture) -> None:  # B2
    harness, sender, first, second = with_a_leader()
    harness[1].asleep = True
    second.request(30)
    harness.run(SILENCE_S / 2)
    assert not second.order
    assert "node 1 (process" in caplog.text
    assert "silent for" in caplog.text
    assert figure(harness, 2, "cluster_silent_members") == 1
    assert figure(harness, 3, "cluster_longest_silence_seconds") > SILENCE_S / 4  # type: ignore[operator]
    assert harness.until(lambda: len(second.order) == 20, SILENCE_S / 2 + 1), "the next member leads the queue"
    assert figure(harness, 3, "cluster_expelled_members_total") == 1
    assert figure(harness, 3, "cluster_silent_members") == 0
    second.settle_as([*second.unsettled], ACCEPT)
    assert harness.until(lambda: len(second.accepted) == 20)
    sender.send(range(20, 25))
    assert harness.until(lambda: len(sender.confirmed) == 25)
    had = len(first.order)
    first.settle_as([*first.unsettled], ACCEPT)
    harness[1].asleep = False
    harness.run(1)
    assert not first.accepted, "nothing that it had handed out is settled by it"
    assert len(first.order) == had
    assert first.connection.expelled
    assert "the others expelled this member" in caplog.text
    assert "node 1 (process" in lines_of(caplog, "cluster.member-left")[0]
    assert "it was expelled" in lines_of(caplog, "cluster.member-left")[0]
    come_together(harness)


def test_resumed_leader_dispatches_nothing_before_it_learns_of_its_expulsion() -> None:  # B2, D2
    """Clients of the leader gave credit meanwhile, and it receives events for many steps before its expulsion."""
    for seed in range(4):
        resumes_after(SILENCE_S + 1, seed)
    resumes_after(SILENCE_S * 0.7, 0)
    resumes_after(3 * SILENCE_S, 1)


def resumes_after(pause_s: float, seed: int) -> None:
    harness, sender, first, second = with_a_leader(seed)
    core = harness[1].core
    assert harness.until(lambda: core.owners.ownership["q"].owned and not len(core.locals), 5)
    harness[1].asleep = True
    first.driver.request(1000, False)  # the member stops between this call and the end of the step
    second.request(1000)
    for at in range(int(pause_s * 10)):
        sender.send([100 + at])
        harness.run(0.1)
    expelled = figure(harness, 2, "cluster_expelled_members_total")
    taken, had = {number for number, _ in second.order}, len(first.order)
    second.settle_as([*second.unsettled], ACCEPT)
    harness.run(0.1)
    harness[1].asleep = False
    assert harness.until(lambda: harness[1].serves and not harness[1].bus.inbox, 60)
    assert not {number for number, _ in first.order[had:]} & taken, "handed out by two members"
    assert bool(expelled) == (pause_s > SILENCE_S)
    come_together(harness)


def test_expelled_member_dispatches_no_queue_that_it_is_to_take() -> None:  # D2, D3
    """The queue is passed to the stopped member, which receives that event many steps before its expulsion."""
    harness = ClusterHarness().start()
    senders = Sender(harness[3]), Sender(harness[2])
    receivers = first, *others = [Receiver(harness[node]) for node in harness.members]
    harness.run(0.2)
    first.request(1000)
    for receiver in others:
        receiver.request(10_000)
    harness.run(0.2)

    def take_turns(numbers: range, takers: list[Receiver]) -> None:
        for sender, at in zip(senders, (0, 20_000), strict=True):
            sender.send(range(at + numbers.start, at + numbers.stop), size_bytes=4000 if len(numbers) > 1 else 0)
        harness.run(0.01)
        for taker in takers:
            taker.settle_as([*taker.unsettled], ACCEPT)

    at = 0
    for node in (1, 2):
        while not harness[node].core.owners.ownership["q"].owned:
            at += 1
            assert at < 400, "the members take turns"
            take_turns(range(at, at + 1), [*receivers])
    harness[1].asleep = True
    replica = harness[2].core.owners.replicas["q"]
    for round_ in range(100):
        take_turns(range(1000 + 100 * round_, 1100 + 100 * round_), others)
        if replica.owner == harness[1].core.state.me:
            break
    assert replica.owner == harness[1].core.state.me, "its turn comes while it is stopped"
    senders[0].send(range(50_000, 50_040))
    for number in range(60_000, 60_060):
        senders[0].send([number], size_bytes=4000)
        harness.run(0.005)
    harness.run(SILENCE_S + 2)
    assert figure(harness, 3, "cluster_expelled_members_total") == 1
    assert others[0].order, "the next members lead the queue"
    for taker in others:
        taker.settle_as([*taker.unsettled], ACCEPT)
    harness.run(0.5)
    had = len(first.order)
    harness[1].asleep = False
    assert harness.until(lambda: harness[1].serves and not harness[1].bus.inbox, 60)
    assert not first.order[had:], "dispatched by a member that was expelled"
    come_together(harness)


def test_member_that_was_stopped_itself_accuses_nobody() -> None:  # B2
    harness, *_ = with_a_leader()
    harness[2].asleep = True
    harness.run(SILENCE_S * 0.8)
    harness[2].asleep = False
    harness.run(1)
    assert not any(figure(harness, node, "cluster_expelled_members_total") for node in harness.members)
    come_together(harness)


@pytest.mark.parametrize("node", [1, 2])
def test_stalled_engine_expels_nobody(node: int) -> None:  # B2, B3
    """While no event is delivered, as with packet loss or a paused corosync, no member counts as silent."""
    harness = ClusterHarness(detection_s=1000).start()
    harness.network.pause_daemon(node)
    harness.run(3 * SILENCE_S)
    harness.network.resume_daemon(node)
    harness.run(1)
    assert not any(figure(harness, each, "cluster_expelled_members_total") for each in harness.members)
    assert len(harness[1].core.state.members) == 3
    come_together(harness)


def test_last_majority_expels_nobody() -> None:  # B2
    harness, *_ = with_a_leader()
    harness[3].kill()
    harness.run(1)
    harness[1].asleep = True
    harness.run(3 * SILENCE_S)
    assert figure(harness, 2, "cluster_expelled_members_total") == 0
    assert figure(harness, 2, "cluster_silent_members") == 1
    harness[1].asleep = False
    harness[3].start()
    come_together(harness)


def test_idle_members_hear_each_other() -> None:  # B2
    harness = ClusterHarness().start()
    harness.run(5 * SILENCE_S)
    assert all(figure(harness, node, "cluster_longest_silence_seconds") == 0 for node in harness.members)
    assert all(len(member.core.state.members) == 3 for member in harness.members.values())


def test_purge_leaves_what_was_accepted_before_it_was_heard() -> None:
    """Found by simulated hangs: consumers no longer held the messages that a purge keeps when it was delivered."""
    harness = ClusterHarness().start()
    sender, receiver = Sender(harness[3]), Receiver(harness[1])
    harness.run(0.2)
    sender.send(range(5))
    receiver.request(3)
    assert harness.until(lambda: len(receiver.unsettled) == 3)
    harness.run(0.2)

    def at_once() -> None:
        harness[1].core.purges.wished(
            ControlMessage(MemberId(0, 0, 0), 0, {"queue": "q", "by": [0, 0, 0], "number": 0})
        )
        outcomes = [Outcome(number, entry, ACCEPT, False, False) for number, (entry, _) in receiver.unsettled.items()]
        receiver.driver.outcomes(outcomes)

    harness[1].do(at_once)
    assert harness.until(lambda: sorted(receiver.accepted) == [0, 1, 2], 5)
    harness.run(0.5)
    assert harness.same_everywhere()
    assert not harness[2].contents("q")
    assert [member.core.owners.replicas["q"].queue.messages for member in harness.members.values()] == [0, 0, 0]


@pytest.mark.parametrize("presettled", [False, True])
def test_purge_takes_what_was_settled_after_it_was_said(presettled: bool) -> None:  # D2, D54
    """A purge removes messages that are dispatched and settled between its multicast and its delivery."""
    harness = ClusterHarness(detection_s=1000).start()
    sender, receiver = Sender(harness[3]), Receiver(harness[1], presettled=presettled)
    harness.run(0.2)
    sender.send(range(5))
    harness.run(0.2)
    receiver.request(2)
    assert harness.until(lambda: len(receiver.order) == 2)
    harness.run(0.3)

    def purge_and_dispatch() -> None:
        harness[1].core.purges.wished(
            ControlMessage(MemberId(0, 0, 0), 0, {"queue": "q", "by": [0, 0, 0], "number": 0})
        )
        receiver.driver.request(5, False)

    harness.network.pause_daemon(1)
    harness[1].do(purge_and_dispatch)
    for _ in range(5):
        harness.tick()
        if not presettled:
            receiver.settle_as([*receiver.unsettled], ACCEPT)
    harness.network.resume_daemon(1)
    harness.run(1)
    assert not [failure for member in harness.members.values() for failure in member.failures]
    assert [number for number, _ in receiver.order] == [*range(5)], "they were handed out before it was heard"
    assert presettled or sorted(receiver.accepted) == [*range(5)]
    assert harness.same_everywhere()
    assert [member.core.owners.replicas["q"].queue.messages for member in harness.members.values()] == [0, 0, 0]


def test_silent_member_without_which_no_majority_is_left_is_kept(caplog: pytest.LogCaptureFixture) -> None:
    """The log states that no expulsion is possible, the reason and the remedy, once a minute."""
    harness, *_ = with_a_leader()
    harness[3].kill()
    assert harness.until(lambda: len(harness[2].core.state.members) == 2)
    expelled: list[object] = []
    group = harness[2].core.group
    expel = group.expel
    group.expel = lambda member: (expelled.append(member), expel(member))[1]  # type: ignore[method-assign, func-returns-value]
    caplog.clear()
    harness[1].asleep = True
    harness.run(SILENCE_S / 2)
    [told] = [line for line in caplog.messages if "silent for" in line]
    assert "node 1 (process" in told
    assert "It cannot be expelled: 1 of 3 members would be left, less than a majority" in told
    assert "start the brokers that are missing (nodes 3), or resume or restart it" in told
    harness.run(185)
    told = [line for line in caplog.messages if "silent for" in line]  # type: ignore[assignment]
    assert len(told) == 4, "once a minute"
    assert not expelled
    assert figure(harness, 2, "cluster_silent_members") == 1
    harness[3].start()
    assert harness.until(lambda: bool(expelled), 5), "then the rest is a majority"
    assert harness.until(lambda: figure(harness, 2, "cluster_expelled_members_total") == 1)
    harness[1].asleep = False
    come_together(harness)


@pytest.mark.parametrize("order", [(3, 1), (1, 3), (2, 3)])
def test_mute_member_that_expels_others_is_not_ahead(order: tuple[int, int]) -> None:  # D1, rules 1 and 17
    """Only the mute member receives its expulsions; the others form a configuration of the same number, and confirm."""
    harness = ClusterHarness(detection_s=3.0)
    for each in harness.members.values():
        each.silence_s = 1.0
    harness.start()
    mute, sender = Sender(harness[3]), Sender(harness[1])
    harness.run(0.2)
    harness.network.cut_egress(3)
    sender.send([0])
    for number in range(100, 120):
        mute.send([number])
        harness.tick()
    assert harness.until(lambda: figure(harness, 3, "cluster_expelled_members_total") == 1, 3)
    assert harness.until(lambda: sender.confirmed == [0], 10)
    standings = {node: member.core.progress_record.standing for node, member in harness.members.items()}
    assert standings[3].position > standings[1].position
    for member in harness.members.values():
        member.kill()
    harness.network.heal()
    for node in order:
        harness[node].start()
    assert harness.until(lambda: all(harness[node].serves for node in order), 60), harness.reason()
    assert [number for _, number in harness[order[0]].contents("q")] == [0]
