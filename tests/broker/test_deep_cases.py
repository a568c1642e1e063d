"""Tests of damaged messages in a backlog, of several queues in one memory budget, and of exhausted memory."""

from __future__ import annotations

import logging

import pytest

from cairnmq.amqp.native.proton_ffi import ACCEPTED
from cairnmq.amqp.ports import MORE, Open, Terminus
from cairnmq.broker.kernel.loader import BATCH_MESSAGES
from cairnmq.broker.kernel.memory_budget import ALLOWANCE_BYTES
from tests.harness.broker.world import FakeTerminal, World, message, number_of
from tests.harness.journal.logs import container_of, flip

MESSAGES = 3 * BATCH_MESSAGES


def fill(world: World, address: str, count: int, size_bytes: int = 200, durable: bool = True) -> FakeTerminal:
    sender = world.open(to_client=False, address=address)
    for begin in range(0, count, 500):
        numbers = range(begin, min(begin + 500, count))
        world.send(sender, *[(number, message(number, size_bytes, durable), 0) for number in numbers])
    return sender


def take_all(world: World, consumer: FakeTerminal) -> list[int]:
    world.do(consumer.driver.request, 1 << 30, False)
    found: list[int] = []
    while world.readings or consumer.forwarded:
        forwarded, consumer.forwarded = consumer.forwarded, []
        for entry, content in forwarded:
            found.append(number_of(content))
            world.settle(consumer, entry, ACCEPTED)
        world.read_one()
    return found


@pytest.mark.parametrize("restart", [False, True], ids=["running", "restarted"])
def test_rot_takes_only_the_message_it_is_in(restart: bool, caplog: pytest.LogCaptureFixture) -> None:
    """A damaged message stays in the store, the log names it with the reason, and all other messages are delivered."""
    world = World(0)
    fill(world, "q", MESSAGES)
    if restart:
        world.kill_and_start()
    [ids] = world.store.messages().values()
    rotten = [1, 2, BATCH_MESSAGES, MESSAGES - 1]
    for number in rotten:
        slot, at = divmod(ids[number], world.store.journal.container_bytes)
        flip(world.disk, container_of(world.disk, slot), at + 12)  # a byte of the payload checksum
    with caplog.at_level(logging.ERROR):
        found = take_all(world, world.open(to_client=True))
    assert found == [number for number in range(MESSAGES) if number not in rotten]
    assert [*world.store.messages().values()] == [type(ids)("Q", [ids[number] for number in rotten])]
    assert world.broker.core.memory.used_bytes == 0
    said = [record.getMessage() for record in caplog.records]
    assert len(said) == len(rotten)
    assert all(f"message {ids[n]} " in line and "checksum" in line for n, line in zip(rotten, said, strict=True))


def test_a_deep_queue_leaves_room_for_others() -> None:
    """A deep queue uses about half of the budget; a queue whose consumer keeps up stays in memory."""
    limit = 1 << 20
    world = World(limit)
    fill(world, "deep", 8000)
    assert world.queue("deep").contents.backlog.count > 4000
    batch = 500 * 500
    assert limit / 2 <= world.broker.core.memory.used_bytes <= limit / 2 + batch
    fill(world, "other", 8000)
    assert world.queue("other").memory.held_bytes > limit / 8
    assert world.broker.core.memory.used_bytes <= limit
    fill(world, "transient", 8000, durable=False)  # uses the rest of the budget
    consumer = world.open(to_client=True, address="hot")
    world.do(consumer.driver.request, 1000, False)
    fill(world, "hot", 1000)
    assert len(consumer.forwarded) == 1000  # without reading the disk
    assert not world.readings
    assert world.queue("hot").memory.held_bytes < ALLOWANCE_BYTES


def test_what_is_nowhere_else_is_refused_when_the_budget_is_used_up() -> None:
    """Transient messages, short and long, are rejected while the budget is used up; durable messages are accepted."""
    limit = 1 << 20
    world = World(limit)
    sender = fill(world, "q", 5000, durable=False)
    assert set(sender.rejected.values()) == {"amqp:resource-limit-exceeded"}
    assert sorted([*sender.confirmed, *sender.rejected]) == list(range(5000))
    assert limit - 1000 < world.broker.core.memory.used_bytes <= limit
    long = message(9000, 200_000, durable=False)
    pieces = [long[at : at + 50_000] for at in range(0, len(long), 50_000)]
    fragments = [(9000, piece, MORE) for piece in pieces[:-1]] + [(9000, pieces[-1], 0)]
    world.send(sender, *fragments)
    assert sender.rejected[9000] == "amqp:resource-limit-exceeded"
    durable = message(9001, 100, durable=True)
    world.send(sender, (9001, durable, 0))
    assert 9001 in sender.confirmed
    assert take_all(world, world.open(to_client=True)) == [*sender.confirmed]
    assert world.broker.core.memory.used_bytes == 0
    world.send(sender, *fragments[:2])
    assert world.broker.core.memory.used_bytes > 50_000  # an incomplete message counts
    world.do(sender.driver.close, [], True, False)
    assert world.broker.core.memory.used_bytes == 0


def test_a_queue_that_goes_gives_its_memory_back() -> None:
    world = World(1 << 20)
    terminal = FakeTerminal()
    world.do(world.broker.drivers.open, Open(False, Terminus(dynamic=True), connection="it"), terminal)
    world.send(terminal, *[(n, message(n, 100, False), 0) for n in range(100)])
    assert world.broker.core.memory.used_bytes > 10_000
    world.do(world.broker.drivers.connection_closed, "it")
    assert world.broker.core.memory.used_bytes == 0


def test_what_is_in_memory_does_not_keep_out_what_stands_before_it() -> None:
    """Transient messages behind a backlog leave the memory that is needed to read it (found by property tests)."""
    world = World(2 << 20)
    fill(world, "q", 1)
    world.kill_and_start()
    sender = fill(world, "q", 9000, durable=False)
    assert sender.rejected
    assert len(take_all(world, world.open(to_client=True))) == 1 + len(sender.confirmed)
