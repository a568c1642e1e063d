"""Tests of the tasks of threads: workers process AMQP, the core decides, and neither waits for the other."""

from __future__ import annotations

import os
import threading
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import pytest
from proton import Endpoint, Message

from cairnmq.broker_plugin.run import RunningBroker
from cairnmq.router.connections.terminal import Terminal
from tests.clients.conftest import NewPeer, StartBroker
from tests.harness.clients.peers import DEADLINE_S, Peer
from tests.harness.router.held_core import core_held_up


def test_a_connection_is_one_workers_at_a_time(
    start_broker: StartBroker, peer_at: NewPeer, monkeypatch: pytest.MonkeyPatch
) -> None:  # C1, C2, C4, C5
    """Only one worker thread calls the three terminal methods that use Proton objects of a connection."""
    users: defaultdict[Any, set[str]] = defaultdict(set)

    def watched(method: Callable[..., Any]) -> Callable[..., Any]:
        def call(terminal: Terminal, *args: Any) -> Any:
            users[terminal].add(threading.current_thread().name)
            return method(terminal, *args)

        return call

    for name in ("receive", "do_work", "write"):
        monkeypatch.setattr(Terminal, name, watched(getattr(Terminal, name)))
    broker = start_broker(worker_threads=4)
    peers = [peer_at(broker.port) for _ in range(8)]
    for number, peer in enumerate(peers):
        peer.put(peer.sender("q"), range(number * 10, number * 10 + 10))
    found = [one.body for peer in peers for one in peer.take(peer.receiver("q", 10), 10)]
    assert sorted(found) == list(range(80))
    assert len(users) == 8
    assert all(len(names) == 1 for names in users.values())
    assert {name for names in users.values() for name in names} == {f"cairnmq-worker-{n}" for n in range(4)}


def test_sessions_are_the_workers_own_and_attaches_the_cores(
    broker: RunningBroker, peer: Peer
) -> None:  # C47, C49, C50, C51, F5, F21
    with core_held_up(broker):
        link = peer.session.sender("early")
        link.target.address = "q"
        link.open()
        peer.settle_down()  # meanwhile, the worker processes the begin and the end of a session
        assert link.state & Endpoint.REMOTE_UNINIT
        assert not link.credit
    peer.wait(lambda: link.state & Endpoint.REMOTE_ACTIVE)
    peer.put(link, ["late"])


def test_credit_comes_with_the_address_and_not_before(
    start_broker: StartBroker, peer_at: NewPeer
) -> None:  # C13, C15, C17
    broker = start_broker(auto_create=("made-*",), credit=7)
    peer = peer_at(broker.port)
    for address in ("made-1", None):
        link = peer.sender(address)
        peer.settle_down()
        assert link.credit == 7
    refused = peer.attach(peer.session.sender("x"), "nowhere")
    assert peer.refusal(refused) == "amqp:not-found"
    assert not refused.credit


def test_credit_is_given_back_one_for_one_with_settlement(
    start_broker: StartBroker, peer_at: NewPeer
) -> None:  # C16, C17
    broker = start_broker(credit=5)
    peer = peer_at(broker.port)
    sender = peer.sender("q")
    with core_held_up(broker):
        deliveries = [peer.post(sender, Message(body="m", durable=True)) for _ in range(5)]
        peer.settle_down()
        assert sender.credit == 0, "received is not settled"
    peer.wait(lambda: all(one.settled for one in deliveries))
    peer.settle_down()
    assert sender.credit == 5


def test_a_terminal_takes_words_of_any_number_while_its_driver_is_busy(
    start_broker: StartBroker, peer_at: NewPeer
) -> None:  # F3, F4, F20
    """Transfers on hundreds of links wait while the core is busy, and the worker does not wait for it."""
    broker = start_broker()
    peer = peer_at(broker.port)
    links = [peer.sender(f"q{number % 7}", settled=True) for number in range(300)]
    with core_held_up(broker):
        for link in links:
            for number in range(20):
                peer.post(link, Message(body=number), settled=True)
        peer.settle_down()
    total = 0
    for number in range(7):
        receiver = peer.receiver(f"q{number}", 10_000)
        total += len(peer.take(receiver, 20 * len(range(number, 300, 7))))
    assert total == 300 * 20


def test_what_is_watched_is_told_once_each_time(broker: RunningBroker) -> None:
    """A worker calls back once for each watch, although the descriptor stays readable."""
    told: list[str] = []
    came = threading.Semaphore(0)

    def ready() -> None:
        told.append(threading.current_thread().name)
        came.release()

    fd = os.eventfd(1)
    try:
        for number in range(1, 4):
            broker._router.watch(fd, ready)
            assert came.acquire(timeout=DEADLINE_S)
            turned = threading.Event()
            broker._post(turned.set)  # the worker's loop completes a turn before this
            assert turned.wait(DEADLINE_S)
            assert told == ["cairnmq-worker-0"] * number
        broker._router.stop()
        broker._router.watch(fd, ready)  # no worker can call back
        assert len(told) == 3
    finally:
        os.close(fd)
