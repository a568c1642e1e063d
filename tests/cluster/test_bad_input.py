"""Members that should not be there, or can't go on: a named error for them, and the others are not affected."""

from __future__ import annotations

import logging

import pytest

from cairnmq.base.testing.manual_clock import ManualClock
from cairnmq.cluster.group.config_check import LONGEST, agreement, difference
from cairnmq.cluster.kernel.events import VERSION
from cairnmq.cluster.replication import flow_control as flow

from .shaping import content, sent, shaped
from .transactor import Transactor
from .world import ACCEPT, Receiver, Sender, World

OURS = agreement("test", VERSION, {"--anycast": ("news.*",), "--multicast": ()})


def confirmed(world: World, node: int, numbers: list[int], **about: int) -> None:
    """A client of that member gets on."""
    sender = Sender(world[node])
    world.run(0.2)
    sender.send(numbers, **about)  # type: ignore[arg-type]
    assert world.until(lambda: sorted(sender.confirmed) == numbers), world.why()
    sender.leave()


def only(world: World, node: int) -> str:
    """What that member failed with, which is the only one that did."""
    assert not [other for other, member in world.members.items() if member.failures and other != node]
    [error] = world[node].failures
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
    world = World()
    for node, member in world.members.items():
        member.agreed = OURS if node != 3 else agreement("test", VERSION, {"--anycast": (), "--multicast": ()})
    for node in (1, 2) if late else (1, 2, 3):
        world[node].start()
    assert world.until(lambda: world[1].serves and world[2].serves), world.why()
    if late:
        world[3].start()
    assert world.until(lambda: bool(world[3].failures))
    said = only(world, 3)
    assert said.startswith("cluster 'test': the cluster does not let this broker in: its --anycast is '', on node ")
    assert said.endswith("it is 'news.*'; give all members the same version of CairnMQ and the same options, "
                         "and start this broker again")  # fmt: skip
    confirmed(world, 1, [1, 2, 3])
    world[3].kill()
    world[3].agreed = OURS
    world[3].start()
    assert world.until(lambda: world[3].serves), world.why()
    assert world.same_everywhere()


def test_where_no_two_agree_nobody_ends() -> None:
    world = World()
    for node, member in world.members.items():
        member.agreed = agreement("test", VERSION, {"--anycast": (str(node),)})
        member.start()
    world.run(5)
    assert not any(member.failures for member in world.members.values()), "nobody can say who is wrong"
    assert not any(member.serves for member in world.members.values())


# ---- stores and names ---------------------------------------------------------------------------------------------


def test_a_store_of_another_name_joins_nobody() -> None:
    world = World().start()
    confirmed(world, 1, [1])
    world[3].stop()
    world[3].name = "other"
    world[3].start()
    assert world.until(lambda: bool(world[3].failures))
    said = only(world, 3)
    assert said.startswith("cluster 'other': this store is of another cluster, test-")
    assert "give it another --cluster-name" in said
    confirmed(world, 2, [2])
    world[3].kill()
    world[3].name = "test"
    world[3].start()
    assert world.until(lambda: world[3].serves), world.why()
    assert world.same_everywhere()


def foreign(world: World, node: int, epochs: int = 5) -> None:
    """That member's store is of a cluster of the same name elsewhere, which had a longer life; all are off then."""
    for member in world.members.values():
        if member.running:
            member.stop()
    elsewhere = World(seed=1)
    stranger = elsewhere[node]
    for _ in range(epochs):
        elsewhere.start()
        for member in elsewhere.members.values():
            member.stop()
    elsewhere.start()
    confirmed(elsewhere, node, [100])
    stranger.stop()
    world[node].disk, world[node].wiring = stranger.disk, stranger.wiring


@pytest.mark.parametrize("late", [False, True], ids=["from the start", "comes later"])
def test_a_store_of_another_cluster_is_not_taken_for_the_best(late: bool) -> None:  # D27
    """However far it has come: two of the others are more than one."""
    world = World().start()
    confirmed(world, 1, [1, 2])
    foreign(world, 3)
    for node in (1, 2) if late else (1, 2, 3):
        world[node].start()
    if late:
        assert world.until(lambda: world[1].serves and world[2].serves), world.why()
        world[3].start()
    assert world.until(lambda: bool(world[3].failures)), world.why()
    assert "this store is of another cluster, test-" in only(world, 3)
    assert world.until(lambda: world[1].serves and world[2].serves), world.why()
    confirmed(world, 2, [3])
    assert [number for _, number in world[1].contents("q")] == [1, 2, 3]


def test_where_as_many_are_of_one_cluster_as_of_another_all_wait() -> None:
    world = World().start()
    confirmed(world, 1, [1])
    foreign(world, 3)
    world[1].start()
    world[3].start()
    world.run(3)
    assert not world[1].failures
    assert not world[3].failures
    assert not world[1].serves
    assert not world[3].serves
    world[2].start()
    assert world.until(lambda: world[1].serves and world[2].serves), world.why()
    assert "another cluster" in only(world, 3)
    assert [number for _, number in world[2].contents("q")] == [1]


# ---- clocks -------------------------------------------------------------------------------------------------------


class Skewed(ManualClock):
    """Another wall clock over the same time."""

    def __init__(self, inner: ManualClock, ahead_s: float) -> None:
        self._inner = inner
        self._ahead_s = ahead_s

    def monotonic_s(self) -> float:
        return self._inner.monotonic_s()

    def wall_us(self) -> int:
        return self._inner.wall_us() + int(self._ahead_s * 1e6)


def skewed() -> World:
    """The second member's clock is an hour ahead, the third one's an hour behind."""
    world = World()
    world.network.clock.advance(10_000)
    for node, ahead_s in ((2, 3600), (3, -3600)):
        world[node].clock = Skewed(world.network.clock, ahead_s)
    return world


def test_clocks_that_differ_are_named(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR)
    world = skewed()
    for node in (1, 2):
        world[node].start()
    assert world.until(lambda: world[1].serves and world[2].serves), world.why()
    assert "the clock of node 2 is 3600 s ahead of this one's: messages that it hands out end too early" in caplog.text
    assert "the clock of node 1 is 3600 s behind this one's" in caplog.text
    caplog.clear()
    world[3].start()
    assert world.until(lambda: world[3].serves), world.why()
    assert "the clock of node 3 is 3600 s behind this one's" in caplog.text, "who was there says so"
    assert any(f"the clock of node {node} is {ahead} s ahead" in caplog.text for node, ahead in ((1, 3600), (2, 7200)))
    assert not any(member.failures for member in world.members.values())


@pytest.mark.parametrize("owner", [1, 2, 3])
def test_who_hands_out_decides_what_is_over_whatever_others_clocks_show(owner: int) -> None:  # D21, rule 16
    """Its own clock counts for all: messages of half an hour end at once only where it is ahead, on all alike."""
    world = shaped(skewed(), expiry_address="dead")
    receiver = Receiver(world[owner])
    world.run(0.3)
    until_s = world.network.clock.wall_us() / 1e6 + 1800
    messages = {number: content(number, expiry_time=until_s) for number in range(5)}
    messages |= {number: content(number, ttl=1800) for number in range(5, 10)}
    sent(world, 1, messages | {number: content(number) for number in range(10, 15)})
    world.run(2)
    ended = [*range(10)] if owner == 2 else []
    for member in world.members.values():
        assert [number for _, number in member.contents("dead")] == ended
        assert [number for _, number in member.contents("q")] == [n for n in range(15) if n not in ended]
    receiver.request(100)
    assert world.until(lambda: len(receiver.order) == 15 - len(ended))
    receiver.settle_as([*receiver.unsettled], ACCEPT)
    world.run(1)
    assert not any(member.contents("q") for member in world.members.values())
    assert world.same_everywhere("dead")
    assert not any(member.failures for member in world.members.values())


# ---- full disks ---------------------------------------------------------------------------------------------------

SMALL_BYTES = 24 << 20


def filled(*nodes: int) -> tuple[World, Sender]:
    """Those have small disks, and a client of the first member sends until somebody lags."""
    world = World()
    for node in nodes:
        world[node].capacity_bytes = SMALL_BYTES
    world.start()
    sender = Sender(world[1])
    world.run(0.2)
    while not any(world[node].core.flow.full for node in nodes):
        first = len(sender.sent)
        assert first < 5000
        sender.send(range(first, first + 15), size_bytes=20_000)
        world.run(0.05)
    return world, sender


def test_a_member_with_a_full_disk_ends_and_the_others_go_on() -> None:
    world, sender = filled(3)
    assert world.until(lambda: bool(world[3].failures), flow.FULL_S + 5)
    said = only(world, 3)
    assert said.startswith("cluster 'test': its disk is full: ")
    assert said.endswith("; free some space, and start this broker again")
    assert world.until(lambda: len(sender.confirmed) == len(sender.sent)), "what was held goes on"
    confirmed(world, 2, [5000, 5001])
    world[3].kill()
    world[3].capacity_bytes = 4 * SMALL_BYTES
    world[3].start()
    assert world.until(lambda: world[3].serves, 60), world.why()
    assert world.same_everywhere()


def test_full_disk_rejects_nothing_and_moves_clients_away() -> None:  # B1
    """Its clients get no outcome and no credit, then a forced close. What they send again elsewhere is confirmed."""
    world, _ = filled(3)
    sender, transactor = Sender(world[3]), Transactor(world[3], ("q",))
    world.run(0.2)
    assert sender.credit == 0
    transactor.declare()
    world.run(0.2)
    numbers = [*range(7000, 7010)]
    sender.send(numbers, size_bytes=20_000)
    transactor.send("q", [7010, 7011])
    world.run(0.2)
    discharge = transactor.discharge()
    world.run(flow.FULL_S / 2)
    assert not sender.rejected
    assert not sender.confirmed
    assert not any(link.rejected for link in transactor.links)
    assert discharge not in transactor.control.confirmed
    assert world.until(lambda: bool(world[3].failures), flow.FULL_S + 5)
    assert not sender.rejected
    assert not sender.confirmed
    assert sender.connection.expelled
    assert sender.connection.sent_elsewhere
    assert discharge not in transactor.control.confirmed
    confirmed(world, 2, numbers)


def test_disks_without_which_there_is_no_majority_hold_clients_back() -> None:
    world, sender = filled(2, 3)
    assert world.until(lambda: len(sender.confirmed) == len(sender.sent))
    held = [*range(6000, 6020)]
    sender.send(held, size_bytes=20_000)
    world.run(2 * flow.FULL_S)
    assert not {*held} & {*sender.confirmed}
    assert not any(member.failures for member in world.members.values()), "one without both is no majority"
    assert world[1].core.flow.holds
    receiver = Receiver(world[1])
    world.run(0.2)
    receiver.request(10_000)
    taken = 0
    while world[1].core.flow.holds:
        assert world.until(lambda taken=taken: len(receiver.order) > taken), "accepts go on"  # type: ignore[misc]
        receiver.settle_as([*receiver.unsettled], ACCEPT)
        taken = len(receiver.order)
        world.run(0.1)
        for node in (2, 3):
            world[node].look_at_room()
        world.run(0.1)
    assert world.until(lambda: len(sender.confirmed) == len(sender.sent))
