"""Tests of exclusive queues, which have one consumer: the first one, or the same client that attaches again."""

from __future__ import annotations

from typing import Any

import pytest

from cairnmq.broker_plugin.run import RunningBroker
from tests.harness.clients.peers import Peer
from tests.harness.clients.resuming import ResumingReceiver
from tests.management.conftest import Manager

from .conftest import NewPeer


@pytest.fixture
def queue(peer: Peer) -> str:
    assert Manager(peer).ask("CREATE", "queue", "only", {"arguments": {"exclusive": True}}).status == 201
    return "only"


def attach(peer: Peer, queue: str, name: str = "mine") -> Any:
    link = peer.session.receiver(name)
    peer.attach(link, queue)
    return link


def test_others_are_refused(new_peer: NewPeer, queue: str) -> None:
    """A link with another container ID or name is refused, and the first consumer keeps the queue."""
    one = new_peer(container="me")
    link = attach(one, queue)
    link.flow(10)
    for other, name in ((new_peer(container="other"), "mine"), (new_peer(container="me"), "another")):
        assert other.refusal(attach(other, queue, name)) == "amqp:resource-locked"
    one.put(one.sender(queue), [1])
    assert [got.body for got in one.take(link, 1)] == [1]


def test_a_client_that_lost_its_connection_takes_its_place_again(new_peer: NewPeer, queue: str) -> None:
    """A client may attach again before the broker detects the lost connection; unsettled messages are redelivered."""
    old, new = new_peer(container="me"), new_peer(container="me")
    stolen = attach(old, queue)
    stolen.flow(10)
    old.put(old.sender(queue), [1, 2])
    old.take(stolen, 2)
    link = attach(new, queue)
    assert old.refusal(stolen) == "amqp:link:stolen"
    link.flow(10)
    assert [got.body for got in new.take(link, 2)] == [1, 2]


def test_so_does_one_whose_link_resumes(broker: RunningBroker, peer: Peer, queue: str) -> None:
    peer.put(peer.sender(queue), ["m0", "m1"], durable=True)
    receiver = ResumingReceiver(queue)
    receiver.connect(broker.port)
    first, old = receiver.receive(), receiver.wire
    assert old is not None
    receiver.connect(broker.port)
    assert old.until("detach").error == "amqp:link:stolen"
    assert receiver.receive().tag == first.tag
    assert receiver.receive().text == "m1"
    old.sock.close()
