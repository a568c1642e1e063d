"""Tests of outcomes and settlement in both directions, with either side settling first."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
from proton import Delivery, Link, Message

from tests.clients.conftest import NewPeer, StartBroker
from tests.harness.clients.peers import Peer

SECOND = Link.RCV_SECOND


def told(deliveries: list[Any]) -> bool:
    return all(one.remote_state for one in deliveries)


def sender_that_settles_first(peer: Peer, address: str, credit: int = 0) -> Any:
    """Attach a sender that settles on the outcome, before the broker does, and return its link."""
    link = peer.session.sender(f"second-{address}")
    link.rcv_settle_mode = SECOND
    peer.attach(link, address)
    peer.wait(lambda: link.credit >= max(1, credit))
    return link


def test_the_broker_settles_second_where_a_sender_wants_that(peer: Peer) -> None:  # C57, C58, C59
    sender = sender_that_settles_first(peer, "q")
    assert sender.remote_rcv_settle_mode == SECOND
    deliveries = [peer.post(sender, Message(body=number, durable=True)) for number in range(3)]
    peer.wait(lambda: all(one.remote_state == Delivery.ACCEPTED for one in deliveries))
    peer.settle_down()
    assert not any(one.settled for one in deliveries), "the broker waits for the sender to settle"
    for one in deliveries:
        one.settle()
    assert [one.body for one in peer.take(peer.receiver("q", 3), 3)] == [0, 1, 2]


def test_credit_comes_back_with_the_settlement_of_both(start_broker: StartBroker, peer_at: NewPeer) -> None:  # C16
    peer = peer_at(start_broker(credit=2).port)
    sender = sender_that_settles_first(peer, "q", 2)
    for number in range(5):
        deliveries = [peer.post(sender, Message(body=number, durable=bool(number % 2))) for _ in range(2)]
        peer.wait(partial(told, deliveries))
        peer.settle_down()
        assert sender.credit == 0
        for one in deliveries:
            one.settle()
        peer.wait(lambda: sender.credit == 2)
        peer.settle_down()
        assert sender.credit == 2, "one for each message, and no more"


def test_a_rejection_is_told_before_it_is_settled(peer: Peer) -> None:
    sender = sender_that_settles_first(peer, "q")
    broken = peer.post(sender, b"\x00\x53\x70\xc0\x03\x01\x50")
    peer.wait(lambda: broken.remote_state == Delivery.REJECTED)
    assert not broken.settled
    broken.settle()
    peer.put(peer.sender("q"), ["goes on"])


def test_a_sender_may_settle_before_it_heard(peer: Peer) -> None:
    sender = sender_that_settles_first(peer, "q", 1000)
    for number in range(2500):
        peer.post(sender, Message(body=number, durable=True)).settle()
    received = peer.take(peer.receiver("q", 2500), 2500)
    assert [one.body for one in received] == list(range(2500))
    peer.wait(lambda: sender.credit == 1000)


@pytest.mark.parametrize("durable", [True, False])
def test_a_receiver_that_settles_second_hears_the_broker_first(peer: Peer, durable: bool) -> None:  # C58, C59
    """The receiver sends an unsettled outcome, the broker settles once it is durable, and then the receiver settles."""
    peer.put(peer.sender("q"), range(4), durable=durable)
    link = peer.session.receiver("second")
    link.rcv_settle_mode = SECOND
    peer.attach(link, "q")
    assert link.remote_rcv_settle_mode == SECOND
    link.flow(4)
    received = peer.take(link, 4)
    assert not any(one.delivery.settled for one in received)
    outcomes = (Delivery.ACCEPTED, Delivery.REJECTED, Delivery.RELEASED, Delivery.MODIFIED)
    for one, outcome in zip(received, outcomes, strict=True):
        one.delivery.update(outcome)
    peer.wait(lambda: all(one.delivery.settled for one in received), "the broker to settle")
    assert [one.delivery.remote_state for one in received] == list(outcomes)
    for one in received:
        one.delivery.settle()
    back = peer.take(peer.receiver("q", 4), 2)
    assert sorted(one.body for one in back) == [2, 3]


def test_a_receiver_that_settles_at_once_needs_no_answer(peer: Peer) -> None:  # C57
    peer.put(peer.sender("q"), range(3))
    receiver = peer.receiver("q", 3)
    for one in peer.take(receiver, 3):
        one.accept()
    peer.settle_down()
    assert not peer.drain(peer.receiver("q"), 3)
