"""Tests of heartbeats: an idle connection stays open as long as both sides send them, and no longer.

Each side sends a heartbeat every quarter or every half of its time limit. The limits are long enough for a busy
machine, on which a thread occasionally waits for two seconds.
"""

from __future__ import annotations

import socket
import time
from typing import Any

import pytest
from proton import Endpoint

from cairnmq.amqp.links.events import Limits
from cairnmq.broker_plugin.run import RunningBroker
from tests.harness.clients.peers import DEADLINE_S, Peer

from .conftest import Connect, NewPeer, StartBroker


@pytest.mark.parametrize("idle_timeout_s", [4.0, 6.0])
def test_an_idle_client_hears_heartbeats(new_peer: NewPeer, idle_timeout_s: float) -> None:
    """The idle timeout of the client passes three times, and the connection stays open."""
    peer = new_peer(idle_timeout_s=idle_timeout_s)
    received = peer.bytes_in
    begun_s = time.monotonic()
    peer.wait(lambda: time.monotonic() - begun_s > 3 * idle_timeout_s or peer.ended)
    assert peer.bytes_in >= received + 3 * 8  # a heartbeat is an empty frame of 8 bytes
    peer.put(peer.sender("q"), ["still there"])


def test_the_blocking_api_with_heartbeats(connect: Connect) -> None:
    connection = connect(heartbeat=5.0)
    begun_s = time.monotonic()
    connection.wait(lambda: time.monotonic() - begun_s > 11.0, timeout=DEADLINE_S)
    assert connection.conn.state & Endpoint.REMOTE_ACTIVE


def test_a_client_that_falls_silent_is_dropped(start_broker: StartBroker, peer_at: NewPeer) -> None:
    """A silent client is disconnected with an error; a client that sends heartbeats stays connected."""
    broker = start_broker(limits=Limits(idle_timeout_ms=6000))
    silent, lively = peer_at(broker.port), peer_at(broker.port)
    assert silent.transport.remote_idle_timeout == pytest.approx(3.0)  # the broker announces half of its timeout
    silent.ticking = False
    lively.wait(lambda: heard_of_the_end(silent), "the silent client to be dropped")
    assert silent.connection.remote_condition.name == "amqp:resource-limit-exceeded"
    lively.put(lively.sender("q"), ["still there"])


def heard_of_the_end(peer: Peer) -> bool:
    peer._exchange()
    return peer.ended


def test_one_that_never_opens_is_dropped(broker: RunningBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cairnmq.router.connections.terminal.OPEN_TIMEOUT_S", 0.1)
    beginnings = (b"", b"AMQP", b"AMQP\x00\x01\x00\x00", b"AMQP\x03\x01\x00\x00")
    socks = [socket.create_connection(("127.0.0.1", broker.port), timeout=DEADLINE_S) for _ in beginnings]
    for sock, said in zip(socks, beginnings, strict=True):
        sock.sendall(said)
    for sock in socks:
        with sock:
            while sock.recv(1000):
                pass


def test_without_a_time_out_silence_is_fine(start_broker: StartBroker, peer_at: NewPeer) -> None:
    broker = start_broker(limits=Limits(idle_timeout_ms=0))
    peer: Any = peer_at(broker.port)
    assert peer.transport.remote_idle_timeout == 0
