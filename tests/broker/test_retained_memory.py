"""Consumers that settle nothing are sent as much as the memory budget allows, however they ask for messages."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from cairnmq.amqp.native.proton_ffi import ACCEPTED
from cairnmq.broker.kernel import queue_memory
from cairnmq.broker.kernel.memory_budget import ENTRY_BYTES
from tests.harness.broker.filters import colourful, filters
from tests.harness.broker.world import FakeTerminal, World, small_pages

LIMIT_BYTES = 8000
COUNT = 120
SIZE_BYTES = 600
ONE_BYTES = SIZE_BYTES + ENTRY_BYTES + 100
"""An upper limit of the memory of one message."""


@pytest.fixture(autouse=True, scope="module")
def _small() -> Iterator[None]:
    with small_pages():
        yield


@pytest.fixture
def world() -> World:
    """A queue that holds many times the memory limit."""
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
    """Messages that no selector matches fill the memory, and don't keep the others from being read."""
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
    """Each of many consumers has credit for one message, and a page with others behind it."""
    takers = [world.open(to_client=True, filters=filters("colour = 1")) for _ in range(30)]
    for taker in takers:
        world.do(taker.driver.request, 1, False)
    world.read_all()
    read_bytes = sum(taker.driver.read_bytes for taker in takers)
    assert read_bytes < queue_memory.MOST_SELECTED_BYTES + 4 * ONE_BYTES
