"""Tests of resumable receiving links (G12): after a broken connection, each message is processed exactly once."""

from __future__ import annotations

import signal
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from typing import Any

import pytest

from cairnmq.amqp.codec.types import Described, Ubyte, Uint, Ulong
from cairnmq.broker_plugin.run import RunningBroker
from tests.harness.clients.peers import Peer
from tests.harness.clients.resuming import ResumingReceiver, attach_receiver
from tests.harness.router.raw import DEADLINE_S, DETACH, FLOW, Raw, begin, frame, opening

from .conftest import NewPeer, StartProcess

RECEIVED = 0x23


def fill(peer: Peer, *texts: str, durable: bool = True) -> None:
    peer.put(peer.sender("q"), texts, durable=durable)


def bodies(peer: Peer) -> list[Any]:
    """Drain the queue with another receiver, and return the bodies."""
    found = [one.body for one in peer.drain(peer.receiver("q"), 100)]
    peer.settle_down()
    return found


@pytest.fixture
def receiver(broker: RunningBroker, peer: Peer) -> ResumingReceiver:
    fill(peer, "m0", "m1", "m2")
    receiver = ResumingReceiver("q")
    receiver.connect(broker.port)
    return receiver


@pytest.mark.parametrize("step", ["received", "said", "stored", "settled"])
@pytest.mark.parametrize("killed", [False, True], ids=["cut", "kill"])
def test_each_message_is_processed_once_wherever_the_connection_breaks(
    start_process: StartProcess, peer_at: NewPeer, step: str, killed: bool
) -> None:
    """The connection breaks, or the broker is killed, at *step* of the second message."""
    broker = start_process()
    peer = peer_at(broker.port)
    fill(peer, "m0", "m1", "m2", "m3")
    receiver = ResumingReceiver("q")
    receiver.connect(broker.port)
    first, second = receiver.receive(), receiver.receive()
    receiver.accept(first)
    receiver.hear(first)
    if step != "received":
        receiver.accept(second)
    if step in ("stored", "settled"):
        held = dict(receiver.unsettled)
        receiver.hear(second)
        if step == "stored":  # as if the connection had broken before the settlement arrived
            receiver.unsettled = held
    if killed:
        broker.stop(signal.SIGKILL)
        broker = start_process()
        peer = peer_at(broker.port)
    receiver.cut()
    assert "m1" not in bodies(peer), "nobody else gets it meanwhile"
    receiver.connect(broker.port)
    assert {*receiver.unsettled} <= {second.tag}
    if step == "received":
        again = receiver.receive()
        assert (again.tag, again.is_resumed, again.state) == (second.tag, True, Described(Ulong(RECEIVED), [0, 0]))
        receiver.accept(again)
        receiver.hear(again)
    assert not receiver.unsettled
    for _ in range(2):
        found = receiver.receive()
        assert found.text in ("m2", "m3")
        receiver.accept(found)
        receiver.hear(found)
    assert sorted(receiver.processed) == ["m0", "m1", "m2", "m3"]
    receiver.cut()
    assert bodies(peer) == []


def test_a_long_message_is_resumed_from_its_start(broker: RunningBroker, peer: Peer) -> None:
    fill(peer, "x" * 200_000, "small")
    receiver = ResumingReceiver("q")
    receiver.connect(broker.port, max_frame=1024)
    long = receiver.receive()
    receiver.cut()
    receiver.connect(broker.port, max_frame=1024)
    again = receiver.receive()
    assert (again.tag, again.is_resumed) == (long.tag, True)
    assert receiver.receive().text == "small"


def test_what_the_client_does_not_know_goes_back(broker: RunningBroker, receiver: ResumingReceiver, peer: Peer) -> None:
    for _ in range(3):
        receiver.receive()
    receiver.unsettled.clear()
    receiver.cut()
    receiver.connect(broker.port, credit=0)
    assert not receiver.told
    assert sorted(bodies(peer)) == ["m0", "m1", "m2"]


def test_a_link_resumes_on_the_same_connection_and_gives_back_what_it_has_when_it_is_closed(
    receiver: ResumingReceiver, peer: Peer
) -> None:
    assert receiver.wire is not None
    for _ in range(3):
        receiver.receive()
    for _ in range(2):
        receiver.wire.say(frame(DETACH, Uint(0), False))
        receiver.wire.until("detach")
        receiver.attach()
        assert {*receiver.told} == {*receiver.unsettled}
        assert [receiver.receive().text for _ in range(3)] == ["m0", "m1", "m2"]
    receiver.wire.say(frame(DETACH, Uint(0), True))
    receiver.wire.until("detach")
    assert sorted(bodies(peer)) == ["m0", "m1", "m2"]


def test_a_client_that_attaches_anew_takes_the_link_over(broker: RunningBroker, receiver: ResumingReceiver) -> None:
    first, old = receiver.receive(), receiver.wire
    assert old is not None
    receiver.connect(broker.port)
    assert old.until("detach").error == "amqp:link:stolen"
    assert receiver.receive().tag == first.tag
    assert [receiver.receive().text for _ in range(2)] == ["m1", "m2"]
    old.sock.close()


def test_of_many_connections_that_attach_at_once_one_has_the_link(broker: RunningBroker, peer: Peer) -> None:
    """The others get the error `amqp:link:stolen`, and no message that was dispatched to them is lost."""
    fill(peer, "m0", "m1", "m2")
    wires = [Raw(broker.port, opening("shop"), begin()) for _ in range(6)]
    for wire in wires:
        wire.until("begin")
    for wire in wires:
        wire.say(attach_receiver("orders", "q", None))
        wire.say(frame(FLOW, *[Uint(0), Uint(2048)] * 2, Uint(0), Uint(0), Uint(9)))
    with ThreadPoolExecutor(len(wires)) as pool:
        waiting = {pool.submit(wire.until, "detach"): wire for wire in wires}
        while len(waiting) > 1:
            done, _ = wait(waiting, timeout=DEADLINE_S, return_when=FIRST_COMPLETED)
            assert done, f"{len(waiting)} connections have the link"
            for one in done:
                assert one.result().error == "amqp:link:stolen"
                del waiting[one]
        (winner,) = waiting.values()
        winner.say(frame(DETACH, Uint(0), False))  # this also ends the wait, and keeps the unsettled messages
    receiver = ResumingReceiver("q")
    receiver.connect(broker.port)
    assert sorted(receiver.receive().text for _ in range(3)) == ["m0", "m1", "m2"]
    for wire in wires:
        wire.sock.close()


def test_a_link_that_comes_back_in_another_mode_begins_anew(
    broker: RunningBroker, receiver: ResumingReceiver, peer: Peer
) -> None:
    """Unsettled messages of the link are released at once, not after its timeout; its state is no longer kept."""
    assert [receiver.receive().text for _ in range(3)] == ["m0", "m1", "m2"]
    receiver.cut()
    receiver.unsettled.clear()
    receiver.connect(broker.port, mode=Ubyte(0))
    assert not receiver.told
    assert [receiver.receive().text for _ in range(3)] == ["m0", "m1", "m2"]
    receiver.cut()
    back = peer.take(peer.receiver("q", 4), 3)  # when the broker has detected that the connection is closed
    assert sorted(one.body for one in back) == ["m0", "m1", "m2"]


def test_more_than_a_frame_can_tell_is_resumed_in_turns(broker: RunningBroker, peer: Peer) -> None:
    fill(peer, *[f"m{number}" for number in range(60)])
    receiver = ResumingReceiver("q")
    receiver.connect(broker.port, credit=50, max_frame=512)
    for _ in range(50):
        receiver.receive()
    receiver.cut()
    receiver.connect(broker.port, credit=60, max_frame=512)
    assert receiver.incomplete
    for _ in range(50):
        receiver.accept(receiver.receive())
    receiver.cut()
    receiver.connect(broker.port, credit=60)
    assert not receiver.unsettled
    for _ in range(10):
        receiver.accept(receiver.receive())
    assert len({*receiver.processed}) == len(receiver.processed) == 60


@pytest.mark.parametrize("options", [{"mode": Ubyte(0)}, {"durability": Uint(1)}], ids=["first", "configuration"])
def test_a_link_that_does_not_ask_for_it_does_not_resume(
    broker: RunningBroker, peer: Peer, options: dict[str, Any]
) -> None:
    fill(peer, "m")
    receiver = ResumingReceiver("q")
    receiver.connect(broker.port, **options)
    receiver.receive()
    receiver.cut()
    receiver.connect(broker.port, **options)
    assert not receiver.told
    assert not receiver.receive().is_resumed


def test_a_subscription_resumes_too(broker: RunningBroker, peer: Peer) -> None:
    receiver = ResumingReceiver("topic://news")
    receiver.connect(broker.port)
    peer.put(peer.sender("topic://news"), ["m"], durable=True)
    first = receiver.receive()
    receiver.cut()
    receiver.connect(broker.port)
    assert receiver.receive().tag == first.tag
