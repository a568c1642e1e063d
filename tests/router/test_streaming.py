"""Tests of long messages, which are forwarded while they arrive, in little memory, and of their interruption."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from proton import Delivery

from bench.broker import Broker
from bench.long import stream_in, stream_out
from cairnmq.broker.passthrough.sender import AHEAD_BYTES, SESSION_WINDOW_BYTES
from cairnmq.broker_plugin.run import RunningBroker
from tests.clients.conftest import NewPeer, StartBroker
from tests.harness.clients.peers import Peer
from tests.harness.router.small_messages import small_ones_pass

PART = bytes(range(256)) * 64
"""A part of 16 KiB."""


@pytest.fixture(params=[1, 2])
def broker(request: pytest.FixtureRequest, start_broker: StartBroker) -> RunningBroker:
    """Start a broker; with two workers, one often reads a message and another one sends it."""
    return start_broker(anycast=("any.*",), multicast=("all.*",), credit=10, worker_threads=request.param)


@pytest.fixture
def process(tmp_path: Path) -> Iterator[Broker]:
    with Broker(str(tmp_path), "--anycast", "any.*", "--max-message-size", "8589934592") as started:
        yield started


def receiving(peer: Peer, address: str, credit: int = 10, **options: Any) -> Any:
    link = peer.receiver(address, credit, **options)
    peer.settle_down()
    return link


def begin(peer: Peer, sender: Any, size_bytes: int) -> Any:
    """Send the header of a message with a body of *size_bytes*, and a first part."""
    delivery = sender.delivery(sender.delivery_tag())
    sender.stream(b"\x00\x53\x75\xb0" + size_bytes.to_bytes(4))
    more(peer, sender)
    return delivery


def more(peer: Peer, sender: Any) -> None:
    sender.stream(PART)
    peer.settle_down()


def end(peer: Peer, sender: Any) -> None:
    sender.stream(PART)
    sender.advance()
    peer.settle_down()


def arriving(peer: Peer, link: Any) -> bytes:
    """Return the bytes that have arrived of the incomplete message on *link*."""
    return bytes(peer._pieces.get(link, b""))


def settled(peer: Peer, *deliveries: Any) -> list[int]:
    peer.wait(lambda: all(one.settled for one in deliveries), "all to be settled")
    return [one.remote_state for one in deliveries]


@pytest.mark.parametrize("address", ["any.a", "all.a"])
def test_parts_go_on_as_they_come(peer: Peer, new_peer: NewPeer, address: str) -> None:  # C20, C27, C30, C54, C56
    other = new_peer(max_frame_bytes=512)
    receiver = receiving(other, address)
    sender = peer.sender(address)
    delivery = begin(peer, sender, 4 * len(PART))
    for number in (1, 2, 3):
        other.wait(lambda: len(arriving(other, receiver)) == 8 + number * len(PART), "the next part")  # noqa: B023
        if number < 3:
            more(peer, sender)
    assert not delivery.settled
    end(peer, sender)
    (received,) = other.take(receiver)
    assert received.content == b"\x00\x53\x75\xb0" + (4 * len(PART)).to_bytes(4) + 4 * PART
    received.accept()
    other.settle_down()
    assert settled(peer, delivery) == [Delivery.ACCEPTED]


def test_each_copy_is_read_at_its_own_pace(peer: Peer, new_peer: NewPeer) -> None:  # C21, C24, C25, C26, C28
    """One receiver has the complete message while another has no credit yet, and a third reads nothing."""
    fast, late, slow = new_peer(), new_peer(), new_peer()
    links = [receiving(fast, "all.a"), receiving(late, "all.a", 0), receiving(slow, "all.a")]
    sender = peer.sender("all.a")
    delivery = begin(peer, sender, 3 * len(PART))
    more(peer, sender)
    fast.wait(lambda: len(arriving(fast, links[0])) == 8 + 2 * len(PART))
    end(peer, sender)
    complete = fast.take(links[0])[0]
    complete.accept()
    fast.settle_down()
    links[1].flow(1)
    for other, link in ((late, links[1]), (slow, links[2])):
        (received,) = other.take(link)
        assert received.content == complete.content
        assert not delivery.settled
        received.accept()
        other.settle_down()
    assert settled(peer, delivery) == [Delivery.ACCEPTED]


def test_small_messages_follow_a_long_one_in_order(peer: Peer, new_peer: NewPeer) -> None:
    other = new_peer()
    receiver = receiving(other, "any.a", 10)
    sender = peer.sender("any.a")
    first = peer.post(sender, b"\x00\x53\x77\xa1\x01a")
    long = begin(peer, sender, 2 * len(PART))
    end(peer, sender)
    last = peer.post(sender, b"\x00\x53\x77\xa1\x01b")
    peer.settle_down()
    received = other.take(receiver, 3)
    assert [len(one.content) for one in received] == [6, 8 + 2 * len(PART), 6]
    for one in received:
        one.accept()
    other.settle_down()
    assert settled(peer, first, long, last) == [Delivery.ACCEPTED] * 3


@pytest.mark.parametrize("address", ["any.a", "all.a"])
def test_an_aborted_message_is_aborted_for_its_receivers(peer: Peer, new_peer: NewPeer, address: str) -> None:
    other = new_peer()  # C30
    receiver = receiving(other, address, 3)
    sender = peer.sender(address)
    for _ in range(5):
        delivery = begin(peer, sender, 4 * len(PART))
        other.wait(lambda: len(arriving(other, receiver)) > 0)
        delivery.abort()
        peer.settle_down()
        other.wait(lambda: not arriving(other, receiver), "the abort")
        receiver.flow(1)
        other.settle_down()
    delivery = begin(peer, sender, 2 * len(PART))
    end(peer, sender)
    other.take(receiver)[0].accept()
    other.settle_down()
    assert settled(peer, delivery) == [Delivery.ACCEPTED]


def test_a_sender_that_dies_in_the_middle_aborts(peer: Peer, new_peer: NewPeer) -> None:
    for leave in (Peer.cut, Peer.close):
        other, sending = new_peer(), new_peer()
        receiver = receiving(other, "any.a", 2)
        sender = sending.sender("any.a")
        begin(sending, sender, 4 * len(PART))
        other.wait(lambda: len(arriving(other, receiver)) > 0)  # noqa: B023
        leave(sending)
        other.wait(lambda: not arriving(other, receiver), "the abort")  # noqa: B023
        good = peer.sender("any.a")
        delivery = peer.post(good, b"\x00\x53\x77\xa1\x01b")
        peer.settle_down()
        other.take(receiver)[0].accept()
        other.settle_down()
        assert settled(peer, delivery) == [Delivery.ACCEPTED]
        other.close()


@pytest.mark.parametrize(("leave", "state"), [(Peer.cut, Delivery.MODIFIED), (Peer.close, Delivery.RELEASED)])
def test_a_receiver_that_dies_in_the_middle_is_told_at_once(
    peer: Peer, new_peer: NewPeer, leave: Any, state: int
) -> None:
    """The sender gets the outcome before it has sent the rest, which is discarded."""
    other = new_peer()
    receiver = receiving(other, "any.a")
    sender = peer.sender("any.a")
    delivery = begin(peer, sender, 4 * len(PART))
    other.wait(lambda: len(arriving(other, receiver)) > 0)
    leave(other)
    peer.wait(lambda: delivery.remote_state == state, "to hear of it")
    assert not delivery.settled
    again = new_peer()
    receiver = receiving(again, "any.a")
    more(peer, sender)
    end(peer, sender)
    assert settled(peer, delivery) == [state]
    delivery = peer.post(sender, b"\x00\x53\x77\xa1\x01b")
    peer.settle_down()
    assert len(again.take(receiver)[0].content) == 6
    peer.wait(lambda: sender.credit == 9)


def test_multicast_goes_on_when_one_of_its_receivers_dies(peer: Peer, new_peer: NewPeer) -> None:
    stays, goes = new_peer(), new_peer()
    receiver, removed = receiving(stays, "all.a"), receiving(goes, "all.a")
    sender = peer.sender("all.a")
    delivery = begin(peer, sender, 2 * len(PART))
    goes.wait(lambda: len(arriving(goes, removed)) > 0)
    goes.cut()
    peer.settle_down()
    end(peer, sender)
    stays.take(receiver)[0].accept()
    stays.settle_down()
    assert settled(peer, delivery) == [Delivery.ACCEPTED]


def test_a_sender_that_is_ahead_waits_and_others_do_not(
    peer: Peer, new_peer: NewPeer, broker: RunningBroker
) -> None:  # F25, F26
    """A receiver with a closed window blocks the sender's session, but no other one, even on the same connection."""
    slow = new_peer(max_frame_bytes=65536)
    session = slow.new_session(window_bytes=65536)
    link = session.receiver("slow")
    slow.attach(link, "any.a")
    link.flow(1)
    slow.settle_down()
    held, free = peer.new_session(), peer.new_session()
    sender = peer.sender("any.a", session=held)
    delivery = sender.delivery(sender.delivery_tag())
    size_bytes = 2 * (AHEAD_BYTES + SESSION_WINDOW_BYTES)
    sender.stream(b"\x00\x53\x75\xb0" + size_bytes.to_bytes(4) + bytes(size_bytes))
    sender.advance()
    other = new_peer()
    receiver = receiving(other, "any.c", 100)
    small = peer.sender("any.c", session=free)
    for number in range(20):
        slow.stall()
        one = peer.post(small, b"\x00\x53\x77\xa1\x01" + bytes((65 + number,)))
        peer.settle_down()
        other.take(receiver)[0].accept()
        other.settle_down()
        assert settled(peer, one) == [Delivery.ACCEPTED]
    assert held.outgoing_bytes > 0, "it has not sent it all: it waits"
    assert not delivery.settled
    reader = threading.Thread(target=lambda: peer.wait(lambda: delivery.settled))
    reader.start()
    (received,) = slow.take(link)
    received.accept()
    slow.settle_down()
    reader.join()
    assert len(received.content) == 8 + size_bytes
    assert settled(peer, delivery) == [Delivery.ACCEPTED]


@pytest.mark.parametrize("leave", [Peer.cut, Peer.close])
def test_sender_that_waits_goes_on_when_its_receiver_leaves(
    peer: Peer, new_peer: NewPeer, leave: Callable[[Peer], None]
) -> None:
    """A held link has no events of its own: the removal of the copy that was behind must end the hold."""
    slow = new_peer(max_frame_bytes=65536)
    session = slow.new_session(window_bytes=65536)
    link = session.receiver("slow")
    slow.attach(link, "any.a")
    link.flow(1)
    slow.settle_down()
    held = peer.new_session()
    sender = peer.sender("any.a", session=held)
    delivery = sender.delivery(sender.delivery_tag())
    size_bytes = 2 * (AHEAD_BYTES + SESSION_WINDOW_BYTES)
    sender.stream(b"\x00\x53\x75\xb0" + size_bytes.to_bytes(4) + bytes(size_bytes))
    sender.advance()
    peer.wait(lambda: 0 < held.outgoing_bytes <= size_bytes - SESSION_WINDOW_BYTES, "the window to be used up")
    leave(slow)
    peer.wait(lambda: delivery.settled, "the rest to be sent")
    assert held.outgoing_bytes == 0


MIB = 1 << 20
LONG = 256 * MIB
MOST_GROWN_BYTES = 32 * MIB


def test_256_mib_pass_in_little_memory(process: Broker) -> None:  # C30, F2, F13, F14, F16, F24
    small = threading.Thread(target=stream_out, args=(process.port, "any.warm", MIB))
    small.start()
    stream_in(process.port, "any.warm", MIB)
    small.join()
    process.reset_peak()
    before_bytes = process.peak_bytes()
    client = threading.Thread(target=stream_out, args=(process.port, "any.long", LONG))
    client.start()
    stream_in(process.port, "any.long", LONG)
    client.join()
    grown_bytes = process.peak_bytes() - before_bytes
    assert grown_bytes < MOST_GROWN_BYTES, f"{grown_bytes >> 20} MiB"


def test_a_receiver_that_takes_nothing_takes_no_memory(process: Broker, peer_at: NewPeer) -> None:  # F25, F26
    slow = peer_at(process.port, max_frame_bytes=65536)
    link = slow.new_session(window_bytes=65536).receiver("slow")
    slow.attach(link, "any.long")
    link.flow(1)
    slow.settle_down()
    size_bytes = 4 * MOST_GROWN_BYTES
    process.reset_peak()
    before_bytes = process.peak_bytes()
    client = threading.Thread(target=stream_in, args=(process.port, "any.long", size_bytes))
    client.start()
    slow.stall()
    peer = peer_at(process.port)
    small_ones_pass(peer, slow)
    assert client.is_alive()
    grown_bytes = process.peak_bytes() - before_bytes
    assert grown_bytes < MOST_GROWN_BYTES, f"{grown_bytes >> 20} MiB"
    (received,) = slow.take(link)
    assert len(received.content) > size_bytes
    received.accept()
    slow.settle_down()
    client.join()
