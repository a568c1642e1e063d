"""Test of a message of 1 GiB, for which the broker needs less than 64 MiB of additional memory."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.broker import Broker
from bench.long import stream_in, stream_out
from tests.clients.conftest import NewPeer

GIB = 1 << 30
MOST_GROWN_BYTES = 64 << 20


@pytest.fixture
def process(tmp_path: Path) -> Iterator[Broker]:
    with Broker(str(tmp_path), "--max-message-size", "8589934592") as started:
        yield started


def test_1_gib_takes_little_memory_and_holds_nobody_up(process: Broker, peer_at: NewPeer) -> None:  # F2, F24, F26, F27
    """A durable message streams in and out while small messages pass."""
    peer = peer_at(process.port)
    sender, receiver = peer.sender("small"), peer.receiver("small", 100_000)
    peer.put(sender, ["warm"])
    peer.take(receiver)
    process.reset_peak()
    before_bytes = process.peak_bytes()
    for stream in (stream_in, stream_out):
        client = threading.Thread(target=stream, args=(process.port, "long", GIB))
        client.start()
        passed = 0
        while client.is_alive():
            peer.put(sender, [passed])
            passed += 1
        client.join()
        assert passed > 2, "it is no matter of waiting for the end"
        assert [one.body for one in peer.take(receiver, passed)][-1] == passed - 1
    assert process.peak_bytes() - before_bytes < MOST_GROWN_BYTES
