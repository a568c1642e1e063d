"""Messages far longer than the memory bound pass through two brokers, over inter-router links or a link route."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from proton import Endpoint

from bench.broker import Broker
from bench.long import stream_in, stream_out
from tests.clients.conftest import NewPeer
from tests.harness.clients.peers import Peer
from tests.harness.router.small_messages import small_ones_pass

MIB = 1 << 20
MOST_GROWN_BYTES = 32 * MIB
COMMON = ("--anycast", "any.*", "--max-message-size", "8589934592")

Pair = tuple[Broker, Broker]


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    """Start two brokers, of which the second passes messages through to receivers at the first."""
    with Broker(str(tmp_path / "one"), *COMMON, "--container-id", "one") as one:
        url = f"amqp://127.0.0.1:{one.port}?name=one"
        joined = ("--connect-to", url + "&role=inter-router")
        routed = ("--connect-to", url.replace("=one", "=way"), "--link-route", "routed.*=way,strip=routed.")
        with Broker(str(tmp_path / "two"), *COMMON, "--container-id", "two", *joined, *routed) as two:
            connected(two)
            yield one, two


def connected(broker: Broker) -> None:
    """Wait until the link route is open."""
    peer = Peer(broker.port)
    try:
        while True:
            link = peer.attach(peer.session.sender(f"try-{time.monotonic_ns()}"), "routed.any.try")
            peer.settle_down()
            if not link.state & Endpoint.REMOTE_CLOSED:
                return
    finally:
        peer.cut()


def passes(sending: Broker, to: str, receiving: Broker, at: str, size_bytes: int) -> None:
    client = threading.Thread(target=stream_out, args=(receiving.port, at, size_bytes))
    client.start()
    stream_in(sending.port, to, size_bytes)
    client.join()


@pytest.mark.parametrize(
    ("to", "at", "size_bytes"), [("any.long", "any.long", 256 * MIB), ("routed.any.other", "any.other", 128 * MIB)]
)
def test_long_messages_pass_through_both(pair: Pair, to: str, at: str, size_bytes: int) -> None:  # C30, C48, C60
    one, two = pair
    passes(two, to, one, at, MIB)
    before = {}
    for broker in pair:
        broker.reset_peak()
        before[broker] = broker.peak_bytes()
    passes(two, to, one, at, size_bytes)
    for broker in pair:
        grown_bytes = broker.peak_bytes() - before[broker]
        assert grown_bytes < MOST_GROWN_BYTES, f"{grown_bytes >> 20} MiB"


@pytest.mark.parametrize(("to", "at"), [("any.long", "any.long"), ("routed.any.other", "any.other")])
def test_a_far_end_that_stalls_takes_no_memory(pair: Pair, peer_at: NewPeer, to: str, at: str) -> None:  # C13, C60
    one, two = pair
    passes(two, to, one, at, MIB)
    slow = peer_at(one.port, max_frame_bytes=65536)
    link = slow.new_session(window_bytes=65536).receiver("slow")
    slow.attach(link, at)
    link.flow(1)
    slow.settle_down()
    size_bytes = 3 * MOST_GROWN_BYTES
    before = {}
    for broker in pair:
        broker.reset_peak()
        before[broker] = broker.peak_bytes()
    client = threading.Thread(target=stream_in, args=(two.port, to, size_bytes))
    client.start()
    slow.stall()
    peer = peer_at(two.port)
    small_ones_pass(peer, slow)
    assert client.is_alive()
    for broker in pair:
        grown_bytes = broker.peak_bytes() - before[broker]
        assert grown_bytes < MOST_GROWN_BYTES, f"{grown_bytes >> 20} MiB"
    (received,) = slow.take(link)
    assert len(received.content) > size_bytes
    received.accept()
    slow.settle_down()
    client.join()
