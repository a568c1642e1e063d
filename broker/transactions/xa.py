"""Distributed transactions from their coordinator's side, which AMQP 1.0 does not define. Core only.

A client declares one by its global ID, the xid, works in it, and discharges it; then its coordinator prepares and ends
it here. A durably prepared transaction survives its connection and the broker: after a restart it is in doubt, and the
messages that it takes are locked. Transient messages in it are lost with the broker.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from ...base.errors import TransactionEnded, UnknownTransaction
from ...store.contract.transaction import TxState
from ..kernel.context import CoreContext
from .registry import Transactions
from .staging import CAN_FAIL, ROLLBACK
from .transaction import ClientTransaction, RestoredQueue
from .transaction_state import TransactionEvent

Then = Callable[[], None]


class Doubtful(NamedTuple):
    """A transaction that waits for its outcome, or to be forgotten."""

    xid: bytes
    state: TxState
    operations: int


class InDoubt:
    """Ends distributed transactions. *then* is called when the result is durable.

    Raises `CairnError`; unless the error states otherwise, nothing was done.
    """

    def __init__(self, core: CoreContext, transactions: Transactions, queues: Iterable[RestoredQueue]) -> None:
        self._core = core
        self._store = core.store
        self._transactions = transactions
        by_id = {queue.queue_id: queue for queue in queues if queue.queue_id}
        for inner in self._store.transactions.in_doubt():
            if inner.state is TxState.PREPARED:
                restored = transactions.without_connection()
                restored.restored(inner, by_id)
                self._transactions.by_xid[inner.xid] = restored

    def in_doubt(self) -> list[Doubtful]:
        """Return the prepared transactions, and the decided ones that are not forgotten."""
        by_xid = self._transactions.by_xid
        return [
            Doubtful(one.xid, one.state, by_xid[one.xid].operations if one.xid in by_xid else 0)
            for one in self._store.transactions.in_doubt()
        ]

    def prepare(self, xid: bytes, then: Then) -> None:
        """Prepare the transaction (the first phase). On failure it is rolled back, and the error states the reason."""
        transaction = self._find(xid)
        inner = transaction.staging.inner
        assert inner is not None
        try:
            transaction.complete()
            lsn = inner.prepare(self._now_us())
        except CAN_FAIL as error:
            if not transaction.is_prepared:
                transaction.roll_back(ROLLBACK, str(error))
            raise
        transaction.handle(TransactionEvent.PREPARED)
        self._core.commits.when_durable(lsn, then)

    def commit(self, xid: bytes, then: Then) -> None:
        """Commit the transaction: the second phase, or the only one if it was not prepared."""
        transaction = self._find(xid)
        if transaction.is_prepared:  # a transient queue may have been deleted by then, with its messages
            assert transaction.staging.inner is not None
            transaction.committed(transaction.staging.inner.commit(self._now_us()), then)
        else:
            transaction.commit(then)

    def rollback(self, xid: bytes, then: Then) -> None:
        """Roll back a transaction."""
        lsn = self._find(xid).roll_back(ROLLBACK, "its coordinator rolled it back")
        self._core.commits.when_durable(lsn, then)

    def decide(self, xid: bytes, then: Then, *, commit: bool) -> None:
        """End one that is prepared without its coordinator. It is remembered until `forget`."""
        transaction = self._find(xid)
        inner = transaction.staging.inner
        assert inner is not None
        lsn = inner.decide(self._now_us(), commit=commit)
        if commit:
            transaction.committed(lsn, then)
        else:
            transaction.handle(TransactionEvent.FAILED, (ROLLBACK, "it was decided on without its coordinator"))
            self._core.commits.when_durable(lsn, then)

    def forget(self, xid: bytes, then: Then) -> None:
        """Forget a transaction that was decided on."""
        lsn = self._store.transactions.of(xid).forget(self._now_us())
        self._core.commits.when_durable(lsn, then)

    def _find(self, xid: bytes) -> ClientTransaction:
        transaction = self._transactions.by_xid.get(xid)
        if transaction is None:
            try:
                inner = self._store.transactions.of(xid)
            except UnknownTransaction as error:
                if (reason := self._transactions.failures.get(xid)) is None:
                    raise
                cause = f"it was rolled back: {reason}"
                raise UnknownTransaction(f"xid {xid.hex()}", cause, "begin it again") from error
            raise TransactionEnded(inner.name, f"it is {inner.state.value}", "forget it")
        if not transaction.is_discharged or transaction.pending:
            raise TransactionEnded(f"transaction {xid.hex()}", "its client works on it", "have it discharged first")
        return transaction

    def _now_us(self) -> int:
        return self._core.clock.wall_us()
