"""Tests of the times of messages that are moved: as dead letters, as expired, or by an operator."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from proton import Message, symbol, timestamp

from cairnmq.amqp.native.proton_ffi import MODIFIED, REJECTED
from cairnmq.amqp.ports import Outcome
from tests.harness.broker.policies import Policed, decoded, either
from tests.harness.broker.transacting import Transacting

Times = Callable[[Policed], dict[str, object]]
TIMES: dict[str, Times] = {
    "ttl": lambda policed: {"ttl": 50},
    "absolute": lambda policed: {"expiry_time": timestamp(policed.world.clock.wall_us() // 1000 + 50_000)},
    "delay": lambda policed: {"annotations": {symbol("x-opt-delivery-delay"): 10_000}},
    "due": lambda policed: {
        "annotations": {symbol("x-opt-delivery-time"): timestamp(policed.world.clock.wall_us() // 1000 + 10_000)}
    },
}
any_times = pytest.mark.parametrize("times", TIMES.values(), ids=[*TIMES])


@pytest.fixture
def policed() -> Transacting:
    return Transacting()


@either
@any_times
@pytest.mark.parametrize("how", ["rejected", "failed", "in a transaction", "expired"])
def test_a_dead_letter_stays(policed: Transacting, durable: bool, times: Times, how: str) -> None:
    """The own times of a dead letter no longer apply, also after a restart, so that operators can inspect it."""
    policed.make("dead")
    expires = {"message_ttl_ms": 20_000} if how == "expired" else {}
    policed.make("q", dead_letter_address="dead", expiry_address="dead", max_deliveries=1, **expires)
    policed.send("q", "poison", durable=durable, **times(policed))
    policed.world.advance(10.1)
    if how == "expired":
        policed.world.advance(41)
    else:
        taker = policed.open("q")
        [(tag, _)] = taker.forwarded
        if how == "rejected":
            policed.world.settle(taker, tag, REJECTED)
        elif how == "failed":
            policed.world.do(taker.driver.outcomes, [Outcome(None, tag, MODIFIED, True, False)])
        else:
            txn_id = policed.declare()
            policed.retire(txn_id, taker, 0, REJECTED)
            assert policed.discharge(txn_id) == ""
    policed.world.read_all()
    assert policed.world.queue("dead").messages == 1
    policed.world.advance(1000)
    assert policed.world.queue("dead").messages == 1
    if durable:
        policed.restart()
        policed.world.advance(1)
    [message] = policed.take("dead")
    assert message.body == "poison"
    assert message.ttl == 0
    assert symbol("x-opt-enqueued-time") not in message.annotations


@either
@pytest.mark.parametrize("in_transaction", [False, True], ids=["plain", "in a transaction"])
def test_a_queue_where_it_waits_sends_it_back(policed: Transacting, durable: bool, in_transaction: bool) -> None:
    """A message waits on a retry queue for the full time to live of the queue in each round, also after restarts."""
    policed.make("wait", message_ttl_ms=10_000, expiry_address="q")
    policed.make("q", dead_letter_address="wait")
    policed.send("q", "work", durable=durable, ttl=1000)
    for count in (1, 2, 3):
        taker = policed.open("q")
        if in_transaction:
            txn_id = policed.declare()
            policed.retire(txn_id, taker, 0, REJECTED)
            policed.discharge(txn_id)
        else:
            policed.world.settle(taker, taker.forwarded[0][0], REJECTED)
        policed.world.read_all()
        policed.world.do(taker.driver.close, (), False, False)
        policed.world.advance(6)
        if durable:
            policed.restart()
            policed.control = policed.world.open(
                to_client=False, connection=policed.connection, coordinator=True, address=None
            )
        policed.world.advance(3.9)
        policed.world.read_all()
        assert policed.world.queue("wait").messages == 1, f"round {count}"
        policed.world.advance(0.2)
        policed.world.read_all()
        assert policed.world.queue("wait").messages == 0, f"round {count}"
    [message] = policed.take("q")
    deaths = {(death["queue"], death["reason"]): death["count"] for death in message.annotations["x-opt-deaths"]}
    assert deaths == {("q", "rejected"): 3, ("wait", "expired"): 3}


@either
def test_what_an_operator_moves_keeps_what_is_left_of_its_times(policed: Transacting, durable: bool) -> None:
    policed.make("q")
    policed.make("other")
    policed.send("q", "short", durable=durable, ttl=50)
    policed.send("q", "late", durable=durable, annotations={symbol("x-opt-delivery-delay"): 10_000})
    policed.world.advance(30)
    taker = policed.open("q")
    returns, other = policed.world.broker.returns, policed.world.queue("other")

    def move(entry: Any, content: bytes) -> None:
        assert returns.move(policed.world.queue(), entry, other, content, print) is not None

    for entry, _ in taker.forwarded:
        policed.world.do(move, entry, bytes(decoded(entry.outgoing(policed.world.store, 0)).encode()))
        del taker.driver.unsettled[entry]
    assert policed.world.queue().messages == 0
    if durable:
        policed.restart()
    looker = policed.open("other")
    assert len(looker.forwarded) == 2, "what was due is not late again"
    policed.world.do(looker.driver.close, [entry for entry, _ in looker.forwarded], False, False)
    policed.world.advance(19)
    assert policed.world.queue("other").messages == 2
    policed.world.advance(2)
    policed.world.read_all()
    assert policed.bodies("other") == ["late"]


@pytest.mark.parametrize("restart", [False, True])
def test_times_count_in_prepared_transactions(policed: Transacting, restart: bool) -> None:
    policed.make("q")
    txn_id = policed.declare(b"xid")
    policed.post(txn_id, "q", "short", ttl=30)
    policed.post(txn_id, "q", "late", annotations={symbol("x-opt-delivery-delay"): 20_000})
    policed.post(txn_id, "q", "plain")
    policed.discharge(txn_id)
    policed.world.do(policed.world.broker.in_doubt.prepare, b"xid", lambda: None)
    if restart:
        policed.world.kill_and_start()
        policed.senders.clear()
    policed.world.do(policed.world.broker.in_doubt.commit, b"xid", lambda: None)
    policed.world.advance(10)
    assert policed.bodies("q") == ["short", "plain"]
    policed.world.advance(15)
    assert policed.bodies("q") == ["late"]


def test_a_message_that_says_it_died_has_the_ttl_that_it_is_sent_with(policed: Transacting) -> None:
    """A dead letter that a client sends again, with all annotations, expires like a new message."""
    policed.send("q", "again", ttl=5, annotations={symbol("x-opt-last-death-reason"): "rejected"})
    policed.world.advance(6)
    assert policed.world.queue().messages == 0


def test_what_is_no_message_moves_as_it_is(policed: Transacting) -> None:
    policed.make("dead", message_ttl_ms=1000)
    policed.make("q", dead_letter_address="dead")
    sender = policed.world.open(to_client=False)
    detailed = Message(body="x", durable=True).encode()[:-1] + b"\xff"
    policed.world.send(sender, (1, bytes(detailed), 0))
    taker = policed.open("q")
    for tag, _ in taker.forwarded:
        policed.world.settle(taker, tag, REJECTED)
    assert policed.world.queue().messages == 0
