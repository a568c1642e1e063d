"""Tests that delivery failures are counted exactly as clients reported them, over stops and kills of the broker."""

from __future__ import annotations

import signal
import time
from typing import Any

import pytest
from proton import Delivery, Message

from tests.clients.conftest import NewPeer, StartProcess
from tests.harness.clients.peers import Peer
from tests.harness.process import DEADLINE_S

from .conftest import Manager


def fence(peer: Peer) -> None:
    """Send a durable message and wait for its confirmation, after which all earlier records are durable."""
    delivery = peer.post(peer.sender("fence"), Message(body="", durable=True))
    peer.wait(lambda: delivery.settled, "the confirmation")
    assert delivery.remote_state == Delivery.ACCEPTED


def counted(peer: Peer) -> None:
    """Wait until failures of the queue `q` are recorded durably; its first failure creates the queue `$failures:q`."""
    manager = Manager(peer)
    deadline_s = time.monotonic() + DEADLINE_S
    while manager.ask("PEEK", "queue", "$failures:q").status != 200:
        assert time.monotonic() < deadline_s
    fence(peer)


def start(start_process: StartProcess, peer_at: NewPeer, store: str, **arguments: Any) -> tuple[Any, Peer]:
    running = start_process("--store", store)
    peer = peer_at(running.port)
    if arguments:
        given = {key.replace("_", "-"): value for key, value in arguments.items()}
        assert Manager(peer).ask("CREATE", "queue", "q", {"arguments": given}).status == 201
        peer.put(peer.sender("q"), ["poison"])
    return running, peer


@pytest.mark.parametrize("store", ["journal", "sql"])
def test_a_limit_holds_over_kills(start_process: StartProcess, peer_at: NewPeer, store: str) -> None:
    """The message fails once in each run of the broker, and is acquired again when the broker is killed."""
    running, peer = start(start_process, peer_at, store, max_deliveries=4, dead_letter_address="dead")
    for life in range(3):
        receiver = peer.receiver("q", 2)
        [poison] = peer.take(receiver)
        assert poison.message.delivery_count == (max(1, life) if life else 0)
        poison.settle(Delivery.MODIFIED, failed=True)
        [again] = peer.take(receiver)
        assert again.message.delivery_count == life + 1
        counted(peer)
        running.stop(signal.SIGKILL)
        running, peer = start(start_process, peer_at, store)
    peer.take(peer.receiver("q", 2))[0].settle(Delivery.MODIFIED, failed=True)
    [dead] = peer.take(peer.receiver("dead", 1))
    assert (dead.body, dead.message.delivery_count) == ("poison", 4)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL], ids=["stopped", "killed"])
def test_what_somebody_has_when_the_broker_ends_has_not_failed(
    start_process: StartProcess, peer_at: NewPeer, number: int
) -> None:
    running, peer = start(start_process, peer_at, "journal", max_deliveries=1)
    for _ in range(3):
        assert peer.take(peer.receiver("q", 1))[0].body == "poison"
        running.stop(number)
        running, peer = start(start_process, peer_at, "journal")
    peer.take(peer.receiver("q", 1))[0].accept()


@pytest.mark.parametrize("own", ["$failures:q", "$duplicates:q"])
def test_nobody_moves_or_changes_the_brokers_own(start_process: StartProcess, peer_at: NewPeer, own: str) -> None:
    running, peer = start(start_process, peer_at, "journal", max_deliveries=9, duplicate_window=10)
    peer.send(peer.sender("q"), Message(id="a", body="a", durable=True))
    peer.take(peer.receiver("q", 1))[0].settle(Delivery.MODIFIED, failed=True)
    counted(peer)
    running.stop(signal.SIGKILL)
    running, peer = start(start_process, peer_at, "journal")
    manager = Manager(peer)
    assert manager.ask("MOVE", "queue", own, {"to": "fence"}).status == 400
    assert manager.ask("PEEK", "queue", own).status == 200
    assert manager.ask("UPDATE", "queue", own, {"arguments": {"priorities": True}}).status == 400
    bound = {"exchange": "amq.fanout", "queue": own, "key": "", "arguments": {}}
    assert manager.ask("CREATE", "binding", None, bound).status == 400
    assert manager.ask("READ", "queue", "q").status == 200
