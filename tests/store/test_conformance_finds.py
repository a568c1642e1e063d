"""Tests that the conformance suite detects each seeded defect in stores that pass it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test
from sqlalchemy import Connection

from cairnmq.recovery import open_sql
from cairnmq.store.conformance.suite import StoreMachine, StoreMaker
from cairnmq.store.contract.transaction import StoreTransaction, TransactionLocks, Transactions
from cairnmq.store.mapped.memory_store import MemoryStore
from cairnmq.store.mapped.memory_tables import MemoryTables
from cairnmq.store.mapped.store import MappedStore
from cairnmq.store.mapped.transactions import MappedTransactions
from cairnmq.store.sql.batch import Batch
from cairnmq.store.sql.store import SqlStore
from tests.harness.store.makers import MemoryMaker, SqlMaker

Patch = pytest.MonkeyPatch
DEFECTS: dict[str, tuple[type[StoreMaker], Callable[[Patch], None]]] = {}


def defect(maker: type[StoreMaker]) -> Callable[[Callable[[Patch], None]], Callable[[Patch], None]]:
    def add(seed: Callable[[Patch], None]) -> Callable[[Patch], None]:
        DEFECTS[seed.__name__] = maker, seed
        return seed

    return add


@defect(MemoryMaker)
def a_message_comes_back_to_the_front(patch: Patch) -> None:
    def place(self: MemoryTables, message_id: int, queue_id: int, position: int) -> None:
        on_queue = self.queues.get(queue_id, {})
        self.messages[message_id].places[queue_id] = position
        self.queues[queue_id] = {message_id: None, **on_queue}

    patch.setattr(MemoryTables, "place", place)


@defect(MemoryMaker)
def what_a_transaction_takes_is_not_locked(patch: Patch) -> None:
    patch.setattr(TransactionLocks, "check_dequeue", lambda *_: None)


@defect(MemoryMaker)
def a_message_goes_while_a_transaction_adds_it(patch: Patch) -> None:
    patch.setattr(TransactionLocks, "is_enqueued", lambda *_: False)


@defect(MemoryMaker)
def a_purge_takes_what_is_locked(patch: Patch) -> None:
    def purge(self: MappedStore, queue_id: int, time_us: int, **more: object) -> int:
        for message_id in list(self.maps.queues.get(queue_id, ())):
            self.changes.dequeue(message_id, queue_id)
        return self.changes.take_lsn()

    patch.setattr(MappedStore, "purge", purge)


@defect(MemoryMaker)
def a_final_purge_leaves_transactions_open(patch: Patch) -> None:
    patch.setattr(Transactions, "queue_goes", lambda *_: None)


@defect(MemoryMaker)
def late_transactions_are_done_all_the_same(patch: Patch) -> None:
    plain = Transactions.begin

    def begin(self: Transactions, time_us: int, **more: Any) -> StoreTransaction:
        return plain(self, time_us, **{**more, "timeout_us": 0})

    patch.setattr(Transactions, "begin", begin)


@defect(MemoryMaker)
def a_commit_does_not_take(patch: Patch) -> None:
    plain = MappedTransactions._do

    def do(self: MappedTransactions, transaction: StoreTransaction, time_us: int) -> None:
        operations, transaction.operations = transaction.operations, transaction.operations[:2]
        plain(self, transaction, time_us)
        transaction.operations = operations

    patch.setattr(MappedTransactions, "_do", do)


@defect(MemoryMaker)
def a_long_content_loses_its_end(patch: Patch) -> None:
    plain = MemoryStore.load_piece
    patch.setattr(MemoryStore, "load_piece", lambda *args: plain(*args)[:60_000])


@defect(SqlMaker)
def it_is_said_to_be_durable_before_it_is(patch: Patch) -> None:
    patch.setattr(SqlStore, "kick", lambda self: self._on_durable(self.next_lsn))


@defect(SqlMaker)
def dequeues_are_not_written(patch: Patch) -> None:
    patch.setattr(Batch, "deleted", lambda *_: None)


@defect(SqlMaker)
def places_that_are_left_are_not_written(patch: Patch) -> None:
    patch.setattr(Batch, "taken", lambda *_: None)


@defect(SqlMaker)
def a_purge_is_written_before_what_it_purges(patch: Patch) -> None:
    plain = Batch.execute

    def execute(self: Batch, sql: Connection) -> None:
        for at, (rows, queue_id) in enumerate(self._parts):
            self._parts[at] = {kind: [] for kind in rows}, queue_id
            for kind, found in self._rows.items():
                self._rows[kind] = rows[kind] + found
        plain(self, sql)

    patch.setattr(Batch, "execute", execute)


@defect(SqlMaker)
def decisions_are_forgotten(patch: Patch) -> None:
    patch.setattr(Batch, "decided", lambda *_, **more: None)


@defect(SqlMaker)
def an_outcome_is_not_written(patch: Patch) -> None:
    patch.setattr(Batch, "ended", lambda *_: None)


@defect(SqlMaker)
def what_was_prepared_loses_its_locks(patch: Patch) -> None:
    patch.setattr(open_sql, "_prepared", lambda _: iter(()))


@defect(SqlMaker)
def closing_loses_what_was_not_durable(patch: Patch) -> None:
    patch.setattr(SqlStore, "close", SqlStore.abandon)


@defect(SqlMaker)
def the_order_is_lost_with_a_crash(patch: Patch) -> None:
    plain = MemoryTables.on_queues
    patch.setattr(MemoryTables, "on_queues", lambda self: {one: ids[::-1] for one, ids in plain(self).items()})


@pytest.mark.parametrize("name", DEFECTS)
def test_a_defect_is_found(name: str, monkeypatch: Patch) -> None:
    maker, seed = DEFECTS[name]
    seed(monkeypatch)
    machine: Any = lambda: StoreMachine(maker())  # noqa: E731
    with pytest.raises(Exception) as caught:  # noqa: PT011  (whatever breaks first)
        run_state_machine_as_test(
            machine,
            settings=settings(
                max_examples=400, stateful_step_count=50, database=None, derandomize=True,
                print_blob=False, report_multiple_bugs=False, phases=[Phase.generate],
                suppress_health_check=list(HealthCheck),
            ),
        )  # fmt: skip
    assert not isinstance(caught.value, TypeError), caught.value
