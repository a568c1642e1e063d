"""Tests of redelivery: messages of a client that leaves are requeued, and counted as failed only if it vanished."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable

import pytest
from proton import Delivery, Endpoint

from cairnmq.amqp.links.events import Limits
from tests.harness.clients.peers import Peer, Received

from .conftest import NewPeer, StartBroker


def close_link(peer: Peer) -> None:
    peer.detach(next(iter(peer.received)))


def detach_link(peer: Peer) -> None:
    peer.detach(next(iter(peer.received)), close=False)


def end_session(peer: Peer) -> None:
    peer.session.close()
    peer.wait(lambda: peer.session.state & Endpoint.REMOTE_CLOSED)


GOODBYES: dict[str, Callable[[Peer], None]] = {
    "link closed": close_link,
    "link detached": detach_link,
    "session ended": end_session,
    "connection closed": Peer.close,
}
goodbyes = pytest.mark.parametrize("goodbye", GOODBYES.values(), ids=GOODBYES.keys())
kinds = pytest.mark.parametrize("durable", [True, False], ids=["durable", "transient"])
sizes = pytest.mark.parametrize("size", [10, 100_000])


def hold(peer: Peer, other: Peer, durable: bool, size: int) -> list[Received]:
    other.put(other.sender("q"), [bytes([number]) * size for number in range(20)], durable=durable)
    return peer.take(peer.receiver("q", 10), 10)


def all_of(peer: Peer) -> list[tuple[int, int, bool]]:
    receiver = peer.receiver("q", 20)
    return [(r.body[0], r.message.delivery_count, r.message.first_acquirer) for r in peer.take(receiver, 20)]


@goodbyes
@kinds
@sizes
def test_a_goodbye_is_not_counted(new_peer: NewPeer, goodbye: Callable[[Peer], None], durable: bool, size: int) -> None:
    peer, other = new_peer(), new_peer()
    hold(peer, other, durable, size)
    goodbye(peer)
    assert all_of(other) == [(number, 0, False) for number in range(20)]


@kinds
@sizes
def test_a_cut_is_counted(new_peer: NewPeer, durable: bool, size: int) -> None:
    peer, other = new_peer(), new_peer()
    hold(peer, other, durable, size)
    receiver = other.receiver("q", 21)
    other.take(receiver, 10)[0].settle(Delivery.RELEASED)
    peer.cut()
    returned = [(r.body[0], r.message.delivery_count) for r in other.take(receiver, 11)]
    returned.remove((10, 0))  # released and dispatched again, before or after the messages that the cut requeues
    assert returned == [(n, 1) for n in range(10)]


def test_what_was_settled_before_the_cut_stays_settled(new_peer: NewPeer) -> None:
    peer, other = new_peer(), new_peer()
    for number, received in enumerate(hold(peer, other, True, 10)):
        if number % 2:
            received.accept()
    peer.settle_down()
    peer.cut()
    receiver = other.receiver("q", 20)
    bodies = sorted(r.body[0] for r in other.take(receiver, 15))
    assert bodies == [0, 2, 4, 6, 8, *range(10, 20)]
    other.settle_down()
    assert other.received[receiver] == []


@pytest.mark.parametrize("worker_threads", [1, 2])
@pytest.mark.parametrize(("number", "size"), [(300, 10), (60, 150_000)], ids=["small", "large"])
@pytest.mark.parametrize("seed", range(3))
def test_nothing_is_lost_or_doubled_in_a_crowd(
    start_broker: StartBroker, peer_at: NewPeer, seed: int, number: int, size: int, worker_threads: int
) -> None:
    """Each message is accepted once, while clients connect, receive, release, accept, stall, close and vanish.

    Accepted means that the broker settled the outcome; a client that vanishes before that can't know.
    """
    port = start_broker(worker_threads=worker_threads).port
    chance = random.Random(seed)
    everything = set(range(number))
    sending = peer_at(port)
    sending.put(sending.sender("q"), [str(n) + " " * size for n in range(number)])
    accepted: Counter[int] = Counter()
    unsure: set[int] = set()
    crowd: list[Peer] = []
    for _ in range(60):
        peer = peer_at(port)
        receiver = peer.receiver("q", chance.randrange(1, number // 4))
        crowd.append(peer)
        if chance.random() < 0.6:
            peer.settle_down()
        settled: list[Received] = []
        for received in peer.arrived(receiver):
            choice = chance.random()
            if choice < 0.3:
                received.delivery.update(Delivery.ACCEPTED)
                settled.append(received)
            elif choice < 0.6:
                received.settle(Delivery.RELEASED)
        if chance.random() < 0.5:
            peer.wait(lambda settled=settled: all(r.delivery.settled for r in settled))  # type: ignore[misc]
            accepted.update(int(r.body) for r in settled)
        else:
            unsure.update(int(r.body) for r in settled)
        if len(crowd) > 3:
            leave(crowd.pop(chance.randrange(len(crowd))), chance.choice(["cut", "close", "end", "detach"]))
    for peer in crowd:
        peer.cut()
    last = peer_at(port)
    receiver = last.receiver("q", number)
    seen: list[int] = []

    def complete() -> bool:
        seen.extend(int(r.body) for r in last.arrived(receiver))
        return {*seen, *accepted, *unsure} == everything

    last.wait(complete, "all messages to be back")
    accepted.update(seen)
    assert max(accepted.values()) == 1


def leave(peer: Peer, how: str) -> None:
    if how == "close":
        peer.close()
    elif how == "end":
        end_session(peer)
    elif how == "detach":
        for link in list(peer.received):
            peer.detach(link)
    peer.cut()


def test_a_silent_client_gives_its_messages_back(start_broker: StartBroker, peer_at: NewPeer) -> None:
    """The messages of a silent client are requeued with an increased delivery count, and redelivered in order."""
    broker = start_broker(limits=Limits(idle_timeout_ms=6000))
    first = peer_at(broker.port)
    first.put(first.sender("q"), [bytes([number]) * 10 for number in range(20)])
    peer = peer_at(broker.port)
    peer.take(peer.receiver("q", 10), 10)
    other = peer_at(broker.port)
    received = other.take(other.receiver("q", 20), 20)
    told = [(r.body[0], r.message.delivery_count) for r in received]
    assert sorted(told) == [(n, int(n < 10)) for n in range(20)]
    for share in ([n for n, count in told if count], [n for n, count in told if not count]):
        assert share == sorted(share)
