"""Seeded defects in transactions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from cairnmq.journal.format.record import RecordHead
from cairnmq.store.message_map.reconciliation import reconcile
from cairnmq.store.message_map.state import State
from cairnmq.store.message_map.transaction_log import Prepared, TransactionLog
from cairnmq.store.reclaim.relocation import Relocation
from tests.harness.recovery.defects import defect


@defect
def operations_are_done_without_their_commit(patch: pytest.MonkeyPatch) -> None:
    def commit_and_reconcile(state: State, slots: Mapping[int, int]) -> dict[int, int]:
        for steps in state.outcomes._steps.values():
            for step in steps:
                state._do(*step, True)
        return reconcile(state, slots)

    patch.setattr("cairnmq.recovery.replay.reconcile", commit_and_reconcile)


@defect
def outcomes_are_not_relocated(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Relocation, "_copy_outcome", lambda self, lsn, head: None)


@defect
def a_relocated_commit_lists_all_operations(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Relocation, "_mark_of", lambda self, lsn: 0)


@defect
def no_slot_needs_an_outcome(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(TransactionLog, "need", lambda self, *args: None)


@defect
def a_dequeue_that_was_never_committed_is_relocated(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Relocation, "_is_done", lambda self, head: True)


@defect
def the_end_of_a_prepared_transaction_lets_its_outcome_go(patch: pytest.MonkeyPatch) -> None:
    """Hold the outcome of a prepared transaction for its operations only, and not for the preparation."""
    real = TransactionLog.need

    def need(self: TransactionLog, lsn: int, txn_id: int, prepare_lsn: int, steps: Any) -> None:
        real(self, lsn, txn_id, 0, steps)

    patch.setattr(TransactionLog, "need", need)


@defect
def what_is_not_prepared_is_in_doubt(patch: pytest.MonkeyPatch) -> None:
    real = TransactionLog.finish

    def finish(self: TransactionLog, slots: Any) -> None:
        for prepared in self.prepared.values():
            prepared.prepare_lsn = prepared.prepare_lsn or prepared.start_lsn
            prepared.count = len(prepared.intentions)
        real(self, slots)

    patch.setattr(TransactionLog, "finish", finish)


@defect
def prepared_operations_hold_nothing(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Prepared, "records", lambda self: iter(((self.start_lsn, 64), (self.prepare_lsn, 64))))


@defect
def relocated_records_of_a_transaction_are_not_noted(patch: pytest.MonkeyPatch) -> None:
    real = TransactionLog.moved

    def moved(self: TransactionLog, lsn: int, head: RecordHead, source_lsn: int) -> None:
        with pytest.MonkeyPatch.context() as inner:
            inner.setattr(TransactionLog, "_set", lambda self, lsn, head: None)
            real(self, lsn, head, source_lsn)

    patch.setattr(TransactionLog, "moved", moved)


@defect
def the_checkpoint_leaves_out_transactions(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(TransactionLog, "decode", lambda self, body: None)


@defect
def what_a_transaction_adds_is_discarded_by_recovery(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(TransactionLog, "adds", lambda self: set())


@defect
def a_step_is_forgotten(patch: pytest.MonkeyPatch) -> None:
    """Lose the last operation of each transaction that recovery replays one by one."""
    real = TransactionLog.apply

    def apply(self: TransactionLog, lsn: int, head: RecordHead, payload: Any, do: Any) -> None:
        steps: list[tuple[int, RecordHead]] = self._steps.get(head.txn_id, [])
        del steps[len(steps) - 1 :]
        real(self, lsn, head, payload, do)

    patch.setattr(TransactionLog, "apply", apply)
