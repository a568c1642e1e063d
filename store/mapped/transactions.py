"""Transactions of a store with in-memory tables: a commit is one call, so the write log has all of it or nothing."""

from __future__ import annotations

from collections.abc import Container
from functools import partial

from ...base.errors import StoreError
from ..contract.transaction import Enqueue, Put, StoreTransaction, TxState
from .changes import MessageChanges


class MappedTransactions:
    """Implements `transaction.TransactionalStore`. The thread that makes the store's calls."""

    def __init__(self, changes: MessageChanges, queue_ids: Container[int]) -> None:
        """*queue_ids*: the queues that exist, kept up to date by the store."""
        self._changes = changes
        self.check_enqueue, self.check_dequeue = changes.check_enqueue, changes.check_dequeue
        self.stage_complete, self.discard = partial(changes.stage, is_last=True), changes.discard
        self._queue_ids = queue_ids

    def check_queue(self, queue_id: int) -> None:
        if queue_id not in self._queue_ids:
            raise StoreError(f"queue {queue_id}", "there is no such queue")

    def write_commit(self, transaction: StoreTransaction, time_us: int) -> int:
        if transaction.state is TxState.PREPARED:
            self._changes.log.ended(transaction.id)
        elif not transaction.operations:
            return 0
        self._do(transaction, time_us)
        return self._changes.take_lsn()

    def write_prepare(self, transaction: StoreTransaction, time_us: int) -> int:
        transaction.id = self._changes.take_lsn()
        operations = [one for one in transaction.operations if not isinstance(one, Put)]  # with an xid all is staged
        self._changes.log.prepared(transaction.id, transaction.xid, operations)
        return transaction.id

    def write_rollback(self, transaction: StoreTransaction, time_us: int) -> int:
        self._changes.log.ended(transaction.id)
        return self._changes.take_lsn()

    def write_decision(self, transaction: StoreTransaction, time_us: int, *, commit: bool) -> int:
        self._changes.log.ended(transaction.id)
        self._changes.log.decided(transaction.id, transaction.xid, committed=commit)
        if commit:
            self._do(transaction, time_us)
        return self._changes.take_lsn()

    def write_forget(self, transaction: StoreTransaction, time_us: int) -> int:
        self._changes.log.forgotten(transaction.id)
        return self._changes.take_lsn()

    def _do(self, transaction: StoreTransaction, time_us: int) -> None:
        """The operations, visible in this order (checklist E44)."""
        changes = self._changes
        staged = {*transaction.staged}  # there may be very many
        for operation in transaction.operations:
            if isinstance(operation, Put):
                message_id = changes.stage(operation.content, time_us, is_last=True)
                transaction.message_ids.append(message_id)
                changes.enqueue(message_id, operation.queue_id)
            elif isinstance(operation, Enqueue):
                if operation.message_id in staged:
                    transaction.message_ids.append(operation.message_id)
                changes.enqueue(operation.message_id, operation.queue_id)
            else:
                changes.dequeue(operation.message_id, operation.queue_id)
