"""Tests of resumable receivers with changing selectors: each message is processed once (G12)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis.strategies import booleans, integers, lists, sampled_from, tuples

from cairnmq.amqp.native.proton_ffi import RELEASED
from cairnmq.amqp.ports import Resumable
from tests.harness.broker.filters import colourful, filters
from tests.harness.broker.resumable_receivers import Receiver, others_get
from tests.harness.broker.world import World, small_pages

LIMIT_BYTES = 6000
SIZES = (10, 10, 600, 70_000)


@pytest.fixture(autouse=True, scope="module")
def _small() -> Iterator[None]:
    with small_pages():
        yield


class Choosy(Receiver):
    """A receiver that selects messages of one color, or all messages."""

    def __init__(self, world: World, colour: int | None, *, reads_at_once: bool = True) -> None:
        super().__init__(world, reads_at_once=reads_at_once)
        self.choose(colour)

    def choose(self, colour: int | None) -> None:
        """Select *colour* from the next attach on; None selects all messages."""
        self.chosen = colour
        self.terminus = self.terminus._replace(filters=b"" if colour is None else filters(f"colour = {colour}"))

    def attach(self, *args: Any, **options: Any) -> None:
        self.colour = self.chosen
        super().attach(*args, **options)

    def receive(self) -> Resumable | None:
        found = super().receive()
        if found is not None and not found.is_resumed and self.colour is not None:
            assert self.numbers[found.tag] % 3 == self.colour
        return found


def put(world: World, first: int, last: int, *, durable: bool = True) -> None:
    sender = world.open(to_client=False)
    for number in range(first, last + 1):
        world.send(sender, (number, colourful(number, SIZES[number % 4], durable), 0))


def world_with(count: int, memory_bytes: int = LIMIT_BYTES) -> World:
    world = World(memory_bytes)
    world.do(world.broker.nodes.create_queue, "q", {}, lambda made: None)
    put(world, 1, count)
    return world


STEPS = ("put", "receive", "decide", "release", "decide unflushed", "hear", "break", "attach", "choose", "attach anew",
         "read", "drain", "kill", "rival")  # fmt: skip


@settings(max_examples=120)
@given(lists(tuples(sampled_from(STEPS), integers(1, 3)), max_size=25), booleans())
def test_each_message_is_processed_once(steps: list[tuple[str, int]], reads_at_once: bool) -> None:
    world = world_with(15)
    receiver = Choosy(world, 1, reads_at_once=reads_at_once)
    receiver.attach(credit=4)
    processed: Counter[int] = Counter()
    last = 15
    for step, times in steps:
        for _ in range(times):
            if step == "put":
                last += 1
                put(world, last, last)
            elif step == "receive":
                receiver.receive()
            elif step == "release":
                receiver.decide(RELEASED)
            elif step.startswith("decide"):
                receiver.decide(flushed=step == "decide")
            elif step == "hear":
                receiver.hear()
            elif step == "break":
                receiver.leave()
            elif step == "choose":
                receiver.choose([0, 1, 2, None][(times + last) % 4])
            elif step == "attach anew" or (step == "attach" and receiver.terminal is None):
                receiver.attach(credit=4)
            elif step == "read":
                world.read_one()
            elif step == "drain" and receiver.terminal is not None:
                world.drain(receiver.terminal, 20)
            elif step == "kill":
                world.kill_and_start()
                receiver.terminal = None
            elif step == "rival":
                got = others_get(world, 2, accept=1)
                processed.update(got[:1])
                kept = {receiver.numbers[tag] for tag, state in receiver.states.items() if state != RELEASED}
                assert not kept & {*got}
    world.read_all()
    for colour in (receiver.chosen, 0, 1, 2):
        receiver.leave()
        receiver.choose(colour)
        receiver.attach()
        world.read_all()
        while receiver.receive() is not None:
            receiver.decide()
            world.read_all()
        assert not [number for number in others_get(world, last) if colour is None or number % 3 == colour]
        while receiver.states and receiver.terminal and receiver.received < len(receiver.terminal.settled):
            receiver.hear()
    assert not receiver.states
    processed.update(receiver.processed)
    assert processed == Counter(range(1, last + 1))
    assert world.queue().messages == 0
    assert world.broker.core.memory.used_bytes == 0
    assert receiver.terminal is not None
    assert not receiver.terminal.driver.end.tags


@pytest.mark.parametrize("kill", [False, True])
def test_what_the_client_has_is_resumed_whatever_it_selects_now(kill: bool) -> None:
    world = world_with(9, 1 << 24)
    receiver = Choosy(world, 1)
    receiver.attach(credit=2)
    tags = [one.tag for _ in range(2) if (one := receiver.receive()) is not None]
    receiver.leave()
    if kill:
        world.kill_and_start()
    receiver.choose(2)
    receiver.attach()
    found = []
    while (one := receiver.receive()) is not None:
        found.append((receiver.numbers[one.tag], one.is_resumed))
    assert found == [(1, True), (4, True), (2, False), (5, False), (8, False)]
    assert receiver.terminal is not None
    assert [one.tag for one in receiver.terminal.resumable[:2]] == tags
    receiver.leave()
    assert others_get(world) == [3, 6, 7, 9]


@pytest.mark.parametrize("kill", [False, True])
@pytest.mark.parametrize("colour", [1, 2])
def test_what_never_reached_the_client_is_judged_by_what_it_selects_now(kill: bool, colour: int) -> None:
    """A message that the client never received is found, although the earlier search has passed its position."""
    world = world_with(9, 1 << 24)
    receiver = Choosy(world, 1)
    receiver.attach(credit=100)
    receiver.leave()
    if kill:
        world.kill_and_start()
    receiver.choose(colour)
    receiver.attach()
    assert receiver.terminal is not None
    while (one := receiver.receive()) is not None:
        assert not one.is_resumed
    wanted = [number for number in range(1, 10) if number % 3 == colour]
    assert sorted(receiver.numbers[tag] for tag in receiver.states) == wanted
    receiver.leave()
    assert others_get(world) == [number for number in range(1, 10) if number not in wanted]


def test_what_is_being_read_for_a_link_that_was_taken_over_goes_to_who_took_it() -> None:
    world = world_with(20)
    receiver = Choosy(world, 1, reads_at_once=False)
    receiver.attach()
    assert world.readings, "it looks at what is not in memory"
    receiver.attach()
    world.read_all()
    found = []
    while (one := receiver.receive()) is not None:
        found.append(receiver.numbers[one.tag])
    assert sorted(found) == [number for number in range(1, 21) if number % 3 == 1]
