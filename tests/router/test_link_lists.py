"""Tests of the lists of a link, as in the guide: messages to be sent, in progress, and sent but not settled."""

from __future__ import annotations

import socket
from typing import NamedTuple

import pytest

from cairnmq.amqp.links.link import Link
from tests.clients.conftest import NewPeer

FEW, LONG_BYTES = 50, 16 << 20


class Lists(NamedTuple):
    unsettled: int
    is_sending: bool
    outbox: int


def test_a_message_is_in_one_of_its_links_lists_until_it_is_settled(
    new_peer: NewPeer, monkeypatch: pytest.MonkeyPatch
) -> None:  # C32, C33, C34
    """When the link ends, the messages of all lists are requeued in order."""
    found: list[Lists] = []
    unsent = Link.unsent

    def note(self: Link) -> list[object]:
        tags = unsent(self)
        found.append(Lists(len(self.unsettled), self.sending is not None, len(self.outbox)))
        assert len(tags) == len(self.unsettled) + (self.sending is not None) + len(self.outbox)
        return tags

    monkeypatch.setattr(Link, "unsent", note)
    bodies = [*range(FEW), bytes(LONG_BYTES), *range(FEW, 2 * FEW)]
    other = new_peer()
    other.put(other.sender("q"), bodies)
    peer = new_peer()
    peer.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 32 << 10)
    receiver = peer.receiver("q", FEW)
    few = peer.take(receiver, FEW)
    for received in few[:10]:
        received.accept()
    peer.settle_down()
    receiver.flow(len(bodies))
    peer.stall()
    peer.cut()
    again = other.take(other.receiver("q", len(bodies)), len(bodies) - 10)
    assert [received.body for received in again] == bodies[10:]
    with_some = [lists for lists in found if any(lists)]
    assert with_some == [Lists(FEW - 10, True, FEW)]
