"""Tests of anycast and multicast addresses that several brokers share: forwarding, outcomes, and lost connections."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from proton import Delivery, Message, symbol

from cairnmq.broker_plugin.run import RunningBroker
from tests.clients.conftest import NewPeer, StartBroker
from tests.harness.clients.peers import Peer
from tests.harness.router.forwarded import receiving, sender_to, settled, taken
from tests.harness.router.joined import all_reach_all, knows_receivers, reached, start, until


@pytest.fixture
def pair(start_broker: StartBroker) -> list[RunningBroker]:
    one = start(start_broker, "one")
    other = start(start_broker, "other", one)
    all_reach_all(one, other)
    return [one, other]


@pytest.fixture
def line(start_broker: StartBroker) -> list[RunningBroker]:
    a = start(start_broker, "a")
    b = start(start_broker, "b", a, anycast=(), multicast=())
    c = start(start_broker, "c", b)
    all_reach_all(a, b, c)
    return [a, b, c]


@pytest.fixture
def ring(start_broker: StartBroker) -> list[RunningBroker]:
    a = start(start_broker, "a")
    b = start(start_broker, "b", a)
    c = start(start_broker, "c", b, a)
    all_reach_all(a, b, c)
    return [a, b, c]


def all_sent(peer: Peer) -> None:
    """Wait until *peer* has sent all messages, also beyond a session window, and the broker has processed them."""
    peer.wait(lambda: not peer.session.outgoing_bytes, "all to be sent")
    peer.settle_down()


def test_each_priority_has_a_link_each_way(pair: list[RunningBroker]) -> None:  # C42, C48
    for broker in pair:
        (neighbours,) = broker._broker.remote.network.neighbours.values()
        assert list(neighbours[0].priority_links) == list(neighbours[0].senders) == list(range(10))


@pytest.mark.parametrize("there", [0, 1])
def test_anycast_goes_across(pair: list[RunningBroker], peer_at: NewPeer, there: int) -> None:  # C11, C12, C16
    sending, receiving_at = peer_at(pair[1 - there].port), peer_at(pair[there].port)
    sender = sender_to(sending, "any.a")
    sending.settle_down()
    assert not sender.credit, "nobody receives anywhere"
    receiver = receiving(receiving_at, "any.a", 100)
    sending.wait(lambda: sender.credit, "credit, because somebody receives over there")
    deliveries = [sending.post(sender, Message(body=number)) for number in range(4)]
    sending.settle_down()
    accepted, rejected, released, modified = receiving_at.take(receiver, 4)
    accepted.accept()
    rejected.settle(Delivery.REJECTED)
    released.settle(Delivery.RELEASED)
    modified.delivery.local.annotations = {symbol("x-opt-why"): "no"}
    modified.settle(Delivery.MODIFIED, failed=True, undeliverable=True)
    receiving_at.settle_down()
    states = [Delivery.ACCEPTED, Delivery.REJECTED, Delivery.RELEASED, Delivery.MODIFIED]
    assert settled(sending, deliveries) == states
    assert deliveries[3].remote.annotations == {"x-opt-why": "no"}
    receiving_at.detach(receiver)
    knows_receivers(pair[1 - there], "any.a")
    late = sending.post(sender, Message(body=9))
    assert settled(sending, [late]) == [Delivery.RELEASED]


def test_the_nearest_receivers_get_it(line: list[RunningBroker], peer_at: NewPeer) -> None:  # C55
    peers = [peer_at(broker.port) for broker in line]
    far = receiving(peers[2], "any.a", 100)
    knows_receivers(line[0], "any.a", "c")
    sender = peers[0].sender("any.a")
    peers[0].post(sender, Message(body="far"))
    peers[0].settle_down()
    assert taken(peers[2], far, 1) == ["far"], "over one that has no such addresses of its own"
    near = receiving(peers[0], "any.a", 100)
    peers[0].post(sender, Message(body="near"))
    peers[0].settle_down()
    assert taken(peers[0], near, 1) == ["near"]
    peers[0].detach(near)
    peers[0].settle_down()
    peers[0].post(sender, Message(body="far again"))
    peers[0].settle_down()
    assert taken(peers[2], far, 1) == ["far again"]


@pytest.mark.parametrize("shape", ["pair", "line", "ring"])
def test_multicast_reaches_each_receiver_once(shape: str, request: pytest.FixtureRequest, peer_at: NewPeer) -> None:
    brokers = request.getfixturevalue(shape)  # C21, C29, C48
    ends = [brokers[0], brokers[-1]] if shape == "line" else brokers
    names = [broker._broker.remote.network.me for broker in ends]
    peers = [peer_at(broker.port) for broker in ends for _ in range(2)]
    links = [receiving(peer, "all.a", 1000) for peer in peers]
    for broker, name in zip(ends, names, strict=True):
        knows_receivers(broker, "all.a", *[one for one in names if one != name], multicast=True)
    for broker in ends:
        sending = peer_at(broker.port)
        sender = sending.sender("all.a")
        deliveries = [sending.post(sender, Message(body=number)) for number in range(50)]
        sending.settle_down()
        for peer, link in zip(peers, links, strict=True):
            assert taken(peer, link, 50) == list(range(50))
        assert settled(sending, deliveries) == [Delivery.ACCEPTED] * 50
    for peer, link in zip(peers, links, strict=True):
        peer.settle_down()
        assert not peer.received.get(link), "once"


def test_multicast_tells_the_weightiest_outcome_of_all_brokers(ring: list[RunningBroker], peer_at: NewPeer) -> None:
    peers = [peer_at(broker.port) for broker in ring]  # C58
    links = [receiving(peer, "all.a", 10) for peer in peers]
    knows_receivers(ring[0], "all.a", "b", "c", multicast=True)
    delivery = peers[0].post(peers[0].sender("all.a"), Message(body=1))
    peers[0].settle_down()
    for peer, link, state in zip(peers, links, (Delivery.ACCEPTED, Delivery.RELEASED, Delivery.REJECTED), strict=True):
        peer.take(link)[0].settle(state)
        peer.settle_down()
    assert settled(peers[0], [delivery]) == [Delivery.REJECTED]


def test_what_brokers_say_to_each_other_stays_among_them(line: list[RunningBroker], peer_at: NewPeer) -> None:  # C29
    sending, other = peer_at(line[0].port), peer_at(line[2].port)
    link = receiving(other, "all.a", 10)
    knows_receivers(line[0], "all.a", "c", multicast=True)
    sender = sending.sender("all.a")
    messages = [Message(body=1), Message(body="x" * 200_000), Message(body=3, durable=True, priority=9)]
    messages[2].instructions = {symbol("x-opt-mine"): 5}
    for message in messages:
        sending.post(sender, message)
        sending.settle_down()
        (received,) = other.take(link)
        if message.instructions:
            assert dict(received.message.instructions) == {"x-opt-mine": 5}
            assert (received.body, received.message.durable, received.message.priority) == (3, True, 9)
        else:
            assert received.content == message.encode(), "byte for byte"
        received.accept()
        other.settle_down()


def test_a_slow_address_leaves_the_others_their_part(pair: list[RunningBroker], peer_at: NewPeer) -> None:  # C13
    sending, other = peer_at(pair[0].port), peer_at(pair[1].port)
    receiving(other, "any.slow", 0)
    fast = receiving(other, "any.fast", 1000)
    knows_receivers(pair[0], "any.slow", "other")
    knows_receivers(pair[0], "any.fast", "other")
    slow_sender, fast_sender = sending.sender("any.slow"), sending.sender("any.fast")
    for number in range(900):
        sending.post(slow_sender, Message(body=number))
    deliveries = [sending.post(fast_sender, Message(body=number)) for number in range(10)]
    all_sent(sending)
    assert taken(other, fast, 10) == list(range(10))
    assert settled(sending, deliveries) == [Delivery.ACCEPTED] * 10


def test_priorities_have_links_of_their_own(pair: list[RunningBroker], peer_at: NewPeer) -> None:  # C44, C45, C48
    sending, other = peer_at(pair[0].port), peer_at(pair[1].port)
    link = receiving(other, "any.a", 100)
    knows_receivers(pair[0], "any.a", "other")
    sender = sending.sender("any.a")
    for priority in (0, 4, 9, 9, 200):
        message = Message(body=priority)
        message.priority = priority
        sending.post(sender, message)
    sending.settle_down()
    assert Counter(taken(other, link, 5)) == Counter([0, 4, 9, 9, 200])
    (neighbours,) = pair[0]._broker.remote.network.neighbours.values()
    assert {number: lane.sent for number, lane in neighbours[0].priority_links.items() if lane.sent} == {
        0: 1,
        4: 1,
        9: 3,
    }


@pytest.mark.parametrize("address", ["any.a", "all.a"])
def test_a_neighbour_that_dies_gives_back_what_it_had(
    pair: list[RunningBroker], peer_at: NewPeer, address: str
) -> None:  # C12, C48
    sending, other = peer_at(pair[0].port), peer_at(pair[1].port)
    link = receiving(other, address, 5)
    multicast = address.startswith("all")
    knows_receivers(pair[0], address, "other", multicast=multicast)
    sender = sending.sender(address)
    deliveries = [sending.post(sender, Message(body=number)) for number in range(300)]
    all_sent(sending)
    other.take(link, 5)[0].accept()
    other.settle_down()
    assert settled(sending, deliveries[:1]) == [Delivery.ACCEPTED]
    for end in list(pair[0]._broker.connections.by_end):
        if end.container == "other":  # type: ignore[attr-defined]
            pair[0]._post(end.expel, "for a test")  # type: ignore[attr-defined]
    states = settled(sending, deliveries)
    assert states[0] == Delivery.ACCEPTED
    assert Delivery.ACCEPTED not in states[1:]
    assert set(states[1:]) <= {Delivery.MODIFIED, Delivery.RELEASED}
    all_reach_all(*pair)
    knows_receivers(pair[0], address, "other", multicast=multicast)
    sending.wait(lambda: sender.credit, "credit, because it came back")


def test_around_a_broken_link(ring: list[RunningBroker], peer_at: NewPeer) -> None:  # C48
    sending, other = peer_at(ring[0].port), peer_at(ring[2].port)
    link = receiving(other, "any.a", 1000)
    knows_receivers(ring[0], "any.a", "c")
    sender = sending.sender("any.a")
    sending.post(sender, Message(body=1))
    sending.settle_down()
    assert taken(other, link, 1) == [1]
    connectors = ring[2]._broker.remote.connectors
    name = next(name for name, one in connectors.by_name.items() if one.target.port == ring[0].port)
    ring[2]._post(connectors.delete, connectors.by_name[name], lambda error: None)
    until(lambda: ring[0]._broker.remote.network.topology.next_hops.get("c") == ("b", 2), "the way around")
    delivery = sending.post(sender, Message(body=2))
    sending.settle_down()
    assert taken(other, link, 1) == [2]
    assert settled(sending, [delivery]) == [Delivery.ACCEPTED]


def test_two_brokers_of_one_name_are_not_joined(start_broker: StartBroker, caplog: pytest.LogCaptureFixture) -> None:
    one = start(start_broker, "same")
    start(start_broker, "same", one)
    until(lambda: "container-id of its own" in caplog.text, "to be told")
    assert reached(one) == set()


def test_messages_sent_settled_and_streams_go_across(pair: list[RunningBroker], peer_at: NewPeer) -> None:  # C30, C35
    sending, other = peer_at(pair[0].port), peer_at(pair[1].port)
    link = receiving(other, "any.a", 1000)
    knows_receivers(pair[0], "any.a", "other")
    sender = sending.sender("any.a", settled=True)
    for number in range(400):
        sending.post(sender, Message(body=number), settled=True)
    all_sent(sending)
    assert taken(other, link, 400) == list(range(400))
    for settle in (False, True):
        long: Any = sending.session.sender(f"long-{settle}")
        sending.attach(long, "any.a")
        sending.wait(lambda: long.credit)  # noqa: B023
        delivery = long.delivery(long.delivery_tag())
        size = 3 << 20
        long.stream(b"\x00\x53\x70\xc0\x02\x01\x41\x00\x53\x75\xb0" + size.to_bytes(4))
        for _ in range(3):
            long.stream(b"y" * (1 << 20))
            sending.settle_down()
        if settle:
            delivery.settle()
        long.advance()
        sending.settle_down()
        (received,) = other.take(link)
        assert len(received.content) == size + 15
        assert received.message.durable
        received.accept()
        other.settle_down()
        if not settle:
            assert settled(sending, [delivery]) == [Delivery.ACCEPTED]


def test_aborted_messages_are_aborted_over_there(pair: list[RunningBroker], peer_at: NewPeer) -> None:  # C30
    sending, other = peer_at(pair[0].port), peer_at(pair[1].port)
    link = receiving(other, "any.a", 1000)
    knows_receivers(pair[0], "any.a", "other")
    sender = sending.sender("any.a")
    delivery = sender.delivery(sender.delivery_tag())
    sender.stream(b"\x00\x53\x75\xb0" + (1 << 20).to_bytes(4) + b"y" * 100_000)
    sending.settle_down()
    other.wait(lambda: other._pieces.get(link), "the first part")
    delivery.abort()
    sending.settle_down()
    after = sending.post(sender, Message(body="after"))
    sending.settle_down()
    assert taken(other, link, 1) == ["after"]
    assert settled(sending, [after]) == [Delivery.ACCEPTED]


def test_a_peer_dies_with_what_it_had(line: list[RunningBroker], peer_at: NewPeer) -> None:  # C12
    sending, other = peer_at(line[0].port), peer_at(line[2].port)
    link = receiving(other, "any.a", 5)
    knows_receivers(line[0], "any.a", "c")
    sender = sending.sender("any.a")
    deliveries = [sending.post(sender, Message(body=number)) for number in range(10)]
    sending.settle_down()
    other.take(link, 5)
    Peer.cut(other)
    assert settled(sending, deliveries) == [Delivery.MODIFIED] * 5 + [Delivery.RELEASED] * 5
