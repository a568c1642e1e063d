"""Tests of messages for so many queues that the dispatch takes several steps, and the leader fails between them."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from cairnmq.broker.kernel.dispatch_turns import AT_ONCE
from cairnmq.cluster.health.liveness import SILENCE_S
from tests.harness.cluster import numbered_messages as letters
from tests.harness.cluster.cluster_harness import ACCEPT, ClusterHarness, Receiver, Sender
from tests.harness.cluster.consistency import checked

COUNT = 2 * AT_ONCE + 10
EXCHANGE = "wide"
NAMES = [f"w{number:03}" for number in range(COUNT)]
SIZE_BYTES = 100
FAILURES = ["hang", "kill", "stop"]


class Site:
    """A cluster whose node 1 leads queues that each get every message; nodes 1 and 2 have a consumer of each queue.

    The dispatch on node 1 is between two of its turns: some of its consumers have the message, others do not.
    """

    def __init__(self, seed: int, turns: int) -> None:
        """Send a message, and wait until the dispatch has taken *turns* turns."""
        self.harness = ClusterHarness(seed=seed).start()
        self.sizes: dict[int, int] = {}
        self._declare()
        self.sender = Sender(self.harness[3], EXCHANGE)
        self.first = [Receiver(self.harness[1], name) for name in NAMES]
        self.harness.run(0.2)
        for receiver in self.first:
            receiver.request(10)
        owners = self.harness[1].core.owners
        assert self.harness.until(lambda: all(owners.ownership[name].owned for name in NAMES))
        self.second = [Receiver(self.harness[2], name) for name in NAMES]
        self.harness.run(0.2)
        self.send(0)
        assert self.harness.until(lambda: self.delivered() >= turns * AT_ONCE, 5)
        assert self.delivered() < COUNT, "the dispatch is not over"
        assert self.is_put_off()

    def _declare(self) -> None:
        done: list[object] = []
        member = self.harness[1]
        nodes = member.broker.nodes
        for name in NAMES:
            member.do(nodes.create_queue, name, {}, done.append)
        member.do(nodes.create_exchange, EXCHANGE, "fanout", {}, done.append)
        assert self.harness.until(lambda: len(done) == COUNT + 1)
        for name in NAMES:
            member.do(nodes.bind, nodes.exchanges[EXCHANGE], nodes.queues[name], "", {}, done.append)
        assert self.harness.until(lambda: len(done) == 2 * COUNT + 1)

    def send(self, number: int) -> None:
        self.sizes[number] = SIZE_BYTES
        self.sender.send_whole({number: letters.written(number, SIZE_BYTES)})

    def delivered(self) -> int:
        """Return the number of queues whose consumer on node 1 has received the message."""
        return sum(bool(receiver.order) for receiver in self.first)

    def is_put_off(self) -> bool:
        """Return whether queues wait on node 1 for a later step of the dispatch."""
        return self.harness[1].broker.core.dispatch_turns.has_waiting("", 1 << 60)

    def fail(self, how: str) -> None:
        member = self.harness[1]
        if how == "hang":
            member.asleep = True
        elif how == "kill":
            member.kill()
        else:
            member.stop()

    def recover(self, how: str) -> None:
        if how == "hang":
            self.harness[1].asleep = False
            assert self.harness.until(lambda: all(receiver.connection.expelled for receiver in self.first), 10)
        else:
            self.harness[1].start()
        for receiver in self.first:
            receiver.leave(lost=True)
        members = self.harness.members.values()
        assert self.harness.until(lambda: all(member.serves for member in members), 60), self.harness.reason()
        self.harness.run(1)

    def check(self, left: Sequence[int]) -> None:
        """Check that each queue has the messages *left*, once each, and the same on all members."""
        standings = {standing.queue: standing.contents for standing in checked(self.harness, self.sizes)}
        for name in NAMES:
            assert [number for _, number in standings[name]] == [*left], name


@pytest.mark.parametrize("turns", [1, 2])
@pytest.mark.parametrize("how", FAILURES)
def test_put_off_dispatch_is_done_by_the_next_leader(how: str, turns: int) -> None:  # D1, D2, B2
    """The next leader dispatches the message of each queue once, with a mark if another client had it."""
    site = Site(turns, turns)
    harness, second = site.harness, site.second
    site.fail(how)
    had = [len(receiver.order) for receiver in site.first]
    for receiver in second:
        receiver.request(10)
    assert harness.until(lambda: all(receiver.order for receiver in second), 2 * SILENCE_S + 5)
    assert harness.until(lambda: site.sender.confirmed == [0], 5)
    site.send(1)
    assert harness.until(lambda: all(len(receiver.order) >= 2 for receiver in second), 10)
    for receiver, count in zip(second, had, strict=True):
        assert [number for number, _ in receiver.order] == [0, 1], receiver.address
        assert receiver.order[0][1] or not count, f"{receiver.address}: two consumers have it, without a mark"
        receiver.settle_as([0, 1], ACCEPT)
    assert harness.until(lambda: all(len(receiver.accepted) == 2 for receiver in second), 10)
    site.recover(how)
    if how == "hang":
        assert [len(receiver.order) for receiver in site.first] == had, "dispatched by a member that was expelled"
        assert not site.is_put_off()
    site.check([])


@pytest.mark.parametrize("how", FAILURES)
def test_queues_of_a_put_off_dispatch_have_the_message_once_after_a_failure(how: str) -> None:  # D1, D15
    """Without consumption, all members have the message on each queue after the leader's return."""
    site = Site(5, 2)
    site.fail(how)
    assert site.harness.until(lambda: site.sender.confirmed == [0], 2 * SILENCE_S + 5)
    site.harness.run(SILENCE_S + 1)
    site.recover(how)
    site.check([0])


@pytest.mark.parametrize("how", ["hang", "kill"])
def test_accepted_messages_of_a_put_off_dispatch_do_not_come_back(how: str) -> None:  # D3
    """The clients of the leader accept their messages at the moment of its failure."""
    site = Site(7, 2)
    harness = site.harness
    dispatched = [receiver for receiver in site.first if receiver.order]
    for receiver in dispatched[::2]:
        receiver.settle_as([0], ACCEPT)
    harness.run(0.05)
    for receiver in dispatched[1::4]:
        receiver.settle_as([0], ACCEPT)
    site.fail(how)
    final = {receiver.address for receiver in dispatched if receiver.accepted}
    doubtful = {receiver.address for receiver in site.first if not receiver.unsettled} - final
    for receiver in site.second:
        receiver.request(10)
    sure = [receiver for receiver in site.second if receiver.address not in final | doubtful]
    assert final
    assert sure
    assert harness.until(lambda: all(receiver.order for receiver in sure), 2 * SILENCE_S + 5)
    harness.run(1)
    for receiver in site.second:
        most = 0 if receiver.address in final else 1
        assert len(receiver.order) <= most, receiver.address
        receiver.settle_as([*receiver.unsettled], ACCEPT)
    got = [receiver for receiver in site.second if receiver.order]
    assert harness.until(lambda: all(receiver.accepted for receiver in got), 10)
    site.recover(how)
    site.check([])


def test_put_off_dispatch_goes_on_after_a_pause() -> None:  # B2, D2
    """The leader resumes before the others expel it, and dispatches the rest itself."""
    site = Site(11, 1)
    harness = site.harness
    for receiver in site.second:
        receiver.request(10)
    site.fail("hang")
    harness.run(SILENCE_S * 0.7)
    harness[1].asleep = False
    both = [*zip(site.first, site.second, strict=True)]
    assert harness.until(lambda: all(one.order or other.order for one, other in both), 10)
    harness.run(1)
    assert not any(member.core.liveness.expulsions for member in harness.members.values())
    assert all(len(one.order) + len(other.order) == 1 for one, other in both), "dispatched by two members"
    for receiver in (*site.first, *site.second):
        receiver.settle_as([*receiver.unsettled], ACCEPT)
    harness.run(1)
    site.check([])
