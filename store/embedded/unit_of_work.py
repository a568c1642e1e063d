"""A transaction on the queues of `library`."""

from __future__ import annotations

from contextlib import suppress
from types import TracebackType
from typing import Protocol

from ...base.errors import CairnError, DiskFull
from ..contract.dequeue_reason import DequeueReason
from ..contract.durability import Durable, check_waiting, is_telling
from ..contract.transaction import Dequeue, Put, StoreTransaction, TxState
from .queues import Message, Queue, checked
from .store_lock import StoreLock


class TransactionOwner(StoreLock, Protocol):
    """The store of a transaction: it knows its queues, and which transactions are not over."""

    def check_own(self, queue: Queue) -> None:
        """Raises the error that keeps *queue* from being used with this store."""

    def queue_of(self, queue_id: int) -> Queue | None:
        """The queue of that ID, unless it was deleted."""

    def ended(self, transaction: StoreTransaction) -> None:
        """Forgets *transaction*, which is over, unless its outcome was decided without its coordinator."""

    def forgotten(self, transaction: StoreTransaction) -> None:
        """Forgets *transaction*, whose decision was forgotten."""


class UnitOfWork:
    """Work on several queues that is done together, or not at all. As a context manager it commits, and waits for it.

    Its calls raise `TransactionEnded` or `TransactionTimedOut` if it is over.
    """

    def __init__(self, store: TransactionOwner, inner: StoreTransaction) -> None:
        self.inner = inner
        self._store = store
        self._taken: list[Message] = []

    @property
    def xid(self) -> bytes:
        return self.inner.xid

    @property
    def state(self) -> TxState:
        return self.inner.state

    def put(self, queue: Queue, content: bytes) -> None:
        """Put a message on a queue; it becomes visible with the commit."""
        with self._store.lock:
            self._store.check_own(queue)
            self._store.check_room()
            self.inner.put(queue.id, checked(content), self._store.now_us())

    def take(self, queue: Queue) -> Message | None:
        """Take the oldest message of a queue, or return None for an empty queue; the commit accepts it."""
        with self._store.lock:
            self._store.check_own(queue)
            message = queue.take()
            if message is not None:
                try:
                    self.accept(message)
                except CairnError:
                    queue.on_release(message.id, message)
                    raise
            return message

    def accept(self, message: Message) -> None:
        """Accept a message that was taken before with the commit. A rollback releases it."""
        with self._store.lock:
            self._store.check_own(message.queue)
            message.queue.check_taken([message])
            self.inner.dequeue(message.id, message.queue.id, self._store.now_us(), DequeueReason.ACCEPTED)
            self._taken.append(message)

    def commit(self) -> Durable[list[int]]:
        """Do all of it; the ids of the messages that were put, in order. Raises `DiskFull` with nothing done."""
        with self._store.lock:
            self._store.check()
            lsn = self.inner.commit(self._store.now_us())
            return self._committed(lsn)

    def rollback(self) -> Durable[None]:
        """Do nothing of it; durable at once, but for one that was prepared."""
        with self._store.lock:
            self._store.check()
            lsn = self.inner.rollback(self._store.now_us())
            self.on_rollback()
            return self._store.recorded(lsn, None)

    def prepare(self) -> Durable[None]:
        """The first of two phases: when it is durable only the coordinator's outcome is missing (needs an xid)."""
        with self._store.lock:
            self._store.check()
            return self._store.recorded(self.inner.prepare(self._store.now_us()), None)

    def decide(self, *, commit: bool) -> Durable[list[int]]:
        """The outcome without the coordinator. The store remembers it until `forget`."""
        with self._store.lock:
            self._store.check()
            lsn = self.inner.decide(self._store.now_us(), commit=commit)
            if commit:
                return self._committed(lsn)
            self.on_rollback()
            return self._store.recorded(lsn, [])

    def forget(self) -> Durable[None]:
        """Forget the decision."""
        with self._store.lock:
            self._store.check()
            lsn = self.inner.forget(self._store.now_us())
            self._store.forgotten(self.inner)
            return self._store.recorded(lsn, None)

    def __enter__(self) -> UnitOfWork:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if kind is None:
            if self.inner.state in (TxState.OPEN, TxState.TIMED_OUT, TxState.QUEUE_DELETED):
                if is_telling():
                    self.rollback()  # a callback cannot wait for the commit, so it must not commit
                    check_waiting()
                try:
                    done = self.commit()  # raises if it was ended by another party, unnoticed by its user
                except DiskFull:
                    self.rollback()
                    raise
                done.result()
        elif self.inner.state is TxState.OPEN:
            with suppress(CairnError):  # of a closed or failed store: the user's own error is more specific
                self.rollback()

    def on_rollback(self) -> None:
        """Release the messages that the transaction had taken. With the lock held."""
        for message in self._taken:
            message.queue.on_release(message.id, message)
        for operation in self.inner.operations:  # messages taken before the store was opened
            queue = self._store.queue_of(operation.queue_id)
            if isinstance(operation, Dequeue) and queue is not None:
                queue.on_release(operation.message_id, None)
        self._store.ended(self.inner)

    def _committed(self, lsn: int) -> Durable[list[int]]:
        """The messages of a transaction that was prepared exist already, those of another are made by the commit."""
        ids, staged = iter(self.inner.message_ids), {*self.inner.staged}
        put: list[int] = []
        arrivals: dict[int, list[int]] = {}
        for operation in self.inner.operations:
            if isinstance(operation, Dequeue):
                queue = self._store.queue_of(operation.queue_id)
                if queue is not None:
                    queue.on_accept(operation.message_id)
            else:
                is_made = isinstance(operation, Put) or operation.message_id in staged
                put.append(next(ids) if is_made or isinstance(operation, Put) else operation.message_id)
                arrivals.setdefault(operation.queue_id, []).append(put[-1])

        found = [(self._store.queue_of(queue_id), message_ids) for queue_id, message_ids in arrivals.items()]
        on_durable = [queue.arrival(message_ids) for queue, message_ids in found if queue is not None]

        def arrive() -> None:
            for queue_arrives in on_durable:
                queue_arrives()

        self._store.ended(self.inner)
        return self._store.recorded(lsn, put, arrive)
