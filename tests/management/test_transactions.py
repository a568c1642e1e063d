"""Tests of distributed transactions in management: prepare, commit, rollback, operator decisions, forget."""

from __future__ import annotations

from typing import Any

import pytest

from tests.harness.clients.peers import Peer
from tests.harness.clients.transacting import Control, send

from .conftest import Manager

XID = b"branch 1"
NAME = XID.hex()


def begin(peer: Peer) -> None:
    """Send one message to `orders` in a distributed transaction, and discharge it."""
    sender = peer.sender("orders")
    control = Control(peer)
    txn_id = control.declare(XID)
    send(peer, sender, txn_id, "one")
    assert control.discharge(txn_id) == ""


@pytest.mark.parametrize(
    ("operation", "body", "messages", "state"),
    [
        ("COMMIT", None, 1, None),
        ("ROLLBACK", None, 0, None),
        ("DECIDE", {"commit": True}, 1, "committed without its coordinator"),
        ("DECIDE", {"commit": False}, 0, "rolled back without its coordinator"),
    ],
)
def test_two_phases(
    manager: Manager, peer: Peer, operation: str, body: Any, messages: int, state: str | None
) -> None:
    begin(peer)
    assert manager.ask("PREPARE", "transaction", NAME).status == 204
    [told] = manager.rows("transaction")
    assert (told["name"], told["state"]) == (NAME, "prepared")
    assert manager.ask(operation, "transaction", NAME, body).status == 204
    assert manager.ask("READ", "queue", "orders").body["messages"] == messages
    assert [row["state"] for row in manager.rows("transaction")] == ([] if state is None else [state])
    if state is not None:
        assert manager.ask("COMMIT", "transaction", NAME).status == 409
        assert manager.ask("FORGET", "transaction", NAME).status == 204
    assert manager.rows("transaction") == []


@pytest.mark.parametrize("operation", ["PREPARE", "COMMIT", "ROLLBACK", "DECIDE", "FORGET"])
@pytest.mark.parametrize(("name", "status"), [("00ff", 404), ("no digits", 400), ("", 400)])
def test_one_that_is_not_there(manager: Manager, operation: str, name: str, status: int) -> None:
    assert manager.ask(operation, "transaction", name).status == status
