"""Tests of what a receiver adds to a message by its outcome: annotations of `modified`, and the error of `rejected`.

3.4.5: the annotations are combined with those of the message, and replace those with the same key.
"""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest
from proton import Condition, Delivery, Described, Message, symbol, ulong

from tests.harness.clients.peers import Peer, Received
from tests.harness.clients.transacting import Control
from tests.harness.process import CAIRNMQ, BrokerProcess, broker

ADDED = {
    symbol("x-opt-new"): "why",
    symbol("x-opt-same"): 2,
    symbol("x-opt-list"): [1, "two", {"three": 3}],
    symbol("x-opt-deaths"): "only the broker writes this one",
}
NOW = {"x-opt-old": 1, "x-opt-new": "why", "x-opt-same": 2, "x-opt-list": [1, "two", {"three": 3}]}


def modified(peer: Peer, received: Received, *, failed: bool = False, undeliverable: bool = False) -> None:
    """Modify a message, and wait until the broker has settled it: the outcome is durable."""
    local = received.delivery.local
    local.annotations, local.failed, local.undeliverable = ADDED, failed, undeliverable
    received.delivery.update(Delivery.MODIFIED)
    peer.wait(lambda: received.delivery.settled, "the outcome is durable")
    received.delivery.settle()


def sent(peer: Peer, *, durable: bool = True, size: int = 10) -> None:
    annotations = {symbol("x-opt-old"): 1, symbol("x-opt-same"): 1}
    first = Message(body=b"x" * size, durable=durable, annotations=annotations)
    peer.send(peer.sender("q"), first, Message(body=b"second", durable=durable))


def known(received: Received) -> dict[str, Any]:
    names = [name for name in NOW if name in received.message.annotations]
    return {name: received.message.annotations[name] for name in names}


@pytest.fixture
def running(tmp_path: Path) -> Any:
    with broker(tmp_path / "store") as started:
        yield started


def create(running: BrokerProcess, name: str, *arguments: str) -> None:
    asked = [each for argument in arguments for each in ("-a", argument)]
    command = [CAIRNMQ, "ctl", "--url", f"127.0.0.1:{running.port}", "queues", "create", name, *asked]
    subprocess.run(command, check=True, capture_output=True)


# P2, C3
@pytest.mark.parametrize("size", [10, 200_000])
@pytest.mark.parametrize("durable", [True, False], ids=["durable", "transient"])
def test_annotations_are_combined_and_the_message_keeps_its_place(
    running: BrokerProcess, size: int, durable: bool
) -> None:
    peer = Peer(running.port)
    create(running, "q", "max-bytes=1000000", "max-deliveries=5")
    sent(peer, durable=durable, size=size)
    receiver = peer.receiver("q", 1)
    for count in range(3):
        [received] = peer.take(receiver)
        assert len(received.body) == size
        assert received.message.delivery_count == count
        assert known(received) == (NOW if count else {"x-opt-old": 1, "x-opt-same": 1})
        modified(peer, received, failed=True)
        receiver.flow(1)
    [received] = peer.take(receiver)
    received.accept()
    assert [one.body for one in peer.drain(receiver, 5)] == [b"second"]
    peer.close()


# P2, C3
@pytest.mark.parametrize("size", [10, 200_000])
def test_annotations_outlast_a_kill(tmp_path: Path, size: int) -> None:
    with broker(tmp_path / "store") as running:
        peer = Peer(running.port)
        sent(peer, size=size)
        [received] = peer.take(peer.receiver("q", 1))
        modified(peer, received)
        running.stop(9)
    with broker(tmp_path / "store") as running:
        peer = Peer(running.port)
        found = peer.take(peer.receiver("q", 5), 2)
        assert [known(one) for one in found if len(one.body) == size] == [NOW]
        assert len(peer.drain(peer.receiver("q", 5))) == 0
        peer.close()


# P2, C3
def test_annotations_reach_other_links_and_dead_letters(running: BrokerProcess) -> None:
    create(running, "dead")
    create(running, "q", "max-deliveries=1", "dead-letter-address=dead")
    peer = Peer(running.port)
    sent(peer)
    [received] = peer.take(peer.receiver("q", 1))
    modified(peer, received, undeliverable=True)
    other = peer.receiver("q", 1, name="other")
    [received] = peer.take(other)
    assert known(received) == NOW
    received.delivery.local.annotations = {symbol("x-opt-new"): "again"}
    received.settle(Delivery.MODIFIED, failed=True)
    [dead] = peer.take(peer.receiver("dead", 1))
    assert known(dead) == {**NOW, "x-opt-new": "again"}
    assert dead.message.annotations["x-opt-last-death-reason"] == "delivery_limit"
    peer.close()


# P2, C3
@pytest.mark.parametrize("is_over", [True, False], ids=["rejected", "modified"])
def test_outcome_in_a_transaction_has_all_of_its_parts(running: BrokerProcess, is_over: bool) -> None:
    create(running, "dead")
    create(running, "q", "dead-letter-address=dead")
    peer = Peer(running.port)
    sent(peer)
    control = Control(peer)
    txn_id = control.declare()
    [received] = peer.take(peer.receiver("q", 1))
    error = Described(ulong(0x1D), [symbol("app:bad-order"), "no such customer"])
    outcome = Described(ulong(0x25), [error]) if is_over else Described(ulong(0x27), [False, True, ADDED])
    received.delivery.local.data = [txn_id, outcome]
    received.delivery.update(0x34)
    received.delivery.settle()
    control.commit(txn_id)
    [found] = peer.take(peer.receiver("dead" if is_over else "q", 1, name="other"))
    if is_over:
        check_rejection(found)
    else:
        assert known(found) == NOW
    peer.close()


def check_rejection(found: Received) -> None:
    [death] = found.message.annotations["x-opt-deaths"]
    assert (death["reason"], death["condition"], death["description"]) == (
        "rejected", "app:bad-order", "no such customer",
    )  # fmt: skip


# P2
def test_dead_letter_has_the_error_of_its_rejection(running: BrokerProcess) -> None:
    create(running, "dead", "dead-letter-address=q")
    create(running, "q", "dead-letter-address=dead")
    peer = Peer(running.port)
    sent(peer)
    [received] = peer.take(peer.receiver("q", 1))
    received.delivery.local.condition = Condition("app:bad-order", "no such customer")
    received.settle(Delivery.REJECTED)
    [dead] = peer.take(peer.receiver("dead", 1))
    check_rejection(dead)
    peer.close()
