"""Tests of queues larger than the memory limit: clients receive all messages in order, and the process stays small."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest

from tests.harness.clients.peers import Peer

from .conftest import NewPeer, StartBroker, StartProcess


def received(peer: Peer, link: Any, number: int) -> list[Any]:
    """Receive *number* messages with a credit of 500, and accept them."""
    found: list[Any] = []
    link.flow(500)
    while len(found) < number:
        for one in peer.take(link):
            one.accept()
            found.append(one)
            link.flow(1)
    return found


def test_a_queue_deeper_than_memory_is_in_order(start_broker: StartBroker, peer_at: NewPeer) -> None:
    """Durable and transient, short and long messages keep their order in a queue larger than the memory limit."""
    peer = peer_at(start_broker(memory_limit_bytes=200_000).port)
    sender = peer.sender("q")
    bodies = [number.to_bytes(4) * (25_000 if number % 400 == 0 else 50) for number in range(2000)]
    for begin in range(0, 2000, 100):
        peer.put(sender, bodies[begin : begin + 99])
        peer.put(sender, bodies[begin + 99 : begin + 100], durable=False)
    browser = peer.receiver("q", copy=True)
    assert [one.body for one in peer.drain(browser, 3000)] == bodies
    assert [one.body for one in received(peer, peer.receiver("q"), 2000)] == bodies
    assert peer.drain(peer.receiver("q"), 10) == []


@pytest.mark.parametrize("settled", [True, False], ids=["presettled", "unsettled"])
def test_a_drain_brings_all_of_a_backlog(
    start_broker: StartBroker, peer_at: NewPeer, settled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cairnmq.broker.links.consumer.MOST_IDLE_DRAIN_S", 600.0)  # so that no client is too slow
    peer = peer_at(start_broker(memory_limit_bytes=0).port)
    peer.put(peer.sender("q"), range(6000))
    link = peer.receiver("q", settled=settled)
    taken: list[Any] = []

    def is_drained() -> bool:
        is_over = not link.draining()
        for one in peer.arrived(link):
            taken.append(one)
            if not settled:
                one.accept()
        return is_over

    link.drain(7000)
    peer.wait(is_drained, "the drain to be answered")
    assert [one.body for one in taken] == list(range(6000))


def test_a_drain_ends_without_memory_if_its_client_settles_nothing(start_broker: StartBroker, peer_at: NewPeer) -> None:
    """The drain delivers the first messages, and another one delivers the next messages after their settlement."""
    peer = peer_at(start_broker(memory_limit_bytes=0).port)
    peer.put(peer.sender("q"), range(20_000))
    link = peer.receiver("q")
    first = peer.drain(link, 30_000)
    assert 0 < len(first) < 20_000
    for one in first:
        one.accept()
    second = peer.drain(link, 30_000)
    assert second
    assert [one.body for one in first + second] == list(range(len(first) + len(second)))


def test_a_backlog_survives_a_kill(start_process: StartProcess, peer_at: NewPeer) -> None:
    """After a kill no message is lost or duplicated, and all are marked as possibly delivered."""
    broker = start_process("--memory-limit", "64K")
    peer = peer_at(broker.port)
    peer.put(peer.sender("q"), range(5000))
    assert [one.body for one in received(peer, peer.receiver("q"), 1000)][:1000] == list(range(1000))
    peer.settle_down()
    broker.stop(signal.SIGKILL)
    peer = peer_at(start_process("--memory-limit", "64K").port)
    found = received(peer, peer.receiver("q"), 4000)
    first = found[0].body
    assert first <= 1000  # the last acknowledgments may not have been on the disk
    assert [one.body for one in found] == list(range(first, first + len(found)))
    assert {(one.message.delivery_count, one.message.first_acquirer) for one in found} == {(1, False)}


def test_the_process_stays_small(start_process: StartProcess, peer_at: NewPeer) -> None:
    """The process grows by less than 45 MB for a backlog of 80 MB with a memory limit of 4 MB."""
    broker = start_process("--memory-limit", "4M", "--credit", "200")
    peer = peer_at(broker.port)
    before = resident_bytes(broker.process.pid)
    sender = peer.sender("q")
    body = bytes(40_000)
    for _ in range(20):
        peer.put(sender, [body] * 100)
    filled = resident_bytes(broker.process.pid)
    link = peer.receiver("q")
    assert all(one.body == body for one in received(peer, link, 2000))
    assert max(filled, resident_bytes(broker.process.pid)) - before < 45_000_000


def resident_bytes(pid: int) -> int:
    """Return the peak resident size of a process so far."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    raise AssertionError("no VmHWM")


def test_the_limit_takes_suffixes(start_process: StartProcess) -> None:
    assert start_process("--memory-limit", "1g").stop() == 0
    with pytest.raises(AssertionError, match="invalid size"):
        start_process("--memory-limit", "1X")
