"""Tests that an address of another broker is understood or refused, and never taken as the name of a new queue."""

from __future__ import annotations

import pytest
from proton import Message

from tests.harness.clients.peers import Peer


# C2
@pytest.mark.parametrize(
    ("address", "queue"),
    [
        ("/queues/orders", "orders"),
        ("/queues/a%2Fb%20c%C3%A4", "a/b cä"),
        ("/queues/100%25", "100%"),
        ("/queues/%2Fqueues%2Fx", "/queues/x"),
    ],
)
def test_queue_of_rabbitmq_4_is_the_queue_of_that_name(peer: Peer, address: str, queue: str) -> None:
    peer.send(peer.sender(address), Message(body=b"m"))
    [received] = peer.take(peer.receiver(f"queue://{queue}", 1))
    received.settle()
    [again] = peer.take(peer.receiver(address, 1))
    assert again.body == b"m"


# C2
@pytest.mark.parametrize(
    ("address", "subject"),
    [("/exchanges/amq.topic/a.b", None), ("/exchanges/amq%2Etopic/a%2Eb", "other"), ("/exchanges/amq.topic", "a.b")],
)
def test_exchange_of_rabbitmq_4_is_the_exchange_and_its_key(peer: Peer, address: str, subject: str | None) -> None:
    subscriber = peer.receiver("amq.topic/a.b", 1)
    peer.send(peer.sender(address), Message(body=b"m", subject=subject))
    assert peer.take(subscriber)[0].body == b"m"


# C2
@pytest.mark.parametrize(
    ("address", "reason"),
    [
        ("/management", "$management"),
        ("/queues/", "percent-encode"),
        ("/queues/a/b", "percent-encode"),
        ("/queues/%zz", "percent-encode"),
        ("/queues/%ff", "percent-encode"),
        ("/exchanges/", "percent-encode"),
        ("/exchanges/amq.topic/a/b", "percent-encode"),
        ("/exchanges/missing/key", "there is no exchange 'missing'"),
        ("/exchange/amq.topic/a.b", "/exchanges/EXCHANGE/KEY"),
        ("/queue/q", "/queues/QUEUE"),
        ("/topic/a.b", "/exchanges/EXCHANGE/KEY"),
        ("/amq/queue/q", "/queues/QUEUE"),
        ("exchange://amq.topic/a.b", "the scheme"),
        ("amqp://host/q", "the scheme"),
        ("Queues://q", "the scheme"),
        ("persistent://public/default/t", "the scheme"),
    ],
)
@pytest.mark.parametrize("way", ["sender", "receiver", "relay"])
def test_other_address_with_a_path_or_a_scheme_makes_no_queue(peer: Peer, address: str, reason: str, way: str) -> None:
    if way == "relay":
        delivery = peer.post(peer.sender(None), Message(address=address, body=b"m"))
        peer.wait(lambda: delivery.settled)
        condition = delivery.remote.condition
        assert (condition.name, reason in condition.description) == ("amqp:not-found", True), condition
        return
    link = peer.session.sender(way) if way == "sender" else peer.session.receiver(way)
    assert peer.refusal(peer.attach(link, address)) == "amqp:not-found"
    assert reason in link.remote_condition.description
