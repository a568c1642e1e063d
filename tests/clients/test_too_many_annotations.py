"""Tests of messages that leave their queue with more annotations from receivers than the broker lets them have."""

from __future__ import annotations

import subprocess
from functools import partial
from pathlib import Path

import pytest
from proton import Delivery, Described, Message, symbol, ulong

from tests.harness.clients.peers import Peer, Received
from tests.harness.clients.transacting import Control
from tests.harness.process import CAIRNMQ, broker

PART = 24 << 10
"""Bytes of each annotation: three of them are above the bound, one is within a frame."""


def grown(peer: Peer) -> Received:
    """Return a message that has as many annotations as it may have, delivered again."""
    peer.send(peer.sender("q"), Message(body=b"x", durable=True))
    receiver = peer.receiver("q", 1)
    for number in range(2):
        [received] = peer.take(receiver)
        received.delivery.local.annotations = {symbol(f"x-opt-{number}"): "n" * PART}
        received.delivery.update(Delivery.MODIFIED)
        peer.wait(partial(getattr, received.delivery, "settled"), "the outcome is durable")
        received.delivery.settle()
        receiver.flow(1)
    [received] = peer.take(receiver)
    assert len(received.message.annotations["x-opt-1"]) == PART
    return received


@pytest.mark.parametrize("transactional", [False, True], ids=["alone", "transaction"])
def test_dead_letter_is_moved_without_annotations_above_the_bound(tmp_path: Path, transactional: bool) -> None:
    with broker(tmp_path / "store") as running:
        for name, *asked in (["dead"], ["q", "-a", "max-deliveries=1", "-a", "dead-letter-address=dead"]):
            command = [CAIRNMQ, "ctl", "--url", f"127.0.0.1:{running.port}", "queues", "create", name, *asked]
            subprocess.run(command, check=True, capture_output=True)
        peer = Peer(running.port)
        received, added = grown(peer), {symbol("x-opt-2"): "n" * PART}
        if transactional:
            control = Control(peer)
            txn_id = control.declare()
            received.delivery.local.data = [txn_id, Described(ulong(0x27), [True, False, added])]
            received.delivery.update(0x34)
            received.delivery.settle()
            control.commit(txn_id)
        else:
            received.delivery.local.annotations = added
            received.settle(Delivery.MODIFIED, failed=True)
        [dead] = peer.take(peer.receiver("dead", 1))
        assert "x-opt-2" not in dead.message.annotations
        assert dead.message.annotations["x-opt-last-death-reason"] == "delivery_limit"
        peer.close()
