"""Tests of delivery outcomes: their effect on a message, and on the header that its next receiver gets."""

from __future__ import annotations

import random
from itertools import count
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from proton import Delivery, Message

from tests.harness.clients.peers import Peer, Received

from .conftest import NewPeer

UNKNOWN = 0
addresses = count()


class Case(NamedTuple):
    state: int
    failed: bool
    counted: int
    """The number that the outcome adds to the delivery count."""


COMES_BACK = {
    "released": Case(Delivery.RELEASED, False, 0),
    "modified": Case(Delivery.MODIFIED, False, 0),
    "modified, failed": Case(Delivery.MODIFIED, True, 1),
    "settled without an outcome": Case(UNKNOWN, False, 0),
}
comes_back = pytest.mark.parametrize("case", COMES_BACK.values(), ids=COMES_BACK.keys())
kinds = pytest.mark.parametrize("durable", [True, False], ids=["durable", "transient"])
sizes = pytest.mark.parametrize("size", [10, 200_000])


def told(received: Received) -> tuple[int, bool]:
    return received.message.delivery_count, received.message.first_acquirer


@comes_back
@kinds
@sizes
def test_it_comes_back(peer: Peer, case: Case, durable: bool, size: int) -> None:
    body = b"x" * size
    peer.send(peer.sender("q"), Message(body=body, durable=durable, first_acquirer=True, delivery_count=3))
    receiver = peer.receiver("q", 1)
    (first,) = peer.take(receiver)
    assert told(first) == (3, True)  # as the sender set them
    first.settle(case.state, failed=case.failed)
    receiver.flow(1)
    (second,) = peer.take(receiver)
    assert told(second) == (3 + case.counted, False)
    assert second.body == body
    second.settle(Delivery.MODIFIED, failed=True)
    (third,) = peer.take(peer.receiver("q", 1))
    assert told(third) == (3 + case.counted + 1, False)
    third.accept()
    assert peer.drain(receiver, 10) == []


@pytest.mark.parametrize("state", [Delivery.ACCEPTED, Delivery.REJECTED], ids=["accepted", "rejected"])
@kinds
@sizes
def test_it_is_gone(new_peer: NewPeer, state: int, durable: bool, size: int) -> None:
    peer = new_peer()
    peer.put(peer.sender("q"), [b"x" * size] * 3, durable=durable)
    for received in peer.take(peer.receiver("q", 3), 3):
        received.settle(state)
    peer.close()
    other = new_peer()
    assert other.drain(other.receiver("q"), 10) == []


@pytest.mark.parametrize("failed", [True, False])
def test_undeliverable_here_means_there_only(peer: Peer, failed: bool) -> None:
    """The link never gets the message again; its later messages are not delayed, and other links may get this one."""
    peer.put(peer.sender("q"), range(5))
    picky = peer.receiver("q", 1)
    (first,) = peer.take(picky)
    first.settle(Delivery.MODIFIED, failed=failed, undeliverable=True)
    rest = peer.drain(picky, 10)
    assert [received.body for received in rest] == [1, 2, 3, 4]
    (again,) = peer.take(peer.receiver("q", 1))
    assert (again.body, told(again)) == (0, (int(failed), False))
    again.settle(Delivery.RELEASED)
    peer.settle_down()
    assert peer.drain(picky, 10) == []
    for received in rest:
        received.settle(Delivery.RELEASED)
    assert [received.body for received in peer.drain(peer.receiver("q"), 10)] == [0, 1, 2, 3, 4]


def test_undeliverable_everywhere_waits_for_somebody_new(peer: Peer) -> None:
    peer.put(peer.sender("q"), range(2))
    receivers = [peer.receiver("q") for _ in range(3)]
    for receiver in receivers:
        receiver.flow(1)
        (received,) = peer.take(receiver)
        assert received.body == 0
        received.settle(Delivery.MODIFIED, undeliverable=True)
    peer.settle_down()
    assert [received.body for receiver in receivers for received in peer.drain(receiver, 10)] == [1]
    assert [received.body for received in peer.drain(peer.receiver("q"), 10)] == [0]


@settings(max_examples=20)
@given(seed=st.integers(0, 2**32), number=st.integers(1, 30), taken=st.integers(0, 30))
def test_order_is_kept_whatever_comes_back(peer: Peer, seed: int, number: int, taken: int) -> None:
    """Messages that are released in any order, one by one or at once, return to their positions in the queue."""
    chance = random.Random(seed)
    address = f"q{next(addresses)}"
    peer.put(peer.sender(address), range(number), durable=chance.random() < 0.5)
    held = [received for _ in range(2) for received in peer.drain(peer.receiver(address), taken)]
    assert len(held) == min(number, taken * 2)
    chance.shuffle(held)
    kept = sorted(range(number))
    for received in held:
        if chance.random() < 0.2:
            received.accept()
            kept.remove(received.body)
        else:
            received.settle(Delivery.RELEASED)
        if chance.random() < 0.3:
            peer.settle_down()
    drained = peer.drain(peer.receiver(address), 100)
    assert [received.body for received in drained] == kept


def test_an_outcome_may_come_before_the_settlement(peer: Peer) -> None:
    """A receiver in mode `second` sends the outcome, and waits for the broker to settle."""
    peer.put(peer.sender("q"), range(4))
    receiver = peer.receiver("q", 4)
    states = [Delivery.ACCEPTED, Delivery.RELEASED, Delivery.REJECTED, Delivery.MODIFIED]
    received = peer.take(receiver, 4)
    for message, state in zip(received, states, strict=True):
        message.delivery.update(state)
    peer.wait(lambda: all(message.delivery.settled for message in received), "the broker to settle")
    assert [message.delivery.remote_state for message in received] == states
    assert sorted(message.body for message in peer.drain(receiver, 10)) == [1, 3]
