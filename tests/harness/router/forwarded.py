"""Senders and receivers on links that two brokers forward."""

from __future__ import annotations

from typing import Any

from proton import Link

from tests.harness.clients.peers import Peer


def sender_to(peer: Peer, address: str, **options: Any) -> Any:
    """Return an attached sender, which may have no credit yet."""
    link = peer.session.sender(f"sender-{address}-{id(options)}")
    if "second" in options:
        link.rcv_settle_mode = Link.RCV_SECOND
    return peer.attach(link, address, settled=options.get("settled", False))


def receiving(peer: Peer, address: str, credit: int = 0, *, settled: bool = False) -> Any:
    """Return a receiver whose credit has reached the broker."""
    link = peer.receiver(address, credit, settled=settled)
    peer.settle_down()
    return link


def taken(peer: Peer, receiver: Any, number: int) -> list[Any]:
    """Receive and accept the next *number* messages; return their bodies."""
    received = peer.take(receiver, number)
    for one in received:
        one.accept()
    peer.settle_down()
    return [one.body for one in received]


def settled(peer: Peer, deliveries: list[Any]) -> list[int]:
    """Wait until all *deliveries* are settled; return their outcomes."""
    peer.wait(lambda: all(one.settled for one in deliveries), "all to be settled")
    return [one.remote_state for one in deliveries]
