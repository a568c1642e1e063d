"""Transactions as seen by their owner, in every store: operations that are gathered and then applied atomically.

A transaction writes nothing before it is committed or prepared, except contents that are too long for memory. A message
that it dequeues is locked from then on: no other client can dequeue it. A message that it enqueues becomes visible with
the commit, in the order of commits. A crash rolls back transactions that were neither committed nor prepared.

A distributed transaction has an *xid* and is committed in two phases. When its `prepare` is durable, it survives any
crash, with its locks, until its outcome is decided (`Transactions.in_doubt`, checklist E39). An administrator may
decide without the coordinator (`Transaction.decide`); the store remembers that decision until `forget` is called.

Threads: the thread that makes the other calls of the store.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from enum import Enum
from typing import NamedTuple, Protocol

from ...base.errors import BadXid, MessageLocked, StoreError, TransactionEnded, TransactionTimedOut, UnknownTransaction
from .dequeue_reason import NOT_RECORDED, DequeueReason

MAX_XID_BYTES = 1024
"""Room for an xid (checklist E35)."""
MAX_HELD_BYTES = 1 << 20
"""Contents that a transaction holds in memory; beyond that they are staged."""


class TxState(Enum):
    OPEN = "open"
    PREPARED = "prepared"
    COMMITTED = "committed"
    ROLLED_BACK = "rolled back"
    TIMED_OUT = "rolled back, because it took too long"
    QUEUE_DELETED = "rolled back, because a queue that it concerns was deleted"
    DECIDED_COMMIT = "committed without its coordinator"
    DECIDED_ROLLBACK = "rolled back without its coordinator"


_OPEN = TxState.OPEN


class Put(NamedTuple):
    """A new message on a queue."""

    queue_id: int
    content: bytes


class Enqueue(NamedTuple):
    """A message that exists on a queue."""

    message_id: int
    queue_id: int


class Dequeue(NamedTuple):
    """A message off a queue, and deleted with the last one."""

    message_id: int
    queue_id: int
    reason: DequeueReason = NOT_RECORDED


Operation = Put | Enqueue | Dequeue
FoundTransaction = tuple[bytes, int, TxState, Iterable[Enqueue | Dequeue]]
"""A transaction that recovery found prepared, or decided on and not forgotten: the arguments of `restore`."""


class TransactionalStore(Protocol):
    """Port of `Transactions` to a store. A call that returns an LSN writes everything, or raises and writes nothing."""

    def check_queue(self, queue_id: int) -> None:
        """Raise `StoreError` if the queue does not exist."""

    def check_enqueue(self, message_id: int, queue_id: int) -> None:
        """Raises `StoreError` if the message is not complete, or is on that queue already."""

    def check_dequeue(self, message_id: int, queue_id: int) -> None:
        """Raise `StoreError` if the message is not on that queue now."""

    def stage_complete(self, content: bytes, time_us: int) -> int:
        """A message of that content, on no queue; its id."""

    def discard(self, message_ids: Iterable[int], time_us: int) -> None:
        """Delete those of the messages that are on no queue."""

    def write_commit(self, transaction: StoreTransaction, time_us: int) -> int:
        """Do the operations; the LSN to wait for. Puts are given their ids in `message_ids`."""

    def write_prepare(self, transaction: StoreTransaction, time_us: int) -> int:
        """Have an open transaction with an xid survive crashes; the LSN to wait for. Sets its `id`."""

    def write_rollback(self, transaction: StoreTransaction, time_us: int) -> int:
        """Record the rollback of a prepared transaction; return the LSN to wait for."""

    def write_decision(self, transaction: StoreTransaction, time_us: int, *, commit: bool) -> int:
        """Commit or roll back a prepared one, and remember that until `write_forget`; the LSN to wait for."""

    def write_forget(self, transaction: StoreTransaction, time_us: int) -> int:
        """Forget a decision; the LSN to wait for."""


class StoreTransaction:
    """One transaction. Made by `Transactions.begin`, or by recovery.

    Its calls raise `TransactionTimedOut` or `TransactionEnded` after its end, and then change nothing.
    """

    def __init__(self, owner: Transactions, xid: bytes, deadline_us: int) -> None:
        self.xid = xid
        """Empty for a local one."""
        self.id = 0
        """The store's; 0 until something was written of it."""
        self.state = TxState.OPEN
        self.deadline_us = deadline_us
        """When it is rolled back unless it is prepared by then; 0 for never."""
        self.operations: list[Operation] = []
        """The operations in the order of their execution."""
        self.message_ids: list[int] = []
        """After the commit: the ids of the messages that `put` made, in order."""
        self.staged: list[int] = []
        """Messages that it has made so far: they go with a rollback."""
        self.held_bytes = 0
        """The contents of its puts, together."""
        self._owner = owner

    def put(self, queue_id: int, content: bytes, time_us: int) -> None:
        """Put a new message on a queue. Raises `StoreError` for an unknown queue."""
        self._look(time_us)
        store = self._owner.store
        store.check_queue(queue_id)
        self.held_bytes += len(content)
        if self.xid or self.held_bytes > MAX_HELD_BYTES:
            message_id = store.stage_complete(content, time_us)
            self.staged.append(message_id)
            self._owner.locks.enqueue(self, message_id, queue_id)
            self.operations.append(Enqueue(message_id, queue_id))
        else:
            self.operations.append(Put(queue_id, content))

    def put_all(self, queue_id: int, contents: Sequence[bytes], time_us: int) -> None:
        """Enqueue a batch of complete messages in the transaction, cheaper than `put`."""
        size_bytes = sum(map(len, contents))
        if self.xid or self.held_bytes + size_bytes > MAX_HELD_BYTES:
            for content in contents:
                self.put(queue_id, content, time_us)
            return
        self._look(time_us)
        self._owner.store.check_queue(queue_id)
        self.held_bytes += size_bytes
        self.operations += [Put(queue_id, content) for content in contents]

    def put_on(self, queue_ids: Sequence[int], content: bytes, time_us: int) -> None:
        """Put one new message on several queues. Raises `StoreError` for an unknown queue."""
        self._look(time_us)
        store = self._owner.store
        for queue_id in queue_ids:
            store.check_queue(queue_id)
        message_id = store.stage_complete(content, time_us)
        self.staged.append(message_id)
        self.held_bytes += len(content)
        for queue_id in dict.fromkeys(queue_ids):
            self._owner.locks.enqueue(self, message_id, queue_id)
            self.operations.append(Enqueue(message_id, queue_id))

    def enqueue(self, message_id: int, queue_id: int, time_us: int) -> None:
        """Put a message that exists, staged or on other queues, on a queue (checklist E65).

        Raises `StoreError` if it is not complete, or is on that queue, or will be.
        """
        self._look(time_us)
        store = self._owner.store
        store.check_queue(queue_id)
        store.check_enqueue(message_id, queue_id)
        self._owner.locks.enqueue(self, message_id, queue_id)
        self.operations.append(Enqueue(message_id, queue_id))

    def dequeue(self, message_id: int, queue_id: int, time_us: int, reason: DequeueReason = NOT_RECORDED) -> None:
        """Take a message off a queue, and delete it with the last one.

        Raises `StoreError` if it is not on that queue, `MessageLocked` if a transaction takes it off already.
        """
        self._look(time_us)
        self._owner.store.check_dequeue(message_id, queue_id)
        self._owner.locks.dequeue(self, message_id, queue_id)
        self.operations.append(Dequeue(message_id, queue_id, reason))

    def dequeue_all(
        self, message_ids: Iterable[int], queue_id: int, time_us: int, reason: DequeueReason = NOT_RECORDED
    ) -> None:
        """Dequeue a batch in the transaction. Messages before one that raises are part of it."""
        self._look(time_us)
        check, lock = self._owner.store.check_dequeue, self._owner.locks.dequeue
        for message_id in message_ids:
            check(message_id, queue_id)
            lock(self, message_id, queue_id)
            self.operations.append(Dequeue(message_id, queue_id, reason))

    def commit(self, time_us: int) -> int:
        """Apply all operations; return the LSN that must be durable before the outcome is confirmed. With an xid: one
        phase, or the second.

        Raises `DiskFull`, with no effect, if the size could exhaust the store; not for a prepared transaction.
        """
        if self.state is not TxState.PREPARED:
            self._look(time_us)
        lsn = self._owner.store.write_commit(self, time_us)
        self._owner.end(self, TxState.COMMITTED)
        return lsn

    def rollback(self, time_us: int) -> int:
        """Do nothing of it; the LSN to wait for, 0 if nothing was written of it."""
        if self.state is TxState.PREPARED:
            lsn = self._owner.store.write_rollback(self, time_us)
            self._owner.end(self, TxState.ROLLED_BACK)
            self._owner.discard(self.made(), time_us)
            return lsn
        self._look(time_us)
        self._owner.abandon(self, TxState.ROLLED_BACK, time_us)
        return 0

    def prepare(self, time_us: int) -> int:
        """The first phase; the LSN to wait for: once durable, the coordinator decides the outcome.

        Raises `TransactionEnded` for a local transaction.
        """
        self._look(time_us)
        if not self.xid:
            raise TransactionEnded("transaction", "a local one has one phase only", "commit it")
        lsn = self._owner.store.write_prepare(self, time_us)
        self.state = TxState.PREPARED
        return lsn

    def decide(self, time_us: int, *, commit: bool) -> int:
        """The outcome of a prepared one, without its coordinator; the LSN to wait for.

        The transaction stays, to answer the coordinator, until `forget`.
        """
        if self.state is not TxState.PREPARED:
            raise TransactionEnded(self.name, f"it is {self.state.value}, not prepared")
        lsn = self._owner.store.write_decision(self, time_us, commit=commit)
        self._owner.end(self, TxState.DECIDED_COMMIT if commit else TxState.DECIDED_ROLLBACK)
        if not commit:
            self._owner.discard(self.made(), time_us)
        return lsn

    def forget(self, time_us: int) -> int:
        """Let go of one that was decided on; the LSN to wait for."""
        if self.state not in (TxState.DECIDED_COMMIT, TxState.DECIDED_ROLLBACK):
            raise TransactionEnded(self.name, f"it is {self.state.value}: there is no decision to forget")
        if not self._owner.remembers(self):
            raise TransactionEnded(self.name, "its decision was forgotten already")
        lsn = self._owner.store.write_forget(self, time_us)
        self._owner.drop(self)
        return lsn

    @property
    def name(self) -> str:
        """The name of the transaction for logs and errors."""
        return f"transaction {self.xid.hex()}" if self.xid else "transaction"

    def made(self) -> list[int]:
        """The messages that exist for its sake, if they are on no queue otherwise."""
        return [operation.message_id for operation in self.operations if isinstance(operation, Enqueue)]

    def stored(self) -> Iterator[tuple[int, bytes | None]]:
        """Yield after the commit the enqueued messages in order: IDs, and contents as far as they are in memory."""
        staged = {*self.staged}
        fresh = iter([message_id for message_id in self.message_ids if message_id not in staged])
        for operation in self.operations:
            if isinstance(operation, Put):
                yield next(fresh), operation.content
            elif isinstance(operation, Enqueue):
                yield operation.message_id, None

    def _look(self, time_us: int) -> None:
        if self.state is _OPEN and not self.deadline_us:
            return
        if self.state is _OPEN and self.deadline_us <= time_us:
            self._owner.abandon(self, TxState.TIMED_OUT, time_us)
        if self.state is TxState.TIMED_OUT:
            raise TransactionTimedOut(self.name, "it took too long and was rolled back", "begin it again")
        if self.state is not TxState.OPEN:
            raise TransactionEnded(self.name, f"it is {self.state.value}")


class TransactionLocks:
    """The messages that the transactions of one store lock: they dequeue some, and enqueue others."""

    def __init__(self) -> None:
        self.dequeued: dict[int, dict[int, StoreTransaction]] = {}
        """Message ID to queue ID to the transaction that takes the message off that queue."""
        self._enqueued: dict[int, dict[int, StoreTransaction]] = {}  # likewise for messages that are put on a queue

    def __bool__(self) -> bool:
        return bool(self.dequeued or self._enqueued)

    def __contains__(self, message_id: int) -> bool:
        """Return whether a transaction dequeues or enqueues the message."""
        return message_id in self.dequeued or message_id in self._enqueued

    def is_enqueued(self, message_id: int) -> bool:
        """Return whether a transaction enqueues the message, which must exist until the outcome (checklist E43)."""
        return message_id in self._enqueued

    def enqueued(self) -> set[int]:
        """The messages that transactions put on a queue."""
        return set(self._enqueued)

    def dequeued_from(self, queue_id: int) -> list[int]:
        """The messages that transactions take off that queue."""
        return [message_id for message_id, places in self.dequeued.items() if queue_id in places]

    def check_dequeue(self, message_id: int, queue_id: int) -> None:
        """Raises `MessageLocked` if a transaction takes the message off that queue (checklist E46)."""
        holder = self.dequeued.get(message_id, {}).get(queue_id)
        if holder is not None:
            reason = f"{holder.name} takes it off queue {queue_id}"
            raise MessageLocked(f"message {message_id}", reason, "complete that transaction first")

    def check_enqueue(self, message_id: int, queue_id: int) -> None:
        """Raises `StoreError` if a transaction puts the message on that queue."""
        if queue_id in self._enqueued.get(message_id, {}):
            raise StoreError(f"message {message_id}", f"a transaction puts it on queue {queue_id} already")

    def dequeue(self, transaction: StoreTransaction, message_id: int, queue_id: int) -> None:
        """Locks a message that *transaction* takes off that queue. Raises as `check_dequeue`."""
        self.check_dequeue(message_id, queue_id)
        self.dequeued.setdefault(message_id, {})[queue_id] = transaction

    def enqueue(self, transaction: StoreTransaction, message_id: int, queue_id: int) -> None:
        """Locks a message that *transaction* puts on that queue. Raises as `check_enqueue`."""
        self.check_enqueue(message_id, queue_id)
        self._enqueued.setdefault(message_id, {})[queue_id] = transaction

    def release(self, operations: Iterable[Operation]) -> None:
        """Releases the messages of a transaction's *operations*."""
        for operation in operations:
            if isinstance(operation, Put):
                continue
            locks = self.dequeued if isinstance(operation, Dequeue) else self._enqueued
            places = locks.get(operation.message_id)
            if places is not None:
                places.pop(operation.queue_id, None)
                if not places:
                    del locks[operation.message_id]


class Transactions:
    """The transactions of one store that are not over."""

    def __init__(self, store: TransactionalStore, locks: TransactionLocks) -> None:
        self.store = store
        self.locks = locks
        self._by_xid: dict[bytes, StoreTransaction] = {}
        self._open: dict[StoreTransaction, None] = {}

    def begin(self, time_us: int, *, xid: bytes = b"", timeout_us: int = 0) -> StoreTransaction:
        """A new transaction, a distributed one with an *xid* (checklist E64); it may take *timeout_us*, 0 for ever.

        Raises `BadXid` if the xid is too long, or in use.
        """
        if len(xid) > MAX_XID_BYTES:
            raise BadXid(f"xid {xid[:16].hex()}...", f"{len(xid)} bytes, {MAX_XID_BYTES} are allowed", "shorten it")
        if xid in self._by_xid:
            raise BadXid(f"xid {xid.hex()}", f"there is one that is {self._by_xid[xid].state.value}", "use another xid")
        transaction = StoreTransaction(self, xid, time_us + timeout_us if timeout_us else 0)
        self._open[transaction] = None
        if xid:
            self._by_xid[xid] = transaction
        return transaction

    def of(self, xid: bytes) -> StoreTransaction:
        """The transaction of *xid*, if it is not over or was decided on. Raises `UnknownTransaction`."""
        try:
            return self._by_xid[xid]
        except KeyError:
            reason, remedy = "there is no such transaction, or it is over", "see cairnmq ctl transactions list"
            raise UnknownTransaction(f"xid {xid.hex()}", reason, remedy) from None

    def remembers(self, transaction: StoreTransaction) -> bool:
        """Return whether the transaction's xid is registered for it: a later transaction may have the same xid."""
        return self._by_xid.get(transaction.xid) is transaction

    def in_doubt(self) -> list[StoreTransaction]:
        """Return the prepared transactions, and those that were decided and not forgotten (checklist E39, E64)."""
        return [one for one in self._by_xid.values() if one.state is not TxState.OPEN]

    def expire(self, time_us: int) -> list[StoreTransaction]:
        """Roll back those that took too long; which they were."""
        late = [one for one in self._open if one.state is TxState.OPEN and 0 < one.deadline_us <= time_us]
        for one in late:
            self.abandon(one, TxState.TIMED_OUT, time_us)
        return late

    def working_on(self, queue_id: int) -> list[StoreTransaction]:
        """Return the open and prepared transactions with operations on that queue."""
        ongoing = dict.fromkeys((*self._open, *self._by_xid.values()))
        return [
            one
            for one in ongoing
            if one.state in (TxState.OPEN, TxState.PREPARED)
            and any(operation.queue_id == queue_id for operation in one.operations)
        ]

    def check_deletion(self, queue_id: int) -> None:
        """Raise `MessageLocked` if a prepared transaction has work on a queue: it must be decided first."""
        for one in self.working_on(queue_id):
            if one.state is TxState.PREPARED:
                raise MessageLocked(f"queue {queue_id}", f"{one.name} is prepared and concerns it", "decide that first")

    def queue_goes(self, queue_id: int, time_us: int) -> None:
        """Roll back the open transactions that have work on a queue, which is deleted. Raises as `check_deletion`."""
        self.check_deletion(queue_id)
        for one in self.working_on(queue_id):
            self.abandon(one, TxState.QUEUE_DELETED, time_us)

    # ---- for `Transaction`, and for recovery ----------------------------------------------------------------------

    def restore(self, xid: bytes, id: int, state: TxState, operations: Iterable[Enqueue | Dequeue]) -> StoreTransaction:
        """Restore a transaction that recovery found prepared or decided, with its locks."""
        transaction = StoreTransaction(self, xid, 0)
        transaction.id, transaction.state = id, state
        self._by_xid[xid] = transaction
        if state is TxState.PREPARED:
            for operation in operations:
                transaction.operations.append(operation)
                if isinstance(operation, Dequeue):
                    self.locks.dequeue(transaction, operation.message_id, operation.queue_id)
                else:
                    self.locks.enqueue(transaction, operation.message_id, operation.queue_id)
        return transaction

    def end(self, transaction: StoreTransaction, state: TxState) -> None:
        """End the transaction: its locks are released, and its xid, too, unless a decision must be remembered."""
        transaction.state = state
        self.locks.release(transaction.operations)
        self._open.pop(transaction, None)
        if transaction.xid and state not in (TxState.DECIDED_COMMIT, TxState.DECIDED_ROLLBACK):
            self.drop(transaction)

    def abandon(self, transaction: StoreTransaction, state: TxState, time_us: int) -> None:
        """Discard an open transaction; messages that are on no queue without it are deleted (checklist E45)."""
        self.end(transaction, state)
        self.discard(dict.fromkeys((*transaction.staged, *transaction.made())), time_us)

    def discard(self, message_ids: Iterable[int], time_us: int) -> None:
        """Deletes those of the messages that are on no queue, and that no transaction puts on one."""
        self.store.discard([one for one in message_ids if not self.locks.is_enqueued(one)], time_us)

    def drop(self, transaction: StoreTransaction) -> None:
        self._by_xid.pop(transaction.xid, None)
