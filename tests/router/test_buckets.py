"""Tests of buckets: content in transit counts against a pool, and connections that exceed it wait without errors."""

from __future__ import annotations

import select

import pytest
from proton import Delivery, Message

from cairnmq.amqp.codec.types import Uint
from cairnmq.amqp.links.events import Limits
from cairnmq.amqp.native.buffer_pool import Buckets
from cairnmq.amqp.native.proton_ffi import lib
from cairnmq.broker_plugin.run import RunningBroker
from tests.clients.conftest import NewPeer, StartBroker
from tests.harness.clients.peers import Peer
from tests.harness.router import raw
from tests.harness.router.held_core import core_held_up
from tests.harness.router.joined import until
from tests.harness.router.raw import Raw, attach, begin, frame, opening
from tests.harness.router.workers import worker_of

KIB, MIB = 1 << 10, 1 << 20
FRAME_BYTES = 64 * KIB


@pytest.fixture
def most(monkeypatch: pytest.MonkeyPatch) -> dict[int, int]:
    """Return the peak use of each pool by its ID, which is updated as it grows."""
    found: dict[int, int] = {}

    def free_bytes(self: Buckets) -> int:
        return int(vars(self)["free_bytes"])

    def note(self: Buckets, size_bytes: int) -> None:
        vars(self)["free_bytes"] = size_bytes
        found[id(self)] = max(found.get(id(self), 0), self.used_bytes)

    monkeypatch.setattr(Buckets, "free_bytes", property(free_bytes, note), raising=False)
    return found


def content(size_bytes: int, durable: bool = True) -> bytes:
    return bytes(Message(body=bytes(size_bytes), durable=durable).encode())


@pytest.mark.parametrize("durable", [True, False])
def test_many_long_messages_pass_through_a_small_pool(
    start_broker: StartBroker, peer_at: NewPeer, most: dict[int, int], durable: bool
) -> None:  # F2, F24, F25, F26
    broker = start_broker(buffer_limit_bytes=256 * KIB)
    worker = worker_of(broker)
    peers = [peer_at(broker.port) for _ in range(8)]
    sent = content(MIB, durable)
    posted = [(peer, peer.post(peer.sender(f"q{number}"), sent)) for number, peer in enumerate(peers)]
    for peer, delivery in posted:
        peer.wait(lambda delivery=delivery: delivery.settled)  # type: ignore[misc]
        assert delivery.remote_state == Delivery.ACCEPTED
    for number, peer in enumerate(peers):
        (received,) = peer.take(peer.receiver(f"q{number}", 1))
        assert received.content == sent
        received.accept()
        peer.settle_down()
    assert 0 < most[id(worker.reader.incoming)] <= 128 * KIB
    assert most[id(worker.outgoing)] <= 128 * KIB + len(peers) * FRAME_BYTES
    until(lambda: worker.outgoing.used_bytes == 0)
    until(lambda: not broker._broker.core.memory.used_bytes)


def test_connections_wait_unread_while_the_core_is_held_up(
    start_broker: StartBroker, peer_at: NewPeer, most: dict[int, int]
) -> None:  # F20, F26
    """The broker drops nothing, and waiting content is processed when the core runs again."""
    broker = start_broker(buffer_limit_bytes=512 * KIB)
    worker = worker_of(broker)
    peers = [peer_at(broker.port) for _ in range(3)]
    senders = [peer.sender("q") for peer in peers]
    sent = content(4 * MIB)

    def all_wait() -> bool:
        for peer in peers:
            peer._exchange()
        return len(worker.reader.waiting) == len(peers)

    with core_held_up(broker):
        posted = [peer.post(sender, sent) for peer, sender in zip(peers, senders, strict=True)]
        peers[0].wait(all_wait)
        assert worker.reader.incoming.free_bytes <= 0
    for peer, delivery in zip(peers, posted, strict=True):
        peer.wait(lambda delivery=delivery: delivery.settled)  # type: ignore[misc]
    assert most[id(worker.reader.incoming)] <= 256 * KIB
    until(lambda: not worker.reader.waiting)


def test_consumers_that_take_nothing_hold_little(
    start_broker: StartBroker, peer_at: NewPeer, most: dict[int, int]
) -> None:  # F26, F27
    broker = start_broker(buffer_limit_bytes=2 * MIB)
    worker = worker_of(broker)
    count, peers = 300, [peer_at(broker.port) for _ in range(6)]
    for number, peer in enumerate(peers):
        sender = peer.sender(f"q{number}", settled=True)
        for _ in range(count):
            peer.post(sender, content(30_000), settled=True)
        peer.settle_down()
    receivers = [peer.receiver(f"q{number}", count) for number, peer in enumerate(peers)]
    for peer in peers:
        peer.stall()
    lively = peer_at(broker.port)
    lively.put(lively.sender("other"), range(100))
    assert len(lively.take(lively.receiver("other", 100), 100)) == 100
    for peer, receiver in zip(peers, receivers, strict=True):
        assert len(peer.take(receiver, count)) == count
        peer.settle_down()
    assert most[id(worker.outgoing)] <= MIB + (len(peers) + 1) * FRAME_BYTES
    until(lambda: worker.outgoing.used_bytes == 0)


def test_sessions_with_closed_windows_share_the_room(start_broker: StartBroker, peer_at: NewPeer) -> None:
    """Proton holds little for a client with many sessions whose windows are closed."""
    broker = start_broker()
    worker = worker_of(broker)
    filler, peer = peer_at(broker.port), peer_at(broker.port, max_frame_bytes=1024)
    for _ in range(20):
        filler.put(filler.sender("q"), [bytes(20_000)] * 40)
    sessions = [peer.new_session(window_bytes=1024) for _ in range(20)]
    receivers = [peer.receiver("q", session=session) for session in sessions]
    for receiver in receivers:
        receiver.flow(40)
    peer.settle_down()
    assert worker.outgoing.used_bytes <= 20 * (FRAME_BYTES + 21_000)
    peer.wait(lambda: sum(len(found) for found in peer.received.values()) == 800)


def test_a_client_that_takes_no_answers_is_not_read(broker: RunningBroker, peer: Peer) -> None:
    """A connection is read only while its client reads the answers, and again once it does."""
    worker = worker_of(broker)
    with Raw(broker.port, opening(), begin()) as one:
        one.until("begin")
        (held,) = [
            held for held in list(worker.sockets.by_fd.values()) if held.terminal.engine.endpoints.container == "raw"
        ]
        cycle = attach("l" * 200, 0, "q") + frame(raw.DETACH, Uint(0), True)
        said = 0
        one.sock.setblocking(False)
        rest = b""
        while held.events & select.EPOLLIN:
            rest = rest or cycle * 100
            try:
                rest = rest[one.sock.send(rest) :]
                said += 100 * (not rest)
            except BlockingIOError:
                select.select([], [one.sock], [], 0.05)
            assert said < 5_000_000
        peer.put(peer.sender("others"), ["go on"])
        assert len(held.terminal.engine.endpoints.links) <= Limits().max_links
        one.sock.setblocking(True)
        while not held.events & select.EPOLLIN:
            one.until("detach")


def test_what_comes_on_a_closed_link_is_thrown_away(start_broker: StartBroker, peer_at: NewPeer) -> None:
    broker = start_broker(limits=Limits(max_message_bytes=100_000))
    peer = peer_at(broker.port)
    sender = peer.sender("q")
    endless = sender.delivery(sender.delivery_tag())
    for _ in range(100):
        sender.stream(bytes(100_000))
        peer.wait(lambda: endless.pending == 0)
    assert peer.refusal(sender) == "amqp:link:message-size-exceeded"
    peer.settle_down()
    (held,) = worker_of(broker).sockets.by_fd.values()
    session = lib.pn_session_head(held.terminal.engine.endpoints.connection, 0)
    assert lib.pn_session_incoming_bytes(session) == 0


def test_half_sent_messages_count_and_are_given_back(start_broker: StartBroker, peer_at: NewPeer) -> None:
    broker = start_broker(memory_limit_bytes=600_000)
    memory = broker._broker.core.memory
    peer = peer_at(broker.port)
    senders = [peer.sender("q") for _ in range(50)]
    complete = content(40_000)
    for sender in senders:
        sender.delivery(sender.delivery_tag())
        sender.stream(complete[:30_000])
    peer.settle_down()
    assert 300_000 < memory.used_bytes <= 700_000, "what is beyond the limit was stored early"
    for sender in senders[:25]:
        sender.stream(complete[30_000:])
        sender.advance()
    assert len(peer.take(peer.receiver("q", 25), 25)) == 25
    peer.cut()
    peer = peer_at(broker.port)
    assert len(peer.drain(peer.receiver("q"), 100)) == 25
    peer.close()
    peer_at(broker.port).wait(lambda: memory.used_bytes <= 25 * 50_000)


def test_a_long_message_to_nowhere_yet_is_refused_without_memory(start_broker: StartBroker, peer_at: NewPeer) -> None:
    broker = start_broker(memory_limit_bytes=300_000)
    peer = peer_at(broker.port)
    sender = peer.sender(None)
    delivery = peer.post(sender, bytes(Message(address="new", body=bytes(MIB), durable=True).encode()))
    peer.wait(lambda: delivery.settled)
    assert delivery.remote_state == Delivery.REJECTED
    assert delivery.remote.condition.name == "amqp:resource-limit-exceeded"
    until(lambda: broker._broker.core.memory.used_bytes == 0)
    peer.put(peer.sender("new"), ["made now"])
    (_,) = peer.send(sender, Message(address="new", body=bytes(MIB), durable=True))
