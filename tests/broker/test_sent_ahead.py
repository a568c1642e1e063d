"""Tests of content sent ahead to clients that do not read: it is bounded and counts in the memory budget."""

from __future__ import annotations

from typing import Any

import pytest

from cairnmq.broker.kernel.sent_ahead import LEAST_AHEAD_BYTES, MOST_AHEAD_BYTES
from cairnmq.broker.links.browser import Browser
from tests.harness.broker.world import FakeTerminal, World, message, number_of

CREDIT = 1 << 20
SIZES = (100, 5_000, 60_000)
TOGETHER_BYTES = 4 << 20


def filled(size_bytes: int, limit_bytes: int = 64 << 20) -> tuple[World, int]:
    """Return a broker whose queue holds 4 MiB of messages of *size_bytes*, and the number of messages."""
    world = World(limit_bytes)
    sender = world.open(to_client=False)
    count = TOGETHER_BYTES // (size_bytes + 250)
    for number in range(count):
        world.send(sender, (number, message(number, size_bytes, True), 0))
    assert len(sender.confirmed) == count
    return world, count


def receiver(world: World, kind: str) -> FakeTerminal:
    """Return a client with much credit that does not read."""
    options: dict[str, Any] = {"presettled": True} if kind == "settled" else {"browse": True}
    client = world.open(to_client=True, **options)
    client.reads = False
    world.do(client.driver.request, CREDIT, False)
    world.read_all()
    return client


def given_bytes(client: FakeTerminal) -> int:
    return sum([len(content) for _, content in client.forwarded if isinstance(content, bytes)])


def read_on(world: World, client: FakeTerminal) -> None:
    """Let the client read everything."""
    while client.unsent:
        world.do(client.unsent.pop(0))
        world.read_all()


@pytest.mark.parametrize("kind", ["settled", "browsing"])
@pytest.mark.parametrize("size_bytes", SIZES)
def test_client_that_does_not_read_is_sent_a_bounded_number_of_bytes(kind: str, size_bytes: int) -> None:
    world, count = filled(size_bytes)
    client = receiver(world, kind)
    assert given_bytes(client) < MOST_AHEAD_BYTES + 2 * size_bytes
    assert len(client.forwarded) < count
    read_on(world, client)
    assert [number_of(content) for _, content in client.forwarded] == [*range(count)]


@pytest.mark.parametrize("kind", ["settled", "browsing"])
def test_less_is_sent_ahead_while_no_memory_is_left(kind: str) -> None:
    world, count = filled(5_000)
    world.broker.core.memory.used_bytes += 64 << 20
    client = receiver(world, kind)
    assert given_bytes(client) < LEAST_AHEAD_BYTES + 2 * 5_000
    world.broker.core.memory.used_bytes -= 64 << 20
    read_on(world, client)
    assert [number_of(content) for _, content in client.forwarded] == [*range(count)]


@pytest.mark.parametrize("kind", ["settled", "browsing"])
def test_bytes_ahead_are_in_the_memory_budget_until_they_are_sent_or_the_link_is_closed(kind: str) -> None:
    world, _ = filled(60_000)
    memory, queue = world.broker.core.memory, world.queue()
    client = receiver(world, kind)
    ahead_bytes = memory.used_bytes - queue.memory.held_bytes
    assert ahead_bytes >= given_bytes(client) > 0
    world.do(client.driver.close, [], False, True)
    assert memory.used_bytes == queue.memory.held_bytes
    world.do(client.unsent.pop(0))  # a report that crosses the close
    assert memory.used_bytes == queue.memory.held_bytes
    other = receiver(world, kind)
    assert memory.used_bytes > queue.memory.held_bytes
    read_on(world, other)
    assert memory.used_bytes == queue.memory.held_bytes


def test_browser_that_waits_holds_no_messages() -> None:
    """A waiting browser holds no messages, as they would not count in the memory budget of the queue."""
    world, _ = filled(60_000)
    world.kill_and_start()
    clients = [receiver(world, "browsing") for _ in range(3)]
    for client in clients:
        assert isinstance(client.driver, Browser)
        assert client.unsent
        assert not client.driver._page


@pytest.mark.parametrize("kind", ["settled", "browsing"])
def test_drain_returns_credit_after_all_messages(kind: str) -> None:
    """A drain requests all available messages (2.6.7), including those that wait until others are sent."""
    world, count = filled(60_000)
    client = receiver(world, kind)
    world.do(client.driver.request, CREDIT, True)
    world.read_all()
    assert client.drains == []
    read_on(world, client)
    assert len(client.forwarded) == count
    assert client.drains == [CREDIT - count]
