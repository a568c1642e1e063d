"""Tests that no memory or message remains when all is dequeued, whatever clients send and however they leave."""

from __future__ import annotations

from random import Random
from sys import getrefcount
from typing import Any

import pytest
from proton import Message

from cairnmq.amqp.native.proton_ffi import ACCEPTED, REJECTED
from cairnmq.amqp.ports import ABORTED, MORE, SETTLED
from tests.harness.broker.declarations import declare, discharge
from tests.harness.broker.transacting import Transacting
from tests.harness.broker.world import FakeTerminal
from tests.harness.thorough import amount

POLICIES: dict[str, dict[str, Any]] = {
    "plain": {},
    "reject": {"max-messages": 6, "overflow": "reject"},
    "drop": {"max-bytes": 500_000, "overflow": "drop"},
    "ring": {"max-bytes": 400_000, "overflow": "ring"},
    "block": {"max-messages": 4, "overflow": "block"},
    "once": {"duplicate-window": 5},
    "times": {"message-ttl-ms": 5000, "dead-letter-address": "reject", "max-messages": 5, "overflow": "reject"},
    "sorted": {"priorities": True, "duplicate-window": 4, "max-messages": 5, "overflow": "drop"},
}
SIZES = (10, 1000, 70_000, 150_000, 600_000)
PIECES = (30_000, 70_000)


class Client:
    """A connection with its senders and transactions."""

    def __init__(self, life: Life) -> None:
        self.life = life
        self.connection = object()
        self.control = life.world.open(to_client=False, connection=self.connection, coordinator=True, address=None)
        self.transactions: list[bytes] = []
        self.senders: dict[str, FakeTerminal] = {}

    def ask(self, request: bytes) -> None:
        self.life.world.send(self.control, (self.life.next(), request, 0))

    def send(self, address: str, content: bytes) -> None:
        """Send a message, completely or in part, in a transaction or not."""
        draw, world = self.life.draw, self.life.world
        if address not in self.senders:
            self.senders[address] = world.open(to_client=False, connection=self.connection, address=address)
        sender, number, settled = self.senders[address], self.life.next(), SETTLED * (draw.random() < 0.2)
        size = draw.choice(PIECES) if len(content) > 100_000 or draw.random() < 0.5 else len(content)
        begins = range(0, len(content), size)
        pieces = [(number, content[at : at + size], settled | MORE * (at != begins[-1])) for at in begins]
        is_left = len(pieces) > 1 and draw.random() < 0.1
        if len(pieces) > 1 and draw.random() < 0.2:
            pieces[-1:] = [] if is_left else [(number, b"", ABORTED)]
        if self.transactions and draw.random() < 0.6:
            world.do(sender.driver.receive_in, self.connection, draw.choice(self.transactions), pieces)
        else:
            world.send(sender, *pieces)
        if is_left:
            world.do(self.senders.pop(address).driver.close, (), True, False)

    def leave(self) -> None:
        for link in (*self.senders.values(), self.control):
            self.life.world.do(link.driver.close, (), True, False)
        self.life.world.do(self.life.world.broker.drivers.connection_closed, self.connection)


class Life(Transacting):
    """A broker with queues of all policies, some bound to an exchange, and clients that act at random."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.draw = Random(seed)
        self.world.broker.core.memory.limit_bytes = self.draw.choice([16 << 20, 2 << 20, 600_000])
        nodes, done = self.world.broker.nodes, list[Any]()
        for name, policy in POLICIES.items():
            if self.draw.random() < 0.3:
                nodes.add_queue(name, policy)
            else:
                self.world.do(nodes.create_queue, name, policy, done.append)
        exchange = nodes.add_exchange("all", "fanout", {})
        for name in self.draw.sample([*POLICIES], self.draw.randrange(1, len(POLICIES))):
            self.world.do(nodes.bind, exchange, nodes.queues[name], "", {}, done.append)
        self.clients = [Client(self), Client(self)]

    def next(self) -> int:
        self.number += 1
        return self.number

    def step(self) -> None:
        draw, what = self.draw, self.draw.randrange(14)
        client = draw.choice(self.clients)
        if what == 0:
            client.ask(declare())
            client.transactions.append(client.control.declared_ids[-1])
        elif what == 1 and client.transactions:
            client.ask(discharge(client.transactions.pop(), fail=draw.random() < 0.4))
        elif what == 2:
            client.leave()
            self.clients[self.clients.index(client)] = Client(self)
        elif what == 3:
            taker = self.open(draw.choice([*POLICIES]), draw.randrange(1, 4))
            for tag, _ in taker.forwarded:
                self.world.settle(taker, tag, draw.choice([ACCEPTED, ACCEPTED, REJECTED]))
            self.world.do(taker.driver.close, (), False, False)
        elif what == 4:
            self.world.advance(4 * draw.random())
        else:
            fields = {"id": draw.choice("abcdef"), "ttl": draw.choice([0, 0, 3]), "priority": draw.choice([4, 4, 7])}
            message = Message(body="x" * draw.choice(SIZES), durable=draw.random() < 0.6, **fields)
            client.send(draw.choice([*POLICIES, "all", "all", "all"]), bytes(message.encode()))
        self.world.read_all()

    def end(self) -> None:
        """Close all clients, and dequeue all messages."""
        for client in self.clients:
            client.leave()
        for _ in range(2):  # expired messages arrive as dead letters
            for name in POLICIES:
                self.take(name, 1000)
            self.world.advance(6)
            self.world.read_all()

    def kept(self) -> int:
        """Return the number of message IDs that are stored for duplicate detection."""
        queues = self.world.broker.nodes.queues.values()
        return sum(queue.messages for queue in queues if queue.name.startswith("$duplicates:"))


@pytest.mark.parametrize("seed", range(amount("CAIRN_LEFTOVERS", 40, 8)))
def test_nothing_stays(seed: int) -> None:
    life = Life(seed)
    broker, queues = life.world.broker, life.world.broker.nodes.queues
    for _ in range(life.draw.randrange(5, 70)):
        life.step()
        for gate in [queue.limits for queue in queues.values() if queue.limits is not None]:
            found = [one.staging.staged.get(gate) for _, one in broker.transactions.open()]
            parts = [staged for staged in found if staged is not None]
            assert gate._staged == sum(part.messages for part in parts)
            assert gate._staged_bytes == sum(part.bytes for part in parts)
    life.end()
    for queue in [queues[name] for name in POLICIES]:
        assert (queue.messages, queue.memory.held_bytes) == (0, 0)
        if queue.limits is not None:
            assert (queue.limits.bytes, queue.limits._staged, queue.limits._staged_bytes) == (0, 0, 0)
    assert broker.core.memory.used_bytes == 0
    remembered = sum(
        len(queue.limits.duplicates.all()) - len(queue.limits.duplicates.transient())
        for queue in queues.values()
        if queue.queue_id and queue.limits is not None and queue.limits.duplicates is not None
    )
    assert len(life.world.store.state) == remembered
    life.world.kill_and_start()
    assert len(life.world.store.state) == life.kept() == remembered


@pytest.mark.parametrize("fail", [False, True], ids=["committed", "rolled back"])
def test_finished_transaction_keeps_no_contents(fail: bool) -> None:
    client = Transacting()
    client.make("q")
    sender = client.world.open(to_client=False, address="q")
    txn_id = client.declare()
    transaction = client.world.broker.transactions.find(client.connection, txn_id)
    content = bytes(Message(body="x" * 10_000, durable=True).encode())
    references = getrefcount(content)
    client.world.do(sender.driver.receive_in, client.connection, txn_id, [(1, content, 0)])
    assert getrefcount(content) > references
    assert client.discharge(txn_id, fail=fail) == ""
    assert len(client.take("q")) == (not fail)
    assert transaction.failure is not None
    client.world.kill_and_start()  # releases the reference of the receiver
    assert getrefcount(content) == references
