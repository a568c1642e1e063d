"""Tests of changes to queues in use, transactions ended by an operator, and the broker's own queues."""

from __future__ import annotations

import signal
from typing import Any

import pytest
from proton import Delivery, Message

from cairnmq.broker_plugin.run import RunningBroker
from tests.clients.conftest import NewPeer, StartProcess
from tests.harness.clients.peers import Peer
from tests.harness.clients.resuming import ResumingSender
from tests.harness.clients.transacting import Control, outcome_of, send

from .conftest import Manager


def update(manager: Manager, name: str = "q", **changes: Any) -> Any:
    given = {key.replace("_", "-"): value for key, value in changes.items()}
    return manager.ask("UPDATE", "queue", name, {"arguments": given})


def outcomes(peer: Peer, sender: Any, *bodies: Any) -> list[Any]:
    deliveries = [peer.post(sender, Message(body=body, durable=True)) for body in bodies]
    peer.wait(lambda: all(one.settled for one in deliveries), "outcomes")
    return [one.remote_state for one in deliveries]


def test_limits_count_at_once_and_can_be_taken_away(manager: Manager, peer: Peer) -> None:
    sender = peer.sender("q")
    peer.put(sender, range(3))
    answer = update(manager, max_messages=4, x_note="kept")
    assert (answer.status, answer.body["arguments"]) == (200, {"max-messages": 4, "x-note": "kept"})
    assert outcomes(peer, sender, 3, 4) == [Delivery.ACCEPTED, Delivery.REJECTED]
    assert update(manager, max_messages=None).body["arguments"] == {"x-note": "kept"}
    assert outcomes(peer, sender, 4) == [Delivery.ACCEPTED]


def test_a_limit_in_bytes_knows_what_is_there(manager: Manager, peer: Peer) -> None:
    sender = peer.sender("q")
    peer.put(sender, ["x" * 1000] * 5)
    update(manager, max_bytes=4000, overflow="ring")
    assert manager.ask("READ", "queue", "q").body["messages"] == 3
    peer.put(sender, ["y" * 1000])
    assert [one.body[0] for one in peer.drain(peer.receiver("q"), 10)] == ["x", "x", "y"]


def test_a_queue_that_is_paused_hands_out_nothing(manager: Manager, peer: Peer) -> None:
    peer.put(peer.sender("q"), range(3))
    update(manager, paused=True)
    receiver = peer.receiver("q", 3)
    assert peer.drain(peer.receiver("q"), 10) == []
    update(manager, paused=False)
    assert [one.body for one in peer.take(receiver, 3)] == [0, 1, 2]


def test_what_was_changed_outlasts_the_broker(start_process: StartProcess, peer_at: NewPeer) -> None:
    running = start_process()
    peer = peer_at(running.port)
    peer.put(peer.sender("q"), ["m"])
    assert update(Manager(peer), dead_letter_address="dead", max_deliveries=5).status == 200
    running.stop(signal.SIGKILL)
    running = start_process()
    told = Manager(peer_at(running.port)).ask("READ", "queue", "q").body
    assert (told["arguments"], told["messages"]) == ({"dead-letter-address": "dead", "max-deliveries": 5}, 1)


@pytest.mark.parametrize(
    ("changes", "status"),
    [
        ({"priorities": True}, 409),
        ({"max_messages": "many"}, 400),
        ({"nonsense": 1}, 400),
        ({"auto_delete": None}, 409),
    ],
)
def test_what_can_not_change_is_refused(manager: Manager, peer: Peer, changes: dict[str, Any], status: int) -> None:
    peer.sender("q")
    assert update(manager, **changes).status == status
    assert manager.ask("READ", "queue", "q").body["arguments"] == {}


def test_an_open_transaction_is_told_of_and_ended_by_an_operator(manager: Manager, new_peer: NewPeer) -> None:
    client = new_peer()
    control, sender = Control(client), client.sender("q")
    txn_id = control.declare()
    send(client, sender, txn_id, "never")
    [told] = manager.rows("transaction")
    assert (told["name"], told["state"], told["operations"]) == (txn_id.hex(), "open", 1)
    assert told["age-seconds"] >= 0
    assert told["connection"] in {row["identity"] for row in manager.rows("connection")}
    assert manager.ask("ROLLBACK", "transaction", told["name"]).status == 204
    assert manager.rows("transaction") == []
    assert outcome_of(control.ask(0x32, txn_id, False)) == "amqp:transaction:rollback"
    assert manager.ask("READ", "queue", "q").body["messages"] == 0


def test_the_brokers_own_queues_are_told_of_where_asked_for(manager: Manager, broker: RunningBroker) -> None:
    resuming = ResumingSender("q")
    resuming.connect(broker.port)
    assert {row["name"] for row in manager.rows("queue", "name")} == {"q", manager.reply_to}
    own = {row["name"] for row in manager.rows("queue", "name", internal=True)} - {"q", manager.reply_to}
    assert [name.partition(":")[0] for name in own] == ["$link"]
    assert update(manager, own.pop(), paused=True).status == 400
    resuming.cut()
