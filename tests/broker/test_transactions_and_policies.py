"""Tests of transactions with queue policies, exchanges with several queues, and queues that are deleted."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from proton import symbol

from cairnmq.amqp.native.proton_ffi import ACCEPTED, MODIFIED, REJECTED, RELEASED
from cairnmq.amqp.ports import Outcome
from cairnmq.base.errors import MessageLocked, StoreError
from cairnmq.recovery.recover import recover
from tests.harness.broker.declarations import declare, discharge
from tests.harness.broker.policies import either
from tests.harness.broker.transacting import Transacting
from tests.harness.recovery.world import OPTIONS


@pytest.fixture
def policed() -> Transacting:
    return Transacting()


@pytest.mark.parametrize("in_transaction", [False, True], ids=["held", "in a transaction"])
@pytest.mark.parametrize("stops", [False, True], ids=["its connection", "the broker"])
def test_a_lost_connection_is_a_failure_and_a_broker_that_stops_is_none(
    policed: Transacting, stops: bool, in_transaction: bool
) -> None:
    policed.make("q", max_deliveries=1)
    policed.send("q", "a")
    taker, world = policed.open("q"), policed.world
    if in_transaction:
        policed.retire(policed.declare(), taker, 0, ACCEPTED)
    if stops:
        world.do(world.broker.returns.stopping)
    world.do(taker.driver.close, [taker.forwarded[0][0]], True, False)
    world.do(world.broker.drivers.connection_closed, policed.connection)
    assert world.queue().messages == stops
    policed.restart()
    assert policed.bodies("q") == ["a"] * stops


@pytest.mark.parametrize("stops", [False, True], ids=["its connection", "the broker"])
def test_what_was_acquired_in_a_transaction_has_not_failed_if_the_broker_stops(
    policed: Transacting, stops: bool
) -> None:
    """A broker stop adds no failure, although links close in attach order and the coordinator's may be first."""
    policed.make("q", max_deliveries=1)
    policed.send("q", "a")
    world, txn_id = policed.world, policed.declare()
    taker = world.open(to_client=True, connection=policed.connection)
    world.do(taker.driver.acquire_in, policed.connection, txn_id, 1, False)
    [(tag, _)] = taker.forwarded
    world.do(taker.driver.outcomes_in, policed.connection, [(txn_id, Outcome(7, tag, ACCEPTED))])
    if stops:
        world.do(world.broker.returns.stopping)
    world.do(policed.control.driver.close, [], True, False)
    world.do(taker.driver.close, [tag], True, False)
    world.do(world.broker.drivers.connection_closed, policed.connection)
    assert world.queue().messages == stops


@pytest.mark.parametrize("how", ["released", "closed", "in a transaction"])
def test_what_did_not_fail_is_not_moved_away_for_that(policed: Transacting, how: str) -> None:
    """A recovered message that did not fail stays, although its delivery count of one equals the limit."""
    policed.make("dead")
    policed.make("q", max_deliveries=1, dead_letter_address="dead")
    policed.send("q", "good")
    policed.restart()
    policed.control = policed.world.open(to_client=False, connection=policed.connection, coordinator=True, address=None)
    taker = policed.open("q")
    ((tag, _),) = taker.forwarded
    if how == "released":
        policed.world.settle(taker, tag, RELEASED)
    elif how == "closed":
        policed.world.do(taker.driver.close, [tag], False, True)
    else:
        txn_id = policed.declare()
        policed.retire(txn_id, taker, 0, RELEASED)
        assert policed.discharge(txn_id) == ""
    policed.world.read_all()
    assert [policed.world.queue(name).messages for name in ("q", "dead")] == [1, 0]


@either
def test_a_rejected_message_is_a_dead_letter_with_the_commit(policed: Transacting, durable: bool) -> None:
    policed.make("dead")
    policed.make("q", dead_letter_address="dead")
    for number in range(2):
        policed.send("q", number, durable=durable)
    taker = policed.open("q")
    lost, kept = policed.declare(), policed.declare()
    policed.retire(lost, taker, 0, REJECTED)
    policed.retire(kept, taker, 1, REJECTED)
    assert policed.bodies("dead") == []
    policed.discharge(lost, fail=True)
    assert policed.bodies("dead") == []
    policed.discharge(kept)
    policed.world.read_all()
    assert policed.bodies("dead") == [1]
    assert policed.world.queue().messages == 1  # the first one, which is dispatched to its receiver again


@pytest.mark.parametrize("state", [REJECTED, MODIFIED], ids=["rejected", "failed too often"])
@pytest.mark.parametrize("address", ["dead", "unmade", ""])
def test_a_message_is_moved_in_the_commit_wherever_the_broker_dies(
    policed: Transacting, state: int, address: str
) -> None:
    """A crash at any disk operation of a commit leaves all of its effects, or none."""
    world = policed.world
    for name in ("dead", "company"):
        policed.make(name)
    policed.make("q", max_deliveries=1, **({"dead_letter_address": address} if address else {}))
    policed.send("q", "poison")
    taker = policed.open("q")
    txn_id = policed.declare()
    policed.post(txn_id, "company", "more")
    outcome = Outcome(None, taker.forwarded[0][0], state, state == MODIFIED)
    world.do(taker.driver.outcomes_in, policed.connection, [(txn_id, outcome)])
    disks = [world.disk.after_kill()]

    def crash(operation: str) -> None:
        disks.append(world.disk.after_kill())
        disks.extend(world.disk.after_power_cut(Random(seed)) for seed in range(5))

    world.disk.on_operation = crash
    assert policed.discharge(txn_id) == ""
    world.disk.on_operation = None
    disks.append(world.disk.after_kill())
    ids = {name: queue.queue_id for name, queue in world.broker.nodes.queues.items()}
    found = []
    for disk in disks:
        store, _ = recover(disk, world.wiring, world.clock, OPTIONS)
        on = {name: len(store.messages().get(queue_id, ())) for name, queue_id in ids.items()}
        found.append((on["q"], on[address] if address else 0, on["company"]))
        store.journal.abandon()
    moved = (0, 1 if address else 0, 1)
    assert {*found} == {(1, 0, 0), moved}
    assert found[-1] == moved
    if address == "dead":
        assert policed.bodies("dead") == ["poison"]
    assert world.queue().messages == 0
    assert world.queue().dead_lettered == 1


@either
def test_a_message_that_can_not_be_moved_fails_the_transaction(policed: Transacting, durable: bool) -> None:
    policed.make("q", dead_letter_address="dead")
    policed.send("q", "poison", durable=durable)
    taker = policed.open("q")
    txn_id = policed.declare()
    policed.retire(txn_id, taker, 0, REJECTED)
    policed.world.wiring.refuse_writing()  # the dead-letter queue can't be created
    assert policed.discharge(txn_id) == "amqp:transaction:rollback"
    assert len(taker.forwarded) == 2, "it is given to its receiver again"


def test_what_is_prepared_moves_with_its_commit(policed: Transacting) -> None:
    policed.make("dead")
    policed.make("q", dead_letter_address="dead")
    policed.send("q", "poison")
    taker = policed.open("q")
    txn_id = policed.declare(b"xid")
    policed.retire(txn_id, taker, 0, REJECTED)
    assert policed.discharge(txn_id) == ""
    policed.world.do(policed.world.broker.in_doubt.prepare, b"xid", lambda: None)
    policed.world.kill_and_start()
    policed.senders.clear()
    policed.world.do(policed.world.broker.in_doubt.commit, b"xid", lambda: None)
    assert policed.bodies("dead") == ["poison"]
    assert policed.world.queue().messages == 0


def test_deliveries_that_are_rolled_back_count(policed: Transacting) -> None:
    policed.make("dead")
    policed.make("q", dead_letter_address="dead", max_deliveries=3)
    policed.send("q", "poison")
    taker = policed.open("q")
    for number in range(3):
        txn_id = policed.declare()
        policed.retire(txn_id, taker, number, ACCEPTED)
        policed.discharge(txn_id, fail=True)
        policed.world.read_all()
    assert len(taker.forwarded) == 3
    assert policed.bodies("dead") == ["poison"]
    assert policed.world.queue().messages == 0


@either
def test_times_count_in_transactions_too(policed: Transacting, durable: bool) -> None:
    txn_id = policed.declare()
    policed.post(txn_id, "q", "short", durable=durable, ttl=5)
    policed.post(txn_id, "q", "late", durable=durable, annotations={symbol("x-opt-delivery-delay"): 20_000})
    policed.post(txn_id, "q", "plain", durable=durable)
    policed.discharge(txn_id)
    policed.world.advance(10)
    assert policed.bodies("q") == ["plain"]
    policed.world.advance(20)
    assert policed.bodies("q") == ["late"]
    assert policed.world.queue().messages == 0


@either
@pytest.mark.parametrize("commit", [True, False])
def test_a_message_for_several_queues(policed: Transacting, durable: bool, commit: bool) -> None:
    for name in ("a", "b"):
        policed.make(name)
        made: list[Any] = []
        nodes = policed.world.broker.nodes
        policed.world.do(nodes.bind, nodes.exchanges["amq.fanout"], nodes.queues[name], "", {}, made.append)
        assert made == [None]
    takers = [policed.world.open(to_client=True, address="amq.fanout") for _ in range(2)]
    txn_id = policed.declare()
    for number in range(3):
        assert policed.post(txn_id, "amq.fanout", number, durable=durable) == "accepted"
        policed.post(txn_id, "a", f"a {number}", durable=durable)
    policed.discharge(txn_id, fail=not commit)
    for taker in takers:
        policed.world.do(taker.driver.request, 10, False)
        assert len(taker.forwarded) == (3 if commit else 0)
    assert policed.bodies("b") == ([0, 1, 2] if commit else [])
    assert policed.bodies("a") == ([0, "a 0", 1, "a 1", 2, "a 2"] if commit else [])
    assert not any(len(ids) for ids in policed.world.store.messages().values())


def test_a_message_that_no_queue_wants_keeps_its_transaction_from_being_committed(policed: Transacting) -> None:
    txn_id = policed.declare()
    assert policed.post(txn_id, "amq.fanout", "nowhere") == "accepted"
    assert policed.post(txn_id, "amq.direct/nowhere", "nowhere") == "amqp:not-found"
    assert policed.discharge(txn_id) == "amqp:transaction:rollback"


def test_a_full_queue_keeps_a_transaction_from_being_committed(policed: Transacting) -> None:
    policed.make("q", max_messages=1)
    policed.send("q", "first")
    txn_id = policed.declare()
    assert policed.post(txn_id, "q", "second") == "amqp:resource-limit-exceeded"
    assert policed.discharge(txn_id) == "amqp:transaction:rollback"
    assert policed.bodies("q") == ["first"]


@either
def test_a_queue_that_is_deleted_takes_open_transactions_along(policed: Transacting, durable: bool) -> None:
    policed.make("q")
    policed.send("q", "taken", durable=durable)
    taker = policed.open("q")
    txn_id = policed.declare()
    policed.retire(txn_id, taker, 0, ACCEPTED)
    policed.post(txn_id, "other", "put", durable=durable)
    policed.post(txn_id, "q", "put", durable=durable)
    done: list[Any] = []
    nodes = policed.world.broker.nodes
    policed.world.do(nodes.delete_queue, nodes.queues["q"], done.append)
    assert done == [None]
    assert policed.discharge(txn_id) == "amqp:transaction:rollback"
    assert policed.bodies("other") == []
    assert not policed.world.broker.transactions.taken


def test_a_queue_with_a_transaction_in_doubt_is_not_deleted(policed: Transacting) -> None:
    policed.make("q")
    doubt = policed.world.broker.in_doubt
    nodes = policed.world.broker.nodes
    policed.discharge(policed.declare(b"xid"))
    txn_id = policed.declare(b"x")
    policed.post(txn_id, "q", "put")
    with pytest.raises(StoreError, match="works on it"):
        doubt.prepare(b"x", lambda: None)
    policed.discharge(txn_id)
    policed.world.do(doubt.prepare, b"x", lambda: None)
    done: list[Any] = []
    policed.world.do(nodes.delete_queue, nodes.queues["q"], done.append)
    assert isinstance(done[0], MessageLocked)
    policed.world.do(doubt.commit, b"x", lambda: None)
    assert policed.bodies("q") == ["put"]
    policed.world.do(nodes.delete_queue, nodes.queues["q"], done.append)
    assert done[1] is None


def test_what_a_transaction_takes_is_not_purged(policed: Transacting) -> None:
    for number in range(4):
        policed.send("q", number)
    taker = policed.open("q", 2)
    lost, kept = policed.declare(), policed.declare()
    policed.retire(lost, taker, 0, ACCEPTED)
    policed.retire(kept, taker, 1, ACCEPTED)
    purged: list[Any] = []
    policed.world.do(policed.world.queue().order.purge, purged.append, "")
    assert purged == [2]
    policed.discharge(kept)
    policed.discharge(lost, fail=True)
    assert policed.world.queue().messages == 1
    policed.world.do(taker.driver.close, (), False, False)
    assert policed.bodies("q") == [0]


def test_there_is_one_transaction_of_a_global_id(policed: Transacting) -> None:
    """While the transaction of a global ID may still be committed, declaring the ID again is refused to all clients."""
    policed.make("q")
    first = policed.declare(b"xid")
    policed.post(first, "q", "rolled back")
    other = object()
    control = policed.world.open(to_client=False, connection=other, coordinator=True, address=None)
    doubt = policed.world.broker.in_doubt

    def refused() -> bool:
        policed.number += 1
        policed.world.send(control, (policed.number, declare(b"xid"), 0))
        return control.rejected.get(policed.number) == "amqp:transaction:rollback"

    assert refused(), "it is open, on another connection"
    assert policed.ask(declare(b"xid")) == "amqp:transaction:rollback", "or on the same one"
    policed.discharge(first, fail=True)
    assert not refused()
    second = control.declared_ids[-1]
    assert policed.discharge(first) == "amqp:transaction:unknown-id"
    policed.world.send(control, (1000, discharge(second, fail=False), 0))
    assert refused(), "it waits to be prepared"
    policed.world.do(policed.world.broker.drivers.connection_closed, other)
    assert doubt.in_doubt() == []
    third = policed.declare(b"xid")
    policed.post(third, "q", "committed")
    policed.discharge(third)
    policed.world.do(doubt.prepare, b"xid", lambda: None)
    assert refused(), "it is prepared"
    policed.restart()
    policed.control = policed.world.open(to_client=False, connection=object(), coordinator=True, address=None)
    assert policed.ask(declare(b"xid")) == "amqp:transaction:rollback", "still"
    policed.world.do(policed.world.broker.in_doubt.commit, b"xid", lambda: None)
    assert policed.bodies("q") == ["committed"]
    policed.declare(b"xid")
