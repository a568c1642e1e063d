"""How a store whose truth is in memory does transactions: a commit is done in one call, so the ledger has it whole."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

from ..base.errors import StoreError
from .transaction import Dequeue, Enqueue, Put, Transaction, Transactions, TxState

if TYPE_CHECKING:
    from .mapped_store import MappedStore


class Found(NamedTuple):
    """A transaction that an opening found: prepared, or decided on and not forgotten."""

    id: int
    xid: bytes
    state: TxState
    operations: list[Enqueue | Dequeue]


def restore(transactions: Transactions, found: Iterable[Found]) -> None:
    """Put back what an opening found, with its locks (checklist E39, E51)."""
    for one in found:
        transactions.restore(one.xid, one.id, one.state, one.operations)


class MappedTransactions:
    """Implements `transaction.TransactionalStore`. The thread that makes the store's calls."""

    def __init__(self, store: MappedStore) -> None:
        self._store = store

    # ---- what is asked of it --------------------------------------------------------------------------------------

    def check_queue(self, queue_id: int) -> None:
        if not self._store.knows_queue(queue_id):
            raise StoreError(f"queue {queue_id}", "there is no such queue")

    def check_enqueue(self, message_id: int, queue_id: int) -> None:
        self._store.check_enqueue(message_id, queue_id)

    def check_dequeue(self, message_id: int, queue_id: int) -> None:
        self._store.check_dequeue(message_id, queue_id)

    def stage_whole(self, content: bytes, time_us: int) -> int:
        return self._store.stage_complete(content)

    def discard(self, message_ids: Iterable[int], time_us: int) -> None:
        messages = self._store.maps.messages
        for message_id in message_ids:
            message = messages.get(message_id)
            if message is not None and not message.places and not self._store.transactions.holds_place(message_id):
                self._store.destroy(message_id, time_us)

    # ---- what is done ---------------------------------------------------------------------------------------------

    def write_commit(self, transaction: Transaction, time_us: int) -> int:
        if transaction.state is TxState.PREPARED:
            self._store.ledger.ended(transaction.id)
            self._do(transaction)
        elif transaction.operations:
            self._do(transaction)
        else:
            return 0
        return self._store.take_lsn()

    def write_prepare(self, transaction: Transaction, time_us: int) -> int:
        transaction.id = self._store.take_lsn()
        operations = [one for one in transaction.operations if not isinstance(one, Put)]  # with an xid all is staged
        self._store.ledger.prepared(transaction.id, transaction.xid, operations)
        return transaction.id

    def write_rollback(self, transaction: Transaction, time_us: int) -> int:
        self._store.ledger.ended(transaction.id)
        return self._store.take_lsn()

    def write_decision(self, transaction: Transaction, time_us: int, *, commit: bool) -> int:
        self._store.ledger.ended(transaction.id)
        self._store.ledger.decided(transaction.id, transaction.xid, committed=commit)
        if commit:
            self._do(transaction)
        return self._store.take_lsn()

    def write_forget(self, transaction: Transaction, time_us: int) -> int:
        self._store.ledger.forgotten(transaction.id)
        return self._store.take_lsn()

    def _do(self, transaction: Transaction) -> None:
        """The operations, visible in this order (checklist E44)."""
        store = self._store
        staged = {*transaction.staged}  # there may be very many
        for operation in transaction.operations:
            if isinstance(operation, Put):
                message_id = store.stage_complete(operation.content)
                transaction.message_ids.append(message_id)
                store.place(message_id, operation.queue_id)
            elif isinstance(operation, Enqueue):
                if operation.message_id in staged:
                    transaction.message_ids.append(operation.message_id)
                store.place(operation.message_id, operation.queue_id)
            else:
                store.take(operation.message_id, operation.queue_id)
