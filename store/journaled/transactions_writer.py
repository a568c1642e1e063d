"""The writer of transactions in the journal store; `transaction_log` describes the records."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from itertools import groupby

from ...base.errors import DiskFull
from ...journal.format.record import HEAD_BYTES, MAX_PAYLOAD_BYTES, Flag, RecordType
from ...journal.write.journal import OWN_LSN, Journal
from ..contract.dequeue_reason import DequeueReason
from ..contract.transaction import MAX_HELD_BYTES, Dequeue, Enqueue, Put, StoreTransaction, Transactions, TxState
from ..message_map.state import State
from ..message_map.transaction_log import (
    DTX_START,
    FLAG_PREPARED,
    TX_COMMIT,
    TX_DELETE,
    TX_END,
    TX_PREPARE,
    TX_ROLLBACK,
    TX_START,
)
from .contents import ContentWriter
from .places import MessagePlaces

_START, _ENQUEUE, _DEQUEUE = int(RecordType.START), int(RecordType.ENQUEUE), int(RecordType.DEQUEUE)
_FLAG_ENQUEUE = int(Flag.ENQUEUE)


class TransactionsWriter:
    """Implements `transaction.TransactionalStore` on a journal store. The thread that makes the store's calls."""

    def __init__(
        self, journal: Journal, state: State, contents: ContentWriter, places: MessagePlaces,
        check_queue: Callable[[int], None],
    ) -> None:  # fmt: skip
        self._journal = journal
        self._state = state
        self._contents = contents
        self._places = places
        self.check_queue = check_queue
        self.check_enqueue, self.check_dequeue = places.check_enqueue, places.check_dequeue
        self.stage_complete = partial(contents.stage, is_last=True)

    def open(self) -> Transactions:
        """The transactions of the store, with those that recovery found (checklist E39)."""
        transactions = Transactions(self, self._places.locks)
        for txn_id, prepared in self._state.outcomes.prepared.items():
            operations = [
                Dequeue(message_id, queue_id, DequeueReason(prepared.reasons.get((kind, message_id, queue_id), 0)))
                if kind == _DEQUEUE else Enqueue(message_id, queue_id)
                for kind, message_id, queue_id in prepared.intentions
            ]  # fmt: skip
            transactions.restore(prepared.xid, txn_id, TxState.PREPARED, operations)
        for txn_id, decided in self._state.outcomes.decided.items():
            state = TxState.DECIDED_COMMIT if decided.committed else TxState.DECIDED_ROLLBACK
            transactions.restore(decided.xid, txn_id, state, ())
        self._reserve()
        return transactions

    def discard(self, message_ids: Iterable[int], time_us: int) -> None:
        detailed = self._state.detailed
        found = ((message_id, detailed.get(message_id)) for message_id in message_ids)
        self._contents.discard([one for one, message in found if message is not None and not message.queues], time_us)

    def write_commit(self, transaction: StoreTransaction, time_us: int) -> int:
        if transaction.state is TxState.PREPARED:
            return self._write_end(transaction, time_us, commit=True)
        if not transaction.operations:
            return 0
        self._check_room(transaction)
        self._stage_long(transaction, time_us)
        if len(transaction.operations) == 1:  # one record is whole or not there: it needs no other
            return self._do(transaction, 0, time_us)[-1]
        txn_id = self._journal.append(TX_START, time_us=time_us, txn_id=OWN_LSN)
        return self._commit(transaction, txn_id, 0, time_us)

    def write_prepare(self, transaction: StoreTransaction, time_us: int) -> int:
        full = self._journal.pool.find_room(_PREPARED_BYTES * len(transaction.operations))
        if full is not None:  # the space to end it must exist
            raise DiskFull(full.place, full.reason, "roll it back, or free some space and prepare it again")
        append = self._journal.append
        txn_id = append(DTX_START, transaction.xid, time_us=time_us, txn_id=OWN_LSN)
        intentions: dict[tuple[int, int, int], int] = {}
        reasons: dict[tuple[int, int, int], int] = {}
        for operation in transaction.operations:
            assert not isinstance(operation, Put)  # with an xid all is staged
            kind, reason = (_DEQUEUE, operation.reason) if isinstance(operation, Dequeue) else (_ENQUEUE, 0)
            message_id, queue_id = operation.message_id, operation.queue_id
            if reason:
                reasons[kind, message_id, queue_id] = int(reason)
            intentions[kind, message_id, queue_id] = append(
                kind, time_us=time_us, flags=FLAG_PREPARED | reason, undo_prev=message_id, message_id=message_id,
                queue_id=queue_id, txn_id=txn_id,
            )  # fmt: skip
        lsn = append(TX_PREPARE, time_us=time_us, undo_prev=txn_id, txn_id=txn_id, extra=len(intentions))
        self._state.outcomes.was_prepared(txn_id, transaction.xid, lsn, intentions, reasons)
        transaction.id = txn_id
        self._reserve()
        return lsn

    def write_rollback(self, transaction: StoreTransaction, time_us: int) -> int:
        return self._write_end(transaction, time_us, commit=False)

    def write_decision(self, transaction: StoreTransaction, time_us: int, *, commit: bool) -> int:
        txn_id = transaction.id
        lsn = self._journal.append(
            TX_END, transaction.xid, time_us=time_us, undo_prev=txn_id, txn_id=txn_id, extra=int(commit)
        )
        self._state.outcomes.was_decided(lsn, txn_id, transaction.xid, commit)
        return self._write_end(transaction, time_us, commit=commit)

    def write_forget(self, transaction: StoreTransaction, time_us: int) -> int:
        txn_id = transaction.id
        end_lsn = self._state.outcomes.decided[txn_id].lsn
        lsn = self._journal.append(TX_DELETE, time_us=time_us, undo_prev=txn_id, txn_id=txn_id, extra=end_lsn)
        self._state.outcomes.forgotten(lsn, txn_id, end_lsn)
        return lsn

    def _check_room(self, transaction: StoreTransaction) -> None:
        """Raises `DiskFull`, with nothing done, for a commit that could end the store.

        On a full disk small commits are accepted, because they dequeue messages: each may use half of the rest.
        """
        held_bytes = 0 if transaction.xid else min(transaction.held_bytes, MAX_HELD_BYTES)
        needed_bytes = held_bytes + HEAD_BYTES * (len(transaction.operations) + 2)
        full = self._journal.pool.find_room(needed_bytes)
        if full is not None and 2 * needed_bytes > self._journal.left_bytes:
            raise DiskFull(full.place, full.reason, "free some space, or do less in a transaction")

    def _stage_long(self, transaction: StoreTransaction, time_us: int) -> None:
        """Contents of more than a record go first: the commit has one record for each operation (checklist E36)."""
        if transaction.held_bytes <= MAX_PAYLOAD_BYTES:
            return
        for number, operation in enumerate(transaction.operations):
            if isinstance(operation, Put) and len(operation.content) > MAX_PAYLOAD_BYTES:
                message_id = self.stage_complete(operation.content, time_us)
                transaction.staged.append(message_id)
                transaction.operations[number] = Enqueue(message_id, operation.queue_id)

    def _write_end(self, transaction: StoreTransaction, time_us: int, *, commit: bool) -> int:
        """The outcome of a prepared transaction."""
        txn_id = transaction.id
        prepare_lsn = self._state.outcomes.prepared[txn_id].prepare_lsn
        if commit:
            lsn = self._commit(transaction, txn_id, prepare_lsn, time_us)
        else:
            lsn = self._journal.append(TX_ROLLBACK, time_us=time_us, undo_prev=txn_id, txn_id=txn_id, extra=prepare_lsn)
            self._state.outcomes.ended(lsn, txn_id, prepare_lsn)
        self._reserve()
        return lsn

    def _commit(self, transaction: StoreTransaction, txn_id: int, prepare_lsn: int, time_us: int) -> int:
        lsns = self._do(transaction, txn_id, time_us)
        lsn = self._journal.append(TX_COMMIT, time_us=time_us, undo_prev=txn_id, txn_id=txn_id, extra=prepare_lsn)
        self._state.outcomes.ended(lsn, txn_id, prepare_lsn, lsns)
        return lsn

    def _do(self, transaction: StoreTransaction, txn_id: int, time_us: int) -> list[int]:
        """Write the operations as they are done; their LSNs. Visible in this order (checklist E44)."""
        lsns: list[int] = []
        staged = {*transaction.staged}  # there may be very many
        for (kind, queue_id), alike in groupby(transaction.operations, lambda one: (type(one), one.queue_id)):
            if kind is Put:
                put = self._put(queue_id, [one.content for one in alike if isinstance(one, Put)], txn_id, time_us)
                transaction.message_ids += put
                lsns += put
                continue
            for operation in alike:
                if isinstance(operation, Enqueue):
                    if operation.message_id in staged:
                        transaction.message_ids.append(operation.message_id)
                    lsns.append(self._places.enqueue(operation.message_id, queue_id, time_us, txn_id))
                elif isinstance(operation, Dequeue):
                    lsns.append(self._places.dequeue(operation.message_id, queue_id, time_us, operation.reason, txn_id))
        return lsns

    def _put(self, queue_id: int, contents: list[bytes], txn_id: int, time_us: int) -> list[int]:
        lsns = self._journal.append_all(
            _START, contents, time_us=time_us, flags=_FLAG_ENQUEUE, queue_id=queue_id, txn_id=txn_id
        )
        self._state.started_all(lsns, queue_id, list(map(len, contents)))
        return lsns

    def _reserve(self) -> None:
        """Keep room for the outcomes of prepared transactions (checklist E48)."""
        prepared = self._state.outcomes.prepared.values()
        records = sum([len(one.intentions) + _END_RECORDS for one in prepared])
        self._journal.pool.reserve_bytes(2 * HEAD_BYTES * records)


_PREPARED_BYTES = 3 * HEAD_BYTES
"""The size of a prepared operation: its record, and the reserve for its end."""
_END_RECORDS = 20
"""Room for the tx-end with its xid, for the outcome, and for the padding of a block, counted in records."""
