"""Tests of routing: each step routes a share of the messages, and later steps route the rest in order."""

from __future__ import annotations

import pytest
from proton import Message

from cairnmq.amqp.ports import SETTLED
from cairnmq.broker.kernel.dispatch_turns import AT_ONCE
from cairnmq.broker.nodes.exchanges import TopicExchange
from cairnmq.broker.queues.queue import Queue
from tests.harness.broker.declarations import declare, discharge
from tests.harness.broker.policies import Policed, decoded
from tests.harness.broker.world import FakeTerminal, WorkingClock

MANY = 300


@pytest.fixture
def busy() -> Policed:
    """Return a broker whose clock advances by a tenth of a slice with each reading."""
    return Policed(1 << 24, clock=WorkingClock(0.0002))


@pytest.fixture(autouse=True)
def routed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the list of keys that topic exchanges look up."""
    keys: list[str] = []
    match = TopicExchange._match

    def counting(exchange: TopicExchange, key: str) -> list[object]:
        keys.append(key)
        return match(exchange, key)  # type: ignore[return-value]

    monkeypatch.setattr(TopicExchange, "_match", counting)
    return keys


def bind(policed: Policed, queue: str, key: str) -> Queue:
    policed.make(queue)
    nodes, answers = policed.world.broker.nodes, list[object]()
    policed.world.do(nodes.bind, nodes.exchanges["amq.topic"], policed.world.queue(queue), key, {}, answers.append)
    assert answers == [None]
    return policed.world.queue(queue)


def encoded(number: int, way: str) -> bytes:
    key = f"new.{number}"
    if way == "relay":
        return bytes(Message(number, durable=True, address=f"amq.topic/{key}").encode())
    return bytes(Message(number, durable=True, subject=key).encode())


def publisher(policed: Policed, way: str) -> FakeTerminal:
    return policed.world.open(to_client=False, address="amq.topic" if way == "exchange" else None)


def bodies(terminal: FakeTerminal) -> list[int]:
    return [decoded(content).body for _, content in terminal.forwarded]


ways = pytest.mark.parametrize("way", ["exchange", "relay"])


@ways
def test_batch_with_new_keys_leaves_others_their_turns(busy: Policed, routed: list[str], way: str) -> None:
    bind(busy, "q", "new.#")
    terminal = publisher(busy, way)
    busy.world.send(terminal, *[(number, encoded(number, way), 0) for number in range(MANY)])
    assert terminal.held, "the link is not read while some of its messages wait"
    steps = most = before = 0
    while busy.world.readings:
        assert len(terminal.confirmed) == len(routed), "what waits is not confirmed"
        assert busy.send("other", steps) == "accepted"
        if steps == 3:  # a message that arrives meanwhile waits behind the others
            busy.world.send(terminal, (MANY, encoded(MANY, way), 0))
        busy.world.read_one()
        most, before = max(most, len(routed) - before), len(routed)
        steps += 1
        assert steps < 5000
    assert most <= 20
    assert not terminal.held
    assert terminal.confirmed == list(range(MANY + 1))
    taker = busy.open("q", 1000)
    assert bodies(taker) == list(range(MANY + 1))


def test_batch_to_many_queues_leaves_others_their_turns(busy: Policed) -> None:
    queues = [bind(busy, f"q{number}", "news") for number in range(60)]
    terminal = busy.world.open(to_client=False, address="amq.topic/news")
    content = bytes(Message(durable=False).encode())
    busy.world.send(terminal, *[(number, content, 0) for number in range(MANY)])
    steps = most = before = 0
    while busy.world.readings:
        assert busy.send("other", steps) == "accepted"
        busy.world.read_one()
        there = sum(queue.messages for queue in queues)
        most, before = max(most, there - before), there
        steps += 1
    assert sum(queue.messages for queue in queues) == MANY * 60
    assert most <= 1500
    assert terminal.confirmed == list(range(MANY))


def test_message_for_many_consumers_leaves_others_their_turns(busy: Policed) -> None:
    """A step dispatches some queues of an owner, and each message waits until all queues have the previous one."""
    count, sent = 4 * AT_ONCE, 5
    for number in range(count):
        bind(busy, f"q{number}", "news")
    consumers = [busy.open(f"q{number}") for number in range(count)]
    publisher = busy.world.open(to_client=False, address="amq.topic/news")
    listener = busy.open("other", 10_000)
    content = bytes(Message(durable=False).encode())
    busy.world.send(publisher, *[(number, content, 0) for number in range(sent)])
    steps = most = before = 0
    while busy.world.readings:
        assert busy.send("other", steps) == "accepted"
        assert len(listener.forwarded) == steps + 1, "dispatched at the end of its own step"
        busy.world.read_one()
        counts = [len(consumer.forwarded) for consumer in consumers]
        assert max(counts) - min(counts) <= 1, "the next message waits"
        most, before = max(most, sum(counts) - before), sum(counts)
        steps += 1
    assert sum(queue.messages for queue in busy.world.broker.nodes.queues.values()) == steps + count * sent
    assert [len(consumer.forwarded) for consumer in consumers] == [sent] * count
    assert most <= 2 * AT_ONCE
    assert publisher.confirmed == list(range(sent))


@ways
@pytest.mark.parametrize("lost", [True, False])
def test_messages_that_wait_are_routed_though_their_link_is_closed(busy: Policed, way: str, lost: bool) -> None:
    queue = bind(busy, "q", "new.#")
    terminal = publisher(busy, way)
    busy.world.send(terminal, *[(number, encoded(number, way), SETTLED) for number in range(MANY)])
    busy.world.do(terminal.driver.close, (), lost, not lost)
    busy.world.do(busy.world.broker.drivers.link_closed, terminal)
    busy.world.read_all()
    assert queue.messages == MANY
    assert not busy.world.broker.nodes.exchanges["amq.topic"].producers


@ways
@pytest.mark.parametrize("fail", [True, False])
def test_discharge_waits_for_the_messages_that_wait(busy: Policed, way: str, fail: bool) -> None:
    queue = bind(busy, "q", "new.#")
    terminal, connection = publisher(busy, way), object()
    control = busy.world.open(to_client=False, coordinator=True, connection=connection)
    busy.world.send(control, (0, declare(), 0))
    txn_id = control.declared_ids[0]
    fragments = [(number, encoded(number, way), 0) for number in range(MANY)]
    busy.world.do(terminal.driver.receive_in, connection, txn_id, fragments)
    busy.world.send(control, (1, discharge(txn_id, fail=fail), 0))
    assert fail or 1 not in control.confirmed
    assert not queue.messages
    busy.world.read_all()
    assert 1 in control.confirmed
    assert queue.messages == (0 if fail else MANY)
