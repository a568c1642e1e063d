"""Tests of consumers that settle nothing, and receive only as many messages as the memory budget allows."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from cairnmq.amqp.native.proton_ffi import ACCEPTED, MODIFIED, RELEASED
from cairnmq.amqp.ports import Outcome
from cairnmq.broker.kernel import queue_memory
from cairnmq.broker.kernel.memory_budget import ENTRY_BYTES, MemoryBudget
from cairnmq.broker.kernel.queue_memory import QueueMemory
from cairnmq.broker.messages.entry import Entry
from tests.harness.broker.filters import colourful, filters
from tests.harness.broker.world import FakeTerminal, World, number_of, small_pages

LIMIT_BYTES = 8000
COUNT = 120
SIZE_BYTES = 600
ONE_BYTES = SIZE_BYTES + ENTRY_BYTES + 100
"""An upper bound of the memory of one message."""


@pytest.fixture(autouse=True, scope="module")
def _small() -> Iterator[None]:
    with small_pages():
        yield


@pytest.fixture
def world() -> World:
    """Return a world with a queue of many times the memory limit."""
    world = World(LIMIT_BYTES)
    sender = world.open(to_client=False)
    for number in range(1, COUNT + 1):
        world.send(sender, (number, colourful(number, SIZE_BYTES, True), 0))
    return world


def held_bytes(clients: list[FakeTerminal]) -> int:
    return sum(entry.held_bytes for client in clients for entry, _ in client.forwarded)


@pytest.mark.parametrize("clients", [1, 7])
def test_drains_end_when_the_memory_is_full(world: World, clients: int) -> None:
    takers = [world.open(to_client=True) for _ in range(clients)]
    spent = [world.drain(taker, 1000) for taker in takers]
    assert all(spent)
    assert 0 < held_bytes(takers) < LIMIT_BYTES + 6 * ONE_BYTES
    assert world.broker.core.memory.used_bytes < LIMIT_BYTES + 6 * ONE_BYTES


def test_drain_goes_on_when_its_client_has_settled(world: World) -> None:
    taker = world.open(to_client=True)
    first = 1000 - world.drain(taker, 1000)
    for entry, _ in taker.forwarded:
        world.settle(taker, entry, ACCEPTED)
    world.drain(taker, 2000)
    assert len(taker.forwarded) > first


@pytest.mark.parametrize("clients", [1, 7])
def test_selecting_consumers_read_on_only_with_memory(world: World, clients: int) -> None:
    takers = [world.open(to_client=True, filters=filters(f"colour = {number % 3}")) for number in range(clients)]
    for taker in takers:
        world.do(taker.driver.request, 1000, False)
    world.read_all()
    assert held_bytes(takers) > 0
    most_bytes = LIMIT_BYTES + queue_memory.MOST_SELECTED_BYTES + 4 * ONE_BYTES
    assert world.broker.core.memory.used_bytes < most_bytes


@pytest.mark.parametrize("clients", [1, 7])
def test_selecting_consumers_get_all_messages_as_they_settle(world: World, clients: int) -> None:
    """Messages that match no selector fill the memory, but don't prevent reading the matching messages."""
    takers = [world.open(to_client=True, filters=filters("colour = 1")) for _ in range(clients)]
    for taker in takers:
        world.do(taker.driver.request, 1000, False)
    settled = [0] * clients
    while sum(settled) < COUNT // 3:
        before = sum(settled)
        world.read_all()
        for at, taker in enumerate(takers):
            for entry, _ in taker.forwarded[settled[at] :]:
                settled[at] += 1
                world.settle(taker, entry, ACCEPTED)
        assert sum(settled) > before or world.readings
    assert world.queue().messages == COUNT - COUNT // 3


def test_drain_with_a_selector_ends_when_the_memory_is_full(world: World) -> None:
    taker = world.open(to_client=True, filters=filters("colour = 1"))
    assert world.drain(taker, 1000)
    assert 0 < len(taker.forwarded) < COUNT // 3


def test_consumers_without_credit_keep_no_pages(world: World) -> None:
    """Consumers that have used their credit keep no pages with further messages in memory."""
    takers = [world.open(to_client=True, filters=filters("colour = 1")) for _ in range(30)]
    for taker in takers:
        world.do(taker.driver.request, 1, False)
    world.read_all()
    assert world.queue().memory.read_bytes < queue_memory.MOST_SELECTED_BYTES + 4 * ONE_BYTES


def test_drain_waits_for_a_read_that_is_under_way(world: World) -> None:
    """A drain waits for a slow read that starts when memory is released."""
    holder, taker = world.open(to_client=True), world.open(to_client=True)
    world.do(holder.driver.request, 1000, False)
    world.read_all()
    world.do(holder.driver.request, len(holder.forwarded), False)
    world.do(taker.driver.request, 1000, True)
    world.read_all()
    assert not taker.drains
    for entry, _ in holder.forwarded:
        world.settle(holder, entry, ACCEPTED)
    assert world.readings
    world.advance(1)
    assert not taker.drains
    world.read_all()
    assert taker.forwarded


def test_drains_wait_while_others_read_for_their_selectors() -> None:
    """Drains wait until the last message, the only match, is read, with memory for few consumers' pages."""
    world = World(LIMIT_BYTES)
    sender = world.open(to_client=False)
    for number in range(1, COUNT + 1):
        world.send(sender, (number, colourful(1 if number == COUNT else 3, SIZE_BYTES, True), 0))
    takers = [world.open(to_client=True, filters=filters("colour = 1")) for _ in range(6)]
    for taker in takers:
        world.do(taker.driver.request, 10, True)
    while world.readings:
        world.read_one()
        world.advance(0.2)
    world.advance(1)
    assert sum(len(taker.forwarded) for taker in takers) == 1


def test_message_that_is_released_hides_no_dropped_page(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A message released behind the page that is being read for another consumer does not hide the dropped page."""
    queue = world.queue()
    taker, other = (world.open(to_client=True, filters=filters(f"colour = {colour}")) for colour in (1, 0))
    world.do(other.driver.request, 1000, False)
    settled = 0
    while not other.forwarded or number_of(other.forwarded[-1][1]) < 60:
        world.read_all()
        last = len(other.forwarded) - 1
        for entry, _ in other.forwarded[settled:last]:
            world.settle(other, entry, ACCEPTED)
        settled = max(settled, last)
    world.do(other.driver.request, len(other.forwarded), False)
    world.read_all()
    in_memory = len([number for number in range(1, queue.contents.backlog.first) if number % 3 == 1])
    world.do(taker.driver.request, in_memory + 1, False)
    assert world.readings
    world.settle(other, other.forwarded[-1][0], RELEASED)
    world.do(taker.driver.request, in_memory, False)
    with monkeypatch.context() as patch:
        patch.setattr(world.broker.core.memory, "limit_bytes", 0)
        patch.setattr(queue_memory, "MOST_SELECTED_BYTES", 0)
        world.read_all()
    world.broker.core.memory.limit_bytes = 1 << 20
    world.do(taker.driver.request, 1000, False)
    world.read_all()
    assert sorted(number_of(content) for _, content in taker.forwarded) == list(range(1, COUNT + 1, 3))


def test_messages_in_transactions_count_as_selected() -> None:
    locked: dict[Entry, None] = {}
    memory = QueueMemory(MemoryBudget(0), [], [], locked)
    assert memory.may_select()
    locked[Entry(1, 1, b"", queue_memory.MOST_SELECTED_BYTES)] = None
    memory.selection_ends()
    assert not memory.may_select()


def test_requeued_messages_hold_no_content_without_memory(world: World) -> None:
    """Messages requeued as undeliverable to their consumer release their content when memory is full."""
    hostile = world.open(to_client=True, filters=filters("colour >= 0"))
    world.do(hostile.driver.request, 1000, False)
    refused = 0
    while refused < COUNT:
        world.read_all()
        entries = [entry for entry, _ in hostile.forwarded[refused:]]
        assert entries
        refused += len(entries)
        back = [Outcome(None, entry, MODIFIED, False, True, None, b"") for entry in entries]
        world.do(hostile.driver.outcomes, back)
        assert world.broker.core.memory.used_bytes < LIMIT_BYTES + COUNT * ENTRY_BYTES + 6 * ONE_BYTES
    taker = world.open(to_client=True)
    world.broker.core.memory.limit_bytes = 1 << 20
    world.do(taker.driver.request, 1000, False)
    world.read_all()
    assert sorted(number_of(content) for _, content in taker.forwarded) == list(range(1, COUNT + 1))


def test_reads_for_selectors_leave_memory_to_others(world: World) -> None:
    """Reads for selectors count as messages of their queue, which uses at most half of the memory."""
    for _ in range(30):
        world.do(world.open(to_client=True, filters=filters("colour = 1")).driver.request, 1000, False)
        memory = world.queue().memory
        assert memory.held_bytes + memory.read_bytes < LIMIT_BYTES // 2 + queue_memory.MOST_SELECTED_BYTES + ONE_BYTES
    assert world.readings
