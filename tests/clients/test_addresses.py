"""Tests of addresses: the queues that they name, the creation of queues on first use, and errors for missing queues."""

from __future__ import annotations

from typing import Any

import pytest
from proton import Delivery, Described, Endpoint, Link, Message, Terminus, symbol, ulong
from proton.utils import LinkDetached, SendException

from tests.harness.clients.peers import Peer

from .conftest import Connect, NewPeer, StartBroker

ALPHA = "\N{GREEK SMALL LETTER ALPHA}"
both_ways = pytest.mark.parametrize("to_client", [True, False], ids=["source", "target"])


def link_of(peer: Peer, to_client: bool) -> Any:
    name = f"link-{id(peer)}"
    return peer.session.receiver(name) if to_client else peer.session.sender(name)


# ---- creation on first use -----------------------------------------------------------------------------------------


@both_ways
@pytest.mark.parametrize(
    ("address", "patterns"),
    [
        ("q", ()),
        ("other", ("orders.*", "q?")),
        ("Orders.1", ("orders.*",)),
        ("$x", ("*",)),
        ("$other", ("*", "$*")),
        ("", ("*",)),
        ("x" * 1025, ("*",)),
        (ALPHA * 513, ("*",)),
        ("dynamic-is-the-broker's", ("*",)),
    ],
)
def test_refused(
    start_broker: StartBroker, peer_at: NewPeer, to_client: bool, address: str, patterns: tuple[str, ...]
) -> None:
    """The link is refused with a condition and a reason, and the connection stays open."""
    peer = peer_at(start_broker(auto_create=patterns).port)
    link = peer.attach(link_of(peer, to_client), address)
    assert peer.refusal(link) == "amqp:not-found"
    assert (link.remote_source if to_client else link.remote_target).type == Terminus.UNSPECIFIED
    assert "queue" in link.remote_condition.description
    peer.settle_down()


@both_ways
@pytest.mark.parametrize(
    "address",
    [
        "q1",
        "orders.x",
        "q2",
        "a b",
        "x" * 1024,
        ALPHA * 512,
        "a/b?c=d#e",
        "a$",
        "'; drop table queue",
    ],
)
def test_made(start_broker: StartBroker, peer_at: NewPeer, to_client: bool, address: str) -> None:
    peer = peer_at(start_broker(auto_create=("orders.*", "q[12]", "*[ $/']*", "x*", ALPHA + "*")).port)
    first = peer.attach(link_of(peer, to_client), address)
    assert (first.remote_source if to_client else first.remote_target).address == address
    receiver = peer.receiver(address, 1)
    peer.put(peer.sender(address), ["found"])
    assert peer.take(first if to_client and first.credit else receiver)[0].body == "found"


def test_addresses_are_exact(peer: Peer) -> None:
    """Addresses are compared without case folding, trimming or patterns."""
    addresses = ["q", "Q", "q ", " q", "q*", "*", "q\t", "caf\u00e9", "cafe\u0301"]
    for address in addresses:
        peer.put(peer.sender(address), [address])
    for address in addresses:
        assert [received.body for received in peer.drain(peer.receiver(address), 10)] == [address]


def test_many_clients_may_be_the_first(new_peer: NewPeer) -> None:
    """Links that attach to the same new queue at the same time all succeed, and share one queue."""
    peers = [new_peer() for _ in range(5)]
    links = []
    for number, peer in enumerate(peers):
        for part in range(4):
            link = peer.session.sender(f"s{number}-{part}")
            link.target.address = "new"
            link.open()
            links.append((peer, link))
    for peer, link in links:
        peer.put(link, [link.name])
    bodies = {received.body for received in peers[0].drain(peers[0].receiver("new"), 100)}
    assert bodies == {link.name for _, link in links}


def test_a_refusal_fits_a_small_frame(start_broker: StartBroker, peer_at: NewPeer) -> None:
    peer = peer_at(start_broker(auto_create=("y*",)).port, max_frame_bytes=512)
    for address in ("x" * 400, "x" * 5000, "y" * 5000, ALPHA * 5000):
        name = f"{len(address)} {address[:100]}"
        for link in (peer.session.sender(name), peer.session.receiver(name)):
            assert peer.refusal(peer.attach(link, address)) == "amqp:not-found"


def test_the_blocking_api_says_what_is_wrong(start_broker: StartBroker, connect: Connect) -> None:
    connection = connect(start_broker(auto_create=()).port)
    with pytest.raises(LinkDetached, match=r"amqp:not-found.*there is no queue 'q'"):
        connection.create_receiver("q")
    with pytest.raises(LinkDetached, match=r"amqp:not-found.*there is no queue 'q'"):
        connection.create_sender("q")


# ---- errors ---------------------------------------------------------------------------------------------------------


def test_a_source_is_needed(peer: Peer) -> None:
    assert peer.refusal(peer.receiver(None)) == "amqp:not-found"  # there is no subscription of that name either


# ---- the anonymous relay -------------------------------------------------------------------------------------------


def test_each_message_finds_its_own_way(peer: Peer) -> None:
    relay = peer.sender(None)
    assert "ANONYMOUS-RELAY" in peer.connection.remote_offered_capabilities
    addresses = [f"q{number % 7}" for number in range(70)]
    peer.send(relay, *(Message(address=address, body=number) for number, address in enumerate(addresses)))
    for number in range(7):
        bodies = [received.body for received in peer.drain(peer.receiver(f"q{number}"), 100)]
        assert bodies == list(range(number, 70, 7))


@pytest.mark.parametrize("size", [10, 100_000, 500_000])
def test_long_messages_find_their_way(peer: Peer, size: int) -> None:
    """Long messages reach their queues, also if a queue is created while they arrive."""
    relay = peer.sender(None)
    messages = [Message(address=f"q{n % 3}", body=bytes([n]) * size, durable=bool(n % 2)) for n in range(12)]
    peer.send(relay, *messages)
    for number in range(3):
        bodies = [received.body for received in peer.drain(peer.receiver(f"q{number}"), 100)]
        assert bodies == [message.body for message in messages[number::3]]


def test_what_finds_no_way_is_rejected_alone(start_broker: StartBroker, peer_at: NewPeer) -> None:
    peer = peer_at(start_broker(auto_create=("q*",)).port)
    relay = peer.sender(None)
    addresses = ["q1", None, "other", "q1", "$x", "", "q2", "q1", "x" * 2000]
    deliveries = [peer.post(relay, Message(address=address, body=n)) for n, address in enumerate(addresses)]
    peer.wait(lambda: all(delivery.settled for delivery in deliveries))
    good = [address in ("q1", "q2") for address in addresses]
    assert [delivery.remote_state == Delivery.ACCEPTED for delivery in deliveries] == good
    assert [delivery.remote_state == Delivery.REJECTED for delivery in deliveries] == [not one for one in good]
    refused = [d.remote.condition for d in deliveries if d.remote_state == Delivery.REJECTED]
    assert {condition.name for condition in refused} == {"amqp:not-found"}
    assert all(condition.description for condition in refused)
    assert [received.body for received in peer.drain(peer.receiver("q1"), 10)] == [0, 3, 7]
    peer.wait(lambda: relay.credit == 1000)


def test_settled_messages_find_their_way_too(peer: Peer) -> None:
    relay = peer.sender(None, settled=True)
    for number in range(50):
        peer.post(relay, Message(address=f"q{number % 2}", body=number))
    for part in range(2):
        receiver = peer.receiver(f"q{part}", 25)
        assert [received.body for received in peer.take(receiver, 25)] == list(range(part, 50, 2))


def test_the_blocking_api_hears_of_a_rejection(start_broker: StartBroker, connect: Connect) -> None:
    sender = connect(start_broker(auto_create=()).port).create_sender(None)
    with pytest.raises(SendException):
        sender.send(Message(address="nowhere", body=1))


# ---- dynamic nodes -------------------------------------------------------------------------------------------------


def dynamic_receiver(peer: Peer, credit: int = 10) -> tuple[Any, str]:
    link = peer.attach(peer.session.receiver(f"d{id(peer)}"), None, dynamic=True)
    link.flow(credit)
    assert link.remote_source.dynamic
    address = link.remote_source.address
    assert address
    return link, address


def test_request_and_reply(new_peer: NewPeer) -> None:
    client, server = new_peer(), new_peer()
    replies, address = dynamic_receiver(client)
    service = server.receiver("service", 10)
    client.send(client.sender("service"), Message(body="question", reply_to=address, correlation_id=7))
    (request,) = server.take(service)
    server.send(server.sender(None), Message(address=request.message.reply_to, correlation_id=7, body="answer"))
    server.send(server.sender(address), Message(correlation_id=8, body="another"))
    answers = [(received.message.correlation_id, received.body) for received in client.take(replies, 2)]
    assert answers == [(7, "answer"), (8, "another")]


def test_each_dynamic_node_is_a_new_one(new_peer: NewPeer) -> None:
    assert len({dynamic_receiver(new_peer())[1] for _ in range(10)}) == 10


def test_a_dynamic_target(new_peer: NewPeer) -> None:
    peer = new_peer()
    sender = peer.attach(peer.session.sender("s"), None, dynamic=True)
    peer.put(sender, range(3))
    other = new_peer()
    assert [received.body for received in other.drain(other.receiver(sender.remote_target.address), 10)] == [0, 1, 2]


def test_it_goes_with_the_link_it_was_made_for(new_peer: NewPeer) -> None:
    peer, other = new_peer(), new_peer()
    link, address = dynamic_receiver(peer)
    relay, direct, reader = other.sender(None), other.sender(address), peer.receiver(address)
    peer.detach(link)
    assert peer.refusal(reader) == "amqp:resource-deleted"
    assert other.refusal(direct) == "amqp:resource-deleted"
    delivery = other.post(relay, Message(address=address, body=3))
    other.wait(lambda: delivery.settled)
    assert delivery.remote_state == Delivery.REJECTED
    assert delivery.remote.condition.name == "amqp:not-found"
    assert other.refusal(other.receiver(address)) == "amqp:not-found"


def test_a_vanished_connection_takes_its_nodes_along(new_peer: NewPeer) -> None:
    peer, other = new_peer(), new_peer()
    address = peer.attach(peer.session.sender("s"), None, dynamic=True).remote_target.address
    reader = other.receiver(address)
    peer.cut()
    assert other.refusal(reader) == "amqp:resource-deleted"
    assert other.refusal(other.attach(other.session.sender("s"), address)) == "amqp:not-found"


# ---- attaching a link again ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("close", [True, False], ids=["closed", "detached"])
def test_a_link_may_attach_again(peer: Peer, close: bool) -> None:
    for number in range(5):
        sender, receiver = peer.sender("q", name="out"), peer.receiver("q", 2, name="in")
        peer.put(sender, [number, "back"])
        first, second = peer.take(receiver, 2)
        assert (first.body, second.body, second.message.delivery_count) == (number, "back", 0)
        first.accept()
        peer.detach(sender, close=close)
        peer.detach(receiver, close=close)
        sender.free()
        receiver.free()
        (again,) = peer.drain(peer.receiver("q"), 10)
        assert again.body == "back"
        again.accept()


def test_a_name_in_use_can_not_be_attached(peer: Peer) -> None:
    """The attachment is an error of the connection, which names the link."""
    peer.sender("q", name="same").free()
    again = peer.session.sender("same")
    again.target.address = "q"
    again.open()
    with pytest.raises(ConnectionError, match=r"amqp:invalid-field.*'same'"):
        peer.wait(lambda: peer.session.state & Endpoint.REMOTE_CLOSED)


def test_settlement_modes_are_as_asked_for(peer: Peer) -> None:
    for mode in (Link.SND_UNSETTLED, Link.SND_SETTLED, Link.SND_MIXED):
        sender = peer.session.sender(f"s{mode}")
        sender.snd_settle_mode = mode
        peer.attach(sender, "q")
        assert sender.remote_snd_settle_mode == mode
        receiver = peer.session.receiver(f"r{mode}")
        receiver.snd_settle_mode = mode
        peer.attach(receiver, "q")
        assert receiver.remote_snd_settle_mode == mode


def test_a_filter_that_is_not_applied_is_not_confirmed(peer: Peer) -> None:
    """A filter that the broker does not apply is not confirmed, so that no client relies on it."""
    link = peer.session.receiver("r")
    link.source.filter.put_object({symbol("mine"): Described(symbol("example:filter"), "green")})
    peer.attach(link, "q")
    assert link.source.filter.format()
    assert not link.remote_source.filter.format()


# ---- nodes with a lifetime policy -----------------------------------------------------------------------------------


def lasting_node(peer: Peer, lifetime: int) -> Any:
    """Attach a receiver to a dynamic node with a lifetime policy."""
    link = peer.session.receiver(f"dynamic-{lifetime}")
    link.source.properties.put_object({symbol("lifetime-policy"): Described(ulong(lifetime), [])})
    return peer.attach(link, None, dynamic=True)


def test_a_node_that_goes_without_links(new_peer: NewPeer) -> None:
    peer, other = new_peer(), new_peer()
    link = lasting_node(peer, 0x2C)
    address = link.remote_source.address
    sender = other.sender(address)
    peer.detach(link)
    other.put(sender, ["still there"])
    other.detach(sender)
    assert other.refusal(other.receiver(address)) == "amqp:not-found"


def test_a_node_that_goes_without_links_and_messages(new_peer: NewPeer) -> None:
    peer, other = new_peer(), new_peer()
    link = lasting_node(peer, 0x2E)
    address = link.remote_source.address
    sender = other.sender(address)
    other.put(sender, ["kept"])
    other.detach(sender)
    peer.close()
    link = other.receiver(address, 1)
    other.take(link)[0].accept()
    other.settle_down()
    other.detach(link)
    assert other.refusal(other.receiver(address)) == "amqp:not-found"


def test_a_node_that_goes_without_messages(new_peer: NewPeer) -> None:
    peer = new_peer()
    link = lasting_node(peer, 0x2D)
    link.flow(1)
    peer.put(peer.sender(link.remote_source.address), ["only"])
    peer.take(link)[0].accept()
    assert peer.refusal(link) == "amqp:resource-deleted"
