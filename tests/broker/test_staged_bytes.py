"""Tests of the bytes of incomplete messages, which are deducted from the account that they were charged to."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from cairnmq.amqp.ports import ABORTED, MORE, Open, Terminus
from cairnmq.broker.queues.queue import Queue
from cairnmq.broker.users.quotas import Quotas
from cairnmq.broker.users.user_accounts import OWNER
from tests.harness.broker.world import FakeTerminal, World, message

PIECE_BYTES = 70_000
LIMITS = Quotas((((frozenset({"anna", "ben"})), {"max_durable_bytes": 10 << 20}),))


def opened(world: World, address: str) -> FakeTerminal:
    """Open a sender link of the user anna."""
    terminal = FakeTerminal()
    world.do(world.broker.drivers.open, Open(False, Terminus(address=address), False, None, user="anna"), terminal)
    world.read_all()
    return terminal


def delete(world: World, queue: Queue) -> None:
    world.do(world.broker.nodes.delete_queue, queue, lambda error: None)


def give_to_ben(world: World, queue: Queue) -> None:
    world.do(world.broker.nodes.change_queue, queue, {OWNER: "ben"}, lambda error: None)


@pytest.mark.parametrize("end", [0, ABORTED], ids=["ends", "is aborted"])
@pytest.mark.parametrize("happens", [delete, give_to_ben])
def test_nothing_stays_charged_when_the_queue_goes_meanwhile(
    happens: Callable[[World, Queue], None], end: int
) -> None:
    world = World(64 << 20, auto_create=("*",), quotas=LIMITS)
    opened(world, "other")
    users = world.broker.core.users
    anna, ben = users.of("anna"), users.of("ben")
    ben.connections += 1  # keeps the account
    content = message(1, 5 * PIECE_BYTES, True)
    pieces = [content[at : at + PIECE_BYTES] for at in range(0, len(content), PIECE_BYTES)]
    sender = opened(world, "mine")
    world.send(sender, *[(7, piece, MORE) for piece in pieces[:2]])
    assert anna.staged_bytes
    happens(world, world.queue("mine"))
    world.read_all()
    world.send(sender, *[(7, piece, MORE) for piece in pieces[2:-1]])
    world.send(sender, (7, pieces[-1], end))
    world.do(sender.driver.close, (), False, True)
    world.read_all()
    assert (anna.staged_bytes, ben.staged_bytes) == (0, 0)


def test_malformed_long_message_leaves_no_memory_in_use() -> None:
    world = World(64 << 20, auto_create=("*",))
    sender = opened(world, "mine")
    before = world.broker.core.memory.used_bytes
    content = message(1, 2 * PIECE_BYTES, True)[:7] + b"\x00\x53\x72\xc1\x02" + bytes(2 * PIECE_BYTES)
    world.send(sender, (7, content[:PIECE_BYTES], MORE), (7, content[PIECE_BYTES:-9], MORE), (7, content[-9:], 0))
    world.read_all()
    assert sender.rejected == {7: "amqp:decode-error"}
    assert world.broker.core.memory.used_bytes == before
