"""Tests of a federated queue of a cluster (D23): over any member, and continued over another one."""

from __future__ import annotations

from functools import partial
from random import Random

import pytest

from cairnmq.cluster.feeds.replicated_feed import ONE_STEP_BYTES
from cairnmq.cluster.replication import change_watch as watch
from tests.harness.broker.following_world import contents
from tests.harness.cluster.cluster_harness import ACCEPT, RELEASE, Receiver, Sender
from tests.harness.cluster.followed_cluster import Sites
from tests.harness.thorough import amount


def test_it_is_followed_while_it_is_used_and_goes_on_with_another_member() -> None:  # D23
    sites = Sites()
    cluster = sites.cluster
    sender, receiver = Sender(cluster[2]), Receiver(cluster[1])
    cluster.run(0.2)
    receiver.request(3)
    sender.send(range(10))
    assert cluster.until(lambda: len(sender.confirmed) == 10 and len(receiver.unsettled) == 3)
    sites.follow()
    assert sites.connect(1) == []
    sites.catch_up()
    assert sites.copy() == tuple(range(10)), "what consumers have is on the queue as well"
    receiver.settle_as([0, 2], ACCEPT)
    sender.send(range(10, 15))
    sites.catch_up()
    assert sites.copy() == sites.now() == (1, *range(3, 15))
    cluster[1].kill()
    sites.cut()
    sender.send(range(15, 20))
    assert sites.connect(2) == []
    sites.catch_up()
    assert sites.copy() == sites.now() == (1, *range(3, 20))
    cluster[1].start()
    assert cluster.until(lambda: cluster[1].serves)
    sites.cut()
    assert sites.connect(1) == []
    sender.send(range(20, 23))
    sites.catch_up()
    assert sites.copy() == sites.now() == (1, *range(3, 23))


def started(count: int = 0, *, observed: bool = True) -> tuple[Sites, Sender]:
    """Return sites with *count* messages on the queue, and their sender."""
    sites = Sites(observed=observed)
    sender = Sender(sites.cluster[2])
    sites.cluster.run(0.2)
    sender.send(range(count))
    assert sites.cluster.until(lambda: len(sender.confirmed) == count)
    return sites, sender


def test_what_it_lacks_after_a_long_time_comes_before_what_went_goes() -> None:  # D23
    sites, sender = started(10)
    cluster = sites.cluster
    sites.follow()
    assert sites.connect(1) == []
    sites.catch_up()
    sites.cut()
    receiver = Receiver(cluster[1])
    cluster.run(0.2)
    receiver.request(5)
    assert cluster.until(lambda: len(receiver.unsettled) == 5)
    receiver.settle_as(range(5), ACCEPT)
    sender.send(range(10, 60), size_bytes=ONE_STEP_BYTES // 20)
    assert cluster.until(lambda: len(sender.confirmed) == 60 and len(receiver.accepted) == 5)
    assert sites.copy() == tuple(range(10))
    assert sites.connect(2) == []
    before = sites.following.copy.after
    while sites.following.copy.after == before or sites.copy() is not None:
        while sites.carry():
            if sites.copy() is None:
                break
        sites.answer()
        cluster.tick()
    found = contents(sites.follower.store, sites.following.copy.queue_id)
    assert found == tuple(range(len(found))), "nothing went yet"
    assert 10 < len(found) < 60
    told: list[Exception | None] = []
    sites.follower.do(
        partial(sites.follower.broker.remote.federated_queues.promote, force=False), sites.following, told.append
    )
    assert "not have all" in str(told[0])
    sites.cut()
    assert sites.connect(3) == []
    sites.catch_up()
    assert sites.copy() == tuple(range(5, 60))


def test_a_long_message_comes_in_pieces() -> None:  # D23
    sites, sender = started(observed=False)
    sites.follow()
    assert sites.connect(3) == []
    sender.send([0, 1], size_bytes=300_000)
    sender.send([2])
    assert sites.cluster.until(lambda: len(sender.confirmed) == 3)
    sites.catch_up()
    assert contents(sites.follower.store, sites.following.copy.queue_id) == (0, 1, 2)
    sites.cut()
    sites.follower.kill_and_start()
    assert sites.connect(1) == []
    sites.catch_up()
    assert sites.copy() == sites.now() == (0, 1, 2)


def test_one_that_is_too_slow_is_compared_anew(monkeypatch: pytest.MonkeyPatch) -> None:  # D23
    monkeypatch.setattr(watch, "MOST_NOTED", 50)
    sites, sender = started(5)
    sites.follow()
    assert sites.connect(1) == []
    sites.catch_up()
    receiver = Receiver(sites.cluster[1])
    sites.cluster.run(0.2)
    receiver.request(50)
    for begin in range(5, 605, 20):  # the downstream broker grants no credit meanwhile
        sender.send(range(begin, begin + 20))
        sites.cluster.run(0.1)
    receiver.settle_as([*receiver.unsettled][:40], ACCEPT)
    sites.cluster.run(0.5)
    assert sites.link is not None
    feeder = sites.link[1].driver
    assert feeder.behind_messages <= 50
    sites.catch_up()
    assert sites.copy() == sites.now() == tuple(range(40, 605))


def test_a_member_without_a_majority_says_so_and_feeds_nobody() -> None:  # D23, rule 4
    sites, _ = started(3)
    sites.follow()
    assert sites.connect(1) == []
    sites.catch_up()
    sites.cluster.network.partition({1}, {2, 3})
    assert sites.cluster.until(lambda: not sites.cluster[1].serves)
    assert sites.link is not None
    assert sites.link[1].failures == ["amqp:link:detach-forced"]
    sites.cut()
    assert sites.connect(1) == ["amqp:connection:forced"]
    assert sites.connect(2) == []
    sites.catch_up()
    assert sites.copy() == (0, 1, 2)


def test_copy_has_to_be_resynchronized_after_a_start_of_all_members() -> None:  # D23, D32
    sites, _ = started(3)
    sites.follow()
    assert sites.connect(1) == []
    sites.catch_up()
    sites.cut()
    for member in sites.cluster.members.values():
        member.kill()
    for member in sites.cluster.members.values():
        member.start()
    assert sites.cluster.until(lambda: all(one.serves for one in sites.cluster.members.values()))
    assert sites.connect(2) == ["amqp:not-found"], "positions are given anew"
    assert sites.copy() == (0, 1, 2), "what it has stays"
    said: list[Exception | None] = []
    sites.follower.do(sites.follower.broker.remote.federated_queues.resynchronize, sites.following, said.append)
    assert said == [None]
    assert sites.connect(2) == []
    sites.catch_up()
    assert sites.copy() == (0, 1, 2)


def test_a_queue_that_is_deleted_and_another_of_its_name() -> None:  # D23, D49
    sites, _ = started(3)
    cluster = sites.cluster
    sites.follow()
    assert sites.connect(1) == []
    sites.catch_up()
    cluster[2].do(cluster[2].broker.nodes.delete_queue, cluster[2].broker.nodes.queues["q"], lambda error: None)
    assert cluster.until(lambda: sites.link is not None and bool(sites.link[1].failures))
    assert sites.link is not None
    assert sites.link[1].failures == ["amqp:resource-deleted"]
    sites.cut()
    assert sites.connect(1) == ["amqp:not-found"]
    cluster[2].do(cluster[2].broker.nodes.create_queue, "q", {}, lambda made: None)
    assert cluster.until(lambda: "q" in cluster[1].core.owners.replicas)
    assert sites.connect(1) == ["amqp:not-found"]


class Life:
    """A scenario of a cluster, its clients, the connection and the downstream broker, drawn from a seed."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.sites = Sites(seed)
        self.cluster = self.sites.cluster
        self.senders: dict[int, Sender] = {}
        self.receivers: dict[int, Receiver] = {}
        self.number = 0
        self.clients()
        self.cluster.run(0.2)
        self.sites.follow()

    def clients(self) -> None:
        """Connect missing clients to members 1 and 2 if they serve; the observer has none."""
        for node in (1, 2):
            member = self.cluster[node]
            if not member.serves:
                continue
            sender, receiver = self.senders.get(node), self.receivers.get(node)
            for client in (sender, receiver):
                if client is not None and client.is_dead:
                    client.leave(lost=True)
            if sender is None or sender.is_dead:
                self.senders[node] = Sender(member)
            if receiver is None or receiver.is_dead:
                self.receivers[node] = Receiver(member)

    def run(self, steps: int) -> None:
        for _ in range(steps):
            self.random.choices(
                (self.send, self.receive, self.settle, self.pass_time, self.carry, self.line, self.purge, self.fault),
                (30, 15, 30, 20, 40, 6, 1, 2),
            )[0]()
            self.sites.hold()
        self.mend()

    def send(self) -> None:
        node = self.random.choice((1, 2))
        count = self.random.choice((1, 1, 3, 10))
        if node in self.senders and self.senders[node].driver is not None:
            numbers = range(self.number, self.number + count)
            size_bytes = self.random.choice((10, 10, 10, 5000, 50_000))
            self.senders[node].send(numbers, size_bytes=size_bytes, durable=self.random.random() < 0.9)
            self.number += count

    def receive(self) -> None:
        for receiver in self.receivers.values():
            receiver.request(self.random.choice((0, 1, 5)))

    def settle(self) -> None:
        for receiver in self.receivers.values():
            some = [one for one in receiver.unsettled if self.random.random() < 0.4]
            receiver.settle_as(some, self.random.choice((ACCEPT, ACCEPT, ACCEPT, RELEASE)))

    def pass_time(self) -> None:
        self.cluster.run(self.random.choice((0.01, 0.01, 0.05, 0.3)))
        self.clients()

    def carry(self) -> None:
        for _ in range(self.random.choice((1, 3, 20))):
            self.sites.carry()
            self.sites.hold()
            if self.random.random() < 0.8:
                self.sites.answer()

    def line(self) -> None:
        """Break the connection, perhaps restart the downstream broker, and reconnect to a random serving member."""
        self.sites.cut()
        if self.random.random() < 0.3:
            self.sites.follower.kill_and_start()
        able = [node for node, member in self.cluster.members.items() if member.serves]
        if able:
            self.sites.connect(self.random.choice(able))

    def purge(self) -> None:
        member = self.cluster[self.random.choice((1, 2))]
        if member.serves:
            member.do(member.broker.nodes.queues["q"].order.purge, lambda found: None, "")

    def fault(self) -> None:
        node = self.random.choice((1, 2))
        member = self.cluster[node]
        if not all(one.running for one in self.cluster.members.values()):
            self.mend()
        elif self.random.random() < 0.5:
            member.kill(self.random if self.random.random() < 0.5 else None)
        else:
            self.cluster.network.partition({node}, {1, 2, 3} - {node})
            self.cluster.run(self.random.choice((0.05, 0.5, 2)))
            self.cluster.network.heal()

    def mend(self) -> None:
        self.cluster.network.heal()
        for member in self.cluster.members.values():
            if not member.running:
                member.start()
        assert self.cluster.until(lambda: all(one.serves for one in self.cluster.members.values()))
        self.clients()

    def end(self) -> None:
        """Complete all operations, and check that the copy equals the queue on each member."""
        self.cluster.run(1)
        self.sites.cut()
        if self.sites.connect(node := self.random.choice((1, 2, 3))):  # positions are new after a bootstrap
            federated = self.sites.follower.broker.remote.federated_queues
            self.sites.follower.do(federated.resynchronize, self.sites.following, lambda error: None)
            assert self.sites.connect(node) == []
        self.sites.catch_up()
        assert self.sites.copy() == self.sites.now(1) == self.sites.now(2) == self.sites.now(3)


@pytest.mark.parametrize("seed", range(amount("CAIRN_FOLLOWINGS", 20, 4)))
def test_whatever_breaks_it_is_what_the_queue_was_at_some_moment(seed: int) -> None:  # D23
    life = Life(seed)
    life.run(120)
    life.end()
