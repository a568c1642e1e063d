"""Transactions by the coordinator (AMQP 1.0 part 4): all of it or nothing, and nothing before its time."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
from proton import Delivery, Endpoint, Message, Terminus, symbol

from cairnmq.broker.in_doubt import InDoubt
from cairnmq.broker_plugin.options import TransactionLimits
from cairnmq.broker_plugin.run import RunningBroker

from .conftest import NewPeer, StartBroker, StartProcess
from .peers import DEADLINE_S, Peer
from .transacting import TRANSACTIONAL, Control, outcome_of, post, provisional, retire, send

ROLLBACK = "amqp:transaction:rollback"
UNKNOWN_ID = "amqp:transaction:unknown-id"
TIMEOUT = "amqp:transaction:timeout"

kinds = pytest.mark.parametrize("durable", [True, False], ids=["durable", "transient"])
sizes = pytest.mark.parametrize("size", [10, 200_000, 2_000_000])
settled_or_not = pytest.mark.parametrize("settled", [False, True], ids=["unsettled", "settled"])


def bodies(peer: Peer, address: str = "q") -> list[Any]:
    """What is on a queue; it stays there."""
    receiver = peer.receiver(address)
    received = peer.drain(receiver, 1000)
    peer.detach(receiver)
    return [one.body for one in received]


def taken(peer: Peer, address: str = "q") -> list[Any]:
    """What is on a queue, taken off it."""
    receiver = peer.receiver(address)
    received = peer.drain(receiver, 1000)
    for one in received:
        one.accept()
    peer.settle_down()
    peer.detach(receiver)
    return received


def on_core(running: RunningBroker, action: Callable[[InDoubt, Callable[[], None]], None]) -> None:
    """Do something with the transactions in doubt, and wait until it is durable."""
    done = threading.Event()
    running._post(lambda: action(running._broker.in_doubt, done.set))
    assert done.wait(DEADLINE_S)


# ---- the coordinator ------------------------------------------------------------------------------------------------


def test_the_coordinator_says_what_it_can_do(peer: Peer) -> None:
    control = Control(peer)
    assert control.link.remote_target.type == Terminus.COORDINATOR
    said = control.link.remote_target.capabilities
    said.rewind()
    said.next()
    assert {*said.get_object().elements} == {
        symbol(name)
        for name in (
            "amqp:local-transactions",
            "amqp:distributed-transactions",
            "amqp:multi-txns-per-ssn",
            "amqp:multi-ssns-per-txn",
        )
    }


def test_ids_are_short_binaries_and_never_the_same(peer: Peer, new_peer: NewPeer) -> None:
    other = Control(new_peer())
    control = Control(peer)
    ids = [one.declare() for one in (control, other) * 5]
    assert len({*ids}) == 10
    assert all(0 < len(txn_id) <= 32 for txn_id in ids)


@pytest.mark.parametrize("fail", [False, True])
def test_an_unknown_transaction_can_not_be_discharged(peer: Peer, new_peer: NewPeer, fail: bool) -> None:
    control = Control(peer)
    foreign = Control(new_peer()).declare()
    assert control.discharge(foreign, fail=fail) == UNKNOWN_ID
    assert control.discharge(b"nonsense", fail=fail) == UNKNOWN_ID
    own = control.declare()
    control.commit(own)
    assert control.discharge(own, fail=fail) == UNKNOWN_ID
    control.commit(control.declare())  # the link goes on


def test_what_is_no_request_is_rejected(peer: Peer) -> None:
    control = Control(peer)
    assert outcome_of(control.ask(0x35)) == "amqp:decode-error"
    for message in (Message(body="declare"), b"", b"\x00\x53\x77", b"\x00\x53\x77\x00\x53\x32\x45"):
        delivery = peer.post(control.link, message)
        peer.wait(lambda delivery=delivery: delivery.settled)  # type: ignore[misc]
        assert outcome_of(delivery) == "amqp:decode-error"
    control.commit(control.declare())


def test_a_request_may_come_in_pieces(peer: Peer) -> None:
    control = Control(peer)
    delivery = control.link.delivery("in pieces")
    for byte in b"\x00\x53\x70\x45\x00\x53\x77\x00\x53\x31\x45":
        control.link.stream(bytes((byte,)))
        peer.wait(lambda: True)
    control.link.advance()
    peer.wait(lambda: delivery.settled)
    control.commit(bytes(delivery.remote.data[0]))


def test_a_presettled_request_closes_the_link(peer: Peer) -> None:
    control = Control(peer)
    peer.post(control.link, Message(body="whatever"), settled=True)
    assert peer.refusal(control.link) == "amqp:invalid-field"


def test_nobody_receives_from_the_coordinator(peer: Peer) -> None:
    """A request that grows without an end closes the link, too."""
    control = Control(peer)
    peer.post(control.link, b"\x00\x53\x75\xb0\x00\x10\x00\x00" + bytes(1 << 20))
    assert peer.refusal(control.link) == "amqp:link:message-size-exceeded"


# ---- posting --------------------------------------------------------------------------------------------------------


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
    """In the order of commits; one link takes turns between transactions and none."""
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
    """The queues are made while the discharge is under way already."""
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


# ---- retiring -------------------------------------------------------------------------------------------------------


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
    """It may say something else then: in another transaction, or in none."""
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
    peer.detach(receiver)  # the last one it had said nothing new of
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
    """What comes before and behind it on the same link is taken by itself."""
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
    """Settled, it comes back; unsettled, there is nothing to tell it by but the link."""
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


# ---- ends -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["closed", "detached", "session", "connection", "cut"])
def test_what_was_not_discharged_is_rolled_back_with_its_link(peer: Peer, new_peer: NewPeer, how: str) -> None:
    looking = new_peer()
    session = peer.new_session()
    control, sender, receiver = Control(peer, session), peer.sender("q"), peer.receiver("q")
    looking.put(looking.sender("q"), range(3))
    receiver.flow(2)
    txn_id = control.declare()
    send(peer, sender, txn_id, "put")
    for one in peer.take(receiver, 2):
        retire(one, txn_id, settled=True)
    peer.settle_down()
    if how == "session":
        session.close()
        peer.wait(lambda: session.state & Endpoint.REMOTE_CLOSED)
    elif how == "connection":
        peer.close()
    elif how == "cut":
        peer.cut()
    else:
        peer.detach(control.link, close=how == "closed")
    receiver = looking.receiver("q", 4)
    assert [one.body for one in looking.take(receiver, 3)] in ([2, 0, 1], [0, 1, 2])
    looking.detach(receiver)
    assert sorted(bodies(looking)) == [0, 1, 2]
    if how in ("closed", "detached", "session"):
        (delivery,) = send(peer, sender, txn_id, "late")
        assert provisional(delivery)[2] == UNKNOWN_ID


def test_a_transaction_that_takes_too_long_is_rolled_back(start_broker: StartBroker, peer_at: NewPeer) -> None:
    broker = start_broker(transactions=TransactionLimits(0.2))
    peer, looking = peer_at(broker.port), peer_at(broker.port)
    peer.put(peer.sender("q"), range(1))
    control, sender, receiver = Control(peer), peer.sender("q"), peer.receiver("q", 1)
    first, second = control.declare(), control.declare()
    send(peer, sender, first, "put")
    (received,) = peer.take(receiver)
    retire(received, first, settled=True)
    peer.settle_down()
    again = looking.receiver("q", 1)
    assert looking.take(again)[0].body == 0  # by itself, without anything from its client
    (delivery,) = send(peer, sender, first, "late")
    assert provisional(delivery)[1:] == (Delivery.REJECTED, TIMEOUT)
    assert control.discharge(first) == TIMEOUT
    control.roll_back(second)  # rolling back is always possible


def test_limits(start_broker: StartBroker, peer_at: NewPeer) -> None:
    peer = peer_at(start_broker(transactions=TransactionLimits(0.0, 3, 100_000)).port)
    control, sender = Control(peer), peer.sender("q")
    ids = [control.declare() for _ in range(3)]
    assert outcome_of(control.ask(0x31, None)) == ROLLBACK
    control.roll_back(ids.pop())
    ids.append(control.declare())
    send(peer, sender, ids[0], b"x" * 50_000)
    (delivery,) = send(peer, sender, ids[1], b"x" * 60_000)
    assert provisional(delivery)[1:] == (Delivery.REJECTED, ROLLBACK)
    send(peer, sender, ids[2], b"x" * 40_000)
    assert [control.discharge(txn_id) for txn_id in ids] == ["", ROLLBACK, ""]
    assert [len(body) for body in bodies(peer)] == [50_000, 40_000]


def test_transient_messages_of_a_transaction_count_in_memory(start_broker: StartBroker, peer_at: NewPeer) -> None:
    peer = peer_at(start_broker(memory_limit_bytes=1 << 20).port)
    control, sender = Control(peer), peer.sender("q")
    for _ in range(3):
        txn_id = control.declare()
        send(peer, sender, txn_id, *[b"x" * 100_000] * 9, durable=False)
        control.roll_back(txn_id)
    txn_id = control.declare()
    send(peer, sender, txn_id, *[b"x" * 100_000] * 12, durable=False)
    assert control.discharge(txn_id) == ROLLBACK


def test_a_committed_transaction_is_there_after_a_crash_and_an_open_one_is_not(
    start_process: StartProcess, peer_at: NewPeer
) -> None:
    broker = start_process()
    peer = peer_at(broker.port)
    control, sender = Control(peer), peer.sender("q")
    peer.put(sender, ["a", "b"])
    receiver = peer.receiver("q", 2)
    kept, lost = control.declare(), control.declare()
    first, second = peer.take(receiver, 2)
    retire(first, kept, settled=True)
    retire(second, lost, settled=True)
    send(peer, sender, kept, "kept", b"k" * 2_000_000)
    send(peer, sender, lost, "lost", b"l" * 2_000_000)
    control.commit(kept)
    broker.stop(9)
    peer = peer_at(start_process().port)
    assert bodies(peer) == ["b", "kept", b"k" * 2_000_000]


def test_a_distributed_transaction_waits_for_its_coordinator(
    broker: RunningBroker, peer: Peer, new_peer: NewPeer
) -> None:
    control, sender = Control(peer), peer.sender("q")
    txn_id = control.declare(b"branch 1")
    assert outcome_of(control.ask(0x31, b"branch 1")) == ROLLBACK  # there is one of that name
    send(peer, sender, txn_id, "put")
    control.commit(txn_id)  # the client works on it no more, that is all
    assert bodies(peer) == []
    assert control.discharge(txn_id) == UNKNOWN_ID
    gone = control.declare("branch 2")
    control.roll_back(gone)
    control.roll_back(control.declare("branch 2"))
    on_core(broker, lambda doubt, then: doubt.prepare(b"branch 1", then))
    peer.close()
    peer = new_peer()
    assert bodies(peer) == []
    on_core(broker, lambda doubt, then: doubt.commit(b"branch 1", then))
    assert bodies(peer) == ["put"]
