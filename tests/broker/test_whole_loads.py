"""Long messages that are loaded completely, as they are sent settled, do not fill the memory."""

from __future__ import annotations

import pytest

from cairnmq.amqp.ports import Open, Terminus
from tests.harness.broker.world import FakeTerminal, World, message, number_of

QUEUES = 6
SIZE_BYTES = 3 << 20
"""More than a piece of the store."""
LIMIT_BYTES = 8 << 20


@pytest.fixture
def world() -> World:
    """Each queue has one long message, which is on the disk only."""
    world = World(LIMIT_BYTES)
    for number in range(QUEUES):
        sender = world.open(to_client=False, address=f"q{number}")
        world.send(sender, (number, message(number, SIZE_BYTES, True), 0))
        assert sender.confirmed == [number]
    world.kill_and_start()
    return world


def receive(world: World, number: int, user: str = "anna") -> FakeTerminal:
    """Return a client that requests settled messages of queue *number*, and does not read."""
    client = FakeTerminal()
    client.reads = False
    wish = Open(True, Terminus(address=f"q{number}"), True, object(), user=user)
    world.do(world.broker.drivers.open, wish, client)
    world.do(client.driver.request, 10, False)
    world.read_all()
    return client


def read(world: World, client: FakeTerminal) -> None:
    while client.unsent:
        world.do(client.unsent.pop(0))
        world.read_all()


def numbers(client: FakeTerminal) -> list[int]:
    return [number_of(content) for _, content in client.forwarded]


def test_user_has_one_message_in_memory_while_little_of_it_is_free(world: World) -> None:
    clients = [receive(world, number) for number in range(QUEUES)]
    assert [len(client.forwarded) for client in clients] == [1] + [0] * (QUEUES - 1)
    for number, client in enumerate(clients):
        assert numbers(client) == [number], "the links have their turns in order"
        read(world, client)
    assert world.broker.core.memory.used_bytes == 0


def test_other_users_do_not_wait_for_it(world: World) -> None:
    first, waiting = receive(world, 0), receive(world, 1)
    other = receive(world, 2, "ben")
    assert [numbers(client) for client in (first, waiting, other)] == [[0], [], [2]]


@pytest.mark.parametrize("lost", [True, False])
def test_message_of_a_link_that_waits_returns_to_its_queue(world: World, lost: bool) -> None:
    first, waiting = receive(world, 0), receive(world, 1)
    world.do(waiting.driver.close, [], lost, True)
    assert world.queue("q1").depth == 1
    other = receive(world, 1, "ben")
    assert numbers(other) == [1]
    world.do(first.driver.close, [], lost, True)
    last = receive(world, 3)
    assert numbers(last) == [3]
    for client in (other, last):
        read(world, client)
    assert world.broker.core.memory.used_bytes == 0


def test_closed_link_lets_the_next_one_start(world: World) -> None:
    first, waiting = receive(world, 0), receive(world, 1)
    world.do(first.driver.close, [], True, True)
    world.read_all()
    assert numbers(waiting) == [1]


def test_links_of_a_user_load_together_while_memory_is_free() -> None:
    world = World(16 * SIZE_BYTES)
    for number in range(2):
        world.send(world.open(to_client=False, address=f"q{number}"), (number, message(number, SIZE_BYTES, True), 0))
    world.kill_and_start()
    clients = [receive(world, number) for number in range(2)]
    assert [numbers(client) for client in clients] == [[0], [1]]
