"""Tests of anycast and multicast addresses: forwarding, with credit, outcomes and settlement end to end."""

from __future__ import annotations

from collections import Counter

import pytest
from proton import Condition, Delivery, Link, Message, symbol

from cairnmq.broker_plugin.run import RunningBroker
from tests.clients.conftest import NewPeer, StartBroker
from tests.harness.clients.peers import Peer
from tests.harness.router.forwarded import receiving, sender_to, settled, taken

CREDIT = 100


@pytest.fixture
def broker(start_broker: StartBroker) -> RunningBroker:
    return start_broker(anycast=("any.*",), multicast=("all.*",), credit=CREDIT)


def test_a_sender_has_credit_while_there_is_a_receiver(peer: Peer, new_peer: NewPeer) -> None:  # C15
    sender = sender_to(peer, "any.a")
    peer.settle_down()
    assert sender.credit == 0, "nobody to send to"
    other = new_peer()
    receiver = receiving(other, "any.a", 10)
    peer.wait(lambda: sender.credit == CREDIT, "the initial batch")
    delivery = peer.post(sender, Message(body=1))
    peer.settle_down()
    assert taken(other, receiver, 1) == [1]
    assert settled(peer, [delivery]) == [Delivery.ACCEPTED]
    other.detach(receiver)
    released = [peer.post(sender, Message(body=2)) for _ in range(CREDIT)]
    assert settled(peer, released) == [Delivery.RELEASED] * CREDIT
    peer.settle_down()
    assert sender.credit == 0, "not given back while nobody is there"
    receiver = receiving(other, "any.a", 10)
    peer.wait(lambda: sender.credit == CREDIT)
    delivery = peer.post(sender, Message(body=3))
    peer.settle_down()
    assert taken(other, receiver, 1) == [3]
    assert settled(peer, [delivery]) == [Delivery.ACCEPTED]


def test_credit_comes_back_one_for_one_with_the_settlement(peer: Peer, new_peer: NewPeer) -> None:  # C13, C16, C17
    other = new_peer()
    receiver = receiving(other, "any.a", CREDIT)
    sender = peer.sender("any.a")
    deliveries = [peer.post(sender, Message(body=number)) for number in range(10)]
    peer.settle_down()
    received = other.take(receiver, 10)
    peer.settle_down()
    assert sender.credit == CREDIT - 10, "received, and not settled"
    for number in range(5):
        received[number].accept()
    other.settle_down()
    settled(peer, deliveries[:5])
    peer.wait(lambda: sender.credit == CREDIT - 5)
    assert not any(one.settled for one in deliveries[5:])


def test_outcomes_reach_the_sender_as_the_receiver_gave_them(peer: Peer, new_peer: NewPeer) -> None:  # C12, C57-C59
    other = new_peer()
    receiver = receiving(other, "any.a", 10)
    sender = peer.sender("any.a")
    deliveries = [peer.post(sender, Message(body=number)) for number in range(6)]
    peer.settle_down()
    accepted, rejected, released, modified, failed, nothing = other.take(receiver, 6)
    accepted.accept()
    rejected.delivery.local.condition = Condition("shop:closed", "come back", {symbol("until"): 9})
    rejected.settle(Delivery.REJECTED)
    released.settle(Delivery.RELEASED)
    modified.delivery.local.annotations = {symbol("x-opt-why"): "no"}
    modified.settle(Delivery.MODIFIED, undeliverable=True)
    failed.settle(Delivery.MODIFIED, failed=True)
    nothing.settle()
    other.settle_down()
    states = [Delivery.ACCEPTED, Delivery.REJECTED, Delivery.RELEASED, Delivery.MODIFIED, Delivery.MODIFIED]
    assert settled(peer, deliveries) == [*states, Delivery.RELEASED]
    condition = deliveries[1].remote.condition
    assert (condition.name, condition.description, condition.info) == ("shop:closed", "come back", {"until": 9})
    assert deliveries[3].remote.undeliverable
    assert not deliveries[3].remote.failed
    assert deliveries[3].remote.annotations == {"x-opt-why": "no"}
    assert deliveries[4].remote.failed


def test_both_may_settle_second(peer: Peer, new_peer: NewPeer) -> None:  # C58, C59
    other = new_peer()
    receiver = other.session.receiver("second")
    receiver.rcv_settle_mode = Link.RCV_SECOND
    other.attach(receiver, "any.a")
    receiver.flow(3)
    other.settle_down()
    sender = sender_to(peer, "any.a", second=True)
    deliveries = [peer.post(sender, Message(body=number)) for number in range(3)]
    peer.settle_down()
    received = other.take(receiver, 3)
    for one, state in zip(received, (Delivery.ACCEPTED, Delivery.REJECTED, Delivery.RELEASED), strict=True):
        one.delivery.update(state)
    other.settle_down()
    peer.wait(lambda: all(one.remote_state for one in deliveries))
    assert [one.remote_state for one in deliveries] == [Delivery.ACCEPTED, Delivery.REJECTED, Delivery.RELEASED]
    assert not any(one.settled for one in deliveries), "the sender settles first"
    for one in deliveries:
        one.settle()
    peer.settle_down()
    other.wait(lambda: all(one.delivery.settled for one in received))
    peer.wait(lambda: sender.credit == CREDIT)


def test_anycast_gives_each_message_to_one(peer: Peer, new_peer: NewPeer) -> None:  # C20, C55
    others = [new_peer() for _ in range(3)]
    receivers = [receiving(other, "any.a", 40) for other in others]
    sender = peer.sender("any.a")
    deliveries = [peer.post(sender, Message(body=number)) for number in range(90)]
    peer.settle_down()
    found: Counter[int] = Counter()
    for other, receiver in zip(others, receivers, strict=True):
        bodies = taken(other, receiver, 30)
        assert bodies == sorted(bodies)
        found.update(bodies)
    assert found == Counter(range(90)), "shared evenly while nobody settles: always the one with the fewest"
    assert settled(peer, deliveries) == [Delivery.ACCEPTED] * 90


def test_anycast_waits_for_credit_and_prefers_who_has_the_fewest(peer: Peer, new_peer: NewPeer) -> None:
    slow, fast = new_peer(), new_peer()
    slow_link, fast_link = receiving(slow, "any.a"), receiving(fast, "any.a")
    sender = peer.sender("any.a")
    deliveries = [peer.post(sender, Message(body=number)) for number in range(20)]
    peer.settle_down()
    slow_link.flow(1)
    slow.settle_down()
    assert [one.body for one in slow.take(slow_link, 1)] == [0]
    fast_link.flow(19)
    fast.settle_down()
    assert taken(fast, fast_link, 19) == list(range(1, 20))
    assert settled(peer, deliveries[1:]) == [Delivery.ACCEPTED] * 19
    assert not deliveries[0].settled


def test_multicast_gives_each_message_to_all(peer: Peer, new_peer: NewPeer) -> None:  # C20, C21, C28
    others = [new_peer() for _ in range(3)]
    receivers = [receiving(other, "all.a", credit) for other, credit in zip(others, (50, 50, 1), strict=True)]
    sender = peer.sender("all.a")
    deliveries = [peer.post(sender, Message(body=number)) for number in range(50)]
    peer.settle_down()
    for other, receiver in zip(others[:2], receivers[:2], strict=True):
        assert taken(other, receiver, 50) == list(range(50))
    assert taken(others[2], receivers[2], 1) == [0]
    assert settled(peer, deliveries[:1]) == [Delivery.ACCEPTED]
    assert not deliveries[1].settled, "the slowest has no credit for it"
    receivers[2].flow(49)
    others[2].settle_down()
    assert taken(others[2], receivers[2], 49) == list(range(1, 50))
    assert settled(peer, deliveries) == [Delivery.ACCEPTED] * 50


@pytest.mark.parametrize(
    ("first", "second", "received"),
    [
        (Delivery.ACCEPTED, Delivery.REJECTED, Delivery.REJECTED),
        (Delivery.RELEASED, Delivery.ACCEPTED, Delivery.ACCEPTED),
        (Delivery.MODIFIED, Delivery.RELEASED, Delivery.MODIFIED),
        (Delivery.RELEASED, Delivery.RELEASED, Delivery.RELEASED),
    ],
)
def test_multicast_tells_the_weightiest_outcome(
    peer: Peer, new_peer: NewPeer, first: int, second: int, received: int
) -> None:  # C21, C58
    others = [new_peer(), new_peer()]
    receivers = [receiving(other, "all.a", 1) for other in others]
    delivery = peer.post(peer.sender("all.a"), Message(body=1))
    peer.settle_down()
    for other, receiver, state in zip(others, receivers, (first, second), strict=True):
        other.take(receiver)[0].settle(state)
        other.settle_down()
    assert settled(peer, [delivery]) == [received]


@pytest.mark.parametrize("address", ["any.a", "all.a"])
def test_settled_messages_pass_and_settled_receivers_accept(peer: Peer, new_peer: NewPeer, address: str) -> None:
    other = new_peer()  # C22, C35
    receiver = receiving(other, address, 3 * CREDIT)
    sender = peer.sender(address, settled=True)
    for number in range(2 * CREDIT):
        peer.post(sender, Message(body=number), settled=True)
    peer.settle_down()
    assert taken(other, receiver, 2 * CREDIT) == list(range(2 * CREDIT))
    other.detach(receiver)
    at_once = receiving(other, address, 3 * CREDIT, settled=True)
    sender = peer.sender(address)
    assert len(peer.send(sender, *(Message(body=number) for number in range(2 * CREDIT)))) == 2 * CREDIT
    assert [one.body for one in other.take(at_once, 2 * CREDIT)] == list(range(2 * CREDIT))


def test_a_receiver_that_dies_gives_its_messages_back(peer: Peer, new_peer: NewPeer) -> None:  # C12
    sender = sender_to(peer, "any.a")
    for leave, state in ((Peer.cut, Delivery.MODIFIED), (Peer.close, Delivery.RELEASED)):
        other = new_peer()
        receiver = receiving(other, "any.a", 5)
        peer.wait(lambda: sender.credit > 5)
        deliveries = [peer.post(sender, Message(body=number)) for number in range(10)]
        peer.settle_down()
        other.take(receiver, 5)
        leave(other)
        found = settled(peer, deliveries)
        assert found == [state] * 5 + [Delivery.RELEASED] * 5
        assert all(one.remote.failed == (state == Delivery.MODIFIED) for one in deliveries[:5])


def test_drained_receivers_get_their_credit_back(peer: Peer, new_peer: NewPeer) -> None:  # C52, C53
    other = new_peer()
    receiver = receiving(other, "any.a")
    sender = peer.sender("any.a")
    deliveries = [peer.post(sender, Message(body=number)) for number in range(3)]
    peer.settle_down()
    assert [one.body for one in other.drain(receiver, 10)] == [0, 1, 2]
    assert receiver.credit == 0
    receiver.flow(1)
    other.settle_down()
    deliveries.append(peer.post(sender, Message(body=3)))
    peer.settle_down()
    assert [one.body for one in other.take(receiver, 1)] == [3]
    assert not any(one.settled for one in deliveries)


def test_the_anonymous_relay_leads_there_too(peer: Peer, new_peer: NewPeer) -> None:
    sender = peer.sender(None)
    nowhere = peer.post(sender, Message(body=0, address="any.a"))
    assert settled(peer, [nowhere]) == [Delivery.RELEASED]
    other = new_peer()
    anycast, multicast = receiving(other, "any.a", 5), receiving(other, "all.a", 5)
    messages = [Message(body=number, address=("any.a", "all.a")[number % 2]) for number in range(4)]
    deliveries = [peer.post(sender, message) for message in messages]
    peer.settle_down()
    assert taken(other, anycast, 2) == [0, 2]
    assert taken(other, multicast, 2) == [1, 3]
    assert settled(peer, deliveries) == [Delivery.ACCEPTED] * 4
    long = peer.post(sender, Message(body="x" * 300_000, address="any.a"))
    peer.settle_down()
    assert taken(other, anycast, 1) == ["x" * 300_000]
    assert settled(peer, [long]) == [Delivery.ACCEPTED]


def test_a_queue_that_is_asked_for_is_a_queue(peer: Peer) -> None:
    sender = peer.sender("queue://any.a")
    peer.put(sender, [1])
    assert taken(peer, receiving(peer, "queue://any.a", 1), 1) == [1]
    assert taken(peer, receiving(peer, "any.a", 1), 0) == [], "what is there under that name goes first"
    peer.put(peer.sender("any.a"), [2])


def test_what_needs_a_store_is_refused(peer: Peer) -> None:
    link = peer.session.receiver("browser")
    peer.attach(link, "any.b", copy=True)
    assert peer.refusal(link) == "amqp:not-implemented"
