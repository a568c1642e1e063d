"""Tests of outcomes that arrive again: after the discharge of a distributed transaction, or in another transaction."""

from __future__ import annotations

import pytest

from cairnmq.amqp.native.proton_ffi import ACCEPTED, RELEASED
from cairnmq.amqp.ports import Outcome
from cairnmq.base.errors import UnknownTransaction
from cairnmq.broker.transactions.xa import InDoubt
from tests.harness.broker.transacting import Transacting
from tests.harness.broker.world import FakeTerminal

XID = b"global"


@pytest.fixture
def client() -> Transacting:
    return Transacting()


def accepted(client: Transacting) -> tuple[bytes, FakeTerminal, InDoubt]:
    """Have a client accept a message in a distributed transaction, and discharge that."""
    client.send("q", "m")
    taker = client.open("q")
    txn_id = client.declare(XID)
    entry = taker.forwarded[0][0]
    client.world.do(taker.driver.outcomes_in, client.connection, [(txn_id, Outcome("delivery", entry, ACCEPTED))])
    assert client.discharge(txn_id) == ""
    return txn_id, taker, InDoubt(client.world.broker.core, client.world.broker.transactions, ())


@pytest.mark.parametrize("is_provisional", [True, False])
@pytest.mark.parametrize("state", [ACCEPTED, 0])
def test_transaction_is_prepared_after_its_client_settled_late(
    client: Transacting, is_provisional: bool, state: int
) -> None:  # T3
    txn_id, taker, coordinator = accepted(client)
    outcome = Outcome(None, taker.forwarded[0][0], state)
    if is_provisional:
        client.world.do(taker.driver.outcomes_in, client.connection, [(txn_id, outcome)])
    else:
        client.world.do(taker.driver.outcomes, [outcome])
    done: list[str] = []
    client.world.do(coordinator.prepare, XID, lambda: done.append("prepared"))
    client.world.do(coordinator.commit, XID, lambda: done.append("committed"))
    assert done == ["prepared", "committed"]
    assert client.world.queue().messages == 0


def test_coordinator_gets_the_reason_of_a_rollback(client: Transacting) -> None:  # T3
    txn_id, taker, coordinator = accepted(client)
    outcome = Outcome(None, taker.forwarded[0][0], RELEASED)
    client.world.do(taker.driver.outcomes_in, client.connection, [(txn_id, outcome)])
    with pytest.raises(UnknownTransaction, match="it was rolled back: a message was acquired in two transactions"):
        coordinator.prepare(XID, lambda: None)
    assert client.world.queue().messages == 1
