"""How a channel ends is told to its driver: closed for good, or only detached, with a session, by a cut cable."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from proton import Endpoint

from cairnmq.broker.links.consumer import Consumer
from cairnmq.broker_plugin.run import RunningBroker
from tests.harness.clients.peers import Peer

Ends = list[tuple[bool, bool]]


@pytest.fixture
def ends(monkeypatch: pytest.MonkeyPatch) -> Ends:
    """*lost* and *for_good* of each end that a consumer was told."""
    told: Ends = []
    close = Consumer.close

    def note(self: Consumer, returned: Sequence[Any], lost: bool, for_good: bool) -> None:
        told.append((lost, for_good))
        close(self, returned, lost, for_good)

    monkeypatch.setattr(Consumer, "close", note)
    return told


def test_a_link_that_is_closed_is_gone_for_good(peer: Peer, ends: Ends) -> None:  # F5
    peer.detach(peer.receiver("q"), close=True)
    assert ends == [(False, True)]


def test_a_link_that_is_detached_may_come_back(peer: Peer, ends: Ends) -> None:
    receiver = peer.receiver("q")
    peer.detach(receiver, close=False)
    assert receiver.state & Endpoint.REMOTE_ACTIVE, "a detach is answered with a detach, not with a close"
    assert ends == [(False, False)]


def test_a_session_or_connection_that_ends_only_detaches_its_links(peer: Peer, ends: Ends) -> None:
    session = peer.new_session()
    peer.receiver("q", session=session)
    session.close()
    peer.wait(lambda: session.state & Endpoint.REMOTE_CLOSED)
    assert ends == [(False, False)]
    peer.receiver("q")
    peer.close()
    assert ends == [(False, False)] * 2


def test_a_cut_connection_loses_its_links(broker: RunningBroker, peer: Peer, new_peer: Any, ends: Ends) -> None:
    peer.receiver("q")
    peer.cut()
    new_peer().wait(lambda: ends)
    assert ends == [(True, False)]
