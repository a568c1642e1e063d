"""Tests of sessions that a client ends with attached links, and the effect on messages in transit.

Incomplete messages are dropped, and complete ones are stored once. Messages of a receiver are requeued, and marked as
possibly delivered. Other sessions of the connection are not affected.
"""

from __future__ import annotations

from typing import Any

import pytest
from proton import Condition, Delivery, Endpoint, Message

from cairnmq.broker_plugin.run import RunningBroker
from tests.clients.conftest import NewPeer, StartBroker
from tests.harness.clients.peers import Peer
from tests.harness.clients.transacting import Control, bodies, post, retire, send
from tests.harness.clients.transacting import taken as all_of
from tests.harness.router import raw
from tests.harness.router.far import Far, begin, meanwhile
from tests.harness.router.joined import is_up, until
from tests.harness.router.raw import END, Raw, attach, frame, opening, transfer
from tests.harness.router.workers import worker_of

DURABLE = b"\x00\x53\x70\xc0\x02\x01\x41"
PART = bytes(60_000)
LONG = DURABLE + b"\x00\x53\x75\xb0" + (1 << 30).to_bytes(4)
WHOLE = DURABLE + b"\x00\x53\x77\xa1\x05whole"


def end(peer: Peer, session: Any) -> None:
    """End a session with its links attached."""
    session.close()
    peer.wait(lambda: session.state & Endpoint.REMOTE_CLOSED, "the session to end")


def nothing_is_held(broker: RunningBroker) -> None:
    """Wait until no resources are held in memory, in the store or for a socket."""
    worker = worker_of(broker)
    until(lambda: not broker._broker.core.memory.used_bytes, "memory to be given back")
    until(lambda: not broker._broker.core.store.state.detailed, "what was stored of half messages to go")  # type: ignore[attr-defined]
    until(lambda: not worker.reader.incoming.used_bytes, "buckets of what came to be given back")
    until(lambda: not worker.outgoing.used_bytes, "buckets of what goes to be given back")


# ---- links of a sender --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("parts", [0, 1, 20])
@pytest.mark.parametrize("durable", [True, False], ids=["durable", "transient"])
def test_half_a_message_is_gone_and_whole_ones_are_there_once(
    broker: RunningBroker, peer: Peer, durable: bool, parts: int
) -> None:
    """One write contains the messages and the end of the session, so that no outcome is sent for them."""
    start = LONG if durable else LONG[len(DURABLE) :]
    with Raw(broker.port, opening(), raw.begin(0), raw.begin(1)) as client:
        client.say(attach("same", 0, "q"), attach("same", 0, "q", channel=1))
        for _ in range(2):
            client.until("attach")
        client.say(*[transfer(0, number, WHOLE) for number in range(3)])
        client.say(transfer(0, 3, start, more=True), *[transfer(0, None, PART, more=True)] * parts, frame(END))
        client.until("end", channel=0)
        client.say(transfer(0, 0, WHOLE.replace(b"whole", b"other"), channel=1))
        assert client.until("disposition").channel == 1
        assert sorted(bodies(peer)) == ["other", "whole", "whole", "whole"]
        all_of(peer)
        nothing_is_held(broker)


def test_a_name_is_free_again_and_has_all_its_credit(start_broker: StartBroker) -> None:
    """A new link has all credit, despite incomplete messages and missing outcomes of one with its name."""
    broker = start_broker(credit=20)
    with Raw(broker.port, opening()) as client:
        for _ in range(10):
            client.say(raw.begin(), attach("again", 0, "q"))
            while len(given := client.until("flow").fields) < 7:
                pass
            assert given[6] == 20
            client.say(*[transfer(0, number, WHOLE) for number in range(15)], transfer(0, 15, LONG, more=True))
            client.say(frame(END))
            client.until("end")
    until(lambda: broker._broker.nodes.queues["q"].messages == 150)
    assert not broker._broker.core.store.state.detailed  # type: ignore[attr-defined]


def test_half_a_message_in_a_transaction_is_not_in_it(broker: RunningBroker, peer: Peer) -> None:
    """The complete messages stay in the transaction, whose controller is on another session and may commit."""
    session = peer.new_session()
    control, sender = Control(peer), peer.sender("q", session=session)
    txn_id = control.declare()
    send(peer, sender, txn_id, "whole")
    half = sender.delivery("half")
    sender.stream(LONG + PART)
    half.local.data = [txn_id]
    half.update(0x34)
    peer.settle_down()
    end(peer, session)
    control.commit(txn_id)
    assert [one.body for one in all_of(peer)] == ["whole"]
    nothing_is_held(broker)


@pytest.mark.parametrize("address", ["any.a", "all.a"])
def test_half_a_message_that_passes_through_is_aborted(
    start_broker: StartBroker, peer_at: NewPeer, address: str
) -> None:
    broker = start_broker(anycast=("any.*",), multicast=("all.*",))
    peer, other = peer_at(broker.port), peer_at(broker.port)
    receiver, session = other.receiver(address, 10), peer.new_session()
    other.settle_down()
    sender, beside = peer.sender(address, session=session), peer.sender(address)
    sender.delivery("half")
    sender.stream(LONG + PART)
    peer.settle_down()
    other.wait(lambda: receiver in other._pieces, "the half message to begin to pass")
    end(peer, session)
    other.wait(lambda: receiver not in other._pieces, "it to be aborted")
    last = peer.post(beside, Message(body="whole"))
    peer.settle_down()
    (received,) = other.take(receiver)
    assert received.body == "whole"
    received.accept()
    other.settle_down()
    peer.wait(lambda: last.settled)
    nothing_is_held(broker)


# ---- links of a receiver ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("durable", [True, False], ids=["durable", "transient"])
def test_what_a_receiver_has_goes_back_with_the_mark(broker: RunningBroker, peer: Peer, durable: bool) -> None:
    """The delivery count does not change; settled messages stay settled, and other sessions keep theirs."""
    sent = [Message(body=number, durable=durable, first_acquirer=True) for number in range(6)]
    peer.send(peer.sender("q"), *sent)
    session, beside = peer.new_session(), peer.receiver("q", 2)
    kept = peer.take(beside, 2)
    held = peer.take(peer.receiver("q", 3, session=session), 3)
    held[0].accept()
    held[1].delivery.update(Delivery.ACCEPTED)  # unsettled on both sides, but with an outcome
    end(peer, session)
    kept[0].accept()
    peer.settle_down()
    again = peer.take(peer.receiver("q", 10), 2)
    assert [(one.body, one.message.delivery_count, one.message.first_acquirer) for one in again] == [
        (4, 0, False),
        (5, 0, True),
    ]
    for one in [*again, kept[1]]:
        one.accept()
    peer.settle_down()
    nothing_is_held(broker)


def test_a_message_half_sent_goes_back(broker: RunningBroker, peer: Peer, new_peer: NewPeer) -> None:
    """The session window closes in the middle of a message, and the rest that waits in the broker is dropped."""
    sent = Message(body=bytes(8 << 20), durable=True, first_acquirer=True)
    peer.send(peer.sender("q"), sent)
    slow = new_peer(max_frame_bytes=65536)
    session = slow.new_session(window_bytes=65536)
    link = session.receiver("slow")
    link.source.address = "q"
    link.open()
    link.flow(5)
    slow._take = lambda link, delivery: None  # type: ignore[method-assign]  # it reads nothing
    slow.wait(lambda: session.incoming_bytes, "the message to begin")
    slow.settle_down()
    assert session.incoming_bytes < 1 << 20, "the window is shut"
    del slow._take
    beside = slow.sender("other")
    end(slow, session)
    slow.put(beside, ["goes on"])
    (received,) = peer.take(peer.receiver("q", 1))
    assert (bytes(received.body), received.message.first_acquirer) == (bytes(8 << 20), False)
    received.accept()
    peer.settle_down()
    assert [one.body for one in all_of(peer, "other")] == ["goes on"]
    nothing_is_held(broker)


def test_what_was_taken_in_a_transaction_stays_in_it(peer: Peer) -> None:
    """An outcome stays in its transaction when the session ends: a commit dequeues, and a rollback counts as failed."""
    peer.put(peer.sender("q"), range(2))
    control, session = Control(peer), peer.new_session()
    kept, lost = control.declare(), control.declare()
    zero, one = peer.take(peer.receiver("q", 2, session=session), 2)
    retire(zero, kept)
    retire(one, lost)
    peer.settle_down()
    end(peer, session)
    assert bodies(peer) == []
    control.commit(kept)
    control.roll_back(lost)
    assert [(found.body, found.message.delivery_count) for found in all_of(peer)] == [(1, 1)]


def test_the_controllers_session_takes_its_transactions_along(peer: Peer) -> None:
    session = peer.new_session()
    control, sender = Control(peer, session), peer.sender("q")
    send(peer, sender, control.declare(), "never")
    txn_id = control.declare()
    post(peer, sender, txn_id, Message(body="neither", durable=True))
    end(peer, session)
    peer.put(sender, ["after"])
    assert [one.body for one in all_of(peer)] == ["after"]


# ---- links on a link route ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("sends", [True, False], ids=["sender", "receiver"])
@pytest.mark.parametrize("who", ["client", "other"])
def test_a_link_that_goes_on_ends_at_the_other_end(
    start_broker: StartBroker, peer_at: NewPeer, who: str, sends: bool
) -> None:
    """The link is closed at the other end, as a terminus of default expiry ends with its session (part 3, 3.5.6)."""
    far = Far()
    broker = start_broker(connect_to=(f"amqp://127.0.0.1:{far.port}?name=there",), link_routes=("far.*=there",))
    far.accept()
    until(lambda: is_up(broker, "there"))
    peer = peer_at(broker.port)
    link, there = begin(peer, far, "far.q", sends=sends, credit=0)
    one, other, receives, to = (peer, far, there, link) if sends else (far, peer, link, there)
    receives.flow(5)
    meanwhile(far, peer, lambda: to.credit == 5)
    complete = one.post(to, Message(body="whole"))
    half = to.delivery("half")
    to.stream(LONG + PART)
    meanwhile(far, peer, lambda: receives in other._pieces, "half a message to pass")
    ended, left = (link, there) if who == "client" else (there, link)
    ended.session.condition = Condition("shop:closed", "for today")
    ended.session.close()
    meanwhile(far, peer, lambda: left in (peer.detached | far.detached), "the other one to hear of it")
    assert left.state & Endpoint.REMOTE_CLOSED
    assert (left.remote_condition.name, left.remote_condition.description) == ("shop:closed", "for today")
    if left is receives:
        meanwhile(far, peer, lambda: receives not in other._pieces, "the half message to be aborted")
    else:
        assert complete.remote_state == Delivery.RELEASED
        assert half.remote_state in (0, Delivery.RELEASED)
    far.close_all()
