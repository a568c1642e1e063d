"""Tests of the transaction coordinator (AMQP 1.0 part 4): its requests, and the atomic ends of transactions."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest
from proton import Delivery, Endpoint, Message, Terminus, symbol

from cairnmq.broker.transactions.xa import InDoubt
from cairnmq.broker_plugin.options import TransactionLimits
from cairnmq.broker_plugin.run import RunningBroker
from tests.harness.clients.peers import DEADLINE_S, Peer
from tests.harness.clients.transacting import (
    ROLLBACK,
    TIMEOUT,
    UNKNOWN_ID,
    Control,
    bodies,
    outcome_of,
    provisional,
    retire,
    send,
)  # fmt: skip

from .conftest import NewPeer, StartBroker, StartProcess


def on_core(running: RunningBroker, action: Callable[[InDoubt, Callable[[], None]], None]) -> None:
    """Run *action* with the transactions in doubt on the core, and wait until its effect is durable."""
    done = threading.Event()
    running._post(lambda: action(running._broker.in_doubt, done.set))
    assert done.wait(DEADLINE_S)


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
    control.commit(control.declare())  # the link stays open


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
    """A request that exceeds the message size limit closes the link to the coordinator."""
    control = Control(peer)
    peer.post(control.link, b"\x00\x53\x75\xb0\x00\x10\x00\x00" + bytes(1 << 20))
    assert peer.refusal(control.link) == "amqp:link:message-size-exceeded"


# ---- ends of transactions -------------------------------------------------------------------------------------------


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
    assert looking.take(again)[0].body == 0  # the broker rolls back by itself, without a request of the client
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
    assert outcome_of(control.ask(0x31, b"branch 1")) == ROLLBACK  # a branch of that name exists
    send(peer, sender, txn_id, "put")
    control.commit(txn_id)  # this only ends the work of the client on the branch
    assert bodies(peer) == []
    assert control.discharge(txn_id) == UNKNOWN_ID
    removed = control.declare("branch 2")
    control.roll_back(removed)
    control.roll_back(control.declare("branch 2"))
    on_core(broker, lambda doubt, then: doubt.prepare(b"branch 1", then))
    peer.close()
    peer = new_peer()
    assert bodies(peer) == []
    on_core(broker, lambda doubt, then: doubt.commit(b"branch 1", then))
    assert bodies(peer) == ["put"]
