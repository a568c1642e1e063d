"""Tests that members agree on the delivery marks and failed deliveries of each message (D18, rule 13)."""

from __future__ import annotations

from itertools import product

import pytest

from tests.harness.cluster.cluster_harness import ACCEPT, FAIL, RELEASE, ClusterHarness, Receiver, Sender

LONG_BYTES = 100_000
"""Large enough that contents are only on disk, so that a joining member waits until they are read."""
NEWCOMER, UPDATER, OWNER, OTHER = 5, 1, 2, 3
BEFORE = (None, RELEASE, FAIL)
HISTORIES = [*product(BEFORE, BEFORE)]
"""Outcomes of each message: before the request of the joining member, and then before the state transfer."""


def settle(receiver: Receiver, when: int) -> None:
    for state in (RELEASE, FAIL):
        some = [number for number, history in enumerate(HISTORIES) if history[when] == state]
        receiver.settle_as(some, state, failed=state == FAIL)


def asked(*, has_them: bool = False) -> tuple[ClusterHarness, Receiver]:
    """Return a cluster at the start of a state transfer, and a consumer of the owner that holds all messages.

    *has_them*: the joining member has the messages in its store.
    """
    harness = ClusterHarness(5).start()
    harness[OWNER].do(harness[OWNER].broker.nodes.create_queue, "q", {}, print)
    harness.run(0.2)
    sender, receiver = Sender(harness[OWNER]), Receiver(harness[OWNER])
    harness.run(0.2)
    receiver.request(100)
    if not has_them:
        harness[NEWCOMER].kill()
    sender.send(range(len(HISTORIES)), size_bytes=LONG_BYTES)
    assert harness.until(lambda: len(receiver.unsettled) == len(HISTORIES))
    if has_them:
        harness[NEWCOMER].kill()
    settle(receiver, 0)
    assert harness.until(lambda: len(receiver.unsettled) == len(HISTORIES))
    harness[UPDATER].is_reader_slow = True
    harness[NEWCOMER].start()
    assert harness.until(lambda: harness[NEWCOMER].core.state.phase == "transferring")
    assert harness[UPDATER].core.sender.is_busy
    return harness, receiver


def all_count_alike(harness: ClusterHarness) -> bool:
    marks = [member.marks("q") for member in harness.members.values() if member.serves]
    assert all(len(one) == len(HISTORIES) for one in marks)
    return all(one == marks[0] for one in marks)


def brought(harness: ClusterHarness) -> None:
    harness[UPDATER].is_reader_slow = False
    assert harness.until(lambda: harness[NEWCOMER].serves), harness.reason()
    harness.run(0.2)


@pytest.mark.parametrize("has_them", [False, True])
def test_what_comes_back_before_it_is_brought_counts_once(has_them: bool) -> None:
    harness, receiver = asked(has_them=has_them)
    settle(receiver, 1)
    harness.run(0.2)
    brought(harness)
    receiver.leave()
    harness.run(0.2)
    assert all_count_alike(harness), {node: member.marks("q") for node, member in harness.members.items()}


@pytest.mark.parametrize("has_them", [False, True])
@pytest.mark.parametrize("when", [0, 1, 2], ids=["before", "between", "after"])
def test_an_owner_that_dies_meanwhile_may_have_shown_it_all(when: int, has_them: bool) -> None:
    harness, receiver = asked(has_them=has_them)
    other = Receiver(harness[OTHER])
    for step in range(3):
        if step == when:
            harness[OWNER].kill()
            assert harness.until(lambda: OWNER not in {one.node for one in harness[OTHER].core.state.members})
            harness.run(0.3)
        elif step == 0:
            settle(receiver, 1)
            harness.run(0.2)
        else:
            other.request(100)
            assert harness.until(lambda: other.driver is not None)
            harness.run(0.3)
            other.settle_as([*other.unsettled], FAIL, failed=True)
            harness.run(0.3)
    other.leave()
    brought(harness)
    assert all_count_alike(harness), {node: member.marks("q") for node, member in harness.members.items()}


def test_what_consumers_have_is_brought_once_though_the_updater_changes() -> None:  # rule 12
    harness, receiver = asked()
    other, sender = Receiver(harness[OTHER]), Sender(harness[OTHER])
    assert harness.until(lambda: sender.driver is not None)
    sender.send([99])  # an owner whose consumers receive nothing keeps the queue
    assert harness.until(lambda: 99 in receiver.unsettled)
    receiver.settle_as([99], ACCEPT)
    assert harness.until(lambda: len(harness[NEWCOMER].core.owners.replicas["q"].acquired) == len(HISTORIES))
    newcomer = harness[NEWCOMER].core.owners.replicas["q"]
    harness[UPDATER].is_reader_slow = False
    assert harness.until(lambda: len(newcomer.held) == 2)
    harness[UPDATER].kill()
    assert harness.until(lambda: harness[NEWCOMER].serves), harness.reason()
    harness.run(0.2)
    assert newcomer.queue.messages == len(HISTORIES)
    settle(receiver, 1)
    receiver.leave()
    harness.run(0.2)
    assert all_count_alike(harness), {node: member.marks("q") for node, member in harness.members.items()}
    other.request(100)
    assert harness.until(lambda: len(other.unsettled) == len(HISTORIES))
    other.settle_as(range(len(HISTORIES)), ACCEPT)
    assert harness.until(lambda: len(other.accepted) == len(HISTORIES))
    harness.run(0.2)
    assert (newcomer.queue.messages, newcomer.queue.memory.held_bytes) == (0, 0)
    assert not harness[NEWCOMER].store.messages().get(newcomer.queue.queue_id)


def test_what_is_not_shown_here_and_with_consumers_elsewhere_is_not_of_the_owner_that_dies() -> None:  # rule 13
    harness = ClusterHarness(5).start()
    harness[OWNER].do(harness[OWNER].broker.nodes.create_queue, "q", {}, print)
    harness.run(0.2)
    sender, receiver, other = Sender(harness[UPDATER]), Receiver(harness[OWNER]), Receiver(harness[OTHER])
    harness.run(0.2)
    receiver.request(100)
    harness[NEWCOMER].is_disk_slow = True
    sender.send([*range(len(HISTORIES)), 99])
    assert harness.until(lambda: 99 in receiver.unsettled)
    receiver.settle_as([99], ACCEPT)
    behind = harness[NEWCOMER].core.owners.replicas["q"]
    assert harness.until(lambda: len(behind.held) == len(HISTORIES) and behind.owner == harness[OTHER].core.state.me)
    harness[OTHER].kill()
    assert harness.until(lambda: OTHER not in {one.node for one in harness[NEWCOMER].core.state.members})
    harness[NEWCOMER].hurry_disk()
    harness.run(0.3)
    settle(receiver, 1)
    receiver.leave()
    harness.run(0.3)
    assert all_count_alike(harness), {node: member.marks("q") for node, member in harness.members.items()}
    assert other.order == []


def test_what_comes_behind_an_owners_death_is_not_marked() -> None:  # rule 13
    """Messages sent after the death of an owner are not marked as delivered, even where the events arrive together."""
    harness = ClusterHarness().start()
    slow, sending, owner = harness[1], harness[2], harness[3]
    for name in ("q", "r"):
        sending.do(sending.broker.nodes.create_queue, name, {}, print)
    harness.run(0.2)
    sender, other, receiver = Sender(sending), Sender(sending, "r"), Receiver(owner)
    harness.run(0.2)
    sender.send(range(3))
    receiver.request(3)
    assert harness.until(lambda: len(receiver.unsettled) == len(sender.confirmed) == 3)
    receiver.settle_as(range(3), RELEASE)
    harness.run(0.2)
    slow.kill()
    slow.start()
    assert harness.until(lambda: slow.serves)  # its queue has a backlog of transferred messages
    slow.asleep = True
    other.send(range(5), size_bytes=LONG_BYTES)
    assert harness.until(lambda: len(other.confirmed) == 5)
    owner.kill()
    harness.run(0.5)
    sender.send(range(3, 13))
    harness.run(0.1)
    slow.asleep = False
    assert harness.until(lambda: len(sender.confirmed) == 13), harness.reason()
    harness.run(0.2)
    marks = [[mark for _, mark in sorted(member.marks("q").items())] for member in (slow, sending)]
    assert marks[0] == marks[1] == [(True, 1)] * 3 + [(False, 0)] * 10
