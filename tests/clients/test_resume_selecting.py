"""Tests of resumable links with selectors (G12), over cut connections and a killed broker."""

from __future__ import annotations

import signal
from typing import Any

import pytest
from proton import Delivery, Message

from cairnmq.broker_plugin.run import RunningBroker
from tests.harness.clients.peers import Peer
from tests.harness.clients.resuming import ResumingReceiver

from .conftest import NewPeer, StartProcess

RED, BLUE = "colour = 'red'", "colour = 'blue'"


def fill(peer: Peer, *texts: str) -> None:
    """Send durable messages whose color is their text without its digits."""
    made = [Message(body=text, durable=True, properties={"colour": text.rstrip("0123456789")}) for text in texts]
    peer.send(peer.sender("q"), *made)


def bodies(peer: Peer) -> list[Any]:
    """Drain the queue with another receiver, release all messages, and return their bodies."""
    found = peer.drain(peer.receiver("q"), 100)
    for one in found:
        one.settle(Delivery.RELEASED)
    peer.settle_down()
    return [one.body for one in found]


def process(receiver: ResumingReceiver, count: int) -> None:
    for _ in range(count):
        found = receiver.receive()
        receiver.accept(found)
        receiver.hear(found)


@pytest.mark.parametrize("step", ["received", "said", "stored", "settled"])
@pytest.mark.parametrize("killed", [False, True], ids=["cut", "kill"])
@pytest.mark.parametrize("then", [RED, BLUE], ids=["the same", "another selector"])
def test_each_message_is_processed_once_wherever_the_connection_breaks(
    start_process: StartProcess, peer_at: NewPeer, step: str, killed: bool, then: str
) -> None:
    """The connection breaks, or the broker is killed, at *step* of the second message; the selector may change."""
    broker = start_process()
    peer = peer_at(broker.port)
    fill(peer, "blue0", "red0", "red1", "blue1", "red2", "green0", "red3")
    receiver = ResumingReceiver("q")
    receiver.connect(broker.port, selector=RED, credit=3)
    process(receiver, 1)
    second, third = receiver.receive(), receiver.receive()
    assert [second.text, third.text] == ["red1", "red2"]
    if step != "received":
        receiver.accept(second)
    if step in ("stored", "settled"):
        held = dict(receiver.unsettled)
        receiver.hear(second)
        if step == "stored":  # as if the connection had broken before the settlement arrived
            receiver.unsettled = held
    del receiver.unsettled[third.tag]  # as if it had not arrived
    if killed:
        broker.stop(signal.SIGKILL)
        broker = start_process()
        peer = peer_at(broker.port)
    receiver.cut()
    assert not {"red1", "red2"} & {*bodies(peer)}, "nobody else gets it meanwhile"
    receiver.connect(broker.port, selector=then)
    assert {*receiver.unsettled} <= {second.tag}
    if step == "received":
        again = receiver.receive()
        assert (again.tag, again.is_resumed) == (second.tag, True)
        receiver.accept(again)
        receiver.hear(again)
    assert not receiver.unsettled
    process(receiver, 2)
    wanted = ["red2", "red3"] if then == RED else ["blue0", "blue1"]
    assert sorted(receiver.processed) == sorted(["red0", "red1", *wanted])
    receiver.cut()
    others = {"blue0", "blue1", "red2", "red3"} - {*wanted}
    assert sorted(bodies(peer)) == sorted(["green0", *others])


def test_a_link_may_begin_or_cease_to_select(broker: RunningBroker, peer: Peer) -> None:
    fill(peer, "blue0", "red0", "red1")
    receiver = ResumingReceiver("q")
    receiver.connect(broker.port, selector=RED, credit=1)
    first = receiver.receive()
    receiver.cut()
    receiver.connect(broker.port, credit=2)
    assert [receiver.receive().text for _ in range(2)] == ["red0", "blue0"]
    receiver.cut()
    receiver.connect(broker.port, selector=RED)
    found = [receiver.receive() for _ in range(3)]
    assert {one.text for one in found if one.is_resumed} == {"red0", "blue0"}
    assert found[0].tag == first.tag
    for one in found:
        receiver.accept(one)
        receiver.hear(one)
    receiver.cut()
    assert bodies(peer) == []


def test_the_answer_says_what_is_selected_and_that_it_is_remembered(broker: RunningBroker, peer: Peer) -> None:
    fill(peer, "red0")
    receiver = ResumingReceiver("q")
    for selector in (RED, BLUE):
        receiver.connect(broker.port, selector=selector)
        assert receiver.attached is not None
        source = receiver.attached.fields[5].value
        assert source[1] == 2
        assert [one.value for one in source[7].values()] == [selector]
        receiver.cut()
