"""A transaction that begins while a link is held contains all its messages on that link, or is refused."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from cairnmq.amqp.codec.decode import read_items
from cairnmq.amqp.codec.primitives import descriptor
from cairnmq.broker_plugin.run import RunningBroker
from tests.harness.security.quotas import RULES, attach_sender, durable, send, wait_until
from tests.harness.security.wire import (
    ATTACH,
    DETACH,
    DISPOSITION,
    FALSE,
    NULL,
    TRANSFER,
    TRUE,
    Wire,
    attach,
    binary,
    flow,
    message,
    performative,
    source,
    string,
    transfer,
    uint,
    wired,
)

from .conftest import StartBroker

IN_TRANSACTION = 3
DECLARED = b"\x00\x53\x33"
ACCEPTED = b"\x00\x53\x24"
QUEUES, BATCH = 300, 200
LINKS, MANY = 20, 2400


@pytest.fixture
def held_for_quota(start_broker: StartBroker) -> tuple[RunningBroker, str]:
    limited = RULES + '[[quotas]]\nwho = ["anonymous"]\nmax-durable-bytes = 20_000\n'
    return start_broker(acl=limited), "q"


@pytest.fixture
def held_for_routing(start_broker: StartBroker) -> Iterator[tuple[RunningBroker, str]]:
    """Provide a broker with an address of many queues, which holds a link while messages are routed step by step."""
    running = start_broker(acl=RULES)
    with wired(running.port) as subscribers:
        subscribers.open()
        for number in range(QUEUES):
            subscribers.attach(f"subscription {number}", number, "amq.topic/news", sends=False)
        yield running, "amq.topic/news"


def transfer_in(txn_id: bytes, number: int, content: bytes) -> bytes:
    state = performative(0x34, binary(txn_id))
    tag = binary(number.to_bytes(4))
    return performative(TRANSFER, uint(0), uint(number), tag, uint(0), FALSE, FALSE, NULL, state) + content


def request(code: int, *fields: bytes) -> bytes:
    """Return the content of a message to the coordinator."""
    return b"\x00\x53\x77" + performative(code, *fields)


def answer_to(wire: Wire, number: int) -> bytes:
    """Return the fields, including the state, of the disposition of delivery *number*."""
    while True:
        _, body = wire.until(DISPOSITION)
        fields = read_items(body, descriptor(body, 0)[1])
        first, last = fields[1], fields[2] if len(fields) > 2 and fields[2] is not None else fields[1]
        assert isinstance(first, int)
        assert isinstance(last, int)
        if first <= number <= last:
            return body[descriptor(body, 0)[1] :]


def attach_coordinator(handle: int) -> bytes:
    ends = source("me"), performative(0x30)
    return performative(ATTACH, string("control"), uint(handle), FALSE, NULL, NULL, *ends, NULL, NULL, uint(0))


def commit_behind(wire: Wire, sent: int) -> bool:
    """Send messages in a transaction after *sent* messages and commit; return whether the commit is accepted."""
    wire.say(attach_coordinator(1))
    wire.until(ATTACH)
    wire.say(transfer(sent, request(0x31), handle=1))
    state = answer_to(wire, sent)
    assert DECLARED in state
    listed = state[state.index(DECLARED) :]
    at = listed.index(b"\xa0")
    txn_id = listed[at + 2 : at + 2 + listed[at + 1]]
    numbers = range(sent + 1, sent + 1 + IN_TRANSACTION)
    content = message("in the transaction", durable=True)
    discharge = transfer(numbers.stop, request(0x32, binary(txn_id), FALSE), handle=1)
    wire.say(*[transfer_in(txn_id, number, content) for number in numbers], discharge)
    return ACCEPTED in answer_to(wire, numbers.stop)


def test_commit_behind_a_link_held_for_a_quota_is_refused(held_for_quota: tuple[RunningBroker, str]) -> None:
    """A transaction does not wait for quota: the commit is refused, and no message of the transaction is delivered."""
    running, address = held_for_quota
    with wired(running.port) as wire, wired(running.port) as taker:
        wire.open()
        attach_sender(wire, address)
        wire.credit()
        send(wire, range(25), durable())
        wait_until(lambda: running._broker.core.users.by_name["anonymous"].is_blocked)
        assert not commit_behind(wire, 25)
        taker.open().say(attach("take", 0, address, sends=False), flow(0, 1000))
        for _ in range(25):
            assert b"in the transaction" not in taker.until(TRANSFER)[1]


@pytest.mark.parametrize("way", ["coordinator", "coordinator later", "detaching"])
def test_connection_is_not_read_while_its_messages_wait_to_be_routed(
    held_for_routing: tuple[RunningBroker, str], way: str
) -> None:
    """Unrouted messages wait in socket buffers, except for the messages of one read."""
    running, address = held_for_routing
    content = message("x" * 1000)
    for listener in running._router._listeners:  # else the kernel's buffers grow to hold all messages
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 64 << 10)
    with wired(running.port) as wire:
        wire.sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 64 << 10)
        wire.open()
        if way == "coordinator":
            wire.say(attach_coordinator(LINKS))
        for handle in range(LINKS):
            wire.say(attach(f"send {handle}", handle, address, sends=True))
        for number in range(MANY):
            handle = number % LINKS
            if way == "coordinator later" and number == LINKS:
                wire.say(attach_coordinator(LINKS))
            if way == "detaching" and number >= LINKS:
                link = attach(f"send {handle} {number}", handle, address, sends=True)
                wire.say(performative(DETACH, uint(handle), TRUE), link)
            wire.say(transfer(number, content, handle=handle))
        routed = running._broker.nodes.exchanges["amq.topic"].routed
        assert routed > MANY // 5


def test_commit_behind_a_link_held_for_routing_has_its_messages(held_for_routing: tuple[RunningBroker, str]) -> None:
    running, address = held_for_routing
    with wired(running.port) as wire, wired(running.port) as taker:
        taker.open().attach("take", 0, address, sends=False)
        taker.say(flow(0, 2 * BATCH))
        wire.open()
        attach_sender(wire, address)
        wire.credit()
        send(wire, range(BATCH), message())
        assert commit_behind(wire, BATCH)
        for _ in range(BATCH):
            taker.until(TRANSFER)
        for _ in range(IN_TRANSACTION):
            assert b"in the transaction" in taker.until(TRANSFER)[1]
