"""Tests of both Python APIs of Proton, with at-most-once and at-least-once delivery in all combinations."""

from __future__ import annotations

from typing import Any

import pytest
from proton import Delivery, Message
from proton.reactor import AtLeastOnce, AtMostOnce

from cairnmq.broker_plugin.run import RunningBroker
from tests.harness.clients.peers import Handling, Peer

from .conftest import Connect, NewPeer

either = pytest.mark.parametrize("durable", [True, False], ids=["durable", "transient"])
sending = pytest.mark.parametrize("sending", [AtLeastOnce, AtMostOnce], ids=["send-unsettled", "send-settled"])
receiving = pytest.mark.parametrize("receiving", [AtLeastOnce, AtMostOnce], ids=["recv-unsettled", "recv-settled"])


@either
@sending
@receiving
def test_blocking_api(connect: Connect, peer: Peer, sending: Any, receiving: Any, durable: bool) -> None:
    connection = connect()
    sender = connection.create_sender("q", options=sending())
    receiver = connection.create_receiver("q", credit=5, options=receiving())
    for number in range(20):
        sender.send(Message(body=number, durable=durable))
        assert receiver.receive().body == number
        if receiving is AtLeastOnce:
            receiver.accept()
    connection.close()
    assert peer.drain(peer.receiver("q"), 100) == []


@either
@sending
@receiving
def test_messaging_handler(broker: RunningBroker, peer: Peer, sending: Any, receiving: Any, durable: bool) -> None:
    def setup(container: Any, connection: Any) -> None:
        container.create_receiver(connection, "q", options=receiving())
        container.create_sender(connection, "q", options=sending())

    confirmed = 500 if sending is AtLeastOnce else 0
    client = Handling(setup, lambda self: len(self.messages) == 500 and len(self.outcomes) == confirmed)
    client.to_send = [Message(body=number, durable=durable) for number in range(500)]
    client.run(broker.port)
    assert [message.body for message in client.messages] == list(range(500))
    assert client.outcomes == [Delivery.ACCEPTED] * confirmed
    assert peer.drain(peer.receiver("q"), 100) == []


def test_one_link_carries_settled_and_unsettled_deliveries(peer: Peer) -> None:
    sender = peer.sender("q")
    deliveries = [peer.post(sender, Message(body=number), settled=bool(number % 3)) for number in range(30)]
    peer.wait(lambda: all(delivery.settled for delivery in deliveries[::3]))
    assert {delivery.remote_state for delivery in deliveries[::3]} == {Delivery.ACCEPTED}
    assert [message.body for message in peer.drain(peer.receiver("q"), 100)] == list(range(30))


def test_the_receiver_may_leave_settling_to_the_broker(peer: Peer) -> None:
    """The broker settles an outcome that was sent unsettled once the outcome is durable."""
    peer.put(peer.sender("q"), range(3))
    received = peer.take(peer.receiver("q", 3), 3)
    for message in received:
        message.delivery.update(Delivery.ACCEPTED)
    peer.wait(lambda: all(message.delivery.settled for message in received), "the broker to settle")
    assert {message.delivery.remote_state for message in received} == {Delivery.ACCEPTED}
    peer.close()


def test_a_presettled_receiver_never_sees_a_message_twice(new_peer: NewPeer) -> None:
    first, second = new_peer(), new_peer()
    first.put(first.sender("q"), range(100))
    seen = [message.body for message in first.take(first.receiver("q", 60, settled=True), 60)]
    first.cut()
    receiver = second.receiver("q", settled=True)
    assert seen + [message.body for message in second.drain(receiver, 1000)] == list(range(100))
    assert second.drain(receiver, 1000) == []


@pytest.mark.parametrize("sasl", [True, False], ids=["anonymous", "without SASL"])
def test_clients_come_with_and_without_sasl(new_peer: NewPeer, sasl: bool) -> None:
    peer = new_peer(sasl=sasl)
    peer.put(peer.sender("q"), range(3))
    assert len(peer.take(peer.receiver("q", 3), 3)) == 3
    peer.close()


def test_long_messages_in_both_apis(broker: RunningBroker, connect: Connect) -> None:
    bodies = [chr(ord("a") + number) * 3_000_000 for number in range(5)]
    messages = [Message(body=body, durable=bool(number % 2)) for number, body in enumerate(bodies)]
    connection = connect()
    sender, receiver = connection.create_sender("blocking"), connection.create_receiver("blocking")
    for message in messages:
        sender.send(message)
        assert receiver.receive().body == message.body
        receiver.accept()

    def setup(container: Any, connection: Any) -> None:
        container.create_receiver(connection, "callbacks")
        container.create_sender(connection, "callbacks")

    client = Handling(setup, lambda self: len(self.messages) == len(self.outcomes) == 5)
    client.to_send = list(messages)
    client.run(broker.port)
    assert [message.body for message in client.messages] == bodies
