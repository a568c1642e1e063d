"""Tests of the turns that links of a connection take: higher priorities first, and no delays by long messages."""

from __future__ import annotations

import socket
from typing import Any

import pytest
from proton import Message, symbol

from tests.clients.conftest import NewPeer
from tests.harness.clients.peers import Peer

COUNT, SIZE_BYTES = 400, 20_000


def receiver(peer: Peer, address: str, priority: int | None = None) -> Any:
    link = peer.session.receiver(f"r-{address}")
    if priority is not None:
        link.properties = {symbol("cairnmq:priority"): priority}
    return peer.attach(link, address)


def in_order(peer: Peer) -> list[Any]:
    """Return a list that collects the links of messages in the order of arrival; make the receive buffer small."""
    peer.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 32 << 10)
    order: list[Any] = []
    take = peer._take

    def note(link: Any, delivery: Any) -> None:
        before = seen(peer, link)
        take(link, delivery)
        order.extend([link] * (seen(peer, link) - before))

    peer._take = note  # type: ignore[method-assign]
    return order


def behind_last(order: list[Any], link: Any) -> int:
    """Return the number of messages that arrived after the last one of *link*."""
    return order[::-1].index(link)


def fill(new_peer: NewPeer, address: str, count: int = COUNT) -> None:
    peer = new_peer()
    peer.put(peer.sender(address), [bytes(SIZE_BYTES)] * count)


def seen(peer: Peer, link: Any) -> int:
    return len(peer.received.get(link, ()))


@pytest.mark.parametrize(
    ("first", "second"),
    [
        pytest.param(None, None, id="links of one priority take turns"),  # F27
        pytest.param(3, 7, id="a higher priority"),  # C38, C44, C45
        pytest.param(0, None, id="the default is 4"),  # C46
        pytest.param(None, 99, id="9 is the highest"),
    ],
)
def test_a_link_with_much_to_send_lets_others_in(new_peer: NewPeer, first: int | None, second: int | None) -> None:
    """A client reads nothing while one link has 8 MB for it; messages for another link then precede the rest."""
    peer = new_peer()
    order = in_order(peer)
    busy, late = receiver(peer, "busy", first), receiver(peer, "late", second)
    fill(new_peer, "busy")
    busy.flow(COUNT)
    peer.stall()
    late.flow(10)
    peer._write()
    fill(new_peer, "late", 10)
    peer.wait(lambda: len(order) == COUNT + 10)
    assert behind_last(order, late) > COUNT // 4


def test_the_lower_priority_waits_for_the_higher_one(new_peer: NewPeer) -> None:  # C45
    peer = new_peer()
    order = in_order(peer)
    high, low = receiver(peer, "high", 9), receiver(peer, "low", 0)
    fill(new_peer, "high")
    fill(new_peer, "low")
    low.flow(COUNT)
    high.flow(COUNT)
    peer.wait(lambda: len(order) == 2 * COUNT)
    assert behind_last(order, high) > COUNT * 3 // 4


def test_long_messages_of_several_links_go_side_by_side(new_peer: NewPeer) -> None:  # F15, F27
    """Links take turns frame by frame: no long message is complete before most of the other one has arrived."""
    peer = new_peer()
    long = Message(body=bytes(6_000_000), durable=True)
    links = [receiver(peer, f"long{number}") for number in range(2)]
    for number in range(2):
        peer.send(peer.sender(f"long{number}"), long)
    for link in links:
        link.flow(1)
    peer.wait(lambda: any(seen(peer, link) for link in links))
    halves = [len(piece) for piece in peer._pieces.values()]
    assert all(size > 3_000_000 for size in halves)
    peer.wait(lambda: all(seen(peer, link) for link in links))


def test_small_messages_pass_a_long_one_on_its_way_in(peer: Peer, new_peer: NewPeer) -> None:  # F27
    sender = peer.sender("long")
    endless = sender.delivery(sender.delivery_tag())
    other = new_peer()
    quick = other.sender("quick")
    for number in range(20):
        sender.stream(bytes(500_000))
        other.put(quick, [number])
        peer.wait(lambda: endless.pending == 0)
    assert [one.body for one in other.take(other.receiver("quick", 20), 20)] == list(range(20))
