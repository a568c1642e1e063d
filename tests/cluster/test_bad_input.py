"""Tests of members that must not join or cannot continue: they fail with a clear error, the others are unaffected."""

from __future__ import annotations

import logging

import pytest

from cairnmq.base.testing.manual_clock import ManualClock
from cairnmq.cluster.group.config_check import LONGEST, agreement, difference
from cairnmq.cluster.kernel.events import VERSION
from cairnmq.cluster.replication import flow_control as flow
from tests.harness.cluster.cluster_harness import ACCEPT, ClusterHarness, Receiver, Sender
from tests.harness.cluster.policy_queues import content, sent, shaped
from tests.harness.cluster.transaction_client import Transactor

OURS = agreement("test", VERSION, {"--anycast": ("news.*",), "--multicast": ()})


def confirmed(harness: ClusterHarness, node: int, numbers: list[int], **about: int) -> None:
    """Send messages from a client of *node*, and wait until they are confirmed."""
    sender = Sender(harness[node])
    harness.run(0.2)
    sender.send(numbers, **about)  # type: ignore[arg-type]
    assert harness.until(lambda: sorted(sender.confirmed) == numbers), harness.reason()
    sender.leave()


def only(harness: ClusterHarness, node: int) -> str:
    """Return the error of *node*; fail if it has not exactly one, or if another member failed."""
    assert not [other for other, member in harness.members.items() if member.failures and other != node]
    [error] = harness[node].failures
    return str(error)


# ---- versions and options -----------------------------------------------------------------------------------------


def test_what_differs_is_named() -> None:
    theirs = agreement("test", VERSION, {"--anycast": ("news.*", "x"), "--multicast": ()})
    assert difference(OURS, OURS, 1) == ""
    assert difference(theirs, OURS, 2) == "its --anycast is 'news.* x', on node 2 it is 'news.*'"
    for strange in ("", "no JSON", "[1]", "[" * 100_000):
        assert difference(strange, OURS, 2)
    one, other = (agreement("test", VERSION, {"--anycast": values}) for values in (("b", "a"), ("a", "b")))
    assert one == other


def test_what_is_long_is_compared_all_the_same() -> None:
    one, other = (agreement("\udcff" * 128, VERSION, {"--anycast": ("😀" * 5000 + end,)}) for end in "ab")
    assert difference(one, other, 1)
    assert max(len(one.encode()), len(other.encode())) < 1000 + 4 * LONGEST


@pytest.mark.parametrize("late", [False, True], ids=["from the start", "comes later"])
def test_a_member_with_other_options_is_not_let_in(late: bool) -> None:
    harness = ClusterHarness()
    for node, member in harness.members.items():
        member.agreed = OURS if node != 3 else agreement("test", VERSION, {"--anycast": (), "--multicast": ()})
    for node in (1, 2) if late else (1, 2, 3):
        harness[node].start()
    assert harness.until(lambda: harness[1].serves and harness[2].serves), harness.reason()
    if late:
        harness[3].start()
    assert harness.until(lambda: bool(harness[3].failures))
    said = only(harness, 3)
    assert said.startswith("cluster 'test': the cluster refused this broker: its --anycast is '', on node ")
    assert said.endswith("it is 'news.*'; give all members the same version of CairnMQ and the same options, "
                         "and start this broker again")  # fmt: skip
    confirmed(harness, 1, [1, 2, 3])
    harness[3].kill()
    harness[3].agreed = OURS
    harness[3].start()
    assert harness.until(lambda: harness[3].serves), harness.reason()
    assert harness.same_everywhere()


def test_where_no_two_agree_nobody_ends() -> None:
    harness = ClusterHarness()
    for node, member in harness.members.items():
        member.agreed = agreement("test", VERSION, {"--anycast": (str(node),)})
        member.start()
    harness.run(5)
    assert not any(member.failures for member in harness.members.values()), "nobody can say who is wrong"
    assert not any(member.serves for member in harness.members.values())


# ---- stores and names ---------------------------------------------------------------------------------------------


def test_a_store_of_another_name_joins_nobody() -> None:
    harness = ClusterHarness().start()
    confirmed(harness, 1, [1])
    harness[3].stop()
    harness[3].name = "other"
    harness[3].start()
    assert harness.until(lambda: bool(harness[3].failures))
    said = only(harness, 3)
    assert said.startswith("cluster 'other': this store belongs to another cluster, test-")
    assert "give it another --cluster-name" in said
    confirmed(harness, 2, [2])
    harness[3].kill()
    harness[3].name = "test"
    harness[3].start()
    assert harness.until(lambda: harness[3].serves), harness.reason()
    assert harness.same_everywhere()


def foreign(harness: ClusterHarness, node: int, epochs: int = 5) -> None:
    """Stop all members; give *node* a store of another cluster of the same name, with more bootstraps."""
    for member in harness.members.values():
        if member.running:
            member.stop()
    elsewhere = ClusterHarness(seed=1)
    stranger = elsewhere[node]
    for _ in range(epochs):
        elsewhere.start()
        for member in elsewhere.members.values():
            member.stop()
    elsewhere.start()
    confirmed(elsewhere, node, [100])
    stranger.stop()
    harness[node].disk, harness[node].wiring = stranger.disk, stranger.wiring


@pytest.mark.parametrize("late", [False, True], ids=["from the start", "comes later"])
def test_a_store_of_another_cluster_is_not_taken_for_the_best(late: bool) -> None:  # D27
    """A foreign store is refused even if its epoch is higher: the two stores of this cluster are the majority."""
    harness = ClusterHarness().start()
    confirmed(harness, 1, [1, 2])
    foreign(harness, 3)
    for node in (1, 2) if late else (1, 2, 3):
        harness[node].start()
    if late:
        assert harness.until(lambda: harness[1].serves and harness[2].serves), harness.reason()
        harness[3].start()
    assert harness.until(lambda: bool(harness[3].failures)), harness.reason()
    assert "this store belongs to another cluster, test-" in only(harness, 3)
    assert harness.until(lambda: harness[1].serves and harness[2].serves), harness.reason()
    confirmed(harness, 2, [3])
    assert [number for _, number in harness[1].contents("q")] == [1, 2, 3]


def test_where_as_many_are_of_one_cluster_as_of_another_all_wait() -> None:
    harness = ClusterHarness().start()
    confirmed(harness, 1, [1])
    foreign(harness, 3)
    harness[1].start()
    harness[3].start()
    harness.run(3)
    assert not harness[1].failures
    assert not harness[3].failures
    assert not harness[1].serves
    assert not harness[3].serves
    harness[2].start()
    assert harness.until(lambda: harness[1].serves and harness[2].serves), harness.reason()
    assert "another cluster" in only(harness, 3)
    assert [number for _, number in harness[2].contents("q")] == [1]


# ---- clocks -------------------------------------------------------------------------------------------------------


class Skewed(ManualClock):
    """A clock with an offset between its wall time and that of the inner clock."""

    def __init__(self, inner: ManualClock, ahead_s: float) -> None:
        self._inner = inner
        self._ahead_s = ahead_s

    def monotonic_s(self) -> float:
        return self._inner.monotonic_s()

    def wall_us(self) -> int:
        return self._inner.wall_us() + int(self._ahead_s * 1e6)


def skewed() -> ClusterHarness:
    """Return a cluster in which the clock of member 2 is an hour ahead, and that of member 3 an hour behind."""
    harness = ClusterHarness()
    harness.network.clock.advance(10_000)
    for node, ahead_s in ((2, 3600), (3, -3600)):
        harness[node].clock = Skewed(harness.network.clock, ahead_s)
    return harness


def test_clocks_that_differ_are_named(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR)
    harness = skewed()
    for node in (1, 2):
        harness[node].start()
    assert harness.until(lambda: harness[1].serves and harness[2].serves), harness.reason()
    effect = "messages that it dispatches expire too early"
    assert f"the clock of node 2 is 3600 s ahead of this one's: {effect}" in caplog.text
    assert "the clock of node 1 is 3600 s behind this one's" in caplog.text
    caplog.clear()
    harness[3].start()
    assert harness.until(lambda: harness[3].serves), harness.reason()
    assert "the clock of node 3 is 3600 s behind this one's" in caplog.text, "who was there says so"
    assert any(f"the clock of node {node} is {ahead} s ahead" in caplog.text for node, ahead in ((1, 3600), (2, 7200)))
    assert not any(member.failures for member in harness.members.values())


@pytest.mark.parametrize("owner", [1, 2, 3])
def test_who_hands_out_decides_what_is_over_whatever_others_clocks_show(owner: int) -> None:  # D21, rule 16
    """The owner's clock decides: messages with a TTL of half an hour expire at once only if its clock is ahead."""
    harness = shaped(skewed(), expiry_address="dead")
    receiver = Receiver(harness[owner])
    harness.run(0.3)
    until_s = harness.network.clock.wall_us() / 1e6 + 1800
    messages = {number: content(number, expiry_time=until_s) for number in range(5)}
    messages |= {number: content(number, ttl=1800) for number in range(5, 10)}
    sent(harness, 1, messages | {number: content(number) for number in range(10, 15)})
    harness.run(2)
    ended = [*range(10)] if owner == 2 else []
    for member in harness.members.values():
        assert [number for _, number in member.contents("dead")] == ended
        assert [number for _, number in member.contents("q")] == [n for n in range(15) if n not in ended]
    receiver.request(100)
    assert harness.until(lambda: len(receiver.order) == 15 - len(ended))
    receiver.settle_as([*receiver.unsettled], ACCEPT)
    harness.run(1)
    assert not any(member.contents("q") for member in harness.members.values())
    assert harness.same_everywhere("dead")
    assert not any(member.failures for member in harness.members.values())


# ---- full disks ---------------------------------------------------------------------------------------------------

SMALL_BYTES = 24 << 20


def filled(*nodes: int) -> tuple[ClusterHarness, Sender]:
    """Return a cluster in which *nodes* have small disks, after a client of member 1 filled one of them."""
    harness = ClusterHarness()
    for node in nodes:
        harness[node].capacity_bytes = SMALL_BYTES
    harness.start()
    sender = Sender(harness[1])
    harness.run(0.2)
    while not any(harness[node].core.flow.full for node in nodes):
        first = len(sender.sent)
        assert first < 5000
        sender.send(range(first, first + 15), size_bytes=20_000)
        harness.run(0.05)
    return harness, sender


def test_a_member_with_a_full_disk_ends_and_the_others_go_on() -> None:
    harness, sender = filled(3)
    assert harness.until(lambda: bool(harness[3].failures), flow.FULL_S + 5)
    said = only(harness, 3)
    assert said.startswith("cluster 'test': its disk is full: ")
    assert said.endswith("; free some space, and start this broker again")
    assert harness.until(lambda: len(sender.confirmed) == len(sender.sent)), "what was held goes on"
    confirmed(harness, 2, [5000, 5001])
    harness[3].kill()
    harness[3].capacity_bytes = 4 * SMALL_BYTES
    harness[3].start()
    assert harness.until(lambda: harness[3].serves, 60), harness.reason()
    assert harness.same_everywhere()


def test_full_disk_rejects_nothing_and_moves_clients_away() -> None:  # B1
    """Clients of the full member get no outcome and no credit, then a forced close; resends elsewhere are confirmed."""
    harness, _ = filled(3)
    sender, transactor = Sender(harness[3]), Transactor(harness[3], ("q",))
    harness.run(0.2)
    assert sender.credit == 0
    transactor.declare()
    harness.run(0.2)
    numbers = [*range(7000, 7010)]
    sender.send(numbers, size_bytes=20_000)
    transactor.send("q", [7010, 7011])
    harness.run(0.2)
    discharge = transactor.discharge()
    harness.run(flow.FULL_S / 2)
    assert not sender.rejected
    assert not sender.confirmed
    assert not any(link.rejected for link in transactor.links)
    assert discharge not in transactor.control.confirmed
    assert harness.until(lambda: bool(harness[3].failures), flow.FULL_S + 5)
    assert not sender.rejected
    assert not sender.confirmed
    assert sender.connection.expelled
    assert sender.connection.sent_elsewhere
    assert discharge not in transactor.control.confirmed
    confirmed(harness, 2, numbers)


def test_disks_without_which_there_is_no_majority_hold_clients_back() -> None:
    harness, sender = filled(2, 3)
    assert harness.until(lambda: len(sender.confirmed) == len(sender.sent))
    held = [*range(6000, 6020)]
    sender.send(held, size_bytes=20_000)
    harness.run(2 * flow.FULL_S)
    assert not {*held} & {*sender.confirmed}
    assert not any(member.failures for member in harness.members.values()), "one without both is no majority"
    assert harness[1].core.flow.holds
    receiver = Receiver(harness[1])
    harness.run(0.2)
    receiver.request(10_000)
    taken = 0
    while harness[1].core.flow.holds:
        assert harness.until(lambda taken=taken: len(receiver.order) > taken), "accepts go on"  # type: ignore[misc]
        receiver.settle_as([*receiver.unsettled], ACCEPT)
        taken = len(receiver.order)
        harness.run(0.1)
        for node in (2, 3):
            harness[node].look_at_room()
        harness.run(0.1)
    assert harness.until(lambda: len(sender.confirmed) == len(sender.sent))
