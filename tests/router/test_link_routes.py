"""Tests of link routes, which connect links to another container end to end, and store nothing here."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest
from proton import Condition, Delivery, Endpoint, Link, Message, Terminus, symbol

from cairnmq.amqp.links.events import Limits
from cairnmq.amqp.native.proton_ffi import lib
from cairnmq.broker.outbound.link_pair import AHEAD_BYTES
from cairnmq.broker_plugin.run import RunningBroker
from tests.clients.conftest import NewPeer, StartBroker
from tests.harness.clients.peers import Peer
from tests.harness.router.far import Far, begin, meanwhile
from tests.harness.router.joined import is_up, until


@pytest.fixture
def far() -> Iterator[Far]:
    far = Far()
    yield far
    far.close_all()


@pytest.fixture
def broker(start_broker: StartBroker, far: Far) -> RunningBroker:
    """Return a broker with link routes for `far.*` and `cut.*`, which is connected to the other container."""
    started = start_broker(
        connect_to=(f"amqp://127.0.0.1:{far.port}?name=there",), link_routes=("far.*=there", "cut.*=there,strip=cut."),
    )  # fmt: skip
    far.accept()
    until(lambda: is_up(started, "there"))
    return started


def together(*peers: Peer) -> None:
    """Exchange bytes with all peers three times."""
    for _ in range(3):
        for peer in peers:
            peer._exchange()
        time.sleep(0.001)


def test_an_attach_goes_on_as_the_client_said_it(peer: Peer, far: Far) -> None:  # C42, C50, C60
    link = peer.session.receiver("mine")
    link.source.address = "far.topic"
    link.source.durability, link.source.expiry_policy, link.source.timeout = 2, Terminus.EXPIRE_NEVER, 77
    link.source.distribution_mode = Terminus.DIST_MODE_COPY
    link.source.capabilities.put_object(symbol("topic"))
    link.source.filter.put_dict({symbol("selector"): "a > 1"})
    link.target.address = "my-end"
    link.properties = {symbol("x-opt-mine"): [1, "two"]}
    link.max_message_size = 12345
    link.rcv_settle_mode = Link.RCV_SECOND
    link.open()
    meanwhile(far, peer, lambda: far.links)
    assert not link.state & Endpoint.REMOTE_ACTIVE, "not answered before the other one has"
    there = far.asked()
    assert there.is_sender
    assert there.name == f"mine@{peer.connection.container}"
    source = there.remote_source
    assert (source.address, source.durability, source.timeout) == ("far.topic", 2, 77)
    assert source.expiry_policy == Terminus.EXPIRE_NEVER
    assert source.distribution_mode == Terminus.DIST_MODE_COPY
    source.filter.rewind()
    source.filter.next()
    assert source.filter.get_dict() == {symbol("selector"): "a > 1"}
    assert there.remote_target.address == "my-end"
    assert there.remote_properties == {"x-opt-mine": [1, "two"]}
    assert there.remote_max_message_size == 12345
    assert there.remote_rcv_settle_mode == Link.RCV_SECOND
    there.source.copy(there.remote_source)
    there.source.timeout = 5
    there.target.copy(there.remote_target)
    there.rcv_settle_mode = Link.RCV_FIRST
    there.properties = {symbol("x-opt-theirs"): True}
    there.open()
    meanwhile(far, peer, lambda: link.state & Endpoint.REMOTE_ACTIVE)
    assert (link.remote_source.address, link.remote_source.timeout) == ("far.topic", 5)
    assert link.remote_rcv_settle_mode == Link.RCV_FIRST
    assert link.remote_properties == {"x-opt-theirs": True}


def test_messages_and_outcomes_of_a_sender(peer: Peer, far: Far) -> None:  # C12, C52, C57, C58, C60
    link, there = begin(peer, far, "far.q", sends=True)
    together(far, peer)
    assert not link.credit, "credit is the other one's to give"
    there.flow(5)
    meanwhile(far, peer, lambda: link.credit == 5)
    sent = [Message(body=number) for number in range(5)]
    deliveries = [peer.post(link, message) for message in sent]
    meanwhile(far, peer, lambda: len(far.received.get(there, [])) == 5)
    assert not link.credit
    received = far.received[there]
    assert [one.content for one in received] == [message.encode() for message in sent]
    assert not any(one.settled for one in deliveries)
    received[0].accept()
    received[1].delivery.local.condition = Condition("shop:closed", "come back", {symbol("until"): 9})
    received[1].settle(Delivery.REJECTED)
    received[2].settle(Delivery.RELEASED)
    received[3].delivery.local.annotations = {symbol("x-opt-why"): "no"}
    received[3].settle(Delivery.MODIFIED, undeliverable=True)
    meanwhile(far, peer, lambda: sum(one.settled for one in deliveries) == 4)
    states = [Delivery.ACCEPTED, Delivery.REJECTED, Delivery.RELEASED, Delivery.MODIFIED]
    assert [one.remote_state for one in deliveries[:4]] == states
    assert deliveries[1].remote.condition.name == "shop:closed"
    assert deliveries[1].remote.condition.info == {"until": 9}
    assert deliveries[3].remote.undeliverable
    assert deliveries[3].remote.annotations == {"x-opt-why": "no"}
    assert not deliveries[4].settled


def test_messages_and_outcomes_of_a_receiver(peer: Peer, far: Far) -> None:  # C12, C52, C57, C58, C60
    link, there = begin(peer, far, "far.q", sends=False)
    link.flow(3)
    meanwhile(far, peer, lambda: there.credit == 3)
    link.flow(2)
    meanwhile(far, peer, lambda: there.credit == 5)
    sent = [Message(body=number) for number in range(3)]
    deliveries = [far.post(there, message) for message in sent]
    meanwhile(far, peer, lambda: len(peer.received.get(link, [])) == 3)
    received = peer.received[link]
    assert [one.content for one in received] == [message.encode() for message in sent]
    for one, state in zip(received, (Delivery.ACCEPTED, Delivery.REJECTED, Delivery.RELEASED), strict=True):
        one.settle(state)
    meanwhile(far, peer, lambda: all(one.settled for one in deliveries))
    assert [one.remote_state for one in deliveries] == [Delivery.ACCEPTED, Delivery.REJECTED, Delivery.RELEASED]


@pytest.mark.parametrize("sends", [True, False])
def test_both_settle_second(peer: Peer, far: Far, sends: bool) -> None:  # C58, C59, C60
    link, there = begin(peer, far, "far.q", sends=sends, second=True)
    one, other, receives, to = (peer, far, there, link) if sends else (far, peer, link, there)
    receives.flow(1)
    meanwhile(far, peer, lambda: to.credit)
    delivery = one.post(to, Message(body=1))
    meanwhile(far, peer, lambda: other.received.get(receives))
    (received,) = other.received[receives]
    received.delivery.update(Delivery.ACCEPTED)
    meanwhile(far, peer, lambda: delivery.remote_state == Delivery.ACCEPTED)
    together(far, peer)
    assert not delivery.settled, "the sender settles first"
    assert not received.delivery.settled
    delivery.settle()
    meanwhile(far, peer, lambda: received.delivery.settled, "that to be told")


@pytest.mark.parametrize("sends", [True, False])
def test_drain_is_asked_for_and_answered_by_the_other_one(peer: Peer, far: Far, sends: bool) -> None:  # C52, C53
    link, there = begin(peer, far, "far.q", sends=sends)
    one, other, receives, to = (peer, far, there, link) if sends else (far, peer, link, there)
    receives.drain(10)
    meanwhile(far, peer, lambda: to.credit == 10)
    assert to.drain_mode
    one.post(to, Message(body=1))
    to.drained()
    meanwhile(far, peer, lambda: not receives.draining() and other.received.get(receives), "the drain to be answered")
    assert len(other.received[receives]) == 1
    assert receives.credit == 0
    receives.drain_mode = False
    receives.flow(2)
    meanwhile(far, peer, lambda: to.credit == 2)
    assert not to.drain_mode


@pytest.mark.parametrize("sends", [True, False])
def test_long_messages_settled_ones_and_aborted_ones(peer: Peer, far: Far, sends: bool) -> None:  # C28, C30, C60
    link, there = begin(peer, far, "far.q", sends=sends)
    one, other, receives, to = (peer, far, there, link) if sends else (far, peer, link, there)
    receives.flow(10)
    meanwhile(far, peer, lambda: to.credit == 10)
    part = b"x" * 100_000
    delivery = to.delivery("long")
    to.stream(b"\x00\x53\x75\xb0" + (4 * len(part)).to_bytes(4) + part)
    meanwhile(far, peer, lambda: len(other._pieces.get(receives, b"")) == 8 + len(part), "the first part to pass")
    for _ in range(3):
        to.stream(part)
        together(far, peer)
    delivery.settle()
    to.advance()
    meanwhile(far, peer, lambda: other.received.get(receives))
    assert other.received[receives][0].content[8:] == 4 * part
    meanwhile(far, peer, lambda: other.received[receives][0].delivery.settled, "sent settled, received settled")
    aborted = to.delivery("aborted")
    to.stream(part)
    meanwhile(far, peer, lambda: other._pieces.get(receives))
    aborted.abort()
    one.post(to, Message(body="settled"), settled=True)
    last = one.post(to, Message(body="last"))
    meanwhile(far, peer, lambda: len(other.received[receives]) == 3)
    assert [found.body for found in other.received[receives][1:]] == ["settled", "last"]
    assert [found.delivery.settled for found in other.received[receives][1:]] == [True, False]
    other.received[receives][2].accept()
    meanwhile(far, peer, lambda: last.settled)


def test_a_refusal_is_the_other_ones(peer: Peer, far: Far) -> None:  # C51, C60
    link = peer.session.sender("refused")
    link.target.address = "far.q"
    link.open()
    meanwhile(far, peer, lambda: far.links)
    there = far.asked()
    there.target.type = Terminus.UNSPECIFIED
    there.open()
    there.condition = Condition("shop:closed", "no entry", {symbol("until"): 9})
    there.close()
    meanwhile(far, peer, lambda: link.state & Endpoint.REMOTE_CLOSED)
    assert (link.remote_condition.name, link.remote_condition.info) == ("shop:closed", {"until": 9})
    assert link.remote_target.type == Terminus.UNSPECIFIED


@pytest.mark.parametrize("close", [True, False])
@pytest.mark.parametrize("who", ["client", "other"])
def test_a_detach_goes_on(peer: Peer, far: Far, who: str, close: bool) -> None:  # C60
    link, there = begin(peer, far, "far.q", sends=True, credit=5)
    meanwhile(far, peer, lambda: link.credit)
    delivery = peer.post(link, Message(body=1))
    meanwhile(far, peer, lambda: far.received.get(there))
    one, other = (link, there) if who == "client" else (there, link)
    if close:
        one.condition = Condition("shop:closed", "that was it")
        one.close()
    else:
        one.detach()
    meanwhile(far, peer, lambda: other in (peer.detached | far.detached))
    assert bool(other.state & Endpoint.REMOTE_CLOSED) is close
    assert getattr(other.remote_condition, "name", None) == ("shop:closed" if close else None)
    if who == "other":
        assert delivery.remote_state == Delivery.RELEASED


def test_the_other_container_goes_and_comes_back(peer: Peer, far: Far, broker: RunningBroker) -> None:  # C60
    link, there = begin(peer, far, "far.q", sends=True, credit=5)
    receiver, _ = begin(peer, far, "far.q", sends=False)
    meanwhile(far, peer, lambda: link.credit)
    delivery = peer.post(link, Message(body=1))
    meanwhile(far, peer, lambda: far.received.get(there))
    far.cut()
    peer.wait(lambda: {link, receiver} <= peer.detached)
    assert link.remote_condition.name == "amqp:link:detach-forced"
    assert delivery.remote_state == Delivery.MODIFIED
    assert delivery.remote.failed
    until(lambda: not is_up(broker, "there"))
    assert peer.refusal(peer.attach(peer.session.sender("no"), "far.q")) == "amqp:not-found"
    far.accept()
    until(lambda: is_up(broker, "there"))
    link, there = begin(peer, far, "far.q", sends=True, credit=5)
    meanwhile(far, peer, lambda: link.credit)


def test_a_client_that_dies_takes_its_links_along(peer: Peer, far: Far) -> None:
    _, there = begin(peer, far, "far.q", sends=True, credit=5)
    peer.cut()
    far.wait(lambda: there in far.detached)
    assert there.state & Endpoint.REMOTE_CLOSED
    there.close()
    far.wait(lambda: there.session.state & Endpoint.REMOTE_CLOSED, "its session to go, too")


def test_links_of_one_name_are_told_apart(peer: Peer, far: Far) -> None:
    links = [peer.new_session().sender("same") for _ in range(3)]
    for link in links:
        link.target.address = "far.q"
        link.open()
    meanwhile(far, peer, lambda: len(far.links) == 3)
    name = f"same@{peer.connection.container}"
    assert [link.name for link in far.links] == [name, f"{name}#2", f"{name}#3"]


def test_what_is_there_and_what_is_not_routed(peer: Peer, far: Far, broker: RunningBroker) -> None:
    peer.put(peer.sender("queue://far.own"), [1])
    peer.put(peer.sender("far.own"), [2])
    assert [one.body for one in peer.take(peer.receiver("far.own", 10), 2)] == [1, 2]
    peer.put(peer.sender("near.q"), [1])
    assert peer.refusal(peer.attach(peer.session.sender("d"), "$router.x")) == "amqp:not-found"
    link, there = begin(peer, far, "cut.q", sends=True)
    assert there.remote_target.address == "q", "without what the route strips"
    assert link.remote_target.address == "cut.q"


def test_what_the_other_container_attaches_by_itself_is_refused(far: Far, broker: RunningBroker) -> None:
    session = far.connection.session()
    session.open()
    link = session.receiver("spy")
    link.source.address = "orders"
    link.open()
    far.wait(lambda: link.state & Endpoint.REMOTE_CLOSED)
    assert link.remote_condition.name == "amqp:not-allowed"


def test_a_receiver_that_stalls_holds_its_sender_and_little_memory(
    peer: Peer, far: Far, broker: RunningBroker
) -> None:  # C13, C60
    """Other sessions of the client are not affected."""
    link, there = begin(peer, far, "far.slow", sends=True)
    other, other_there = begin(peer, far, "far.fast", sends=True, credit=10)
    there.flow(10_000)
    meanwhile(far, peer, lambda: link.credit >= 10_000)
    memory = broker._broker.core.memory
    left = 64 << 20
    body = Message(body=b"z" * 20_000).encode()
    deadline_s = time.monotonic() + 3
    while left > 0 and time.monotonic() < deadline_s:  # the other container reads nothing
        if link.credit and peer.session.outgoing_bytes < 1 << 18:
            delivery = link.delivery(str(left))
            link.send(body)
            delivery.settle()
            link.advance()
            left -= len(body)
        peer._exchange()
    assert left > 0, "it is held back"
    assert memory.used_bytes <= 2 * AHEAD_BYTES
    session = peer.new_session()
    peer.wait(lambda: session.state & Endpoint.REMOTE_ACTIVE, "others of the connection go on")
    meanwhile(far, peer, lambda: not peer.session.outgoing_bytes, "all to pass, once it reads again")
    assert other.state & there.state & other_there.state & Endpoint.REMOTE_ACTIVE


def test_queues_of_another_broker(start_broker: StartBroker, peer_at: NewPeer) -> None:  # C60
    """Durability, credit, outcomes and drain are those of the queue at the other broker."""
    there = start_broker(container_id="there")
    here = start_broker(
        connect_to=(f"amqp://127.0.0.1:{there.port}?name=there",), link_routes=("far.*=there",), auto_create=()
    )
    until(lambda: is_up(here, "there"))
    peer = peer_at(here.port)
    sender = peer.sender("far.q")
    peer.put(sender, range(5))
    peer.send(sender, Message(body="x" * 3_000_000, durable=True))
    assert there._broker.nodes.queues["far.q"].messages == 6
    assert not here._broker.nodes.queues
    receiver = peer.receiver("far.q", 3)
    for one in peer.take(receiver, 3):
        one.accept()
    left = peer.drain(receiver, 10)
    assert [len(str(one.body)) for one in left] == [1, 1, 3_000_000]
    assert receiver.credit == 0
    left[0].settle(Delivery.RELEASED)
    for one in left[1:]:
        one.accept()
    peer.settle_down()
    until(lambda: there._broker.nodes.queues["far.q"].messages == 1, "the outcomes to be told")
    removed = peer.receiver("far.q", 10)
    peer.take(removed)
    peer.cut()
    until(lambda: there._broker.nodes.queues["far.q"].depth == 1, "what a dead client had to come back")


def test_a_container_that_falls_silent_is_given_up(start_broker: StartBroker, far: Far) -> None:
    """The broker closes a connection to a silent container, and connects again."""
    limits = Limits(idle_timeout_ms=2000)
    near = start_broker(connect_to=(f"amqp://127.0.0.1:{far.port}?name=there",), limits=limits)
    far.accept()
    far.wait(lambda: is_up(near, "there"))  # the silence begins after that
    until(lambda: near._broker.remote.connectors.by_name["there"].failures, "the silence to be noticed")
    far.accept()
    far.wait(lambda: is_up(near, "there"), "it to be connected again")


def test_what_crosses_with_credit_that_is_taken_back_is_no_breach(
    peer: Peer, far: Far, broker: RunningBroker
) -> None:
    """Messages that the other container sends before it receives a reduction of credit wait for more credit."""
    link, there = begin(peer, far, "far.q", sends=False)
    link.flow(6)
    meanwhile(far, peer, lambda: there.credit == 6, "the credit")
    for number in range(6):
        there.send(Message(body=number))  # sent with the next exchange
    (joint,) = broker._broker.remote.link_routes.pairs
    link.flow(-3)
    there_link: Any = joint._far.terminal
    peer.wait(lambda: lib.pn_link_credit(there_link._link.pn) == 3, "the credit to be taken back")
    meanwhile(far, peer, lambda: len(peer.received.get(link, ())) == 3, "what there is credit for")
    link.flow(4)  # one credit is left after the waiting messages
    meanwhile(far, peer, lambda: len(peer.received[link]) == 6, "the rest")
    far.post(there, Message(body=6))
    meanwhile(far, peer, lambda: len(peer.received[link]) == 7, "the last one")
    assert [one.body for one in peer.take(link, 7)] == [0, 1, 2, 3, 4, 5, 6]
    assert link.state & Endpoint.REMOTE_ACTIVE
