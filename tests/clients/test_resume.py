"""Tests of resumable sending links (G12): after a broken connection, each message is stored exactly once."""

from __future__ import annotations

import signal
from typing import Any

import pytest

from cairnmq.amqp.codec.types import Ubyte, Uint
from cairnmq.broker.kernel.dispatch_turns import AT_ONCE
from cairnmq.broker_plugin.run import RunningBroker
from tests.harness.clients.peers import Peer
from tests.harness.clients.resuming import ACCEPTED, ResumingSender, attach_sender, body, transfer_begun
from tests.harness.router.raw import DETACH, TRANSFER, Raw, begin, frame, opening

from .conftest import NewPeer, StartProcess


def bodies(peer: Peer, count: int, address: str = "q") -> list[Any]:
    """Receive *count* messages, check that the queue has no more, and return their bodies."""
    receiver = peer.receiver(address, count + 1)
    found = [one.body for one in peer.take(receiver, count)]
    peer.settle_down()
    assert not receiver.queued
    return found


@pytest.fixture
def sender(broker: RunningBroker) -> ResumingSender:
    sender = ResumingSender("q")
    sender.connect(broker.port)
    return sender


def test_what_was_stored_is_told_and_not_stored_again(
    broker: RunningBroker, sender: ResumingSender, peer: Peer
) -> None:
    for number in range(3):
        sender.send(b"t%d" % number, f"m{number}")
    sender.hear(b"t2", 2)
    sender.cut()
    sender.unsettled[b"t3"] = "m3"  # sent from the client's point of view, and never received by the broker
    sender.connect(broker.port)
    assert {*sender.told} == {b"t0", b"t1", b"t2"}
    assert sender.resume() == [b"t3"]
    sender.send(b"t3", "m3")
    sender.hear(b"t3", 3)
    sender.settle(b"t3", 3)
    assert bodies(peer, 4) == ["m0", "m1", "m2", "m3"]
    sender.cut()
    sender.connect(broker.port)
    assert not sender.told, "the client has settled all of it"


@pytest.mark.parametrize("step", ["before the transfer", "within it", "behind it", "told", "settled"])
@pytest.mark.parametrize("killed", [False, True], ids=["cut", "kill"])
def test_each_message_is_stored_once_wherever_the_connection_breaks(
    start_process: StartProcess, peer_at: NewPeer, step: str, killed: bool
) -> None:
    """The connection breaks, or the broker is killed, at *step* of the second message."""
    broker = start_process()
    sender = ResumingSender("q")
    sender.connect(broker.port)
    sender.send(b"first", "m0")
    sender.hear(b"first", 0)  # and not settled
    if step == "before the transfer":
        sender.unsettled[b"t"] = "m1"
    elif step == "within it":
        sender.unsettled[b"t"] = "m1"
        assert sender.wire is not None
        sender.wire.say(transfer_begun(b"t", 1, body("m1")))
    else:
        sender.send(b"t", "m1")
    if step in ("told", "settled"):
        sender.hear(b"t", 1)
    if step == "settled":
        sender.settle(b"t", 1)
    if killed:
        broker.stop(signal.SIGKILL)
    sender.cut()
    if killed:
        broker = start_process()
    sender.connect(broker.port)
    assert b"first" in sender.told
    assert {*sender.told} <= {b"first", b"t"}
    if step == "told":
        assert b"t" in sender.told
    for number, tag in enumerate(sender.resume(), 1 if step == "settled" else len(sender.told)):
        sender.send(tag, sender.unsettled[tag])
        sender.hear(tag, number)
        sender.settle(tag, number)
    assert not sender.unsettled
    assert bodies(peer_at(broker.port), 2) == ["m0", "m1"]
    sender.cut()


def test_a_known_delivery_is_taken_once_and_an_unknown_one_resumed_is_not_taken(
    broker: RunningBroker, sender: ResumingSender, peer: Peer
) -> None:
    sender.send(b"t", "m")
    sender.hear(b"t", 0)
    sender.cut()
    sender.unsettled[b"new"] = "lost"
    sender.connect(broker.port)
    assert sender.wire is not None
    assert sender.say_again(b"t", body("again"), resume=True) == 0
    sender.hear(b"t", 0)
    assert sender.say_again(b"t", body("again"), resume=False) == 1
    sender.hear(b"t", 1)
    sender.say_again(b"new", body("lost"), resume=True)
    told = sender.wire.until("disposition").fields
    assert (told[1], told[4].descriptor) == (2, 0x26), "released, as it is none that is unsettled here"
    assert bodies(peer, 1) == ["m"]


def test_a_link_that_was_closed_is_given_up(broker: RunningBroker, sender: ResumingSender) -> None:
    sender.send(b"t", "m")
    sender.hear(b"t", 0)
    assert sender.wire is not None
    sender.wire.say(frame(DETACH, Uint(0), True))
    sender.wire.until("detach")
    sender.attach()
    assert not sender.told


def test_a_link_that_was_detached_resumes_on_the_same_connection(
    broker: RunningBroker, sender: ResumingSender
) -> None:
    sender.send(b"t", "m")
    sender.hear(b"t", 0)
    assert sender.wire is not None
    for _ in range(3):
        sender.wire.say(frame(DETACH, Uint(0), False))
        sender.wire.until("detach")
        sender.attach()
        assert {*sender.told} == {b"t"}
    sender.unsettled.clear()
    sender.wire.say(frame(DETACH, Uint(0), False))
    sender.attach()
    assert not sender.told, "the client has nothing unsettled, so nothing is"


def test_a_client_that_attaches_anew_takes_the_link_over(
    broker: RunningBroker, sender: ResumingSender, peer: Peer
) -> None:
    sender.send(b"t", "m")
    old, sender._number = sender.wire, 0
    sender.connect(broker.port)
    assert old is not None
    assert old.until("detach").error == "amqp:link:stolen"
    assert {*sender.told} <= {b"t"}
    for tag in sender.resume():
        sender.send(tag, "m")
    assert bodies(peer, 1) == ["m"]
    old.sock.close()


def test_more_than_a_frame_can_tell_is_told_in_turns(broker: RunningBroker, peer: Peer) -> None:
    sender = ResumingSender("q")
    sender.connect(broker.port, max_frame=512)
    for number in range(60):
        sender.send(b"%030d" % number, f"m{number}")
    sender.hear(b"", 59)
    turns = 0
    while sender.unsettled:
        sender.cut()
        sender.connect(broker.port, max_frame=512)
        assert sender.told
        turns += 1
        if sender.incomplete:
            for tag in sender.told:
                sender.done.append(sender.unsettled.pop(tag))
                sender.say_again(tag, b"", resume=True)
            sender.hear(b"", len(sender.told) - 1)
        else:
            assert not sender.resume()
    assert turns > 1
    assert len(bodies(peer, 60)) == 60


def test_nothing_new_is_taken_while_not_all_is_told(broker: RunningBroker) -> None:
    sender = ResumingSender("q")
    sender.connect(broker.port, max_frame=512)
    for number in range(30):
        sender.send(b"%030d" % number, "m")
    sender.hear(b"", 29)
    sender.cut()
    sender.connect(broker.port, max_frame=512)
    assert sender.incomplete
    sender.send(b"new", "m")
    assert sender.wire is not None
    assert sender.wire.until("detach").error == "amqp:not-allowed"


def test_messages_of_many_frames_are_stored_once_too(broker: RunningBroker, sender: ResumingSender, peer: Peer) -> None:
    long = "x" * 300_000
    parts = [body(long)[at : at + 40_000] for at in range(0, len(body(long)), 40_000)]
    assert sender.wire is not None
    for number, part in enumerate(parts):
        sender.wire.say(transfer_begun(b"long", 0, part, more=number < len(parts) - 1))
    sender.unsettled[b"long"] = long
    sender.hear(b"long", 0)
    sender.cut()
    sender.connect(broker.port)
    assert {*sender.told} == {b"long"}
    for number, part in enumerate(parts):
        assert sender.wire is not None
        sender.wire.say(transfer_begun(b"long", 0, part, more=number < len(parts) - 1, resume=True))
    sender.hear(b"long", 0)
    assert bodies(peer, 1) == [long]


def test_what_goes_through_an_exchange_is_told_too(broker: RunningBroker) -> None:
    sender = ResumingSender("amq.fanout")
    sender.connect(broker.port)
    sender.send(b"t", "m")
    sender.hear(b"t", 0)
    sender.cut()
    sender.connect(broker.port)
    assert {*sender.told} == {b"t"}, "nobody wanted it, and so it is done with"


@pytest.mark.parametrize("waits", [True, False])
def test_messages_for_many_consumers_are_remembered(broker: RunningBroker, peer: Peer, waits: bool) -> None:
    """Dispatch takes several steps, and the next message waits for it, together with its delivery tag."""
    count, receivers = 20, [peer.receiver("amq.fanout", 100) for _ in range(3 * AT_ONCE)]
    sender = ResumingSender("amq.fanout")
    sender.connect(broker.port)
    for number in range(count):
        sender.send(b"%d" % number, f"{number}")
    if waits:
        sender.hear(b"%d" % (count - 1), count - 1)
    sender.cut()
    sender.connect(broker.port)
    told = [number for number in range(count) if b"%d" % number in sender.told]
    assert told == [*range(count if waits else len(told))], "they are stored in their order"
    for tag in sender.resume():
        number = int(tag)
        sender.send(tag, f"{number}")
    for receiver in receivers:
        assert [one.body for one in peer.take(receiver, count)] == [f"{number}" for number in range(count)]
    peer.settle_down()
    assert not any(receiver.queued for receiver in receivers)


@pytest.mark.parametrize("options", [{"mode": Ubyte(0)}, {"durability": Uint(1)}], ids=["first", "configuration"])
def test_a_link_that_does_not_ask_for_it_does_not_resume(broker: RunningBroker, options: dict[str, Any]) -> None:
    sender = ResumingSender("q")
    sender.connect(broker.port, **options)
    sender.send(b"t", "m")
    assert sender.wire is not None
    sender.wire.until("disposition")
    sender.cut()
    sender.connect(broker.port, **options)
    assert not sender.told


def test_an_anonymous_sender_is_told_that_it_does_not_resume(broker: RunningBroker) -> None:
    with Raw(broker.port, opening("shop"), begin()) as wire:
        wire.say(attach_sender("s", None, None))
        target = wire.until("attach").fields[6].value
        assert target[1] in (None, 0)


def test_others_do_not_resume_what_is_somebody_elses(broker: RunningBroker, sender: ResumingSender) -> None:
    sender.send(b"t", "m")
    sender.hear(b"t", 0)
    other = ResumingSender("q", container="another shop")
    other.unsettled[b"t"] = "m"
    other.connect(broker.port)
    assert not other.told


@pytest.mark.parametrize("parts", [1, 2], ids=["with the protocol header", "behind it"])
def test_link_resumes_when_its_attach_arrives_with_the_open(broker: RunningBroker, parts: int) -> None:
    states = {b"a": None}
    frames = b"".join([opening("shop"), begin(), attach_sender("orders", "q", states)])
    with Raw(broker.port, *([frames] if parts == 1 else [])) as wire:
        if parts == 2:
            wire.say(frames)
        assert wire.until("begin")
        attached = wire.until("attach").fields
        assert attached[6].value[1] == 2, "the target keeps its unsettled state"
        wire.say(frame(TRANSFER, Uint(0), Uint(0), b"a", Uint(0), False, payload=body("text")))
        assert wire.until("disposition").fields[4].descriptor == ACCEPTED
