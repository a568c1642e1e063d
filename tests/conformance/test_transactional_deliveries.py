"""Tests of deliveries in transactions: each state counts that a client sends, and each error is that of the plain case.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from proton import Message

from cairnmq.amqp.codec import encode
from cairnmq.amqp.codec.types import Array, Described, Ubyte, Uint, Ulong
from cairnmq.amqp.links.events import Limits
from cairnmq.broker_plugin.options import BrokerOptions, RouterOptions, StoreOptions
from cairnmq.broker_plugin.run import RunningBroker
from tests.harness.router import raw
from tests.harness.router.raw import Raw, attach, begin, frame, opening, symbols, transfer

ACCEPTED, REJECTED, DECLARE, DISCHARGE, STATE = 0x24, 0x25, 0x31, 0x32, 0x34


@pytest.fixture(scope="module")
def broker() -> Iterator[RunningBroker]:
    router = RouterOptions(port=0, limits=Limits())
    running = RunningBroker(BrokerOptions("", StoreOptions(), router, ("known-*",), store_kind="memory"))
    yield running
    failure = running.failure
    running.stop()
    assert failure is None


def client(port: int, *links: bytes) -> Raw:
    """Return a connection with a link to the coordinator on handle 0, and *links* from handle 1 on."""
    ends = False, Ubyte(2), Ubyte(0), Described(Ulong(raw.SOURCE), []), Described(Ulong(0x30), []), None, None, Uint(0)
    return Raw(port, opening(), begin(), frame(raw.ATTACH, "coordinator", Uint(0), *ends), *links)


def ask(one: Raw, number: int, code: int, *fields: Any) -> Any:
    """Send a request to the coordinator; return its outcome."""
    one.say(transfer(0, number, b"\x00\x53\x77" + encode.value(Described(Ulong(code), list(fields)))))
    while int((found := one.until("disposition").fields)[1]) != number:
        pass
    return found[4]


def in_transaction(txn_id: bytes, outcome: int | None = None) -> Described:
    return Described(Ulong(STATE), [txn_id, *([] if outcome is None else [Described(Ulong(outcome), [])])])


@pytest.mark.parametrize("plain", [False, True], ids=["two transactions", "outside of the transaction"])
def test_delivery_accepted_twice_fails_its_transactions(broker: RunningBroker, plain: bool) -> None:  # P6
    """4.4.2: an outcome in a transaction, and another one in the same read, do not both count."""
    links = attach("to", 1, "known-q"), attach("from", 2, "known-q", receives=True)
    with client(broker.port, *links) as one:
        for _ in range(2):
            one.until("flow")  # the credit of the coordinator and of the queue, which is created meanwhile
        first, second = [bytes(ask(one, number, DECLARE).value[0]) for number in range(2)]
        one.say(transfer(1, 2, bytes(Message(body="m").encode())))
        one.until("disposition")
        one.say(frame(raw.FLOW, Uint(0), Uint(2048), Uint(3), Uint(2048), Uint(2), Uint(0), Uint(1)))
        delivery = Uint(int(one.until("transfer").fields[1]))
        later = Described(Ulong(ACCEPTED), []) if plain else in_transaction(second, ACCEPTED)
        one.say(*[
            frame(raw.DISPOSITION, True, delivery, delivery, False, state)
            for state in (in_transaction(first, ACCEPTED), later)
        ])
        assert ask(one, 3, DISCHARGE, first, False).descriptor == REJECTED
        if not plain:
            assert ask(one, 4, DISCHARGE, second, False).descriptor == REJECTED


@pytest.mark.parametrize("outcomes", [None, symbols("amqp:accepted:list")], ids=["any", "accepted only"])
def test_unroutable_message_is_refused_as_without_a_transaction(
    broker: RunningBroker, outcomes: Array | None
) -> None:  # C5
    """Anonymous Terminus 2.2.2: the error has the delivery-tag; without the outcome `rejected` the link is detached."""
    source, target = Described(Ulong(raw.SOURCE), ["here", *[None] * 8, outcomes]), Described(Ulong(raw.TARGET), [])
    relay = frame(raw.ATTACH, "relay", Uint(1), False, Ubyte(2), Ubyte(0), source, target, None, None, Uint(0))
    with client(broker.port, relay) as one:
        txn_id = bytes(ask(one, 0, DECLARE).value[0])
        message = bytes(Message(address="nowhere", body="x").encode())
        fields = Uint(1), Uint(1), b"tag", Uint(0), False, False, None, in_transaction(txn_id)
        one.say(frame(raw.TRANSFER, *fields, payload=message))
        if outcomes is None:
            state = one.until("disposition").fields[4]
            assert state.descriptor == STATE
            error = state.value[1].value[0]
        else:
            error = one.until("detach").fields[2]
        assert error.value[0] == "amqp:not-found"
        assert {str(key): value for key, value in error.value[2].items()} == {"delivery-tag": b"tag"}
        assert ask(one, 2, DISCHARGE, txn_id, False).descriptor == REJECTED
