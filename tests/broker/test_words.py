"""Tests of the operations of a channel (RFC005): which of them are answered, and when."""

from __future__ import annotations

import pytest

from cairnmq.amqp.native.proton_ffi import ACCEPTED
from cairnmq.amqp.ports import MORE, SETTLED
from tests.harness.broker.world import FakeTerminal, World, message, number_of

PIECE_BYTES = 50_000


def answers(terminal: FakeTerminal) -> tuple[object, ...]:
    """Return all answers of a driver to the messages of a client."""
    return [*terminal.confirmed], {**terminal.rejected}, [*terminal.handed_back], [*terminal.failures]


@pytest.mark.parametrize("durable", [True, False])
def test_only_the_last_fragment_is_answered_and_only_if_that_is_wished(durable: bool) -> None:  # F7, F8, F9, F13
    world = World(1 << 24)
    sender = world.open(to_client=False)
    for number, last in ((1, 0), (2, SETTLED)):
        before = answers(sender)
        complete = message(number, 4 * PIECE_BYTES, durable)
        fragments = [complete[at : at + PIECE_BYTES] for at in range(0, len(complete), PIECE_BYTES)]
        for fragment in fragments[:-1]:
            world.send(sender, (number, fragment, MORE))
            assert answers(sender) == before
        world.send(sender, (number, fragments[-1], last))
        assert sender.confirmed == [1], "the whole message, once, and not the one that nobody asks about"
    world.send(
        sender, *[(number, message(number, 10, durable), SETTLED if number % 2 else 0) for number in range(3, 9)]
    )
    assert sender.confirmed == [1, 4, 6, 8], "of a batch those for which it is wished"


@pytest.mark.parametrize("presettled", [True, False])
def test_a_request_is_answered_by_messages_only(presettled: bool) -> None:  # F10, F11
    world = World(1 << 24)
    receiver = world.open(to_client=True, presettled=presettled)
    said = answers(receiver)
    world.do(receiver.driver.request, 2, False)
    assert (answers(receiver), receiver.forwarded, receiver.drains) == (said, [], []), "no answer"
    sender = world.open(to_client=False)
    world.send(sender, *[(number, message(number, 10, True), 0) for number in range(3)])
    assert [number_of(content) for _, content in receiver.forwarded] == [0, 1]
    left = 1 if presettled else 3  # presettled messages are dequeued when they are forwarded
    assert world.queue().messages == left
    if not presettled:
        for tag, _ in receiver.forwarded:
            world.settle(receiver, tag, ACCEPTED)
    assert world.queue().messages == 1
