"""Tests of a user's share of the disk (`max-disk-share`) in a cluster: each member throttles its own clients."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from cairnmq.broker.users.quotas import Quotas
from cairnmq.broker.users.user_accounts import OWNER, UserAccount
from tests.harness.cluster import numbered_messages as letters
from tests.harness.cluster.cluster_harness import ACCEPT, ClusterHarness, Receiver, Sender, SimulatedMember
from tests.harness.cluster.consistency import checked

CAPACITY_BYTES = 48 << 20
SHARE = 10
"""The share of the disk for one user, in percent."""
SIZE_BYTES = 20_000
BATCH = 3
QUOTAS = Quotas(((frozenset({"anna"}), {"max_disk_share": SHARE}),))
FAILURES = ["hang", "kill", "stop"]


class SmallMember(SimulatedMember):
    """A member with a small disk, and a quota for anna."""

    def start(self) -> None:
        self.capacity_bytes = CAPACITY_BYTES
        super().start()
        self.broker.core.users.set_quotas(QUOTAS)

    @property
    def anna(self) -> UserAccount:
        return self.broker.core.users.of("anna")

    @property
    def limit_bytes(self) -> int:
        return self.broker.core.users.limit_bytes(self.anna)


class Site:
    """A cluster with a queue of anna and one of ben; anna's clients send at each tick while they have credit."""

    def __init__(self, seed: int) -> None:
        self.harness = ClusterHarness(seed=seed, member=SmallMember).start()
        self.sizes: dict[int, int] = {}
        self.is_over = False
        """True if anna's clients have stopped sending."""
        done: list[object] = []
        member = self.harness[1]
        for name, owner in (("a", "anna"), ("b", "ben")):
            member.do(member.broker.nodes.create_queue, name, {OWNER: owner}, done.append)
        assert self.harness.until(lambda: len(done) == 2)
        self.consumer = Receiver(self.harness[1], "a")
        self.next_consumer = Receiver(self.harness[2], "a")
        self.senders = {node: Sender(self.harness[node], "a") for node in self.harness.members}
        self.harness.run(0.2)
        self.harness.on_tick = self._send

    def member(self, node: int) -> SmallMember:
        member = self.harness[node]
        assert isinstance(member, SmallMember)
        return member

    @property
    def running(self) -> list[SmallMember]:
        return [
            self.member(node) for node, member in self.harness.members.items() if member.serves and not member.asleep
        ]

    def _send(self) -> None:
        if self.is_over:
            return
        for sender in self.senders.values():
            count = min(BATCH, sender.credit)
            if sender.driver is not None and not sender.held and not sender.is_dead and count:
                sender.credit -= count
                self.send(sender, count)

    def send(self, sender: Sender, count: int, size_bytes: int = SIZE_BYTES) -> None:
        numbers = range(len(self.sizes), len(self.sizes) + count)
        self.sizes.update(dict.fromkeys(numbers, size_bytes))
        sender.send_whole({number: letters.written(number, size_bytes) for number in numbers})

    def fill(self) -> None:
        """Wait until all of anna's clients are throttled, and all their messages are stored."""
        senders = self.senders.values()
        assert self.harness.until(lambda: all(sender.held or not sender.credit for sender in senders), 60)
        assert self.harness.until(self.is_confirmed, 10)
        self.harness.run(1)
        assert self.is_confirmed(), "sent although the user is over the share"

    def is_confirmed(self) -> bool:
        assert not any(sender.rejected or sender.handed_back for sender in self.senders.values())
        return all(len(sender.confirmed) == len(sender.sent) for sender in self.senders.values())

    def check_blocked(self) -> None:
        """Check that anna is throttled on all running members, with equal stored bytes, and stays near the share."""
        assert len({member.anna.durable_bytes for member in self.running}) == 1
        for member in self.running:
            assert member.anna.is_blocked, member.node
            assert "(max-disk-share)" in member.broker.core.users.block_reason(member.anna)
            in_flight_bytes = len(self.senders) * BATCH * 3 * SIZE_BYTES
            assert member.anna.durable_bytes <= member.limit_bytes + in_flight_bytes

    def check_others(self) -> None:
        """Check that ben's clients are not throttled on any running member."""
        senders = [Sender(member, "b") for member in self.running]
        self.harness.run(0.2)
        for sender in senders:
            assert sender.credit
            self.send(sender, 5, 1000)
        assert self.harness.until(lambda: all(len(sender.confirmed) == 5 for sender in senders), 10)
        for sender in senders:
            assert not sender.held
            sender.leave()

    def take(self, consumer: Receiver) -> None:
        """Accept all of anna's messages."""
        consumer.request(100_000)

        def is_empty() -> bool:
            consumer.settle_as([*consumer.unsettled], ACCEPT)
            return not any(member.anna.durable_bytes for member in self.running)

        assert self.harness.until(is_empty, 60)

    def check_goes_on(self) -> None:
        """Check that anna's clients get credit again and send on all running members."""
        before = {node: len(sender.sent) for node, sender in self.senders.items()}
        assert self.harness.until(
            lambda: all(len(sender.sent) > before[node] for node, sender in self.senders.items()), 10
        )
        assert not any(member.anna.is_blocked for member in self.running)

    def finish(self) -> dict[str, list[int]]:
        """Stop sending; return the messages on each queue, which are the same on all members."""
        self.is_over = True
        assert self.harness.until(self.is_confirmed, 10)
        for consumer in (self.consumer, self.next_consumer):
            consumer.leave()
        self.harness.run(1)
        standings = checked(self.harness, self.sizes)
        return {standing.queue: [number for _, number in standing.contents] for standing in standings}


def check_confirmed(site: Site, found: Sequence[int], taken: Sequence[int]) -> None:
    """Check that each message that anna's clients sent was accepted or is on the queue, once."""
    sent = [number for sender in site.senders.values() for number in sender.sent]
    assert sorted([*found, *taken]) == sorted(sent)


@pytest.mark.parametrize("seed", range(3))
def test_user_over_the_share_waits_on_all_members(seed: int) -> None:  # W10, D2
    site = Site(seed)
    site.fill()
    site.check_blocked()
    site.check_others()
    stored_bytes = site.member(1).anna.durable_bytes
    assert stored_bytes > 20 * SIZE_BYTES
    site.is_over = True
    site.take(site.consumer)
    site.is_over = False
    site.check_goes_on()
    site.fill()
    site.check_blocked()
    found = site.finish()
    check_confirmed(site, found["a"], site.consumer.accepted)
    assert len(found["b"]) == 15


@pytest.mark.parametrize("how", FAILURES)
def test_user_over_the_share_waits_after_a_change_of_leader(how: str) -> None:  # W10, D2
    """The leader of the queue fails while its owner is throttled, and returns before messages are taken."""
    site = Site(7)
    site.fill()
    failed, sender = site.member(1), site.senders.pop(1)
    sent = [*sender.sent]
    if how == "hang":
        failed.asleep = True
    elif how == "kill":
        failed.kill()
    else:
        failed.stop()
    assert site.harness.until(lambda: len(site.member(2).core.state.members) == 2, 30)
    site.harness.run(1)
    site.check_blocked()
    site.check_others()
    if how == "hang":
        failed.asleep = False
        assert site.harness.until(lambda: bool(sender.connection.expelled), 10)
    else:
        failed.start()
    assert site.harness.until(lambda: len(site.running) == 3, 60), site.harness.reason()
    site.senders[1] = back = Sender(failed, "a")
    site.harness.run(1)
    site.check_blocked()
    assert not back.credit, "a new link gets no credit"
    site.check_others()
    site.is_over = True
    site.take(site.next_consumer)
    site.is_over = False
    site.check_goes_on()
    found = site.finish()
    back.sent += sent
    check_confirmed(site, found["a"], site.next_consumer.accepted)
    assert len(found["b"]) == 5 * 2 + 5 * 3
