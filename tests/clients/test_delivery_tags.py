"""Tests of the broker's delivery tags, which are distinct, and text for clients that show them as text."""

from __future__ import annotations

import itertools

from cairnmq.amqp.links.send_queue import SendQueue
from cairnmq.amqp.native.proton_ffi import ffi
from cairnmq.broker_plugin.run import RunningBroker
from tests.harness.clients.peers import Peer
from tests.harness.clients.resuming import ResumingReceiver

MANY = 300


def test_delivery_tag_is_text_that_proton_decodes(peer: Peer) -> None:
    """Tags are printable ASCII: Proton decodes them as UTF-8, which fails for binary numbers above 127."""
    peer.put(peer.sender("q"), [f"m{number}" for number in range(MANY)], durable=False)
    found = peer.drain(peer.receiver("q"), MANY)
    tags = [one.delivery.tag for one in found]
    assert len(set(tags)) == MANY
    assert all(tag.isascii() and tag.isprintable() and len(tag) <= 8 for tag in tags)


def test_delivery_tag_of_a_resumable_link_is_text(broker: RunningBroker, peer: Peer) -> None:
    peer.put(peer.sender("q"), [f"m{number}" for number in range(MANY)], durable=True)
    receiver = ResumingReceiver("q")
    receiver.connect(broker.port, credit=MANY)
    tags = [receiver.receive().tag for _ in range(MANY)]
    assert len(set(tags)) == MANY
    assert all(tag.isascii() and tag.decode().isprintable() and len(tag) <= 32 for tag in tags)


def test_delivery_tags_of_a_connection_differ_beyond_one_table_of_their_ends() -> None:
    outgoing = SendQueue(ffi.NULL, None)  # type: ignore[arg-type]

    def tag(end: int) -> bytes:
        outgoing._tag_words[3] = end
        return bytes(ffi.buffer(outgoing._tag_words))

    tags = list(map(tag, itertools.islice(outgoing._tag_ends, 3 * 64**2 + 1)))
    assert tags == sorted(set(tags))
    assert all(len(tag) == 8 and tag.decode("ascii").isprintable() for tag in tags)
