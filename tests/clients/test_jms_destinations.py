"""Tests of JMS destinations: temporary queues and topics, and producers that name a destination in each message.

qpid-jms creates a temporary destination with a sending link to a dynamic target. A capability states its kind, and in
each message `x-opt-jms-dest` does. Producers without a destination of their own use the anonymous relay.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
from proton import Delivery, Described, Message, byte, symbol, ulong

from tests.harness.clients.peers import Peer

from .conftest import NewPeer

QUEUE, TOPIC, TEMPORARY_QUEUE, TEMPORARY_TOPIC = map(byte, range(4))
DELETE_ON_CLOSE = ulong(0x2B)


def temporary(peer: Peer, kind: str, lifetime: ulong = DELETE_ON_CLOSE) -> Any:
    """Create a temporary destination as qpid-jms does, and return its link."""
    link = peer.session.sender(f"qpid-jms:{kind}-creator:{id(peer)}")
    link.target.capabilities.put_object(symbol(f"temporary-{kind}"))
    link.target.properties.put_object({symbol("lifetime-policy"): Described(lifetime, [])})
    return peer.attach(link, None, dynamic=True)


def consumer(peer: Peer, address: str, kind: str, name: str) -> Any:
    link = peer.session.receiver(name)
    link.source.capabilities.put_object(symbol(kind))
    attached = peer.attach(link, address)
    attached.flow(10)
    return attached


def producer(peer: Peer, address: str, kind: str) -> Any:
    link = peer.session.sender(f"producer-{kind}-{address}")
    link.target.capabilities.put_object(symbol(kind))
    return peer.attach(link, address)


def told(address: str, kind: byte, body: Any) -> Message:
    return Message(address=address, body=body, annotations={symbol("x-opt-jms-dest"): kind})


def bodies(peer: Peer, link: Any, count: int) -> list[Any]:
    return [received.body for received in peer.take(link, count)]


def test_all_consumers_of_a_temporary_topic_get_all(new_peer: NewPeer) -> None:
    """All consumers get messages of the topic's producers, and relayed ones whether or not these state their kind."""
    client, server = new_peer(), new_peer()
    address = temporary(client, "topic").remote_target.address
    ours = [consumer(client, address, "temporary-topic", name) for name in ("first", "second")]
    client.send(producer(client, address, "temporary-topic"), Message(body="own"))
    relay = server.sender(None)
    server.send(relay, told(address, TEMPORARY_TOPIC, "reply"), Message(address=address, body="untold"))
    for link in ours:
        assert bodies(client, link, 3) == ["own", "reply", "untold"]


def test_a_temporary_topic_goes_with_its_connection_or_link(new_peer: NewPeer) -> None:
    """The deletion of a temporary topic closes all links to it, and its address names no topic from then on."""
    client, other = new_peer(), new_peer()
    link = temporary(client, "topic")
    address = link.remote_target.address
    subscribed = consumer(client, address, "temporary-topic", "ours")
    sender = producer(other, address, "temporary-topic")
    client.detach(link)
    assert client.refusal(subscribed) == "amqp:resource-deleted"
    assert other.refusal(sender) == "amqp:resource-deleted"
    second = temporary(client, "topic").remote_target.address
    assert second != address
    client.cut()
    for removed in (address, second):
        other.wait(partial(is_removed, other, removed), "the topic to be gone")


@pytest.mark.parametrize("kind", ["queue", "topic"])
def test_temporary_destination_is_read_by_its_connection_alone(new_peer: NewPeer, kind: str) -> None:  # C8
    """JMS 2.0, 6.2.2: only consumers of its connection receive from a temporary destination."""
    client, other = new_peer(), new_peer()
    address = temporary(client, kind).remote_target.address
    for name, capability in ("named", f"temporary-{kind}"), ("plain", kind):
        assert other.refusal(consumer(other, address, capability, name)) == "amqp:unauthorized-access"
    ours = consumer(client, address, f"temporary-{kind}", "ours")
    other.send(other.sender(None), told(address, TEMPORARY_TOPIC if kind == "topic" else TEMPORARY_QUEUE, "reply"))
    assert bodies(client, ours, 1) == ["reply"]


def is_removed(peer: Peer, address: str) -> bool:
    delivery = peer.post(peer.sender(None), told(address, TEMPORARY_TOPIC, "late"))
    peer.wait(lambda: delivery.settled)
    return bool(delivery.remote_state == Delivery.REJECTED and delivery.remote.condition.name == "amqp:not-found")


def test_a_receiver_may_have_a_topic_made(new_peer: NewPeer) -> None:
    peer, other = new_peer(), new_peer()
    link = peer.session.receiver("mine")
    link.source.capabilities.put_object(symbol("temporary-topic"))
    peer.attach(link, None, dynamic=True)
    address = link.remote_source.address
    link.flow(10)
    again = consumer(peer, address, "temporary-topic", "again")
    other.send(other.sender(None), told(address, TEMPORARY_TOPIC, "both"))
    assert bodies(peer, link, 1) == bodies(peer, again, 1) == ["both"]
    assert other.refusal(consumer(other, address, "temporary-topic", "theirs")) == "amqp:unauthorized-access"
    peer.detach(link)
    assert peer.refusal(again) == "amqp:resource-deleted"


def test_a_topic_that_is_to_outlast_its_link_is_refused(new_peer: NewPeer) -> None:
    peer = new_peer()
    link = peer.session.sender("lasting")
    link.target.capabilities.put_object(symbol("temporary-topic"))
    link.target.properties.put_object({symbol("lifetime-policy"): Described(ulong(0x2C), [])})
    assert peer.refusal(peer.attach(link, None, dynamic=True)) == "amqp:not-implemented"


def test_a_temporary_queue_gives_each_message_to_one(new_peer: NewPeer) -> None:
    client, server = new_peer(), new_peer()
    link = temporary(client, "queue")
    address = link.remote_target.address
    ours = consumer(client, address, "temporary-queue", "ours")
    server.send(server.sender(None), told(address, TEMPORARY_QUEUE, "reply"))
    client.send(producer(client, address, "temporary-queue"), Message(body="own"))
    assert bodies(client, ours, 2) == ["reply", "own"]
    client.detach(link)
    assert client.refusal(ours) == "amqp:resource-deleted"


@pytest.mark.parametrize("size", [10, 200_000])
def test_a_message_says_whether_its_address_is_a_queue_or_a_topic(new_peer: NewPeer, size: int) -> None:
    """A queue and a topic may have the same name, since each message states the kind of its address."""
    peer = new_peer()
    name = "news"
    subscribed, relay = consumer(peer, name, "topic", "subscribed"), peer.sender(None)
    body = "x" * size
    kinds = [TOPIC, QUEUE, TOPIC, QUEUE, QUEUE]
    peer.send(relay, *(told(name, kind, f"{n}{body}") for n, kind in enumerate(kinds)))
    queued = consumer(peer, name, "queue", "queued")
    assert [found[0] for found in bodies(peer, queued, 3)] == ["1", "3", "4"]
    assert [found[0] for found in bodies(peer, subscribed, 2)] == ["0", "2"]
    peer.settle_down()


@pytest.mark.parametrize("said", ["topic", 1, byte(7), None, byte(-1)])
def test_what_says_nothing_that_is_known_is_passed_by(new_peer: NewPeer, said: Any) -> None:
    peer = new_peer()
    message = Message(address="q", body="here", annotations={symbol("x-opt-jms-dest"): said})
    peer.send(peer.sender(None), message)
    assert bodies(peer, peer.receiver("q", 1), 1) == ["here"]
