"""Tests of flow control: members that lag report it, and the memory of each member is bounded (rule 8, D25, D62)."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from cairnmq.cluster.group.group import WINDOW_BYTES
from cairnmq.cluster.replication import flow_control as flow
from tests.harness.cluster.cluster_harness import ACCEPT, ClusterHarness, Receiver, Sender, SimulatedMember
from tests.harness.cluster.transaction_client import Transactor

LIMIT_BYTES = 256 << 10
LONG_BYTES = 150_000


class Publisher(Sender):
    """A sender that uses all of its credit."""

    def __init__(self, member: SimulatedMember, first: int, size_bytes: int) -> None:
        super().__init__(member)
        self.next = first
        self.size_bytes = size_bytes
        self.most_unanswered = 0

    def publish(self) -> None:
        count = min(self.credit - len(self.sent), 1 if self.size_bytes == LONG_BYTES else 30)
        if count > 0 and not self.is_dead and self.driver is not None:
            self.send(range(self.next, self.next + count), size_bytes=self.size_bytes)
            self.next += count
        self.most_unanswered = max(self.most_unanswered, len(self.sent) - len(self.confirmed))


def world_of(size: int = 3, limit_bytes: int = LIMIT_BYTES) -> ClusterHarness:
    harness = ClusterHarness(size).start()
    for member in harness.members.values():
        member.core.flow.limit_bytes = limit_bytes
    return harness


def publish(harness: ClusterHarness, publishers: Sequence[Publisher], ticks: int) -> None:
    for _ in range(ticks):
        for publisher in publishers:
            publisher.publish()
        harness.tick()


def received(harness: ClusterHarness, node: int) -> int:
    """Return the bytes of received events that a member holds in memory and has not finished."""
    core = harness[node].core
    return max(core.flow.lag_bytes, core.flow.unsafe_bytes) + core.apply_loop.reassembly.size_bytes


@pytest.mark.parametrize("size_bytes", [2000, LONG_BYTES])
def test_a_slow_disk_holds_all_senders_and_nothing_is_lost(size_bytes: int) -> None:  # rule 8, D25, D62
    harness = world_of()
    publishers = [Publisher(harness[node], 100_000 * node, size_bytes) for node in (1, 2)]
    harness.run(0.2)
    publish(harness, publishers, 20)
    assert all(publisher.confirmed for publisher in publishers)
    harness[3].is_disk_slow = True
    most = dict.fromkeys(harness.members, 0)
    for _ in range(100):
        publish(harness, publishers, 1)
        for node in most:
            most[node] = max(most[node], received(harness, node))
    assert harness[3].core.flow.is_off
    assert all(harness[node].core.flow.holds for node in (1, 2))
    assert max(most.values()) < LIMIT_BYTES + 2 * (WINDOW_BYTES + size_bytes), most
    if size_bytes < LONG_BYTES:  # long messages are stopped by `held_up`
        stuck = [publisher.next for publisher in publishers]
        publish(harness, publishers, 20)
        assert [publisher.next for publisher in publishers] == stuck, "without credit nobody sends"
    late = Publisher(harness[1], 900_000, 10)
    harness.run(0.1)
    assert late.credit == 0
    harness[3].hurry_disk()
    publish(harness, [*publishers, late], 30)
    for publisher in (*publishers, late):
        assert publisher.next > publisher.sent[0] + 10
        assert harness.until(lambda publisher=publisher: len(publisher.confirmed) == len(publisher.sent))  # type: ignore
    assert harness.until(lambda: not any(member.core.flow.holds for member in harness.members.values()))
    harness.run(0.3)
    assert harness.same_everywhere()
    numbers = [number for _, number in harness[1].contents("q")]
    assert sorted(numbers) == sorted(number for publisher in (*publishers, late) for number in publisher.sent)
    for publisher in publishers:
        mine = {*publisher.sent}
        assert [number for number in numbers if number in mine] == publisher.sent, "out of order"


def test_what_makes_room_passes_what_is_held_back() -> None:  # D62
    harness = world_of()
    publisher, receiver = Publisher(harness[1], 0, 2000), Receiver(harness[2])
    harness.run(0.2)
    receiver.request(100_000)
    publish(harness, [publisher], 10)
    assert len(receiver.unsettled) > 100
    harness[3].is_disk_slow = True
    for _ in range(100):
        publish(harness, [publisher], 1)
        if harness[1].core.flow.held_bytes:
            break
    assert harness[1].core.flow.held_bytes
    numbers = [*receiver.unsettled]
    receiver.settle_as(numbers, ACCEPT)
    harness.run(0.5)
    assert receiver.accepted == numbers
    assert harness[1].core.flow.holds


def test_who_leaves_holds_nobody() -> None:  # D62
    harness = world_of()
    publisher = Publisher(harness[1], 0, 2000)
    harness.run(0.2)
    harness[3].is_disk_slow = True
    publish(harness, [publisher], 50)
    assert harness[1].core.flow.holds
    harness[3].kill()
    assert harness.until(lambda: not harness[1].core.flow.holds)
    sent = publisher.next
    publish(harness, [publisher], 50)
    assert publisher.next > sent
    assert harness.until(lambda: len(publisher.confirmed) == len(publisher.sent))


def test_a_disk_that_hangs_ends_its_member_if_the_others_are_enough(monkeypatch: pytest.MonkeyPatch) -> None:  # D25
    monkeypatch.setattr(flow, "STUCK_S", 3.0)
    harness = world_of()
    publisher = Publisher(harness[1], 0, 2000)
    harness.run(0.2)
    harness[2].is_disk_slow = harness[3].is_disk_slow = True
    publish(harness, [publisher], 50)
    harness.run(8)
    assert not any(member.failures for member in harness.members.values()), "the others are no majority"
    harness[2].hurry_disk()
    assert harness.until(lambda: bool(harness[3].failures), 10)
    assert "no received event was stored" in str(harness[3].failures[0])
    assert harness.until(lambda: not harness[1].core.flow.holds)
    publish(harness, [publisher], 50)
    assert harness.until(lambda: len(publisher.confirmed) == len(publisher.sent))
    assert not harness[2].failures
    harness[3].kill()
    harness[3].start()
    assert harness.until(lambda: harness[3].serves, 60), harness.reason()
    harness.run(0.3)
    assert harness.same_everywhere()


def test_a_slow_disk_that_gets_on_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:  # D25
    monkeypatch.setattr(flow, "STUCK_S", 1.0)
    harness = world_of()
    publisher = Publisher(harness[1], 0, 2000)
    harness.run(0.2)
    publish(harness, [publisher], 5)
    harness[3].is_disk_slow = True
    for _ in range(10):
        publish(harness, [publisher], 50)
        harness[3].hurry_disk()
        harness.tick()
        harness[3].is_disk_slow = True
    assert not harness[3].failures


def test_who_comes_hears_that_somebody_is_off() -> None:  # D62
    harness = world_of(4)
    harness[4].kill()
    harness.run(0.5)
    publisher = Publisher(harness[1], 0, 2000)
    harness.run(0.2)
    harness[3].is_disk_slow = True
    publish(harness, [publisher], 50)
    assert harness[2].core.flow.holds
    harness[4].start()
    assert harness.until(lambda: harness[4].core.flow.holds)
    harness[3].hurry_disk()
    assert harness.until(lambda: harness[4].serves), harness.reason()
    assert harness.until(lambda: not any(member.core.flow.holds for member in harness.members.values()))


def test_a_majority_that_lags_holds_the_others() -> None:
    """A member that a majority does not acknowledge stops accepting messages, and resumes afterwards."""
    harness = world_of()
    publisher = Publisher(harness[1], 0, 2000)
    harness.run(0.2)
    for node in (2, 3):
        harness[node].asleep = True  # these members send no acknowledgements
    publish(harness, [publisher], 50)
    assert harness[1].core.flow.waits_for_majority
    assert received(harness, 1) < LIMIT_BYTES + 2 * WINDOW_BYTES
    for node in (2, 3):
        harness[node].asleep = False
    publish(harness, [publisher], 50)
    assert harness.until(lambda: len(publisher.confirmed) == len(publisher.sent))
    harness.run(0.5)
    assert harness.same_everywhere()


def test_long_messages_are_not_read_while_much_is_held(monkeypatch: pytest.MonkeyPatch) -> None:  # rule 7, D52
    monkeypatch.setattr(flow, "HELD_BYTES", 500_000)
    harness = world_of()
    publisher = Publisher(harness[1], 0, LONG_BYTES)
    harness.run(0.2)
    went_on: list[int] = []
    assert not harness[1].broker.drivers.held_up(lambda: went_on.append(0))
    harness[3].is_disk_slow = True
    publish(harness, [publisher], 50)
    assert harness[1].broker.drivers.held_up(lambda: went_on.append(1))
    harness.run(1)
    assert not went_on
    harness[3].hurry_disk()
    assert harness.until(lambda: went_on == [1])


def test_an_answer_is_behind_what_is_held() -> None:
    harness = world_of()
    publisher = Publisher(harness[1], 0, 2000)
    harness.run(0.2)
    harness[3].is_disk_slow = True
    publish(harness, [publisher], 50)
    answered: list[int] = []
    harness[1].do(harness[1].broker.drivers.when_answered, lambda: answered.append(len(publisher.confirmed)))
    harness.run(0.5)
    assert not answered
    harness[3].hurry_disk()
    assert harness.until(lambda: bool(answered))
    assert answered == [len(publisher.sent)]


def test_what_is_held_when_the_group_is_lost_is_refused_with_its_client() -> None:  # rule 4
    harness = world_of()
    publisher = Publisher(harness[1], 0, 2000)
    harness.run(0.2)
    harness[3].is_disk_slow = True
    publish(harness, [publisher], 50)
    assert harness[1].core.flow.held_bytes
    confirmed = len(publisher.confirmed)
    harness.network.partition([1], [2, 3])
    assert harness.until(lambda: bool(publisher.connection.expelled))
    assert harness[1].core.flow.held_bytes == 0
    assert not harness[1].core.flow.holds
    assert len(publisher.confirmed) == confirmed
    harness[3].hurry_disk()
    harness.network.heal()
    assert harness.until(lambda: all(member.serves for member in harness.members.values()), 60), harness.reason()
    harness.run(0.5)
    assert harness.same_everywhere()


def test_a_transaction_that_puts_stands_behind_what_is_held() -> None:  # D63
    harness = world_of()
    publisher = Publisher(harness[1], 0, 2000)
    client = Transactor(harness[1], ["q"])
    harness.run(0.2)
    client.declare()
    assert harness.until(lambda: bool(client.control.declared_ids))
    client.send("q", [900_000])
    harness[3].is_disk_slow = True
    publish(harness, [publisher], 50)
    assert harness[1].core.flow.held_bytes
    request = client.discharge()
    harness.run(0.5)
    assert request not in client.control.confirmed
    harness[3].hurry_disk()
    assert harness.until(lambda: request in client.control.confirmed)
    assert harness.until(lambda: len(publisher.confirmed) == len(publisher.sent))
    harness.run(0.3)
    assert harness.same_everywhere()
    assert [number for _, number in harness[1].contents("q")] == [*publisher.sent, 900_000]
