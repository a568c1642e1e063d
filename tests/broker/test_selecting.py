"""A property test of consumers with and without selectors, and browsers, on a queue that exceeds the memory.

The model is a sorted list. Each receiver gets its matching messages, and none is lost, duplicated or miscounted.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from cairnmq.amqp.native.proton_ffi import ACCEPTED, RELEASED
from cairnmq.broker.kernel import queue_memory
from cairnmq.broker.kernel.memory_budget import ENTRY_BYTES
from tests.harness.broker.filters import colourful, filters
from tests.harness.broker.world import FakeTerminal, World, number_of, small_pages

LIMIT_BYTES = 6000
SIZES = st.sampled_from([0, 50, 600, 70_000])


@pytest.fixture(autouse=True, scope="module")
def _small() -> Iterator[None]:
    with small_pages():
        yield


class Client:
    """A receiver, its selector and its unsettled messages."""

    def __init__(self, world: World, colour: int | None, **options: Any) -> None:
        self.colour = colour
        chosen = b"" if colour is None else filters(f"colour = {colour}")
        self.terminal: FakeTerminal = world.open(to_client=True, filters=chosen, **options)
        self.limit = 0
        self.out: dict[int, Any] = {}

    def wants(self, number: int) -> bool:
        return self.colour is None or number % 3 == self.colour


class Selecting(RuleBasedStateMachine):
    """A model of one queue with three consumers, two of which have selectors."""

    def __init__(self) -> None:
        super().__init__()
        self.next_number = 1
        self.waiting: list[int] = []

    @initialize()
    def begin(self) -> None:
        self.world = World(LIMIT_BYTES)
        self.sender = self.world.open(to_client=False)
        self.clients = [Client(self.world, colour) for colour in (0, 1, None)]

    @rule(sizes=st.lists(st.tuples(SIZES, st.booleans()), min_size=1, max_size=15))
    def send(self, sizes: list[tuple[int, bool]]) -> None:
        fragments = []
        for size, durable in sizes:
            fragments.append((self.next_number, colourful(self.next_number, size, durable), 0))
            self.next_number += 1
        self.world.send(self.sender, *fragments)
        self.waiting += [number for number, _, _ in fragments if number not in self.sender.rejected]
        self.look()

    @rule(which=st.integers(0, 2), credit=st.integers(1, 10))
    def give_credit(self, which: int, credit: int) -> None:
        client = self.clients[which]
        client.limit += credit
        self.world.do(client.terminal.driver.request, client.limit, False)
        self.look()

    @rule(which=st.integers(0, 2))
    def drain(self, which: int) -> None:
        client = self.clients[which]
        client.limit += 10
        spent = self.world.drain(client.terminal, client.limit)
        self.look()
        queue = self.world.queue()
        assert not (spent and any(map(client.wants, self.waiting))) or not (queue.may_read() and queue.may_select())

    @rule()
    def read(self) -> None:
        self.world.read_one()
        self.look()

    @rule(which=st.integers(0, 2), place=st.integers(0), state=st.sampled_from([ACCEPTED, ACCEPTED, RELEASED]))
    def settle(self, which: int, place: int, state: int) -> None:
        client = self.clients[which]
        if client.out:
            number = sorted(client.out)[place % len(client.out)]
            self.settle_one(client, number, state)

    def settle_one(self, client: Client, number: int, state: int) -> None:
        entry = client.out.pop(number)
        if state == RELEASED:
            insort(self.waiting, number)
        self.world.settle(client.terminal, entry, state)
        self.look()

    @rule(which=st.integers(0, 2))
    def leave(self, which: int) -> None:
        client = self.clients[which]
        for number in client.out:
            insort(self.waiting, number)
        self.world.do(client.terminal.driver.close, list(client.out.values()), True, True)
        self.clients[which] = Client(self.world, client.colour)
        self.look()

    @rule(colour=st.none() | st.integers(0, 2), credit=st.integers(1, 30))
    def browse(self, colour: int | None, credit: int) -> None:
        self.world.read_all()
        self.look()
        browser = Client(self.world, colour, browse=True)
        self.world.do(browser.terminal.driver.request, credit, False)
        self.world.read_all()
        seen = [number_of(content) for _, content in browser.terminal.forwarded]
        assert seen == [number for number in self.waiting if browser.wants(number)][:credit]
        self.world.do(browser.terminal.driver.close, [], False, True)

    @rule(colour=st.integers(0, 2), credit=st.integers(1, 30))
    def take_for_good(self, colour: int, credit: int) -> None:
        """A presettled consumer receives the first matching messages in order while no other consumer has credit."""
        for which in range(3):
            self.leave(which)
        self.world.read_all()
        self.look()
        taker = Client(self.world, colour, presettled=True)
        self.world.do(taker.terminal.driver.request, credit, False)
        self.world.read_all()
        taken = [number_of(content) for _, content in taker.terminal.forwarded]
        assert taken == [number for number in self.waiting if taker.wants(number)][:credit]
        self.waiting = [number for number in self.waiting if number not in taken]
        self.world.do(taker.terminal.driver.close, [], False, True)

    def teardown(self) -> None:
        """Check that all waiting messages are delivered, and that no message and no memory remains."""
        if not hasattr(self, "world"):
            return
        for client in self.clients:
            self.world.do(client.terminal.driver.request, 1 << 30, False)
        while True:
            before = len(self.waiting)
            self.world.read_all()
            self.look()
            for client in self.clients:
                for number in list(client.out):
                    self.settle_one(client, number, ACCEPTED)
            if not self.waiting:
                break
            assert len(self.waiting) < before or self.world.readings
        self.world.read_all()
        assert self.world.broker.core.memory.used_bytes == 0
        assert self.world.store.messages() == {}
        assert self.world.queue().contents.backlog.holes == 0

    def look(self) -> None:
        for client in self.clients:
            forwarded, client.terminal.forwarded = client.terminal.forwarded, []
            for entry, content in forwarded:
                number = number_of(content)
                assert client.wants(number)
                self.waiting.remove(number)  # fails if the message is not on the queue
                client.out[number] = entry

    @invariant()
    def counted_exactly(self) -> None:
        if not hasattr(self, "world"):
            return
        found = self.world.queue()
        out = [entry for client in self.clients for entry in client.out.values()]
        there = found.contents
        held = [*there.ready, *there.returned, *out, *there.backlog.page(0, 1 << 30).held.values()]
        assert len({id(entry) for entry in held}) == len(held)
        held_bytes = sum(entry.held_bytes for entry in held)
        assert found.memory.held_bytes == held_bytes
        assert held_bytes + found.memory.read_bytes == self.world.broker.core.memory.used_bytes
        for entry in held:
            content = len(entry.content) if isinstance(entry.content, bytes) else 0
            assert entry.held_bytes == content + ENTRY_BYTES
        assert found.depth == len(self.waiting)
        before = [entry.position for entry in [*sorted(there.returned), *there.ready]]
        assert before == sorted(before)

    @invariant()
    def nobody_waits_for_what_is_there(self) -> None:
        """Without a read in progress, a consumer with credit waits for a match only at the limit of selected bytes."""
        if not hasattr(self, "world") or self.world.readings:
            return
        for client in self.clients[:2]:
            if client.terminal.driver.room() > 0 and any(map(client.wants, self.waiting)):
                selected_bytes = sum(entry.held_bytes for one in self.clients[:2] for entry in one.out.values())
                assert selected_bytes + self.world.queue().memory.read_bytes >= queue_memory.MOST_SELECTED_BYTES


Selecting.TestCase.settings = settings(max_examples=80, stateful_step_count=30)
TestSelecting = Selecting.TestCase


def test_beginnings_of_messages_that_others_acquired_are_released() -> None:
    """Two selecting consumers have read beginnings of long messages that the third consumer acquires meanwhile.

    The memory of these beginnings is all that the two may use, so they could not read on for lack of memory.
    """
    state = Selecting()
    state.begin()
    state.send([(0, False)])
    for _ in range(3):
        state.send([(70_000, True)])
    state.take_for_good(2, 5)
    state.teardown()


def test_what_comes_back_while_its_place_is_read_is_not_lost() -> None:
    """A message that a selecting consumer acquires, and releases while its batch is being read, is not lost."""
    world = World(LIMIT_BYTES)
    sender = world.open(to_client=False)
    for number in range(1, 31):
        world.send(sender, (number, colourful(number, 600, True), 0))
    assert world.queue().contents.backlog.count > 10
    first = world.queue().contents.backlog.first
    selecting_one, in_line = Client(world, (first + 1) % 3), Client(world, None)
    credit = sum(map(selecting_one.wants, range(1, first + 2)))
    world.do(selecting_one.terminal.driver.request, credit, False)
    world.read_all()
    taken = {number_of(content): entry for entry, content in selecting_one.terminal.forwarded}
    assert first + 1 in taken
    world.broker.core.memory.limit_bytes *= 100
    world.do(in_line.terminal.driver.request, 100, True)
    assert world.readings
    assert world.queue().contents.reader.end > first + 1
    world.do(selecting_one.terminal.driver.close, list(taken.values()), False, True)
    world.read_all()
    world.do(in_line.terminal.driver.request, 200, True)
    world.read_all()
    assert sorted(number_of(content) for _, content in in_line.terminal.forwarded) == list(range(1, 31))
