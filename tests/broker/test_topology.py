"""Tests of the mesh topology: all brokers learn the same brokers and receivers, however they are connected."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Iterable

import pytest

from cairnmq.broker.mesh.topology import Said, Topology, Wrong


class World:
    """Brokers, and links between them that deliver messages in order."""

    def __init__(self, names: Iterable[str]) -> None:
        self.epochs = 0
        self.brokers: dict[str, Topology] = {}
        self.links: dict[tuple[str, str], deque[Said]] = {}
        for name in names:
            self.start(name)

    def start(self, name: str) -> None:
        self.epochs += 1
        self.brokers[name] = Topology(name, self.epochs, lambda changed: None)

    def join(self, one: str, other: str, cost: int = 1) -> None:
        for a, b in ((one, other), (other, one)):
            queue = self.links[a, b] = deque()
            self.brokers[a].joined(b, cost, queue.append)

    def part(self, one: str, other: str) -> None:
        for a, b in ((one, other), (other, one)):
            if self.links.pop((a, b), None) is not None:
                self.brokers[a].left(b)

    def step(self, link: tuple[str, str]) -> None:
        self.brokers[link[1]].received(link[0], self.links[link].popleft())

    def settle(self, rng: random.Random | None = None) -> None:
        """Deliver messages until none is in flight; fail if this takes too many steps."""
        left = 10_000
        while waiting := [link for link, queue in self.links.items() if queue]:
            self.step(rng.choice(waiting) if rng else waiting[0])
            left -= 1
            assert left

    def next_hops(
        self, broker: str, address: str, *, multicast: bool = False
    ) -> dict[str, tuple[int, tuple[str, ...]]]:
        return self.brokers[broker].receivers_of(address, multicast=multicast)

    def has(self, broker: str, address: str, multicast: bool | None = False) -> None:
        self.brokers[broker].has_receivers(address, multicast)
        self.brokers[broker].tell_changes()


def test_three_in_a_line() -> None:  # C48
    world = World("abc")
    world.join("a", "b")
    world.join("b", "c")
    world.has("c", "x")
    world.settle()
    assert world.next_hops("a", "x") == {"b": (2, ("c",))}
    assert world.next_hops("b", "x") == {"c": (1, ("c",))}
    world.has("c", "x", None)
    world.settle()
    assert world.next_hops("a", "x") == {}


def test_three_in_a_ring_go_straight_and_around_what_broke() -> None:  # C48
    world = World("abc")
    for pair in ("ab", "bc", "ca"):
        world.join(*pair)
    world.has("c", "x")
    world.settle()
    assert world.next_hops("a", "x") == {"c": (1, ("c",))}
    world.part("c", "a")
    world.settle()
    assert world.next_hops("a", "x") == {"b": (2, ("c",))}
    world.part("b", "c")
    world.settle()
    assert world.next_hops("a", "x") == {}
    assert set(world.brokers["a"].next_hops) == {"b"}


def test_the_cheaper_way_is_taken() -> None:
    world = World("abc")
    world.join("a", "b")
    world.join("b", "c")
    world.join("a", "c", 5)
    world.has("c", "x", True)
    world.settle()
    assert world.next_hops("a", "x", multicast=True) == {"b": (2, ("c",))}
    assert world.next_hops("a", "x") == {}, "another kind of address"


def test_a_broker_that_comes_back_is_believed() -> None:
    world = World("ab")
    world.join("a", "b")
    world.has("b", "x")
    world.settle()
    world.part("a", "b")
    world.start("b")
    world.join("a", "b")
    world.settle()
    assert world.next_hops("a", "x") == {}
    world.has("b", "y")
    world.settle()
    assert world.next_hops("a", "y") == {"b": (1, ("b",))}


@pytest.mark.parametrize("seed", range(30))
def test_all_come_to_know_the_same(seed: int) -> None:
    """Brokers agree after any joins, partings, restarts and changes of receivers, in any order of messages."""
    rng = random.Random(seed)
    names = "abcdef"[: rng.randint(2, 6)]
    world = World(names)
    receivers: dict[str, set[str]] = {name: set() for name in names}
    for _ in range(rng.randint(5, 60)):
        one, other = rng.sample(names, 2)
        what = rng.random()
        if what < 0.35:
            if (one, other) not in world.links:
                world.join(one, other)
        elif what < 0.5:
            world.part(one, other)
        elif what < 0.6:
            for another in names:
                if another != one:
                    world.part(one, another)
            world.start(one)
            receivers[one].clear()
        elif what < 0.9:
            address = rng.choice("xyz")
            receivers[one] ^= {address}
            world.has(one, address, False if address in receivers[one] else None)
        for _ in range(rng.randint(0, 5)):
            waiting = [link for link, queue in world.links.items() if queue]
            if waiting:
                world.step(rng.choice(waiting))
    world.settle(rng)
    for name in names:
        reached = {name}
        while more := {b for a, b in world.links if a in reached} - reached:
            reached |= more
        broker = world.brokers[name]
        assert set(broker.next_hops) == reached - {name}
        for address in "xyz":
            told = {one for _, targets in world.next_hops(name, address).values() for one in targets}
            assert told == {one for one in reached - {name} if address in receivers[one]}
    for start in names:  # the next hops lead to each goal without a loop
        for goal in world.brokers[start].next_hops:
            at, steps = start, 0
            while at != goal:
                at, steps = world.brokers[at].next_hops[goal][0], steps + 1
                assert steps <= len(names)


@pytest.mark.parametrize(
    "said",
    [
        {},
        {"router": 1, "epoch": 1, "number": 1},
        {"router": "x", "epoch": 1, "number": 1, "whole": True, "links": 5},
        {"router": "x", "epoch": 1, "number": 1, "whole": True, "links": {"a": -1}},
        {"router": "x", "epoch": 1, "number": 1, "whole": True, "add": {"a": 1}},
        {"router": "x", "epoch": 1, "number": 1, "whole": True, "drop": {"a": 1}},
    ],
)
def test_what_makes_no_sense_is_refused(said: Said) -> None:
    with pytest.raises(Wrong):
        Topology("a", 1, lambda changed: None).received("b", said)
