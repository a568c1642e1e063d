"""Messages held by a client that goes away come back: counted if it vanished, not counted if it said goodbye."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable

import pytest
from proton import Delivery, Endpoint

from cairnmq.broker_plugin.options import Limits

from .conftest import NewPeer, StartBroker
from .peers import Peer, Received


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
    receiver = other.receiver("q", 20)
    other.take(receiver, 10)[0].settle(Delivery.RELEASED)
    peer.cut()
    returned = other.take(receiver, 10)
    assert [(r.body[0], r.message.delivery_count) for r in returned] == [(n, 1) for n in range(10)]


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
@pytest.mark.parametrize("seed", range(4))
def test_nothing_is_lost_or_doubled_in_a_crowd(
    start_broker: StartBroker, peer_at: NewPeer, seed: int, worker_threads: int
) -> None:
    """Clients that come, take, release, accept, stall, say goodbye or vanish: each message is accepted once.

    Accepted means that the broker settled it; a client that vanishes first can't know.
    """
    broker = start_broker(worker_threads=worker_threads)
    chance = random.Random(seed)
    sending = peer_at(broker.port)
    sender = sending.sender("q")
    sending.put(sender, range(300))
    accepted: Counter[int] = Counter()
    unsure: set[int] = set()
    crowd: list[Peer] = []
    for _ in range(60):
        peer = peer_at(broker.port)
        receiver = peer.receiver("q", chance.randrange(1, 60), settled=False)
        crowd.append(peer)
        if chance.random() < 0.6:
            peer.settle_down()
        taken = peer.received.get(receiver, [])
        settled: list[Received] = []
        for received in taken:
            choice = chance.random()
            if choice < 0.3:
                received.delivery.update(Delivery.ACCEPTED)
                settled.append(received)
            elif choice < 0.6:
                received.settle(Delivery.RELEASED)
        if chance.random() < 0.5:
            peer.wait(lambda settled=settled: all(r.delivery.settled for r in settled))  # type: ignore[misc]
            accepted.update(r.body for r in settled)
        else:
            unsure.update(r.body for r in settled)
        if len(crowd) > 3:
            leaving = crowd.pop(chance.randrange(len(crowd)))
            if chance.random() < 0.5:
                leaving.cut()
            else:
                leaving.close()
    for peer in crowd:
        peer.cut()
    last = peer_at(broker.port)
    receiver = last.receiver("q", 1000)

    def complete() -> bool:
        seen = {r.body for r in last.received.get(receiver, [])}
        return seen | accepted.keys() | unsure == set(range(300))

    last.wait(complete, "all messages to be back")
    accepted.update(r.body for r in last.received[receiver])
    assert max(accepted.values()) == 1
    assert accepted.keys() | unsure == set(range(300))


def test_a_silent_client_gives_its_messages_back(start_broker: StartBroker, peer_at: NewPeer) -> None:
    broker = start_broker(limits=Limits(idle_timeout_ms=600))
    peer, other = peer_at(broker.port), peer_at(broker.port)
    hold(peer, other, True, 10)
    receiver = other.receiver("q", 20)
    other.take(receiver, 10)
    returned = other.take(receiver, 10)  # it sends heartbeats, `peer` does not
    assert [(r.body[0], r.message.delivery_count) for r in returned] == [(n, 1) for n in range(10)]
