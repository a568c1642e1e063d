"""Tests of durability: durable messages survive a restart, and transient ones cause no disk writes."""

from __future__ import annotations

import signal

import pytest
from proton import Delivery, Message

from cairnmq.broker_plugin.run import RunningBroker
from cairnmq.store.journaled.store import JournalStore
from tests.harness.clients.peers import Peer

from .conftest import Connect, NewPeer, StartProcess


def written(broker: RunningBroker) -> int:
    """Return the end of the journal, including records that are not flushed yet."""
    return journal_store(broker).journal.next_lsn


def journal_store(broker: RunningBroker) -> JournalStore:
    assert isinstance(broker._store, JournalStore)
    return broker._store


def test_transient_messages_touch_no_disk(broker: RunningBroker, peer: Peer) -> None:
    sender, receiver = peer.sender("q"), peer.receiver("q")
    before = written(broker)
    for size in (0, 10, 100_000, 1_000_000):
        peer.put(sender, [b"x" * size] * 3, durable=False)
        receiver.flow(3)
        first, second, third = peer.take(receiver, 3)
        first.accept()
        second.settle(Delivery.REJECTED)
        third.settle(Delivery.MODIFIED, failed=True)
        peer.settle_down()
        peer.drain(receiver, 1)[0].accept()
        peer.settle_down()
    assert written(broker) == before


def test_dynamic_queues_touch_no_disk(broker: RunningBroker, peer: Peer) -> None:
    receiver = peer.attach(peer.session.receiver("r"), None, dynamic=True)
    before = written(broker)
    queues = len(list(journal_store(broker)._wiring.rows().queues))
    peer.put(peer.sender(receiver.remote_source.address), [b"x" * 10, b"x" * 500_000], durable=True)
    for received in peer.drain(receiver, 10):
        received.accept()
    peer.close()
    assert written(broker) == before
    assert len(list(journal_store(broker)._wiring.rows().queues)) == queues


def test_durable_messages_do(broker: RunningBroker, peer: Peer) -> None:
    sender = peer.sender("q")
    before = written(broker)
    peer.put(sender, ["durable"])
    assert written(broker) > before


def test_confirmed_means_durable(broker: RunningBroker, peer: Peer) -> None:
    """The flush is done before the sender receives `accepted`, and before the receiver's outcome is settled."""
    sender, receiver = peer.sender("q"), peer.receiver("q", 100)
    for number in range(20):
        peer.put(sender, [number])
        assert journal_store(broker).journal.writer.durable_lsn == written(broker)
        (received,) = peer.take(receiver)
        received.delivery.update(Delivery.ACCEPTED)
        peer.wait(lambda received=received: received.delivery.settled)  # type: ignore[misc]
        assert journal_store(broker).journal.writer.durable_lsn == written(broker)


def test_a_durable_message_keeps_its_place_among_transient_ones(peer: Peer) -> None:
    """A message that needs no flush waits for those before it that need one."""
    sender = peer.sender("q")
    messages = [Message(body=number, durable=number % 3 == 0) for number in range(60)]
    peer.send(sender, *messages)
    assert [received.body for received in peer.drain(peer.receiver("q"), 100)] == list(range(60))


def test_a_clean_restart(start_process: StartProcess, peer_at: NewPeer) -> None:
    """Durable messages are recovered in order, marked as possibly delivered; transient and settled ones are not."""
    process = start_process()
    peer = peer_at(process.port)
    for address in ("q", "caf\u00e9 $1/*", "empty"):
        sender = peer.sender(address)
        if address != "empty":
            messages = [Message(body=n, durable=n % 2 == 0, first_acquirer=True) for n in range(10)]
            peer.send(sender, *messages, Message(body=b"x" * 300_000, durable=True))
    for received in peer.take(peer.receiver("q", 3), 3):
        received.accept()
    peer.close()
    assert process.stop() == 0
    assert "everything is on the disk" in process.lines[-1]
    process = start_process("--no-auto-create")
    peer = peer_at(process.port)
    received_all = peer.drain(peer.receiver("q"), 100)
    assert [received.body for received in received_all] == [4, 6, 8, b"x" * 300_000]
    assert {received.message.first_acquirer for received in received_all} == {False}
    assert len(peer.drain(peer.receiver("caf\u00e9 $1/*"), 100)) == 6
    assert peer.drain(peer.receiver("empty"), 100) == []
    assert peer.refusal(peer.receiver("new")) == "amqp:not-found"


def test_clients_are_told_when_the_broker_stops(start_process: StartProcess, peer_at: NewPeer) -> None:
    process = start_process()
    peer = peer_at(process.port)
    peer.receiver("q", 10)
    process.process.terminate()
    peer.wait(lambda: peer.connection.remote_condition is not None, "to be told")
    assert peer.connection.remote_condition.name == "amqp:connection:forced"
    peer.close()
    assert process.wait() == 0


@pytest.mark.parametrize("size", [10, 200_000])
def test_a_kill_keeps_what_was_confirmed(start_process: StartProcess, peer_at: NewPeer, size: int) -> None:
    process = start_process()
    peer = peer_at(process.port)
    peer.put(peer.sender("q"), [bytes([number]) * size for number in range(20)])
    received_all = peer.take(peer.receiver("q", 10), 10)
    for received in received_all:
        received.delivery.update(Delivery.ACCEPTED)
    peer.wait(lambda: all(received.delivery.settled for received in received_all))
    process.stop(signal.SIGKILL)
    peer = peer_at(start_process().port)
    assert [received.body[0] for received in peer.drain(peer.receiver("q"), 100)] == list(range(10, 20))


def test_the_blocking_api_over_a_restart(start_process: StartProcess, connect: Connect) -> None:
    process = start_process("--auto-create", "jobs.*")
    connection = connect(process.port)
    sender = connection.create_sender("jobs.1")
    for number in range(10):
        sender.send(Message(body=number, durable=True))
    connection.close()
    process.stop()
    receiver = connect(start_process().port).create_receiver("jobs.1", credit=10)
    for number in range(10):
        message = receiver.receive()
        assert (message.body, message.durable) == (number, True)
        receiver.accept()
