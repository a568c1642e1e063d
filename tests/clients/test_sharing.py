"""Tests of many links on a session, sessions on a connection, and connections, and of fair shares for consumers."""

from __future__ import annotations

import threading

import pytest
from proton import Endpoint, Message

from cairnmq.amqp.links.events import Limits
from tests.harness.clients.peers import Handling, Peer

from .conftest import NewPeer, StartBroker


def test_many_links_on_a_session(peer: Peer) -> None:
    links = [(peer.sender(f"q{number}"), peer.receiver(f"q{number}", 10)) for number in range(100)]
    for number, (sender, _) in enumerate(links):
        for part in range(3):
            sender.send(Message(body=[number, part], durable=True))
    for number, (_, receiver) in enumerate(links):
        assert [received.body for received in peer.take(receiver, 3)] == [[number, part] for part in range(3)]


def test_many_sessions_on_a_connection(peer: Peer) -> None:
    links = []
    for number in range(100):
        session = peer.new_session()
        sender = peer.sender(f"q{number}", session=session)
        links.append((sender, peer.receiver(f"q{number}", 10, session=session, name="the same on each")))
    for number, (sender, receiver) in enumerate(links):
        peer.put(sender, [number])
        assert peer.take(receiver)[0].body == number
    links[7][0].session.close()
    peer.wait(lambda: links[7][0].session.state & Endpoint.REMOTE_CLOSED)
    peer.put(links[8][0], ["still there"])
    assert peer.take(links[8][1])[0].body == "still there"


def test_many_connections(new_peer: NewPeer) -> None:
    peers = [new_peer() for _ in range(60)]
    receivers = [peer.receiver("q", 2) for peer in peers]
    peers[0].put(peers[0].sender("q"), range(120))
    bodies = [received.body for peer, link in zip(peers, receivers, strict=True) for received in peer.take(link, 2)]
    assert sorted(bodies) == list(range(120))


@pytest.mark.parametrize("settled", [True, False], ids=["settled", "unsettled"])
@pytest.mark.parametrize("consumers", [2, 3, 7])
@pytest.mark.parametrize("batch", [1, 5, 60])
def test_consumers_share_fairly(peer: Peer, settled: bool, consumers: int, batch: int) -> None:
    """With enough credit all consumers get the same number of messages, in order, for any batches of the sender."""
    receivers = [peer.receiver("q", 100, settled=settled) for _ in range(consumers)]
    sender = peer.sender("q")
    for start in range(0, 60, batch):
        peer.put(sender, range(start, start + batch))
    peer.wait(lambda: sum(len(peer.received.get(receiver, [])) for receiver in receivers) == 60)
    shares = [[received.body for received in peer.arrived(receiver)] for receiver in receivers]
    assert max(map(len, shares)) - min(map(len, shares)) <= 1
    assert all(share == sorted(share) for share in shares)


def test_a_consumer_without_credit_takes_nobodys_share(peer: Peer) -> None:
    slow, quick = peer.receiver("q", 2), peer.receiver("q", 100)
    peer.put(peer.sender("q"), range(50))
    assert len(peer.take(quick, 48)) == 48
    assert len(peer.take(slow, 2)) == 2


@pytest.mark.parametrize("worker_threads", [1, 2])
def test_everybody_at_once(start_broker: StartBroker, worker_threads: int) -> None:
    """Several senders and receivers on the callback API, each in its own thread, keep the order of each sender."""
    port = start_broker(worker_threads=worker_threads).port
    got: list[list[int]] = []
    sent_each, senders, receivers = 200, 3, 3
    share = sent_each * senders // receivers

    def send(number: int) -> None:
        client = Handling(lambda container, connection: container.create_sender(connection, "q"), done=all_confirmed)
        client.to_send = [Message(body=[number, n], durable=bool(n % 2)) for n in range(sent_each)]
        client.run(port)

    def all_confirmed(client: Handling) -> bool:
        return len(client.outcomes) == sent_each

    def receive() -> None:
        client = Handling(
            lambda container, connection: container.create_receiver(connection, "q").flow(share),
            done=lambda client: len(client.messages) == share,
            prefetch=0,
        )
        client.run(port)
        got.extend(message.body for message in client.messages)
        for number in range(senders):
            numbers = [n for sender, n in (message.body for message in client.messages) if sender == number]
            assert numbers == sorted(numbers)

    threads = [threading.Thread(target=send, args=(number,)) for number in range(senders)]
    threads += [threading.Thread(target=receive) for _ in range(receivers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(got) == [[sender, number] for sender in range(senders) for number in range(sent_each)]


def test_too_many_links_are_refused_with_a_reason(start_broker: StartBroker, peer_at: NewPeer) -> None:
    peer = peer_at(start_broker(limits=Limits(max_links=5)).port)
    links = [peer.receiver("q") for _ in range(5)]
    assert peer.refusal(peer.receiver("q")) == "amqp:resource-limit-exceeded"
    peer.detach(links[0])
    assert peer.receiver("q").state & Endpoint.REMOTE_ACTIVE
