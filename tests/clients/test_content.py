"""Tests of message content, which is delivered byte for byte as it was sent, for all sizes and types."""

from __future__ import annotations

import random
from typing import Any

import pytest
from proton import (
    Array,
    Delivery,
    Described,
    Message,
    symbol,
    ulong,
)

from cairnmq.amqp.links.events import Limits
from tests.harness.clients.content_values import ID, VALUES
from tests.harness.clients.peers import Peer

from .conftest import NewPeer, StartBroker

KIB, MIB = 1 << 10, 1 << 20
SIZES = [0, 1, 255, 256, 511, 512, 513, 64 * KIB - 1, 64 * KIB, 64 * KIB + 1, MIB]
DURABLE = b"\x00\x53\x70\xc0\x02\x01\x41"
"""A header section with the flag *durable*."""


def raw(size_bytes: int, *, durable: bool) -> bytes:
    """Return an encoded message with *size_bytes* of random data in its body."""
    data = random.Random(size_bytes).randbytes(size_bytes)
    return (DURABLE if durable else b"") + b"\x00\x53\x75\xb0" + size_bytes.to_bytes(4) + data


either = pytest.mark.parametrize("durable", [True, False], ids=["durable", "transient"])


@either
@pytest.mark.parametrize("settled", [True, False], ids=["settled", "unsettled"])
@pytest.mark.parametrize("max_frame_bytes", [0, 512, 4096])
def test_every_size(new_peer: NewPeer, durable: bool, settled: bool, max_frame_bytes: int) -> None:  # F11, F12
    peer = new_peer(max_frame_bytes=max_frame_bytes)
    sent = [raw(size, durable=durable) for size in SIZES]
    sent += [raw(size - len(raw(0, durable=durable)), durable=durable) for size in SIZES if size >= 64]
    peer.send(peer.sender("q", settled=settled), *sent)
    received = peer.take(peer.receiver("q", len(sent), settled=settled), len(sent))
    assert [len(message.content) for message in received] == [len(content) for content in sent]
    assert [message.content for message in received] == sent


@pytest.mark.parametrize("size", [1, 3 * MIB])
@either
def test_a_redelivery_changes_nothing_but_the_header(peer: Peer, durable: bool, size: int) -> None:  # F12
    sent = Message(body=random.Random(1).randbytes(size), durable=durable, priority=7, ttl=3600, subject="s")
    peer.send(peer.sender("q"), sent)
    receiver = peer.receiver("q")
    for attempt in range(3):
        receiver.flow(1)
        (received,) = peer.take(receiver)
        message = received.message
        assert (message.delivery_count, message.durable, message.priority) == (attempt, durable, 7)
        assert 0 < message.ttl <= 3600  # P5: the rest of it
        assert (message.body, message.subject) == (sent.body, "s")
        received.settle(Delivery.MODIFIED, failed=True)


def test_100_mib(peer: Peer) -> None:
    sender = peer.sender("q")
    content = raw(100 * MIB, durable=True)
    peer.send(sender, content)
    (received,) = peer.take(peer.receiver("q", 1))
    assert received.content == content
    received.accept()


@pytest.mark.parametrize("size", [2_000, 300_000])
def test_a_message_too_large_costs_its_link(start_broker: StartBroker, peer_at: NewPeer, size: int) -> None:
    """The broker closes only the link: it keeps nothing of the message, and the connection stays open."""
    peer = peer_at(start_broker(limits=Limits(max_message_bytes=1500)).port)
    sender, other = peer.sender("q"), peer.sender("q")
    assert sender.remote_max_message_size == 1500
    peer.post(sender, raw(size, durable=True))
    assert peer.refusal(sender) == "amqp:link:message-size-exceeded"
    peer.put(other, ["fits"])
    assert [received.body for received in peer.drain(peer.receiver("q"), 10)] == ["fits"]


@pytest.mark.parametrize("durable", [True, False], ids=["durable", "transient"])
def test_a_long_message_taken_back_halfway_leaves_nothing(peer: Peer, durable: bool) -> None:
    sender = peer.sender("q")
    peer.put(sender, ["before"])
    aborted = sender.delivery(sender.delivery_tag())
    sender.stream(raw(300 * KIB, durable=durable))
    peer.wait(lambda: aborted.pending == 0, "a part of the message to be sent")
    aborted.abort()
    peer.put(sender, ["after"])
    assert [message.body for message in peer.drain(peer.receiver("q"), 10)] == ["before", "after"]


def test_links_do_not_wait_for_a_long_message_of_another(peer: Peer) -> None:
    """An incomplete message on one link does not delay other links of its session and queue."""
    slow, quick = peer.sender("q"), peer.sender("q")
    endless = slow.delivery(slow.delivery_tag())
    slow.stream(raw(200 * KIB, durable=True)[:-1])
    peer.wait(lambda: endless.pending == 0)
    peer.put(quick, range(10))
    assert [message.body for message in peer.take(peer.receiver("q", 10), 10)] == list(range(10))


SIMPLE = [value for value in VALUES if not isinstance(value, list | dict | Array | Described)]


@either
def test_every_amqp_type(peer: Peer, durable: bool) -> None:
    """All types are kept in bodies, application properties and annotations, and so are data and sequence bodies."""
    sent: list[Any] = [Message(body=value, durable=durable) for value in VALUES]
    everything = Message(
        body={"all": VALUES},
        id=ID,
        user_id=b"user",
        address="q",
        subject="subject",
        reply_to="answer",
        correlation_id=ulong(7),
        content_type="application/x",
        content_encoding="gzip",
        expiry_time=2_000_000_000,
        creation_time=1_700_000_000,
        group_id="group",
        group_sequence=3,
        reply_to_group_id="other",
        durable=durable,
        priority=9,
        properties={f"p{number}": value for number, value in enumerate(SIMPLE)},
        annotations={symbol(f"x-opt-{number}"): value for number, value in enumerate(VALUES)},
        instructions={symbol("x-opt-once"): "d"},
    )
    binary = Message(body=b"\x00\xff" * 1000, durable=durable, inferred=True)
    listed = Message(body=[1, 2, 3], durable=durable, inferred=True)
    sent += [everything, binary, listed]
    peer.send(peer.sender("q"), *sent)
    received = peer.take(peer.receiver("q", len(sent)), len(sent))
    assert [message.content for message in received] == [message.encode() for message in sent]
    got = received[len(VALUES)].message
    for field in ("id", "user_id", "subject", "correlation_id", "group_sequence", "properties", "annotations"):
        assert getattr(got, field) == getattr(everything, field), field


@either
def test_a_message_with_a_time_to_live_is_stamped_and_nothing_else_is_changed(peer: Peer, durable: bool) -> None:
    sent = Message(
        body="b",
        id=1,
        subject="s",
        ttl=60_000,
        durable=durable,
        properties={"p": 1},
        annotations={symbol("x-opt-a"): 1},
    )
    peer.send(peer.sender("q"), sent)
    [received] = peer.take(peer.receiver("q", 1))
    assert received.message.annotations.pop("x-opt-enqueued-time") > 0
    again = received.message
    assert [getattr(again, name) for name in ("body", "id", "subject", "properties", "annotations")] == [
        getattr(sent, name) for name in ("body", "id", "subject", "properties", "annotations")
    ]
    assert 0 < again.ttl <= sent.ttl  # P5: the rest of it
