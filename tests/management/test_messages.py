"""Tests of the management operations on messages: PEEK, MOVE and PURGE."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
from proton import Delivery, Message, symbol, timestamp

from cairnmq.broker.contents.paging import LOOK_AT_ONCE
from cairnmq.broker_plugin.run import RunningBroker
from tests.harness.clients.peers import Peer
from tests.harness.process import DEADLINE_S

from .conftest import Manager, StartBroker, StartProcess

HOUR_MS = 3_600_000


def look(manager: Manager, queue: str, **asked: Any) -> list[dict[str, Any]]:
    """Return all messages of the queue by PEEK requests for one page after another."""
    found: list[dict[str, Any]] = []
    after: int | None = 0
    while after is not None:
        body = {"after": after, **{name.replace("_", "-"): value for name, value in asked.items()}}
        answer = manager.ask("PEEK", "queue", queue, body)
        assert answer.status == 200, answer
        found += answer.body["messages"]
        after = answer.body["next"]
    return found


def bodies(peer: Peer, queue: str) -> list[Any]:
    """Receive and accept all messages of the queue, and return their bodies."""
    link = peer.receiver(queue)
    received = peer.drain(link, 10_000)
    for one in received:
        one.accept()
    peer.detach(link)
    return [one.body for one in received]


# ---- PEEK -----------------------------------------------------------------------------------------------------------


def test_a_message_is_told_with_all_that_it_has(manager: Manager, peer: Peer) -> None:
    message = Message(
        body={"total": 5},
        id="m-1",
        subject="new",
        reply_to="answers",
        creation_time=12.5,
        content_type=symbol("text/plain"),
        durable=True,
        priority=7,
        ttl=100.0,
        properties={"colour": "red", "n": 3},
        annotations={symbol("x-opt-a"): [1, 2]},
    )
    peer.send(peer.sender("orders"), message)
    [told] = look(manager, "orders", body_bytes=1000)
    assert told["properties"] == {
        "message-id": "m-1",
        "subject": "new",
        "reply-to": "answers",
        "creation-time": timestamp(12500),
        "content-type": "text/plain",
    }
    header = {"durable": True, "priority": 7, "ttl": 100_000, "first-acquirer": False, "delivery-count": 0}
    assert told["header"] == header
    assert told["application-properties"] == {"colour": "red", "n": 3}
    assert told["message-annotations"]["x-opt-a"] == [1, 2]
    assert (told["body-kind"], told["body"]) == ("value", {"total": 5})
    assert (told["redelivered"], told["failures"], told["malformed"], told["pieces"]) == (False, 0, None, 1)
    assert told["size"] >= len(message.encode())  # the broker adds the arrival time for the TTL
    [told] = look(manager, "orders")
    assert told["body"] is None


def test_nothing_is_taken_and_pages_follow_each_other(manager: Manager, peer: Peer) -> None:
    peer.put(peer.sender("orders"), [f"{number}" for number in range(25)])
    seen = look(manager, "orders", count=10, body_bytes=100)
    assert [one["body"] for one in seen] == [f"{number}" for number in range(25)]
    assert [one["position"] for one in seen] == sorted(one["position"] for one in seen)
    assert bodies(peer, "orders") == [f"{number}" for number in range(25)]
    assert look(manager, "orders") == []


def test_what_a_consumer_has_is_not_seen_and_what_came_back_is(manager: Manager, peer: Peer) -> None:
    peer.put(peer.sender("orders"), ["one", "two"])
    link = peer.receiver("orders", 1)
    [received] = peer.take(link)
    assert [one["body"] for one in look(manager, "orders", body_bytes=10)] == ["two"]
    state = manager.ask("READ", "queue", "orders").body
    assert (state["messages"], state["ready"], state["unsettled"], state["consumers"]) == (2, 1, 1, 1)
    received.settle(Delivery.MODIFIED, failed=True)
    peer.detach(link)
    one, two = look(manager, "orders", body_bytes=10)
    assert (one["body"], one["redelivered"], one["failures"]) == ("one", True, 1)
    assert (two["body"], two["redelivered"], two["failures"]) == ("two", False, 0)


@pytest.mark.parametrize("durable", [True, False])
def test_a_long_message_is_told_by_its_beginning(manager: Manager, peer: Peer, durable: bool) -> None:
    message = Message(body=b"x" * 3_000_000, subject="long", durable=durable)
    peer.send(peer.sender("orders"), message)
    [told] = look(manager, "orders", body_bytes=50)
    assert (told["size"], told["properties"]["subject"]) == (len(message.encode()), "long")
    assert told["pieces"] > 1
    assert told["malformed"] is None


def test_a_body_is_cut_and_odd_ones_are_told_as_that(manager: Manager, peer: Peer) -> None:
    sender = peer.sender("orders")
    wrong = b"\x00\x53\x77\xc1\x03\x02\x40"
    peer.send(sender, Message(body=b"0123456789", inferred=True), Message(body="0123456789"), wrong)
    data, value, detailed = look(manager, "orders", body_bytes=5)
    assert (data["body-kind"], bytes(data["body"])) == ("data", b"01234")
    assert (value["body-kind"], value["body"]) == ("value", None)
    assert detailed["malformed"]


def test_deep_queues_are_read_back(start_broker: StartBroker, peer_at: Callable[..., Peer]) -> None:
    port = start_broker(memory_limit_bytes=200_000).port
    peer, manager = peer_at(port), Manager(peer_at(port))
    peer.put(peer.sender("orders"), ["x" * 1000 + str(number) for number in range(600)])
    assert manager.ask("READ", "queue", "orders").body["backlog"] > 0
    seen = look(manager, "orders", count=100, body_bytes=2000)
    assert [one["body"][1000:] for one in seen] == [str(number) for number in range(600)]


def scheduled(body: str, delay_ms: int) -> Message:
    annotations = {symbol("x-opt-delivery-delay"): delay_ms} if delay_ms else None
    return Message(body=body, durable=True, annotations=annotations)


def test_scheduled_messages_are_shown_at_their_place_with_their_time(manager: Manager, peer: Peer) -> None:
    before_ms = time.time() * 1000
    peer.send(peer.sender("orders"), *(scheduled(str(number), number % 2 * HOUR_MS) for number in range(9)))
    for count in (1, 2, 3, 100):
        seen = look(manager, "orders", count=count, body_bytes=10)
        assert [one["body"] for one in seen] == [str(number) for number in range(9)], count
        assert [one["due"] is not None for one in seen] == [number % 2 == 1 for number in range(9)]
    dues_ms = [int(one["due"]) - HOUR_MS for one in look(manager, "orders") if one["due"] is not None]
    assert all(before_ms - 1 <= due_ms <= time.time() * 1000 for due_ms in dues_ms)
    state = manager.ask("READ", "queue", "orders").body
    assert (state["messages"], state["ready"]) == (9, 5)
    assert bodies(peer, "orders") == ["0", "2", "4", "6", "8"]
    seen = look(manager, "orders", body_bytes=10)
    assert [one["body"] for one in seen] == ["1", "3", "5", "7"], "they are the rest"
    positions = [seen[0]["position"]]
    assert manager.ask("DISCARD", "queue", "orders", {"positions": positions}).body == {"discarded": 0}
    assert manager.ask("PURGE", "queue", "orders").body["purged"] == 4
    assert look(manager, "orders") == []


def test_a_message_that_becomes_due_is_no_longer_marked(manager: Manager, peer: Peer) -> None:
    peer.send(peer.sender("orders"), scheduled("soon", 300), scheduled("later", HOUR_MS))
    deadline_s = time.monotonic() + DEADLINE_S
    is_marked = {"soon": True}
    while is_marked.get("soon") is not False:  # the message may be missing while it moves to its position
        is_marked = {one["body"]: one["due"] is not None for one in look(manager, "orders", body_bytes=10)}
        assert is_marked["later"]
        assert time.monotonic() < deadline_s
    assert bodies(peer, "orders") == ["soon"]


def test_scheduled_messages_of_a_queue_with_priorities_are_shown_once(manager: Manager, peer: Peer) -> None:
    manager.ask("CREATE", "queue", "ranked", {"arguments": {"priorities": True}})
    messages = [scheduled(f"{number}", number % 3 * HOUR_MS) for number in range(30)]
    for number, message in enumerate(messages):
        message.priority = number % 10
    peer.send(peer.sender("ranked"), *messages)
    for count in (1, 7, 100):
        seen = look(manager, "ranked", count=count, body_bytes=10)
        assert sorted(int(one["body"]) for one in seen) == list(range(30)), count
        assert {int(one["body"]) for one in seen if one["due"] is not None} == {n for n in range(30) if n % 3}


def test_many_scheduled_messages_among_those_on_disk_are_read_in_order(
    start_broker: StartBroker, peer_at: Callable[..., Peer]
) -> None:
    """More scheduled messages than one scan covers, between messages of a backlog, are read in order."""
    port = start_broker(memory_limit_bytes=400_000).port
    peer, manager = peer_at(port), Manager(peer_at(port))
    number = 2 * LOOK_AT_ONCE + 500
    messages = (scheduled(f"{one} {'x' * 300}", one % 4 // 2 * HOUR_MS) for one in range(number))
    peer.send(peer.sender("orders"), *messages)
    assert manager.ask("READ", "queue", "orders").body["backlog"] > 0
    for count in (1000, 137):
        seen = look(manager, "orders", count=count, body_bytes=400)
        assert [int(one["body"].split()[0]) for one in seen] == list(range(number))
        assert [one["due"] is not None for one in seen] == [one % 4 // 2 == 1 for one in range(number)]


def test_scheduled_messages_are_shown_after_a_crash(start_process: StartProcess, peer_at: Callable[..., Peer]) -> None:
    process = start_process()
    peer = peer_at(process.port)
    peer.send(peer.sender("orders"), scheduled("later", HOUR_MS), scheduled("now", 0), scheduled("last", HOUR_MS))
    process.stop(9)
    port = start_process().port
    peer, manager = peer_at(port), Manager(peer_at(port))
    for _ in range(2):  # before and after the broker reads the messages for a consumer
        seen = look(manager, "orders", body_bytes=10)
        assert [(one["body"], one["due"] is not None) for one in seen] == [
            ("later", True), ("now", False), ("last", True),
        ]  # fmt: skip
        link = peer.receiver("orders", 1)
        [received] = peer.take(link)
        received.settle(Delivery.RELEASED)
        peer.detach(link)


# ---- MOVE -----------------------------------------------------------------------------------------------------------


def test_moved_messages_are_there_in_order_and_only_there(manager: Manager, peer: Peer) -> None:
    numbers = [str(number) for number in range(150)]
    peer.put(peer.sender("orders"), numbers)
    assert manager.ask("MOVE", "queue", "orders", {"to": "other", "count": 100}).body == {"moved": 100}
    assert manager.ask("MOVE", "queue", "orders", {"to": "other", "count": 0}).body == {"moved": 0}
    assert bodies(peer, "other") == numbers[:100]
    assert bodies(peer, "orders") == numbers[100:]
    state = manager.ask("READ", "queue", "orders").body
    assert (state["enqueued"], state["dequeued"], state["messages"], state["consumers"]) == (150, 150, 0, 0)
    assert manager.ask("MOVE", "queue", "orders", {"to": "other"}).body == {"moved": 0}


def test_moving_takes_what_was_there_when_it_began(manager: Manager, peer: Peer) -> None:
    """MOVE also moves long and non-durable messages; acquired messages stay."""
    sender = peer.sender("orders")
    peer.put(sender, ["held"])
    link = peer.receiver("orders", 1)
    peer.take(link)
    messages = [Message(body="a" * 200_000, durable=True), Message(body="b"), Message(body="c" * 200_000)]
    peer.send(sender, *messages)
    assert manager.ask("MOVE", "queue", "orders", {"to": "other"}).body == {"moved": 3}
    assert [body[0] for body in bodies(peer, "other")] == ["a", "b", "c"]
    assert manager.ask("READ", "queue", "orders").body["messages"] == 1


def test_a_move_through_an_exchange_leaves_what_nobody_wants(manager: Manager, peer: Peer) -> None:
    manager.ask("CREATE", "queue", "reds")
    manager.ask("CREATE", "binding", None, {"exchange": "amq.direct", "queue": "reds", "key": "red"})
    for subject in ("red", "blue", "red"):
        peer.send(peer.sender("orders"), Message(body=subject, durable=True))
    assert manager.ask("MOVE", "queue", "orders", {"to": "amq.direct/red", "count": 2}).body == {"moved": 2}
    assert manager.ask("MOVE", "queue", "orders", {"to": "amq.direct/green"}).body == {"moved": 0}
    assert bodies(peer, "orders") == ["red"]
    assert bodies(peer, "reds") == ["red", "blue"]


@pytest.mark.parametrize(
    ("body", "status"),
    [({}, 400), ({"to": "orders"}, 400), ({"to": "$management"}, 404), ({"to": "other", "count": -1}, 400)],
)
def test_a_move_that_can_not_be(manager: Manager, peer: Peer, body: Any, status: int) -> None:
    peer.put(peer.sender("orders"), ["one"])
    assert manager.ask("MOVE", "queue", "orders", body).status == status
    assert bodies(peer, "orders") == ["one"]


@pytest.mark.parametrize("count", [0, 1, 5])
def test_move_refuses_count_with_positions(manager: Manager, peer: Peer, count: int) -> None:
    """A MOVE request with both `positions`, which select single messages, and `count` is refused."""
    peer.put(peer.sender("orders"), ["one", "two"])
    positions = [one["position"] for one in look(manager, "orders")]
    refused = manager.ask("MOVE", "queue", "orders", {"to": "other", "positions": positions, "count": count})
    assert (refused.status, refused.text) == (400, "count and positions exclude each other: send one of them")
    assert manager.ask("READ", "queue", "other").status == 404, "a refused request creates no queue"
    assert manager.ask("MOVE", "queue", "orders", {"to": "other", "positions": positions[1:]}).body == {"moved": 1}
    assert (bodies(peer, "orders"), bodies(peer, "other")) == (["one"], ["two"])


def test_move_without_create_refuses_a_missing_target(manager: Manager, peer: Peer) -> None:
    peer.put(peer.sender("orders"), ["one", "two"])
    for target in ("other", "none/key"):
        refused = manager.ask("MOVE", "queue", "orders", {"to": target, "create": False})
        assert (refused.status, refused.text) == (404, f"there is no queue or exchange {target!r}")
    assert manager.ask("READ", "queue", "other").status == 404
    assert manager.ask("MOVE", "queue", "orders", {"to": "other", "create": 1}).status == 400
    manager.ask("CREATE", "queue", "other")
    assert manager.ask("MOVE", "queue", "orders", {"to": "other", "create": False}).body == {"moved": 2}
    assert bodies(peer, "other") == ["one", "two"]


def test_a_queue_that_is_deleted_meanwhile(manager: Manager, peer: Peer, broker: RunningBroker) -> None:
    peer.put(peer.sender("orders"), [str(number) for number in range(500)])
    asked = []
    for operation, name, body in (("MOVE", "orders", {"to": "other"}), ("DELETE", "orders", None)):
        properties = {"operation": operation, "type": "queue", "name": name}
        message = Message(properties=properties, body=body, reply_to=manager.reply_to, id=operation)
        asked.append(manager.peer.post(manager.sender, message))
    answers = {one.message.correlation_id: one.message for one in manager.peer.take(manager.receiver, 2)}
    moved = answers["MOVE"].body["moved"]
    assert answers["DELETE"].properties["statusCode"] == 204
    assert len(bodies(peer, "other")) == moved
    assert broker.failure is None


def test_after_a_crash_a_message_is_in_one_place(start_process: StartProcess, peer_at: Callable[..., Peer]) -> None:
    process = start_process()
    peer, manager = peer_at(process.port), Manager(peer_at(process.port))
    numbers = [str(number) for number in range(1000)]
    peer.put(peer.sender("orders"), numbers)
    message = Message(properties={"operation": "MOVE", "type": "queue", "name": "orders"}, body={"to": "other"})
    message.reply_to = manager.reply_to
    manager.peer.send(manager.sender, message)
    process.stop(9)
    port = start_process().port
    peer = peer_at(port)
    assert sorted(bodies(peer, "other") + bodies(peer, "orders"), key=int) == numbers


# ---- PURGE ----------------------------------------------------------------------------------------------------------


def test_a_purge_tells_how_many_and_keeps_what_a_consumer_has(manager: Manager, peer: Peer) -> None:
    peer.put(peer.sender("orders"), [str(number) for number in range(10)])
    [received] = peer.take(peer.receiver("orders", 1))
    assert manager.ask("PURGE", "queue", "orders").body == {"purged": 9}
    assert manager.ask("READ", "queue", "orders").body["messages"] == 1
    received.accept()
    peer.settle_down()
    state = manager.ask("READ", "queue", "orders").body
    assert (state["messages"], state["enqueued"], state["dequeued"]) == (0, 10, 10)
