"""Tests of browsers, which receive all messages in order and dequeue none, whatever outcomes they send."""

from __future__ import annotations

import pytest
from proton import Delivery

from tests.harness.clients.peers import Peer

from .conftest import NewPeer

either = pytest.mark.parametrize("durable", [True, False], ids=["durable", "transient"])


@either
@pytest.mark.parametrize("settled", [True, False], ids=["settled", "unsettled"])
@pytest.mark.parametrize("size", [10, 200_000])
def test_it_sees_all_and_takes_none(peer: Peer, durable: bool, settled: bool, size: int) -> None:
    bodies = [bytes([number]) * size for number in range(10)]
    peer.put(peer.sender("q"), bodies, durable=durable)
    browser = peer.receiver("q", 3, copy=True, settled=settled)
    seen = [received.body for received in peer.take(browser, 3)]
    seen += [received.body for received in peer.drain(browser, 100)]
    assert seen == bodies
    received = peer.drain(peer.receiver("q"), 100)
    assert [message.body for message in received] == bodies
    assert {message.message.delivery_count for message in received} == {0}


@pytest.mark.parametrize("state", [Delivery.ACCEPTED, Delivery.REJECTED, Delivery.RELEASED, Delivery.MODIFIED])
@pytest.mark.parametrize("settle", [True, False], ids=["settling", "leaving it to the broker"])
def test_its_outcomes_change_nothing(peer: Peer, state: int, settle: bool) -> None:
    peer.put(peer.sender("q"), range(10))
    browser = peer.receiver("q", 10, copy=True)
    seen = peer.take(browser, 10)
    for received in seen:
        if settle:
            received.settle(state, failed=True, undeliverable=True)
        else:
            received.delivery.update(state)
    if not settle:
        peer.wait(lambda: all(received.delivery.settled for received in seen))
    assert peer.drain(browser, 10) == []
    received_after = peer.drain(peer.receiver("q"), 100)
    assert [(r.body, r.message.delivery_count) for r in received_after] == [(number, 0) for number in range(10)]


def test_it_sees_what_comes_later(peer: Peer) -> None:
    browsers = [peer.receiver("q", credit, copy=True) for credit in (100, 5, 1)]
    sender = peer.sender("q")
    for number in range(10):
        peer.put(sender, [number])
    for browser, number in zip(browsers, (10, 5, 1), strict=True):
        assert [received.body for received in peer.take(browser, number)] == list(range(number))


@either
def test_it_looks_on_while_a_consumer_works(new_peer: NewPeer, durable: bool) -> None:
    """A browser receives a part of the messages, in order and each once; the consumer gets all of them."""
    looking, working = new_peer(), new_peer()
    working.put(working.sender("q"), range(100), durable=durable)
    browser, consumer = looking.receiver("q", copy=True), working.receiver("q")
    seen: list[int] = []
    worked: list[int] = []
    while len(worked) < 100:
        consumer.flow(7)
        for received in working.take(consumer, min(7, 100 - len(worked))):
            received.accept()
            worked.append(received.body)
        seen += [received.body for received in looking.drain(browser, 3)]
    assert worked == list(range(100))
    assert seen == sorted(set(seen))
    assert len(seen) > 10


def test_long_messages_may_go_while_it_looks(new_peer: NewPeer) -> None:
    """Long messages may be dequeued and deleted while a browser's copies of them are in transit.

    The browser gets only complete messages, and skips those that are no longer stored.
    """
    looking, working = new_peer(), new_peer()
    bodies = [bytes([number]) * 2_000_000 for number in range(10)]
    sender = working.sender("q")
    working.put(sender, bodies)
    browser = looking.receiver("q", 100, copy=True)
    looking.stall()
    for received in working.take(working.receiver("q", 10), 10):
        received.accept()
    working.put(sender, bodies[:1] * 20)  # the journal reuses its containers
    seen = [received.body for received in looking.drain(browser)]
    assert [body[0] for body in seen] == sorted(body[0] for body in seen[:-20]) + [0] * 20
    assert all(body == bodies[body[0]] for body in seen)
    working.put(sender, [b"the end"])
    browser.flow(1)
    assert looking.take(browser)[0].body == b"the end"
