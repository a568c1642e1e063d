"""Small messages that pass beside a long one."""

from __future__ import annotations

import time

from tests.harness.clients.peers import Peer


def small_ones_pass(peer: Peer, stalled: Peer) -> None:
    """For so long that what comes for the other one would have been held, and as many as each disk takes soon.

    That one reads nothing meanwhile, and says that it lives. Its sender says nothing, and is missed after a minute.
    """
    sender, receiver = peer.sender("small"), peer.receiver("small", 100_000)
    begun_s, passed = time.monotonic(), 0
    while passed < 20 or time.monotonic() < begun_s + 2:
        stalled.stall()
        peer.put(sender, [passed])
        passed += 1
    assert len(peer.take(receiver, passed)) == passed
