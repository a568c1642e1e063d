"""A broker in memory whose queues have policies."""

from __future__ import annotations

from typing import Any

import pytest
from proton import Message

from cairnmq.amqp.native.proton_ffi import ACCEPTED
from tests.harness.broker.world import FakeTerminal, World

either = pytest.mark.parametrize("durable", [True, False], ids=["durable", "transient"])


class Policed:
    """A world with queues, a sender to each, and short methods for the operations of clients."""

    def __init__(self, memory_limit_bytes: int = 1 << 20, **options: Any) -> None:
        self.world = World(memory_limit_bytes, **options)
        self.senders: dict[str, FakeTerminal] = {}
        self.last: FakeTerminal | None = None
        self.number = 0

    def make(self, name: str, **arguments: Any) -> None:
        made: list[Any] = []
        policy = {key.replace("_", "-"): value for key, value in arguments.items()}
        self.world.do(self.world.broker.nodes.create_queue, name, policy, made.append)
        assert not isinstance(made[0], Exception), made[0]

    def send(self, queue: str, body: Any, *, durable: bool = True, **fields: Any) -> str:
        """Send one message; return the outcome, or the error condition of a rejection."""
        if queue not in self.senders:
            self.senders[queue] = self.world.open(to_client=False, address=queue)
        terminal = self.senders[queue]
        self.number += 1
        message = Message(body=body, durable=durable, **fields)
        self.world.send(terminal, (self.number, bytes(message.encode()), 0))
        if self.number in terminal.rejected:
            return terminal.rejected[self.number]
        return "accepted" if self.number in terminal.confirmed else "unsettled"

    def open(self, queue: str, credit: int = 100) -> FakeTerminal:
        taker = self.world.open(to_client=True, address=queue)
        self.world.do(taker.driver.request, credit, False)
        self.world.read_all()
        return taker

    def take(self, queue: str, credit: int = 100) -> list[Any]:
        """Receive and accept all messages, up to *credit*; return them."""
        taker = self.open(queue, credit)
        found = []
        for tag, content in taker.forwarded:
            found.append(decoded(content))
            self.world.settle(taker, tag, ACCEPTED)
        self.world.do(taker.driver.close, (), False, False)
        return found

    def bodies(self, queue: str) -> list[Any]:
        return [message.body for message in self.take(queue)]

    def restart(self) -> None:
        self.world.kill_and_start()
        self.senders.clear()


def decoded(content: Any) -> Message:
    data = content if isinstance(content, bytes) else b"".join(map(content.piece, range(content.pieces)))
    message = Message()
    message.decode(data)
    return message


@pytest.fixture
def policed() -> Policed:
    return Policed()
