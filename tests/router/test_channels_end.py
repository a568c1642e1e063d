"""Tests of the end of a link as its driver sees it: closed, detached, ended with its session, or cut off."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import pytest
from proton import Endpoint

from cairnmq.broker.links.consumer import Consumer
from cairnmq.broker_plugin.run import RunningBroker
from tests.harness.clients.peers import Peer
from tests.harness.router.raw import Raw, Say

Ends = list[tuple[bool, bool]]


@pytest.fixture
def ends(monkeypatch: pytest.MonkeyPatch) -> Ends:
    """Return a list of *lost* and *for_good* for each end of a consumer."""
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


EMPTY_FRAMES = bytes.fromhex("0000000802000000") * 8192
CHUNKS = 1000


def test_a_client_that_sends_while_the_broker_stops_gets_the_close_frame(broker: RunningBroker, say: Say) -> None:
    raw: Raw = say()
    begun, failures = threading.Event(), list[OSError]()

    def flood() -> None:
        try:
            for _ in range(CHUNKS):
                raw.say(EMPTY_FRAMES)
                begun.set()
        except OSError as error:
            failures.append(error)

    sender = threading.Thread(target=flood)
    sender.start()
    begun.wait()
    broker.stop()
    sender.join()
    assert not failures, "a reset would have made the client lose what it had not read"
    last = raw.rest()[-1]
    assert last.name == "close"
    assert last.fields[0].value[0] == "amqp:connection:forced"
