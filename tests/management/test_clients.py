"""Tests of connections and links in management: their attributes, and closing them."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable

import pytest
from proton import Endpoint, Message, Terminus

from cairnmq.router.tcp_info import seconds_idle
from tests.harness.clients.peers import Peer
from tests.harness.process import DEADLINE_S

from .conftest import Manager, NewPeer, StartBroker


def test_connections_and_links_come_and_go(manager: Manager, new_peer: NewPeer) -> None:
    peer = new_peer(container="clerk")
    peer.sender("orders", name="out")
    link = peer.receiver("orders", 1, name="in")
    [told] = [row for row in manager.rows("connection") if row["container"] == "clerk"]
    host, port = peer.sock.getsockname()
    assert (told["name"], told["links"]) == (f"{host}:{port}", 2)
    assert manager.ask("READ", "connection", told["name"]).body["identity"] == told["identity"]
    links = {row["name"]: row for row in manager.rows("link") if row["connection"] == told["identity"]}
    assert {name: (row["role"], row["address"]) for name, row in links.items()} == {
        "out": ("sender", "orders"),
        "in": ("receiver", "orders"),
    }
    assert all(row["open"] for row in links.values())
    peer.put(peer.sender("orders"), ["one"])
    [received] = peer.take(link)
    assert manager.ask("READ", "link", links["in"]["identity"]).body["unsettled"] == 1
    received.accept()
    peer.detach(link)
    assert manager.ask("READ", "link", links["in"]["identity"]).status == 404
    peer.cut()
    while [row for row in manager.rows("connection", "container") if row["container"] == "clerk"]:
        pass
    assert [row for row in manager.rows("link") if row["connection"] == told["identity"]] == []


def credit_of(manager: Manager, name: str) -> int | None:
    found: list[int | None] = [
        row["credit"] for row in manager.rows("link", "name", "credit") if row["name"] == name
    ]
    [credit] = found
    return credit


def test_credit_of_a_receiver_is_what_it_still_expects(manager: Manager, new_peer: NewPeer) -> None:
    peer = new_peer()
    sender = peer.sender("orders", name="out")
    taking = peer.receiver("orders", 10, name="in")
    peer.settle_down()
    assert (credit_of(manager, "in"), credit_of(manager, "out")) == (10, sender.credit)
    peer.put(sender, ["one", "two", "three"])
    received = peer.take(taking, 3)
    assert credit_of(manager, "in") == 7
    for one in received:
        one.accept()
    peer.settle_down()
    assert credit_of(manager, "in") == 7, "an outcome returns none"
    taking.flow(5)
    peer.settle_down()
    assert credit_of(manager, "in") == 12
    assert peer.drain(taking) == []
    assert credit_of(manager, "in") == 0


def wait_for_credit(manager: Manager, name: str, credit: int) -> None:
    until_s = time.monotonic() + DEADLINE_S
    while (found := credit_of(manager, name)) != credit:
        assert time.monotonic() < until_s, (name, found, credit)


@pytest.mark.parametrize("settled", [False, True])
def test_credit_of_a_sender_is_what_it_may_still_send(manager: Manager, new_peer: NewPeer, *, settled: bool) -> None:
    limits = {"max-messages": 3, "overflow": "block"}
    assert manager.ask("CREATE", "queue", "narrow", {"arguments": limits}).status == 201
    peer = new_peer()
    sender = peer.sender("narrow", name="out", settled=settled)
    first = sender.credit
    wait_for_credit(manager, "out", first)
    sent = 0
    while sender.credit:
        for _ in range(sender.credit):
            peer.post(sender, Message(body=sent, durable=True), settled=settled)
            sent += 1
        peer.settle_down()
    assert sent >= first
    wait_for_credit(manager, "out", 0)
    taking = peer.receiver("narrow", sent, name="in")
    for one in peer.take(taking, sent):
        one.accept()
    peer.wait(lambda: sender.credit == first, "room in the queue gives all credit back")
    wait_for_credit(manager, "out", first)


def test_credit_of_a_browser_is_what_it_still_expects(manager: Manager, new_peer: NewPeer) -> None:
    peer = new_peer()
    peer.put(peer.sender("orders"), ["one", "two"])
    looking = peer.attach(peer.session.receiver("look"), "orders", copy=True)
    assert credit_of(manager, "look") == 0
    looking.flow(5)
    peer.take(looking, 2)
    assert credit_of(manager, "look") == 3


def test_credit_of_a_receiver_of_an_address_without_a_queue(
    start_broker: StartBroker, peer_at: Callable[..., Peer]
) -> None:
    port = start_broker(anycast=("any.*",)).port
    peer, manager = peer_at(port), Manager(peer_at(port))
    taking = peer.receiver("any.orders", 4, name="in")
    peer.settle_down()
    assert credit_of(manager, "in") == 4
    sender = peer.sender("any.orders", name="out")
    peer.post(sender, b"\x00Su\xa0\x01x")
    peer.take(taking)
    assert (credit_of(manager, "in"), credit_of(manager, "out")) == (3, sender.credit)


def test_idle_time_of_a_connection_begins_again_with_each_message(manager: Manager, new_peer: NewPeer) -> None:
    peer = new_peer(container="clerk")
    sender = peer.sender("orders")

    def idle_s() -> float:
        rows = manager.rows("connection", "container", "idle-seconds")
        [found] = [row["idle-seconds"] for row in rows if row["container"] == "clerk"]
        assert isinstance(found, float)
        return found

    until_s = time.monotonic() + DEADLINE_S
    while (silent_s := idle_s()) < 0.5:
        assert time.monotonic() < until_s, "a silent client becomes idle"
    before_s = time.monotonic()
    peer.put(sender, ["one"])
    found_s = idle_s()
    assert found_s <= time.monotonic() - before_s + 0.1, (silent_s, found_s)  # the system clock is coarse


def test_idle_time_is_unknown_of_other_and_of_closed_sockets() -> None:
    one, other = socket.socketpair()
    with one, other:
        assert seconds_idle(one) is None
    with socket.create_server(("127.0.0.1", 0)) as listener:
        client = socket.create_connection(listener.getsockname())
        assert seconds_idle(client) is not None
        client.close()
        assert seconds_idle(client) is None


def test_a_link_that_was_refused_is_not_told(manager: Manager, new_peer: NewPeer) -> None:
    peer = new_peer()
    assert peer.refusal(peer.receiver("$nothing")) == "amqp:not-found"
    peer.settle_down()
    assert [row["address"] for row in manager.rows("link") if row["address"] == "$nothing"] == []


def test_a_connection_is_closed_and_what_it_held_goes_back(manager: Manager, new_peer: NewPeer) -> None:
    peer = new_peer(container="clerk")
    peer.put(peer.sender("orders"), ["one"])
    peer.take(peer.receiver("orders", 1))
    [identity] = [row["identity"] for row in manager.rows("connection") if row["container"] == "clerk"]
    assert manager.ask("DELETE", "connection", identity, {"reason": "the office is closed"}).status == 204
    peer.wait(lambda: peer.connection.state & Endpoint.REMOTE_CLOSED, "the connection to be closed")
    assert peer.connection.remote_condition.name == "amqp:connection:forced"
    assert peer.connection.remote_condition.description == "the office is closed"
    other = new_peer()
    [received] = other.take(other.receiver("orders", 1))
    assert received.body == "one"
    assert manager.ask("READ", "connection", identity).status == 404


def test_a_client_that_does_not_take_the_hint_is_cut_off(manager: Manager, new_peer: NewPeer) -> None:
    peer = new_peer(container="clerk")
    peer.put(peer.sender("orders"), ["one"])
    peer.take(peer.receiver("orders", 1))
    [identity] = [row["identity"] for row in manager.rows("connection") if row["container"] == "clerk"]
    assert manager.ask("DELETE", "connection", identity).status == 204
    other = new_peer()
    [received] = other.take(other.receiver("orders", 1))  # although the first client does not answer the close
    assert received.body == "one"


@pytest.mark.parametrize("to_client", [True, False])
def test_a_link_is_closed(manager: Manager, new_peer: NewPeer, to_client: bool) -> None:
    peer = new_peer()
    link = peer.receiver("orders", 1, name="mine") if to_client else peer.sender("orders", name="mine")
    [identity] = [row["identity"] for row in manager.rows("link") if row["name"] == "mine"]
    assert manager.ask("DELETE", "link", identity).status == 204
    assert peer.refusal(link) == "amqp:link:detach-forced"
    peer.settle_down()  # the connection stays usable
    assert manager.ask("READ", "link", identity).status == 404


def test_it_closes_its_own_connection(manager: Manager) -> None:
    [identity] = [row["identity"] for row in manager.rows("connection")]
    assert manager.ask("DELETE", "connection", identity).status == 204
    manager.peer.wait(lambda: manager.peer.connection.state & Endpoint.REMOTE_CLOSED)


def test_a_dynamic_queue_tells_whose_it_is(manager: Manager) -> None:
    [connection] = manager.rows("connection", "identity")
    [queue] = manager.rows("queue", "name", "connection", "durable")
    assert queue == {"name": manager.reply_to, "connection": connection["identity"], "durable": False}


def test_an_unsubscribed_source_is_told(manager: Manager, new_peer: NewPeer) -> None:
    """A link with a durable source is listed with its source address."""
    peer = new_peer()
    link = peer.session.receiver("news")
    link.source.durability = Terminus.DELIVERIES
    link.source.expiry_policy = Terminus.EXPIRE_NEVER
    peer.attach(link, "amq.topic/a")
    [told] = [row for row in manager.rows("link") if row["name"] == "news"]
    assert told["address"] == "amq.topic/a"
