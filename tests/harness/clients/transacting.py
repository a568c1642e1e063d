"""Transactions of a `Peer`, frame by frame."""

from __future__ import annotations

from typing import Any

import pytest
from cproton_ffi import lib
from proton import Delivery, Described, Message, Terminus, ulong

from tests.harness.clients.peers import Peer, Received

DECLARED = 0x33
TRANSACTIONAL = 0x34
ROLLBACK = "amqp:transaction:rollback"
UNKNOWN_ID = "amqp:transaction:unknown-id"
TIMEOUT = "amqp:transaction:timeout"

kinds = pytest.mark.parametrize("durable", [True, False], ids=["durable", "transient"])
sizes = pytest.mark.parametrize("size", [10, 200_000, 2_000_000])
settled_or_not = pytest.mark.parametrize("settled", [False, True], ids=["unsettled", "settled"])


class Control:
    """A link to the coordinator."""

    def __init__(self, peer: Peer, session: Any = None) -> None:
        self.peer = peer
        self.link = (session or peer.session).sender(f"control-{id(self)}")
        self.link.target.type = Terminus.COORDINATOR
        peer.attach(self.link, None)
        peer.wait(lambda: self.link.credit > 0, "credit for requests")

    def ask(self, descriptor: int, *fields: Any) -> Any:
        """Send a request and wait for its outcome."""
        delivery = self.send(descriptor, *fields)
        self.peer.wait(lambda: delivery.settled, "an answer to a request")
        return delivery

    def send(self, descriptor: int, *fields: Any) -> Any:
        return self.peer.post(self.link, Message(body=Described(ulong(descriptor), [*fields])))

    def declare(self, global_id: Any = None) -> bytes:
        delivery = self.ask(0x31, global_id)
        assert delivery.remote_state == DECLARED, delivery.remote.condition
        return bytes(delivery.remote.data[0])

    def discharge(self, txn_id: bytes, *, fail: bool = False) -> str:
        """Discharge the transaction; return the name of the error, empty on success."""
        return outcome_of(self.ask(0x32, txn_id, fail))

    def commit(self, txn_id: bytes) -> None:
        assert self.discharge(txn_id) == ""

    def roll_back(self, txn_id: bytes) -> None:
        assert self.discharge(txn_id, fail=True) == ""


def outcome_of(delivery: Any) -> str:
    """Return the name of the error of a settled delivery, empty if it was accepted."""
    if delivery.remote_state == Delivery.REJECTED:
        return str(delivery.remote.condition.name)
    assert delivery.remote_state == Delivery.ACCEPTED, delivery.remote_state
    return ""


def post(peer: Peer, link: Any, txn_id: bytes, message: Any, *, settled: bool = False) -> Any:
    """Send a message in a transaction without waiting for its outcome."""
    delivery = peer.post(link, message)
    delivery.local.data = [txn_id]
    delivery.update(TRANSACTIONAL)
    if settled:
        delivery.settle()
    return delivery


def send(peer: Peer, link: Any, txn_id: bytes, *bodies: Any, durable: bool = True) -> list[Any]:
    """Send messages in a transaction, and wait for their provisional outcomes."""
    deliveries = [post(peer, link, txn_id, Message(body=body, durable=durable)) for body in bodies]
    peer.wait(lambda: all(delivery.settled for delivery in deliveries), "provisional outcomes")
    return deliveries


def provisional(delivery: Any) -> tuple[bytes, int, str]:
    """Return the transaction, the provisional outcome and the name of its error, of a posted delivery."""
    assert delivery.remote_state == TRANSACTIONAL, delivery.remote_state
    txn_id, outcome = delivery.remote.data
    error = outcome.value[0] if outcome.value else None
    return bytes(txn_id), int(outcome.descriptor), str(error.value[0]) if error is not None else ""


def retire(
    received: Received, txn_id: bytes, state: int = Delivery.ACCEPTED, fields: Any = (), *, settled: bool = False
) -> Any:
    """Send the outcome that a message gets when the transaction commits."""
    delivery = received.delivery
    lib.pn_data_clear(lib.pn_disposition_data(lib.pn_delivery_local(delivery._impl)))  # clear the outcome sent before
    delivery.local.data = [txn_id, Described(ulong(state), [*fields])]
    delivery.update(TRANSACTIONAL)
    if settled:
        delivery.settle()
    return delivery


def bodies(peer: Peer, address: str = "q") -> list[Any]:
    """Return the bodies of all messages on a queue without dequeuing them."""
    receiver = peer.receiver(address)
    received = peer.drain(receiver, 1000)
    peer.detach(receiver)
    return [one.body for one in received]


def taken(peer: Peer, address: str = "q") -> list[Any]:
    """Dequeue all messages of a queue, and return them."""
    receiver = peer.receiver(address)
    received = peer.drain(receiver, 1000)
    for one in received:
        one.accept()
    peer.settle_down()
    peer.detach(receiver)
    return received
