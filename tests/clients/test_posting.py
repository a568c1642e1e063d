"""Tests of posting in transactions (AMQP 1.0 part 4): messages are on queues after the commit, and not before."""

from __future__ import annotations

from proton import Delivery, Message

from tests.harness.clients.peers import Peer
from tests.harness.clients.transacting import (
    ROLLBACK,
    TRANSACTIONAL,
    UNKNOWN_ID,
    Control,
    bodies,
    kinds,
    post,
    provisional,
    send,
    sizes,
)  # fmt: skip

from .conftest import NewPeer, StartBroker


@kinds
@sizes
def test_what_was_posted_is_there_with_the_commit(peer: Peer, new_peer: NewPeer, durable: bool, size: int) -> None:
    looking = new_peer()
    control, sender = Control(peer), peer.sender("q")
    txn_id = control.declare()
    messages = [bytes([number]) * size for number in range(5)]
    for delivery in send(peer, sender, txn_id, *messages, durable=durable):
        assert provisional(delivery) == (txn_id, Delivery.ACCEPTED, "")
    assert bodies(looking) == []
    control.commit(txn_id)
    assert bodies(looking) == messages
    assert bodies(looking) == messages


@kinds
@sizes
def test_nothing_is_left_of_what_is_rolled_back(peer: Peer, durable: bool, size: int) -> None:
    control, sender = Control(peer), peer.sender("q")
    txn_id = control.declare()
    send(peer, sender, txn_id, *[b"x" * size] * 5, durable=durable)
    control.roll_back(txn_id)
    assert bodies(peer) == []
    assert control.discharge(txn_id) == UNKNOWN_ID


def test_messages_keep_their_order_whatever_they_are(peer: Peer) -> None:
    control, sender = Control(peer), peer.sender("q")
    txn_id = control.declare()
    sizes = [10, 200_000, 20, 300_000, 30, 1_500_000, 40, 50] * 3
    for number, size in enumerate(sizes):
        durable = number % 3 > 0
        post(peer, sender, txn_id, Message(body=number.to_bytes(2) + bytes(size), durable=durable))
    peer.put(peer.sender("q"), ["outside"])
    control.commit(txn_id)
    outside, *inside = bodies(peer)
    assert outside == "outside"
    assert [(int.from_bytes(body[:2]), len(body) - 2) for body in inside] == list(enumerate(sizes))


def test_several_transactions_at_a_time_on_several_sessions_and_queues(peer: Peer) -> None:
    """Messages are in the order of commits; each link alternates between transactions and no transaction."""
    control = Control(peer)
    first, second = control.declare(), control.declare()
    senders = [peer.sender(name, session=peer.new_session()) for name in ("a", "b")]
    for number in range(3):
        for sender in senders:
            for txn_id, name in ((first, "first"), (second, "second")):
                post(peer, sender, txn_id, Message(body=f"{name} {number}", durable=number != 1))
            peer.post(sender, Message(body=f"free {number}", durable=True))
    control.commit(second)
    control.commit(first)
    expected = [f"{name} {number}" for name in ("free", "second", "first") for number in range(3)]
    assert bodies(peer, "a") == bodies(peer, "b") == expected


@kinds
@sizes
def test_presettled_messages_are_in_the_transaction_too(peer: Peer, durable: bool, size: int) -> None:
    control, sender = Control(peer), peer.sender("q")
    kept, lost = control.declare(), control.declare()
    for txn_id in (kept, lost):
        for number in range(3):
            body = bytes([number]) * size
            post(peer, sender, txn_id, Message(body=body, durable=durable), settled=True)
    control.roll_back(lost)
    assert bodies(peer) == []
    control.commit(kept)
    assert bodies(peer) == [bytes([number]) * size for number in range(3)]


def test_the_anonymous_relay_is_waited_for(peer: Peer) -> None:
    """The queues are created while the discharge is already in progress."""
    control, sender = Control(peer), peer.sender(None)
    txn_id = control.declare()
    for number in range(9):
        post(peer, sender, txn_id, Message(address=f"fresh-{number % 3}", body=number, durable=True))
    control.commit(txn_id)
    for number in range(3):
        assert bodies(peer, f"fresh-{number}") == [number, number + 3, number + 6]


def test_a_message_that_finds_no_queue_keeps_its_transaction_from_being_committed(
    start_broker: StartBroker, peer_at: NewPeer
) -> None:
    peer = peer_at(start_broker(auto_create=("good",)).port)
    control, sender = Control(peer), peer.sender(None)
    txn_id = control.declare()
    good, bad = (post(peer, sender, txn_id, Message(address=name, body="x", durable=True)) for name in ("good", "bad"))
    peer.wait(lambda: good.settled and bad.settled)
    assert provisional(good)[1] == Delivery.ACCEPTED
    assert provisional(bad)[1:] == (Delivery.REJECTED, "amqp:not-found")
    late = post(peer, sender, txn_id, Message(address="good", body="x", durable=True))
    peer.wait(lambda: late.settled)
    assert provisional(late)[1:] == (Delivery.REJECTED, ROLLBACK)
    assert control.discharge(txn_id) == ROLLBACK
    assert bodies(peer, "good") == []


def test_posting_in_an_unknown_transaction_is_refused(peer: Peer) -> None:
    control, sender = Control(peer), peer.sender("q")
    txn_id = control.declare()
    control.commit(txn_id)
    (delivery,) = send(peer, sender, txn_id, "late")
    assert provisional(delivery) == (txn_id, Delivery.REJECTED, UNKNOWN_ID)
    assert bodies(peer) == []
    post(peer, sender, txn_id, Message(body="too late"), settled=True)
    assert peer.refusal(sender) == UNKNOWN_ID


def test_a_message_cut_short_by_the_discharge_ends_the_link_and_the_transaction(peer: Peer) -> None:
    control, sender = Control(peer), peer.sender("q")
    txn_id = control.declare()
    send(peer, sender, txn_id, "whole")
    delivery = sender.delivery("half")
    delivery.local.data = [txn_id]
    delivery.update(TRANSACTIONAL)
    sender.stream(b"\x00\x53\x70\x45\x00\x53\x75\xb0\x00\x00\x10\x00" + bytes(100))
    peer.wait(lambda: not delivery.pending)
    control.send(0x32, txn_id, False)
    assert peer.refusal(control.link) == ROLLBACK
    sender.stream(bytes(0x1000 - 100))
    sender.advance()
    peer.wait(lambda: delivery.settled)
    assert provisional(delivery)[1] == Delivery.REJECTED
    assert bodies(peer) == []


def test_an_aborted_message_is_none(peer: Peer) -> None:
    control, sender = Control(peer), peer.sender("q")
    txn_id = control.declare()
    send(peer, sender, txn_id, "first")
    delivery = sender.delivery("aborted")
    delivery.local.data = [txn_id]
    delivery.update(TRANSACTIONAL)
    sender.stream(b"\x00\x53\x70\xc0\x02\x01\x41\x00\x53\x75\xb0\x00\x10\x00\x00" + bytes(100_000))
    peer.wait(lambda: not delivery.pending)
    delivery.abort()
    send(peer, sender, txn_id, "second")
    control.commit(txn_id)
    assert bodies(peer) == ["first", "second"]
