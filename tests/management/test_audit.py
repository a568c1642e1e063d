"""Tests that every management change has one audit record: user, origin, operation, outcome, number of messages."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pytest

from tests.harness.clients.peers import Peer

from .conftest import Manager


def changes(caplog: pytest.LogCaptureFixture) -> list[dict[str, Any]]:
    return [vars(one)["fields"] for one in caplog.records if getattr(one, "event", "").startswith("change")]


def test_change_is_recorded_with_its_outcome_and_its_messages(
    manager: Manager, peer: Peer, new_peer: Callable[..., Peer], caplog: pytest.LogCaptureFixture
) -> None:  # usability 11
    caplog.set_level(logging.INFO)
    host, port = peer.sock.getsockname()[:2]
    assert manager.ask("CREATE", "queue", "orders").status == 201
    peer.put(peer.sender("orders"), ["one", "two", "three"])
    asked = (
        ("PURGE", "queue", "nothing", None),
        ("CREATE", "queue", "orders", {"durable": False}),
        ("CREATE", "queue", "other", None),
        ("MOVE", "queue", "orders", {"to": "other", "count": 1}),
        ("PURGE", "queue", "orders", None),
        ("CREATE", "binding", None, {"exchange": "amq.topic", "queue": "other", "key": "a.#"}),
        ("DELETE", "queue", "other", None),
        ("DELETE", "connection", "99", None),
    )
    for request in asked:
        manager.ask(*request)
    for target in ("other", "misspelled"):
        manager.ask("MOVE", "queue", "orders", {"to": target, "count": 0, "create": False})
    for operation in ("READ", "SAMPLES", "PEEK"):
        manager.ask(operation, "queue", "orders")
    manager.rows("queue")
    told = changes(caplog)
    assert all((one["address"], one["user"]) == (f"{host}:{port}", "") for one in told)
    assert [(one["operation"], one["name"], one["outcome"], one.get("messages")) for one in told] == [
        ("CREATE", "orders", "done", None),
        ("PURGE", "nothing", "refused", None),
        ("CREATE", "orders", "refused", None),
        ("CREATE", "other", "done", None),
        ("MOVE", "orders", "done", 1),
        ("PURGE", "orders", "done", 2),
        ("CREATE", "amq.topic/other/a.%23", "done", None),
        ("DELETE", "other", "done", 1),
        ("DELETE", "99", "refused", None),
    ]
    levels = {vars(one)["fields"]["outcome"]: one.levelname for one in caplog.records if hasattr(one, "event")}
    assert levels == {"done": "INFO", "refused": "WARNING"}


def test_text_of_a_client_is_escaped_in_the_record(manager: Manager, caplog: pytest.LogCaptureFixture) -> None:  # W12
    caplog.set_level(logging.INFO)
    manager.ask("PURGE", "queue", "a\n2026 ERROR forged\x1b[2J\u202e\u2028")
    (record,) = [one for one in caplog.records if hasattr(one, "event")]
    assert record.getMessage().isprintable()
