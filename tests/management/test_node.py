"""Tests of the management node: request links, reply addresses, and hostile requests."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from proton import Delivery, Message, symbol

from cairnmq.amqp.codec import encode, sections
from cairnmq.amqp.codec.sections import Properties
from tests.harness.amqp.typed import values

from .conftest import Manager, NewPeer

TYPES = (
    "queue", "exchange", "binding", "template", "connection", "session", "link", "user", "connector", "link-route",
    "auto-link", "federated-queue", "downstream", "router", "transaction", "broker", "store",
)  # fmt: skip
OPERATIONS = (
    "CREATE", "READ", "UPDATE", "DELETE", "QUERY", "GET-TYPES", "GET-ATTRIBUTES", "GET-OPERATIONS", "GET-MGMT-NODES",
    "REGISTER", "DEREGISTER", "PEEK", "MOVE", "PURGE", "nonsense", "",
)  # fmt: skip


def request(operation: str = "GET-TYPES", **more: Any) -> Any:
    return Message(properties={"operation": operation, "type": "org.amqp.management"}, **more)


# ---- C14, C18: requests and replies ---------------------------------------------------------------------------------


def test_a_link_pair(new_peer: NewPeer) -> None:
    """A response is sent on the link from the node whose target address equals the request's reply-to."""
    peer = new_peer()
    links = []
    for name in ("first", "second"):
        link = peer.session.receiver(name)
        link.target.address = f"me/{name}"
        links.append(peer.attach(link, "$management"))
        link.flow(10)
    sender = peer.sender("$management")
    for name, link in zip(("second", "first"), reversed(links), strict=True):
        peer.send(sender, request(reply_to=f"me/{name}", id=7))
        [answer] = peer.take(link)
        assert answer.message.properties["statusCode"] == 200
        assert answer.message.correlation_id == 7
        assert answer.message.address == f"me/{name}"
        answer.accept()
    peer.send(sender, request())  # without reply-to, the response uses the last link from the node
    assert peer.take(links[1])


def test_a_link_pair_is_of_one_connection(new_peer: NewPeer) -> None:
    """A14: a request with the reply address of another connection's link is rejected."""
    one, other = new_peer(), new_peer()
    link = one.session.receiver("responses")
    link.target.address = "mine"
    one.attach(link, "$management")
    delivery = other.post(other.sender("$management"), request(reply_to="mine"))
    other.wait(lambda: delivery.settled)
    assert delivery.remote_state == Delivery.REJECTED
    assert delivery.remote.condition.name == "amqp:precondition-failed"


def test_the_anonymous_relay(new_peer: NewPeer) -> None:
    peer = new_peer()
    receiver = peer.attach(peer.session.receiver("responses"), None, dynamic=True)
    receiver.flow(10)
    sender = peer.sender(None)
    reply_to = receiver.remote_source.address
    peer.send(sender, request(address="$management", reply_to=reply_to, correlation_id="a"), Message(address="other"))
    [answer] = peer.take(receiver)
    assert (answer.message.correlation_id, answer.message.properties["statusCode"]) == ("a", 200)


def test_responses_go_to_a_queue_that_is_there_and_make_none(manager: Manager, new_peer: NewPeer) -> None:
    manager.ask("CREATE", "queue", "answers")
    peer = new_peer()
    sender = peer.sender("$management")
    peer.send(sender, request(reply_to="answers"))
    [answer] = peer.take(peer.receiver("answers", 1))
    assert answer.message.properties["statusCode"] == 200
    refused = peer.post(sender, request("CREATE", reply_to="nowhere"))
    peer.wait(lambda: refused.settled)
    assert refused.remote_state == Delivery.REJECTED
    assert "nowhere" in refused.remote.condition.description
    assert [row["name"] for row in manager.rows("queue", "name") if row["name"] == "nowhere"] == []


def test_credit_comes_back_with_answers(manager: Manager) -> None:
    for _ in range(200):  # more than a link's credit
        assert manager.ask("GET-MGMT-NODES").body == []


def test_more_than_a_message_in_pieces(new_peer: NewPeer) -> None:
    """A request in several frames is answered; one that is too long is rejected, and the link stays usable."""
    peer = new_peer(max_frame_bytes=512)
    receiver = peer.attach(peer.session.receiver("responses"), None, dynamic=True)
    receiver.flow(10)
    sender = peer.sender("$management")
    reply_to = receiver.remote_source.address
    peer.send(sender, request(reply_to=reply_to, body={"x" * 5000: 1}))
    assert peer.take(receiver)
    long = peer.post(sender, request(reply_to=reply_to, body=b"x" * 70_000))
    peer.wait(lambda: long.settled)
    assert long.remote.condition.name == "amqp:link:message-size-exceeded"
    peer.send(sender, request(reply_to=reply_to))
    assert peer.take(receiver)


def test_drain_is_answered(new_peer: NewPeer) -> None:
    peer = new_peer()
    receiver = peer.receiver("$management")
    assert peer.drain(receiver, 5) == []
    peer.send(peer.sender("$management"), request())
    assert len(peer.drain(receiver, 5)) == 1


def test_nobody_browses_it(new_peer: NewPeer) -> None:
    peer = new_peer()
    assert peer.refusal(peer.receiver("$management", copy=True)) == "amqp:not-allowed"


# ---- request properties ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("properties", "status"),
    [
        ({}, 400),
        ({"operation": 7}, 400),
        ({"operation": "READ"}, 400),
        ({"operation": "READ", "type": "nonsense", "name": "x"}, 404),
        ({"operation": "READ", "type": "queue"}, 400),
        ({"operation": "READ", "type": "queue", "name": 5}, 400),
        ({"operation": "PAINT", "type": "queue", "name": "x"}, 501),
        ({"operation": "UPDATE", "type": "connection", "name": "x"}, 501),
        ({"operation": "REGISTER", "type": "org.amqp.management", "address": "x"}, 501),
        ({"operation": "DEREGISTER", "type": "org.amqp.management"}, 501),
        ({"operation": "QUERY", "entityType": "nonsense"}, 404),
        ({"operation": "QUERY", "entityType": 1}, 400),
        ({"operation": "QUERY", "offset": -1}, 400),
        ({"operation": "QUERY", "count": "ten"}, 400),
        ({"operation": "GET-ATTRIBUTES", "entityType": "nonsense"}, 404),
    ],
)
def test_what_makes_no_sense_gets_a_status_and_a_text(manager: Manager, properties: Any, status: int) -> None:
    answer = manager.send(Message(properties=properties))
    assert (answer.status, bool(answer.text), answer.body) == (status, True, None)


def test_types_are_told_as_they_are(manager: Manager) -> None:
    assert tuple(manager.ask("GET-TYPES").body) == TYPES
    assert manager.ask("GET-TYPES", entityType="queue").body == {"queue": []}
    attributes = manager.ask("GET-ATTRIBUTES").body
    operations = manager.ask("GET-OPERATIONS").body
    for type in TYPES:
        rows = manager.rows(type)
        assert manager.ask("GET-ATTRIBUTES", entityType=type).body == {type: attributes[type]}
        assert "READ" in operations[type]
        for row in rows:
            assert list(row) == attributes[type]
            assert manager.ask("READ", type, identity=row["identity"]).status == 200


# ---- hostile requests -----------------------------------------------------------------------------------------------

keys = st.sampled_from(
    ["name", "durable", "arguments", "exchange", "queue", "key", "exchange-type", "to", "count", "after", "body-bytes",
     "if-unused", "if-empty", "attributeNames", "reason", "offset", "identity", "entityType", "max-messages", "x-a"]
)  # fmt: skip
names = st.sampled_from(["there", "not-there", "amq.topic", "amq.topic/there/a", "a/b/c/d", "%", "1", "1-1", "", "$"])
plain = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats() | st.text(max_size=5) | names,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=4),
    max_leaves=8,
)
bodies = (plain | st.dictionaries(keys, plain, max_size=5)).map(
    lambda body: encode.described(sections.VALUE, encode.value(body))
)
odd_bodies = st.one_of(
    st.just(b""),
    values.map(lambda value: encode.described(sections.VALUE, encode.value(value))),
    st.binary(max_size=20).map(lambda data: encode.described(sections.DATA, encode.binary(data))),
    st.binary(max_size=20),
)
numbers = st.integers(-1, 3) | st.text(max_size=2)
asked = st.fixed_dictionaries(
    {"operation": st.sampled_from(OPERATIONS), "type": st.sampled_from(TYPES), "name": names},
    optional={"entityType": st.sampled_from([*TYPES, "x"]), "offset": numbers, "count": numbers},
)


@given(data=st.data())
@settings(max_examples=150, suppress_health_check=list(HealthCheck))
def test_any_request_is_answered_or_refused(hostile: Manager, data: st.DataObject) -> None:
    """Random requests and random bytes get a status or are rejected, and the broker continues to work."""
    properties = data.draw(asked)
    body = data.draw(st.one_of(bodies, bodies, odd_bodies))
    content = (
        sections.properties_section(Properties(reply_to=hostile.reply_to, message_id=1))
        + sections.application_properties_section(properties)
        + body
    )
    if data.draw(st.booleans()) and data.draw(st.booleans()):
        at = data.draw(st.integers(0, len(content) - 1))
        content = content[:at] + data.draw(st.binary(max_size=3)) + content[at + 1 :]
    if properties["operation"] == "DELETE" and properties["type"] in ("connection", "link"):
        content = content.replace(b"DELETE", b"delete")
    peer = hostile.peer
    delivery = peer.post(hostile.sender, content)
    peer.wait(lambda: delivery.settled)
    if delivery.remote_state == Delivery.ACCEPTED:
        if hostile.reply_to.encode() not in content:
            peer.settle_down()
            return
        [answer] = peer.take(hostile.receiver)
        answer.accept()
        assert answer.message.properties["statusCode"] in (200, 201, 204, 400, 404, 409, 501), answer.message
        assert answer.message.properties["statusDescription"]
    else:
        assert delivery.remote_state == Delivery.REJECTED
    hostile.receiver.flow(1)


@pytest.fixture
def hostile(manager: Manager, new_peer: NewPeer) -> Manager:
    manager.ask("CREATE", "queue", "there")
    peer = new_peer()
    peer.put(peer.sender("there"), [{"a": [1, 2]}, "two", b"three"])
    return manager


def test_symbols_are_texts(manager: Manager) -> None:
    answer = manager.send(Message(properties={"operation": symbol("READ"), "type": symbol("broker"), "name": "broker"}))
    assert answer.status == 200
