"""Small messages that pass beside a long one."""

from __future__ import annotations

import time

from tests.harness.clients.peers import Peer


def small_ones_pass(peer: Peer, stalled: Peer) -> None:
    """Check that small messages pass for at least 2 s, in which the broker withholds input of the long message.

    At least 20 are sent, which any disk stores in that time. *stalled* reads nothing, but sends heartbeats. Its sender
    is silent, and would be disconnected after a minute.
    """
    sender, receiver = peer.sender("small"), peer.receiver("small", 100_000)
    begun_s, passed = time.monotonic(), 0
    while passed < 20 or time.monotonic() < begun_s + 2:
        stalled.stall()
        peer.put(sender, [passed])
        passed += 1
    assert len(peer.take(receiver, passed)) == passed
