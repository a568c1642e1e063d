"""Tests of long messages that are sent settled: the broker loads them completely without filling the memory."""

from __future__ import annotations

import pytest

from cairnmq.amqp.ports import Open, Terminus
from cairnmq.base.errors import CairnError
from cairnmq.broker.kernel.loader import MOST_LOGGED, MOST_QUEUES
from cairnmq.broker.links.consumer import Consumer
from tests.harness.broker.filters import filters
from tests.harness.broker.world import FakeTerminal, World, message, number_of

QUEUES = 6
SIZE_BYTES = 3 << 20
"""A message size larger than a piece of the store."""
LIMIT_BYTES = 8 << 20


@pytest.fixture
def world() -> World:
    """Return a world whose queues each have one long message, on disk only."""
    world = World(LIMIT_BYTES)
    for number in range(QUEUES):
        sender = world.open(to_client=False, address=f"q{number}")
        world.send(sender, (number, message(number, SIZE_BYTES, True), 0))
        assert sender.confirmed == [number]
    world.kill_and_start()
    return world


def receive(world: World, number: int, user: str = "anna") -> FakeTerminal:
    return receive_from(world, f"q{number}", user)


def receive_from(world: World, address: str, user: str = "anna") -> FakeTerminal:
    """Return a client that requests settled messages of a queue, but does not read."""
    client = FakeTerminal()
    client.reads = False
    attach = Open(True, Terminus(address=address), True, object(), user=user)
    world.do(world.broker.drivers.open, attach, client)
    world.do(client.driver.request, 100, False)
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


def test_link_closed_while_its_message_is_being_recorded_lets_others_start(world: World) -> None:
    memory = world.broker.core.memory
    memory.limit_bytes *= 2
    first, client = receive(world, 0), FakeTerminal()
    world.do(world.broker.drivers.open, Open(True, Terminus(address="q1"), True, object(), user="anna"), client)
    world.do(client.driver.request, 1, False)
    world.read_one()  # reads the entries of the queue
    load, args = world.readings.popleft()
    load(*args)
    world._actions.append((client.driver.close, ([], True, True)))
    world.step()
    assert client.forwarded
    memory.limit_bytes //= 2
    memory.used_bytes += LIMIT_BYTES // 2
    world.do(first.driver.close, [], True, True)
    assert numbers(receive(world, 2)) == [2]


def test_link_that_is_cut_off_lets_the_next_one_start(world: World) -> None:
    first = receive(world, 0)
    [consumer] = world.queue("q0").consumers
    assert isinstance(consumer, Consumer)
    world.do(lambda: [*consumer.cut_off()].clear())
    world.do(first.driver.close, [], True, True)
    assert numbers(receive(world, 1)) == [1]


def test_link_that_waits_starts_when_memory_becomes_free(world: World) -> None:
    memory = world.broker.core.memory
    world.broker.core.memory.limit_bytes *= 8
    memory.used_bytes += 7 * LIMIT_BYTES
    first, waiting = receive(world, 0), receive(world, 1)
    assert [numbers(client) for client in (first, waiting)] == [[0], []]
    memory.used_bytes -= 7 * LIMIT_BYTES
    world.do(lambda: None)
    world.read_all()
    assert numbers(waiting) == [1]


@pytest.mark.parametrize("chosen", [b"", filters("1 = 1")], ids=["all", "selected"])
def test_long_and_short_messages_arrive_in_order(chosen: bytes) -> None:
    world = World(64 << 20)
    sender = world.open(to_client=False)
    sizes = [2 * SIZE_BYTES if number % 5 == 4 else 1000 for number in range(50)]
    for number, size_bytes in enumerate(sizes):
        world.send(sender, (number, message(number, size_bytes, True), 0))
    world.kill_and_start()
    client = world.open(to_client=True, presettled=True, filters=chosen)
    world.do(client.driver.request, 100, True)
    world.read_all()
    assert numbers(client) == [*range(50)]
    assert client.drains == [50]


def test_messages_that_a_batch_leaves_are_offered_to_others() -> None:
    world = World(256 << 20)
    sender = world.open(to_client=False)
    for number in range(20):
        world.send(sender, (number, message(number, SIZE_BYTES, True), 0))
    world.kill_and_start()
    unread, other = receive_from(world, "q"), receive_from(world, "q", "ben")
    read(world, other)
    assert sorted(numbers(unread) + numbers(other)) == [*range(20)]


def test_malformed_messages_of_one_queue_hide_none_of_another_in_the_log(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    reason = CairnError("message", "damaged")
    loader = world.broker.core.loader
    for number in range(3 * MOST_LOGGED):
        loader.set_aside("noisy", number, reason)
    for number in range(MOST_QUEUES + 10):
        loader.set_aside(f"quiet-{number}", -1 - number, reason)
    told = [record.queue for record in caplog.records]  # type: ignore[attr-defined]
    assert told.count("noisy") == MOST_LOGGED + 2
    assert [name for name in told if name != "noisy"] == [f"quiet-{number}" for number in range(MOST_QUEUES + 10)]
    assert len(loader._set_aside) <= MOST_QUEUES + 1
