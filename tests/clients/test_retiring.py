"""Tests of retiring in transactions (AMQP 1.0 part 4): outcomes take effect with the commit, and not without it."""

from __future__ import annotations

import pytest
from proton import Delivery, Message, symbol

from tests.harness.clients.peers import Peer
from tests.harness.clients.transacting import (
    ROLLBACK,
    UNKNOWN_ID,
    Control,
    bodies,
    kinds,
    post,
    provisional,
    retire,
    send,
    settled_or_not,
    taken,
)  # fmt: skip

from .conftest import NewPeer


@kinds
@settled_or_not
@pytest.mark.parametrize("state", [Delivery.ACCEPTED, Delivery.REJECTED])
def test_what_was_taken_is_gone_with_the_commit(
    peer: Peer, new_peer: NewPeer, durable: bool, settled: bool, state: int
) -> None:
    peer.put(peer.sender("q"), range(5), durable=durable)
    control, receiver = Control(peer), peer.receiver("q", 3)
    txn_id = control.declare()
    deliveries = [retire(one, txn_id, state, settled=settled) for one in peer.take(receiver, 3)]
    looking = new_peer()
    assert bodies(looking) == [3, 4]
    control.commit(txn_id)
    if not settled:
        assert all(delivery.settled and delivery.remote_state == state for delivery in deliveries)
        for delivery in deliveries:
            delivery.settle()
    peer.detach(receiver)
    assert bodies(looking) == [3, 4]


@kinds
def test_what_was_settled_comes_back_with_a_rollback_as_a_failed_delivery(peer: Peer, durable: bool) -> None:
    peer.put(peer.sender("q"), range(5), durable=durable)
    control, receiver = Control(peer), peer.receiver("q", 3)
    txn_id = control.declare()
    for one in peer.take(receiver, 3):
        retire(one, txn_id, settled=True)
    control.roll_back(txn_id)
    again = taken(peer)
    assert [one.body for one in again] == [0, 1, 2, 3, 4]
    assert [one.message.delivery_count for one in again] == [1, 1, 1, 0, 0]


@kinds
def test_what_was_not_settled_is_still_the_receivers_after_a_rollback(
    peer: Peer, new_peer: NewPeer, durable: bool
) -> None:
    """The receiver may then send another outcome, in another transaction or in none."""
    peer.put(peer.sender("q"), range(4), durable=durable)
    control, receiver = Control(peer), peer.receiver("q", 4)
    received = peer.take(receiver, 4)
    first = control.declare()
    for one in received:
        retire(one, first)
    control.roll_back(first)
    looking = new_peer()
    assert bodies(looking) == []
    assert not any(one.delivery.settled for one in received)
    second = control.declare()
    retire(received[0], second)
    received[1].accept()
    received[2].settle(Delivery.RELEASED)
    control.commit(second)
    assert received[0].delivery.settled
    again = taken(looking)
    assert [(one.body, one.message.delivery_count) for one in again] == [(2, 0)]
    peer.detach(receiver)  # the last message got no new outcome
    assert bodies(looking) == [3]


def test_released_and_modified_take_effect_with_the_commit(peer: Peer, new_peer: NewPeer) -> None:
    peer.put(peer.sender("q"), range(4))
    control, receiver = Control(peer), peer.receiver("q", 4)
    txn_id = control.declare()
    zero, one, two, three = peer.take(receiver, 4)
    retire(zero, txn_id, Delivery.RELEASED)
    retire(one, txn_id, Delivery.MODIFIED, [True])
    retire(two, txn_id, Delivery.MODIFIED, [True, True], settled=True)
    retire(three, txn_id, Delivery.MODIFIED, [False, False, {symbol("x"): "y" * 300}], settled=True)
    looking = new_peer()
    assert bodies(looking) == []
    control.commit(txn_id)
    assert [(one.body, one.message.delivery_count) for one in taken(looking)] == [(0, 0), (1, 1), (2, 1), (3, 0)]


def test_an_outcome_may_be_settled_later(peer: Peer) -> None:
    peer.put(peer.sender("q"), range(3))
    control, receiver = Control(peer), peer.receiver("q", 3)
    kept, lost = control.declare(), control.declare()
    zero, one, two = peer.take(receiver, 3)
    for received, txn_id in ((zero, kept), (one, lost), (two, lost)):
        retire(received, txn_id)
    peer.settle_down()
    zero.delivery.settle()
    one.delivery.settle()
    control.commit(kept)
    control.roll_back(lost)
    peer.settle_down()
    assert bodies(peer) == [1]
    two.accept()
    peer.settle_down()
    assert bodies(peer) == [1]


def test_another_outcome_for_the_same_message_rolls_the_transaction_back(peer: Peer) -> None:
    for number, (state, again) in enumerate(((Delivery.REJECTED, True), (Delivery.ACCEPTED, False))):
        address = f"q{number}"
        peer.put(peer.sender(address), range(2))
        control, receiver = Control(peer), peer.receiver(address, 2)
        txn_id, other = control.declare(), control.declare()
        zero, one = peer.take(receiver, 2)
        retire(zero, txn_id)
        retire(one, txn_id)
        peer.settle_down()
        if again:
            retire(one, txn_id, state)
        else:
            one.accept()
        peer.settle_down()
        assert control.discharge(txn_id) == ROLLBACK
        control.commit(other)
        peer.detach(receiver)
        assert bodies(peer, address) == ([0, 1] if again else [0])


def test_a_message_in_two_transactions_rolls_both_back(peer: Peer) -> None:
    peer.put(peer.sender("q"), range(1))
    control, receiver = Control(peer), peer.receiver("q", 1)
    first, second = control.declare(), control.declare()
    (received,) = peer.take(receiver)
    retire(received, first)
    peer.settle_down()
    retire(received, second)
    assert [control.discharge(first), control.discharge(second)] == [ROLLBACK, ROLLBACK]
    received.accept()
    peer.settle_down()
    peer.detach(receiver)
    assert bodies(peer) == []


@settled_or_not
def test_posting_in_a_transaction_without_a_coordinator_is_refused(
    peer: Peer, new_peer: NewPeer, settled: bool
) -> None:
    """Unsettled messages are rejected, and others on the link are accepted; presettled ones close the link."""
    sender = peer.sender("q")
    before = peer.post(sender, Message(body="before", durable=True))
    inside = [Message(body=body, durable=True) for body in ("a", "b" * 200_000)]
    refused = [post(peer, sender, b"none", message, settled=settled) for message in inside]
    if settled:
        assert peer.refusal(sender) == UNKNOWN_ID
        assert bodies(new_peer()) in ([], ["before"])
        return
    behind = peer.post(sender, Message(body="behind", durable=True))
    peer.wait(lambda: behind.settled and all(one.settled for one in refused), "outcomes")
    assert [provisional(one) for one in refused] == [(b"none", Delivery.REJECTED, UNKNOWN_ID)] * 2
    assert before.remote_state == behind.remote_state == Delivery.ACCEPTED
    assert bodies(peer) == ["before", "behind"]


def test_retiring_in_a_transaction_without_a_coordinator_is_refused(peer: Peer) -> None:
    peer.put(peer.sender("q"), ["m"])
    receiver = peer.receiver("q", 1)
    retire(peer.take(receiver)[0], b"none")
    assert peer.refusal(receiver) == UNKNOWN_ID
    assert bodies(peer) == ["m"]


def test_retiring_in_an_unknown_transaction(peer: Peer) -> None:
    """A settled message is requeued; for an unsettled one, closing the link is the only way to report the error."""
    peer.put(peer.sender("q"), range(2))
    receiver = peer.receiver("q", 2)
    Control(peer)
    zero, one = peer.take(receiver, 2)
    retire(zero, b"nobody's", settled=True)
    peer.settle_down()
    assert bodies(peer) == [0]
    retire(one, b"nobody's")
    assert peer.refusal(receiver) == UNKNOWN_ID
    assert bodies(peer) == [0, 1]


def test_a_link_that_goes_leaves_its_work_in_the_transaction(peer: Peer) -> None:
    peer.put(peer.sender("q"), range(4))
    control = Control(peer)
    kept, lost = control.declare(), control.declare()
    receiver, sender = peer.receiver("q", 4), peer.sender("q")
    received = peer.take(receiver, 4)
    for number, one in enumerate(received):
        retire(one, kept if number < 2 else lost, settled=bool(number % 2))
    send(peer, sender, kept, "put")
    peer.detach(receiver)
    peer.detach(sender)
    assert bodies(peer) == []
    control.commit(kept)
    control.roll_back(lost)
    assert bodies(peer) == [2, 3, "put"]


def test_moving_from_queue_to_queue(peer: Peer) -> None:
    peer.put(peer.sender("from"), range(100))
    control, receiver, sender = Control(peer), peer.receiver("from"), peer.sender("to")
    for batch in range(10):
        receiver.flow(10)
        txn_id = control.declare()
        for one in peer.take(receiver, 10):
            post(peer, sender, txn_id, Message(body=one.body, durable=True))
            retire(one, txn_id, settled=one.body % 2 == 0)
        if batch % 2:
            control.roll_back(txn_id)
            for one in peer.arrived(receiver):
                one.settle(Delivery.RELEASED)
        else:
            control.commit(txn_id)
    peer.detach(receiver)
    moved, left = bodies(peer, "to"), bodies(peer, "from")
    assert sorted(moved + left) == list(range(100))
    assert left == sorted(left)


def test_browsers_settle_their_copies_at_once(peer: Peer) -> None:
    peer.put(peer.sender("q"), range(2))
    control, browser = Control(peer), peer.receiver("q", 2, copy=True)
    txn_id = control.declare()
    zero, one = peer.take(browser, 2)
    retire(zero, txn_id)
    retire(one, txn_id, settled=True)
    peer.wait(lambda: zero.delivery.settled)
    control.commit(txn_id)
    assert bodies(peer) == [0, 1]
