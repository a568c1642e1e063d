"""Tests of credit and drain: a receiver gets as many messages as it has credit for, or all that are available."""

from __future__ import annotations

from itertools import count
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from proton import Delivery, Message

from cairnmq.amqp.links.events import Limits
from tests.harness.clients.peers import Peer

from .conftest import NewPeer, StartBroker

addresses = count()
KINDS: dict[str, dict[str, Any]] = {"unsettled": {}, "settled": {"settled": True}, "browsing": {"copy": True}}
kinds = pytest.mark.parametrize("options", KINDS.values(), ids=KINDS.keys())
either = pytest.mark.parametrize("durable", [True, False], ids=["durable", "transient"])
grants = st.lists(st.integers(0, 12), max_size=8)
fast = settings(max_examples=25)


@kinds
@fast
@given(present=st.integers(0, 40), granted=grants, durable=st.booleans())
def test_credit(peer: Peer, options: dict[str, Any], present: int, granted: list[int], durable: bool) -> None:
    """After each grant, the receiver has as many messages as were granted in total, or all messages."""
    address = f"q{next(addresses)}"
    sender, receiver = peer.sender(address), peer.receiver(address, **options)
    peer.put(sender, range(present), durable=durable)
    seen: list[int] = []
    for number in range(len(granted)):
        receiver.flow(granted[number])
        expected = min(present, sum(granted[: number + 1]))
        seen += [received.body for received in peer.take(receiver, expected - len(seen))]
        peer.settle_down()
        assert peer.arrived(receiver) == []
    assert seen == list(range(len(seen)))
    assert receiver.credit == sum(granted) - len(seen)
    peer.detach(sender)
    peer.detach(receiver)


@kinds
@fast
@given(
    steps=st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6), st.booleans()), max_size=6), durable=st.booleans()
)
def test_drain(peer: Peer, options: dict[str, Any], steps: list[tuple[int, int, bool]], durable: bool) -> None:
    """A receiver gets as many messages as its credit permits, and a drain uses or returns all of its credit."""
    address = f"q{next(addresses)}"
    sender, receiver = peer.sender(address), peer.receiver(address, **options)
    put = seen = credit = 0
    for more, granted, drained in steps:
        peer.put(sender, range(put, put + more), durable=durable)
        put += more
        credit += granted
        if drained:
            received = peer.drain(receiver, granted)
        else:
            receiver.flow(granted)
            received = peer.take(receiver, min(credit, put - seen))
        expected = min(credit, put - seen)
        assert [message.body for message in received] == list(range(seen, seen + expected))
        seen += expected
        credit = 0 if drained else credit - expected
        assert receiver.credit == credit
    peer.settle_down()
    assert peer.arrived(receiver) == []
    peer.detach(sender)
    peer.detach(receiver)


@kinds
@either
def test_draining_what_takes_long_to_send(peer: Peer, options: dict[str, Any], durable: bool) -> None:
    """The credit is returned after the messages, even if they take long to send."""
    body = b"x" * 300_000
    peer.put(peer.sender("q"), [body] * 20, durable=durable)
    receiver = peer.receiver("q", **options)
    assert len(peer.drain(receiver, 50)) == 20
    assert receiver.credit == 0


def test_a_drain_that_is_taken_back(new_peer: NewPeer) -> None:
    """A client that cancels a drain before the broker has completed it gets as many messages as it has credit for."""
    peer = new_peer(max_frame_bytes=10_000)
    sender = peer.sender("q")
    peer.put(sender, [b"x" * 1_000_000] * 20)
    receiver = peer.receiver("q", session=peer.new_session(window_bytes=50_000))
    receiver.drain(30)
    peer.stall()  # the broker can't send all messages, so it can't return the rest of the credit
    receiver.drain_mode = False
    receiver.flow(10)
    peer.stall()
    peer.take(receiver, 20)
    peer.settle_down()
    assert receiver.credit == 20
    peer.put(sender, range(50))
    assert [message.body for message in peer.take(receiver, 20)] == list(range(20))
    peer.settle_down()
    assert peer.arrived(receiver) == []


def test_credit_taken_back(peer: Peer) -> None:
    """A client that drains its credit gets no further messages."""
    sender, receiver = peer.sender("q"), peer.receiver("q", 100)
    peer.put(sender, range(3))
    peer.take(receiver, 3)
    peer.drain(receiver)
    peer.put(sender, range(3))
    peer.settle_down()
    assert peer.arrived(receiver) == []


@pytest.mark.parametrize("credit", [1, 10])
@either
def test_a_sender_gets_the_credit_it_should(
    start_broker: StartBroker, peer_at: NewPeer, credit: int, durable: bool
) -> None:
    """The credit of a sender is the configured one less its unsettled messages, and settlement replenishes it."""
    peer = peer_at(start_broker(credit=credit).port)
    sender = peer.sender("q")
    assert sender.credit == credit
    for round_number in range(5):
        deliveries = [sender.send(Message(body=number, durable=durable)) for number in range(credit)]
        peer.wait(lambda deliveries=deliveries: all(d.settled for d in deliveries))  # type: ignore[misc]
        peer.wait(lambda: sender.credit == credit, f"the credit to come back in round {round_number}")
        peer.settle_down()
        assert sender.credit == credit


def test_credit_comes_back_for_settled_rejected_and_aborted_messages(
    start_broker: StartBroker, peer_at: NewPeer
) -> None:
    peer = peer_at(start_broker(credit=4).port)
    sender = peer.sender("q")
    for _ in range(3):
        refused = [peer.post(sender, b"this is no AMQP message") for _ in range(2)]
        peer.post(sender, Message(body=1), settled=True)
        aborted = sender.delivery(sender.delivery_tag())
        sender.stream(b"x" * 100_000)
        peer.wait(lambda: aborted.pending == 0)  # noqa: B023  called at once
        aborted.abort()
        peer.wait(lambda: all(delivery.settled for delivery in refused), "outcomes")  # noqa: B023
        peer.wait(lambda: sender.credit == 4, "the credit to come back")
        assert [delivery.remote_state for delivery in refused] == [Delivery.REJECTED] * 2
        assert refused[0].remote.condition.name == "amqp:decode-error"


def test_the_frame_size_is_kept(start_broker: StartBroker, peer_at: NewPeer) -> None:
    peer = peer_at(start_broker(limits=Limits(max_frame_bytes=1024)).port, max_frame_bytes=700)
    assert peer.transport.remote_max_frame_size == 1024
    body = bytes(range(256)) * 100
    peer.put(peer.sender("q"), [body] * 3)
    assert [message.body for message in peer.take(peer.receiver("q", 3), 3)] == [body] * 3
