"""Tests of queues, exchanges, bindings and policies in management: create, read, update, delete, durability."""

from __future__ import annotations

from typing import Any

import pytest
from proton import Message

from .conftest import Manager, NewPeer, StartProcess


def test_a_queue_is_made_read_and_deleted(manager: Manager) -> None:
    made = manager.ask("CREATE", "queue", "orders", {"arguments": {"max-messages": 7, "x-note": [1, None, "two"]}})
    assert made.status == 201
    read = manager.ask("READ", "queue", "orders")
    assert (read.status, read.body) == (200, made.body)
    assert read.body["arguments"] == {"max-messages": 7, "x-note": [1, None, "two"]}
    assert read.body["durable"] is True
    assert manager.ask("DELETE", "queue", "orders").status == 204
    assert manager.ask("READ", "queue", "orders").status == 404
    assert manager.ask("DELETE", "queue", "orders").status == 404


def test_a_queue_is_found_by_its_identity(manager: Manager) -> None:
    manager.ask("CREATE", "queue", "orders")
    assert manager.ask("READ", "queue", identity="orders").body["name"] == "orders"


def test_what_is_there_is_made_again_only_as_it_is(manager: Manager) -> None:
    body = {"durable": False, "arguments": {"max-messages": 7}}
    assert manager.ask("CREATE", "queue", "orders", body).status == 201
    assert manager.ask("CREATE", "queue", "orders", body).status == 200
    assert manager.ask("CREATE", "queue", "orders", {**body, "durable": True}).status == 409
    assert manager.ask("CREATE", "queue", "orders", {"durable": False}).status == 409
    assert manager.ask("CREATE", "exchange", "orders").status == 409
    assert manager.ask("CREATE", "exchange", "news", {"exchange-type": "topic"}).status == 201
    assert manager.ask("CREATE", "exchange", "news", {"exchange-type": "topic"}).status == 200
    assert manager.ask("CREATE", "exchange", "news", {"exchange-type": "fanout"}).status == 409
    assert manager.ask("CREATE", "queue", "news").status == 409


@pytest.mark.parametrize(
    ("later_type", "later"),
    [("queue", {"durable": False}), ("exchange", {}), ("exchange", {"durable": False}), ("queue", None)],
    ids=["a queue that doesn't last", "an exchange", "an exchange that doesn't last", "the same"],
)
@pytest.mark.parametrize("type", ["queue", "exchange"])
def test_nothing_takes_the_place_of_what_is_being_written(
    manager: Manager, type: str, later_type: str, later: dict[str, Any] | None
) -> None:
    """A second CREATE of the same name that arrives while the first one is written to SQL does not replace it."""
    second = (type, {}) if later is None else (later_type, later)
    [one, other] = manager.ask_all([("CREATE", type, "x", {}), ("CREATE", second[0], "x", second[1])])
    assert (one.status, other.status) in ([(201, 200), (201, 201)] if second == (type, {}) else [(201, 409)])
    assert manager.ask("READ", type, "x").body["durable"] is True
    assert manager.ask("READ", "exchange" if type == "queue" else "queue", "x").status == 404


@pytest.mark.parametrize(
    ("type", "name", "body"),
    [
        ("queue", "", {}),
        ("queue", "$management", {}),
        ("queue", "dynamic-1", {}),
        ("queue", "x" * 1025, {}),
        ("queue", "a\0b", {}),
        ("queue", "q", {"durable": 1}),
        ("queue", "q", {"arguments": {"no-such": 1}}),
        ("queue", "q", {"arguments": {"max-messages": "many"}}),
        ("queue", "q", {"arguments": {"x-note": b"bytes"}}),
        ("queue", "q", {"arguments": {"x-note": float("nan")}}),
        ("queue", "q", {"arguments": [1]}),
        ("queue", "q", {"nonsense": True}),
        ("queue", "q", "no map"),
        ("exchange", "e", {"exchange-type": "round"}),
        ("exchange", "e", {"arguments": {"max-messages": 7}}),
        ("exchange", "$e", {}),
        ("binding", None, {"exchange": "amq.direct"}),
        ("binding", None, {"exchange": "amq.direct", "queue": "there", "key": ""}),
        ("binding", None, {"exchange": "amq.topic", "queue": "there", "key": "a", "arguments": {"x-selector": "1 +"}}),
        ("template", "t.*", {"arguments": {"no-such": 1}}),
    ],
)
def test_what_can_not_be_is_refused_and_leaves_nothing(manager: Manager, type: str, name: Any, body: Any) -> None:
    assert manager.ask("CREATE", "queue", "there").status == 201
    before = [len(manager.rows(kind)) for kind in ("queue", "exchange", "binding", "template")]
    answer = manager.ask("CREATE", type, name, body)
    assert answer.status in (400, 409), answer
    assert answer.text
    assert [len(manager.rows(kind)) for kind in ("queue", "exchange", "binding", "template")] == before


@pytest.mark.parametrize("type", ["queue", "exchange", "template", "connection", "link", "transaction", "broker"])
def test_what_is_not_there_is_not_found(manager: Manager, type: str) -> None:
    assert manager.ask("READ", type, "not-there").status == 404


def test_an_exchange_that_is_always_there_stays(manager: Manager) -> None:
    assert manager.ask("DELETE", "exchange", "amq.topic").status == 409
    assert manager.ask("READ", "exchange", "amq.topic").body["exchange-type"] == "topic"


def test_bindings_route_and_are_counted(manager: Manager, new_peer: NewPeer) -> None:
    manager.ask("CREATE", "queue", "orders")
    manager.ask("CREATE", "exchange", "news", {"exchange-type": "topic"})
    made = manager.ask("CREATE", "binding", None, {"exchange": "news", "queue": "orders", "key": "eu.#/%"})
    assert made.status == 201
    assert made.body["name"] == "news/orders/eu.%23%2F%25"
    assert manager.ask("READ", "binding", made.body["name"]).body == made.body
    assert manager.ask("READ", "queue", "orders").body["bindings"] == 1
    again = {"exchange": "news", "queue": "orders", "key": "eu.#"}
    assert manager.ask("CREATE", "binding", None, again).status == 201
    peer = new_peer()
    peer.put(peer.sender("news/eu.paris"), ["found"])
    peer.put(peer.sender("news/us.paris"), ["lost"])
    news = manager.ask("READ", "exchange", "news").body
    assert (news["routed"], news["unroutable"], news["bindings"]) == (1, 1, 2)
    assert manager.ask("DELETE", "exchange", "news", {"if-unused": True}).status == 409
    assert manager.ask("DELETE", "binding", "news/orders/eu.%23").status == 204
    assert manager.ask("DELETE", "binding", "news/orders/eu.%23").status == 404
    assert manager.ask("READ", "queue", "orders").body["bindings"] == 1
    assert manager.ask("DELETE", "exchange", "news").status == 204
    assert manager.ask("READ", "queue", "orders").body["bindings"] == 0


def test_a_binding_gets_other_arguments(manager: Manager) -> None:
    manager.ask("CREATE", "queue", "orders")
    body = {"exchange": "amq.match", "queue": "orders", "arguments": {"colour": "red"}}
    assert manager.ask("CREATE", "binding", None, body).status == 201
    assert manager.ask("CREATE", "binding", None, {**body, "arguments": {"colour": "blue"}}).status == 409
    changed = manager.ask("UPDATE", "binding", "amq.match/orders/", {"arguments": {"colour": "blue"}})
    assert (changed.status, changed.body["arguments"]) == (200, {"colour": "blue"})
    assert manager.ask("READ", "queue", "orders").body["bindings"] == 1


def test_arguments_that_say_nothing_are_refused_before_they_are_written(manager: Manager) -> None:
    """Invalid binding arguments are refused before they are stored, as they would end the broker and each restart."""
    manager.ask("CREATE", "queue", "orders")
    body = {"exchange": "amq.match", "queue": "orders", "arguments": {"x-match": "some"}}
    refused = manager.ask("CREATE", "binding", None, body)
    assert (refused.status, refused.text) == (409, "exchange 'amq.match': x-match is 'some'; use all or any")
    assert manager.ask("READ", "queue", "orders").body["bindings"] == 0


def test_a_queue_with_messages_or_consumers_is_spared(manager: Manager, new_peer: NewPeer) -> None:
    peer = new_peer()
    peer.put(peer.sender("orders"), ["one"])
    assert manager.ask("DELETE", "queue", "orders", {"if-empty": True}).status == 409
    link = peer.receiver("orders")
    assert manager.ask("DELETE", "queue", "orders", {"if-unused": True}).status == 409
    assert manager.ask("DELETE", "queue", "orders").status == 204
    assert peer.refusal(link) == "amqp:resource-deleted"


def test_templates_make_queues_and_all_of_it_outlasts_a_restart(start_process: StartProcess, peer_at: NewPeer) -> None:
    process = start_process()
    manager = Manager(peer_at(process.port))
    assert manager.ask("CREATE", "template", "small.*", {"arguments": {"max-messages": 1}}).status == 201
    assert manager.ask("CREATE", "template", "small.*", {"arguments": {"max-messages": 1}}).status == 200
    assert manager.ask("CREATE", "template", "small.*", {"arguments": {"max-messages": 2}}).status == 409
    assert manager.ask("UPDATE", "template", "small.*", {"arguments": {"max-messages": 2}}).status == 200
    assert manager.ask("CREATE", "template", "gone", {}).status == 201
    assert manager.ask("DELETE", "template", "gone").status == 204
    assert manager.ask("CREATE", "queue", "orders", {"arguments": {"max-bytes": 1000}}).status == 201
    binding = {"exchange": "amq.topic", "queue": "orders", "key": "a"}
    assert manager.ask("CREATE", "binding", None, binding).status == 201
    _check_what_lasts(manager)
    process.stop(9)
    process = start_process()
    _check_what_lasts(Manager(peer_at(process.port)))
    peer = peer_at(process.port)
    sender = peer.sender("small.one")
    made = Manager(peer_at(process.port)).ask("READ", "queue", "small.one").body
    assert made["arguments"] == {"max-messages": 2}
    peer.send(sender, Message(body=1), Message(body=2))


def _check_what_lasts(manager: Manager) -> None:
    assert [row["name"] for row in manager.rows("template", "name")] == ["small.*"]
    assert manager.ask("READ", "template", "small.*").body["arguments"] == {"max-messages": 2}
    assert manager.ask("READ", "queue", "orders").body["arguments"] == {"max-bytes": 1000}
    assert [row["name"] for row in manager.rows("binding", "name")] == ["amq.topic/orders/a"]
