"""Durable queues for a Python program, without a broker: put, take, accept; transactions; all of them awaitable.

    with open_store("./data") as store:
        orders, done = store.queue("orders"), store.queue("done")
        orders.put(b"one cairn, please").result()  # it is on the disk when this returns
        with store.transaction() as both:  # all or nothing
            message = both.take(orders)
            both.put(done, message.content)

Calls that change something return a `Durable` at once, which supports waiting, `await` and callbacks. A message can be
taken once it is durable, by one taker at a time, and is deleted when it is accepted. Messages that a process had taken
and not accepted when it ended, even by a crash, are available again after the next start, in their place.

Threads: any thread may call anything. A lock serializes the calls, and only calls that are documented to do so wait for
the disk. One process at a time has a store open.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from types import TracebackType
from typing import TypeVar

from ...base.clock import Clock, SystemClock
from ...base.errors import CairnError, DiskFull, JournalFailed, StoreError
from ..contract.dequeue_reason import DequeueReason
from ..contract.durability import Durable, Waiting, check_waiting, is_telling, tell
from ..contract.options import StoreOptions
from ..contract.owner import OwnedStore
from ..contract.registry import find_kind
from ..contract.transaction import Dequeue, Put, StoreTransaction, TxState
from ..contract.wiring_rows import Arguments, QueueRow
from .queues import Message, Queue, checked

T = TypeVar("T")
_ALL = 1 << 64
"""Above all LSNs."""
_EXPIRY_S = 0.5
"""The interval at which transactions are checked for timeouts, while any are open."""


def open_store(
    path: str | os.PathLike[str], kind: str = "journal", options: StoreOptions | None = None, clock: Clock | None = None
) -> Store:
    """Open the store in the directory *path*; create it if it does not exist, and recover it if it was not closed.

    *kind* is "journal", "sql", "memory", or a kind that another package has registered. Raises `CairnError` with the
    place, the reason and the remedy if the store can't be opened.
    """
    clock = clock or SystemClock()
    inner, _ = find_kind(kind)(os.fspath(path), clock, options or StoreOptions(), None)
    return Store(inner, clock)


class Store:
    """An open store. To be closed, best by `with`."""

    def __init__(self, inner: OwnedStore, clock: Clock) -> None:
        self.inner = inner
        """The underlying store, see `interface.MessageStore`. The caller must hold `lock`."""
        self.lock = threading.RLock()
        self._clock = clock
        self._waiting = Waiting()
        self._failure: CairnError | None = None
        self._closing = threading.Lock()
        self._is_closing = self._is_closed = False
        self._pid = os.getpid()
        self._news = threading.Condition()  # separate from the lock: its holder may wait for the notifying thread
        self._durable_lsn = 0
        self._has_news = self._is_timed = False
        self._queues: dict[str, Queue] = {}
        self._by_id: dict[int, Queue] = {}  # also those that are going
        self._transactions: dict[StoreTransaction, UnitOfWork] = {}
        on = inner.messages()
        for row in inner.queues():
            locked = inner.transactions.locks.dequeued_from(row.id)
            ids = on.get(row.id, ())
            self._queues[row.name] = self._by_id[row.id] = Queue(self, row, ids, locked)
        for transaction in inner.transactions.in_doubt():
            self._transactions[transaction] = UnitOfWork(self, transaction)
        self._notifier = threading.Thread(target=self._tell, name="cairnmq-durable", daemon=True)
        inner.start(self._became_durable, self._failed)
        self._notifier.start()
        self._became_durable(inner.durable_lsn)  # the remains of recovery are released even without traffic

    # ---- queues ---------------------------------------------------------------------------------------------------

    def queue(self, name: str, arguments: Arguments | None = None) -> Queue:
        """Return the queue of that name; create it if it does not exist. Waits for SQL then."""
        with self.lock:
            self.check()
            found = self._queues.get(name)
        if found is None:
            check_waiting()
            found = self.create_queue(name, arguments).result()
        return found

    def queues(self) -> list[Queue]:
        with self.lock:
            return list(self._queues.values())

    def create_queue(self, name: str, arguments: Arguments | None = None) -> Durable[Queue]:
        """Create a durable queue, or find the existing one, without waiting."""
        future: Durable[Queue] = Durable()

        def done(row: QueueRow | Exception) -> None:
            if isinstance(row, Exception):
                tell([(future, row)])
                return
            with self.lock:
                queue = self._queues.get(name)
                if queue is None:
                    queue = self._queues[name] = self._by_id[row.id] = Queue(self, row, (), ())
            tell([(future, queue)])

        with self.lock:
            self.check()
            self.inner.create_queue(name, done, arguments)
        return future

    def delete_queue(self, queue: Queue) -> Durable[None]:
        """Delete a queue with all that is on it. Its deletion is final once SQL has it; a crash afterwards ends it.

        Raises `MessageLocked`, with nothing done, if a prepared transaction has work on it. Open transactions that have
        are rolled back.
        """
        future: Durable[None] = Durable()

        def purge(answer: Exception | None) -> None:
            if answer is not None:
                with self.lock:
                    queue.is_deleted = False
                    self._queues[queue.name] = queue
                tell([(future, answer)])
                return
            try:
                with self.lock:
                    lsn = self.inner.purge(queue.id, self.now_us(), is_final=True)
                    self._end_those_that_ended()
                    queue.on_purge()
                    self._by_id.pop(queue.id, None)
                    emptied = self.recorded(lsn, None)
            except CairnError as error:  # the next start finishes it
                tell([(future, error)])
                return
            emptied.add_done_callback(forget)

        def forget(emptied: Future[None]) -> None:
            error = emptied.exception()
            with self.lock:
                if error is None and self.is_open:
                    self.inner.finish_destroy_queue(queue.id, forgotten)
                    return
            tell([(future, error)])

        def forgotten(answer: Exception | None) -> None:
            tell([(future, None)])  # the next start removes the note in SQL

        with self.lock:
            self.check_own(queue)
            self.inner.transactions.check_deletion(queue.id)
            queue.on_deletion()
            del self._queues[queue.name]
            outstanding = self.inner.durable_lsn < self.inner.next_lsn  # perhaps outcomes that this rests on
            before = self.recorded(self.inner.next_lsn - 1 if outstanding else 0, None)
        before.add_done_callback(lambda _: self.inner.begin_destroy_queue(queue.id, purge))
        return future

    # ---- transactions ---------------------------------------------------------------------------------------------

    def transaction(self, *, xid: bytes = b"", timeout_s: float = 0.0) -> UnitOfWork:
        """A new transaction, a distributed one with an *xid*; rolled back if it is not over in *timeout_s*."""
        if not isinstance(xid, bytes):
            raise TypeError(f"an xid is bytes, not {type(xid).__name__}")
        with self.lock:
            self.check()
            self._expire()
            inner = self.inner.transactions.begin(self.now_us(), xid=xid, timeout_us=int(timeout_s * 1e6))
            made = self._transactions[inner] = UnitOfWork(self, inner)
            self._is_timed |= timeout_s > 0
        if timeout_s > 0:
            self._became_durable(0)  # the notifying thread checks the clock from now on
        return made

    def in_doubt(self) -> list[UnitOfWork]:
        """Return prepared transactions, including those from before a crash, and those decided and not forgotten."""
        with self.lock:
            self.check()
            return [self._transactions[inner] for inner in self.inner.transactions.in_doubt()]

    def _expire(self) -> None:
        if self._transactions:
            self.inner.transactions.expire(self.now_us())
            self._end_those_that_ended()
        self._is_timed = any(inner.deadline_us for inner in self._transactions)

    def _end_those_that_ended(self) -> None:
        """End transactions after time-outs and deletions of queues, and release the messages that they had taken."""
        for inner, transaction in [*self._transactions.items()]:
            if inner.state in (TxState.TIMED_OUT, TxState.QUEUE_DELETED):
                transaction.on_rollback()

    # ---- durability -----------------------------------------------------------------------------------------------

    @property
    def is_open(self) -> bool:
        return self._failure is None and not self._is_closing

    def close(self) -> None:
        """Make everything durable and release the files. Waits for it; raises the error that ended the store, if any.
        """
        if os.getpid() != self._pid:
            return  # the files are those of the process that opened it
        check_waiting()
        with self._closing:
            if not self._is_closed:
                self._close()

    def _close(self) -> None:
        with self.lock:
            self._is_closing = True
            for queue in self._queues.values():
                queue.on_end()
        with self._news:
            self._has_news = True
            self._news.notify()
        self._notifier.join()
        self._is_closed = True  # from here on nobody can try again
        try:
            self.inner.close()
        except CairnError as error:
            self._failure = self._failure or error
        except BaseException as error:
            self._tell_failure(_defect(error))
            raise
        if self._failure is not None:
            self._tell_failure(self._failure)
            raise self._failure
        self._tell_durable(_ALL)

    def __enter__(self) -> Store:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    # ---- for the modules of this library --------------------------------------------------------------------------

    def now_us(self) -> int:
        return self._clock.wall_us()

    def check(self) -> None:
        """Raise the error that ended the store, or that prevents this process from using it."""
        if os.getpid() != self._pid:
            raise StoreError("store", "another process has opened it and was forked since", "open it after the fork")
        if self._failure is not None:
            raise self._failure
        if self._is_closing:
            raise StoreError("store", "it was closed", "open it again")

    def check_room(self) -> None:
        """Raises `DiskFull` while nothing more can be stored; dequeues, and ends of transactions, still work."""
        reason = self.inner.full()
        if reason:
            raise DiskFull("store", reason, "free some space, or dequeue messages; the store continues by itself")

    def check_own(self, queue: Queue) -> None:
        """Raise an error if *queue* was deleted, or belongs to another store, where its ID may denote another queue."""
        if queue.store is not self:
            raise StoreError(f"queue {queue.name}", "it is a queue of another store", "open it in this one")
        queue.check()

    def recorded(self, lsn: int, result: T, then: Callable[[], None] | None = None) -> Durable[T]:
        """Return a future that is done when *lsn* is durable, at once for 0 (nothing written). With the lock held."""
        if not lsn:
            future: Durable[T] = Durable()
            future.set_result(result)
            return future
        waiting = self._waiting.add(lsn, result, then)
        self.inner.kick()
        return waiting

    def ended(self, transaction: StoreTransaction) -> None:
        """Forget it, unless the store remembers its decision."""
        if not self.inner.transactions.remembers(transaction):
            self._transactions.pop(transaction, None)

    def queue_of(self, queue_id: int) -> Queue | None:
        return self._by_id.get(queue_id)

    # ---- the threads of the store, and the notifying thread -------------------------------------------------------

    def _became_durable(self, lsn: int) -> None:
        with self._news:
            self._durable_lsn = max(self._durable_lsn, lsn)
            self._has_news = True
            self._news.notify()

    def _failed(self, error: CairnError) -> None:
        with self._news:
            self._failure = self._failure or error
            self._has_news = True
            self._news.notify()

    def _tell(self) -> None:
        """Notify waiters in a thread of its own: the writer must not wait for the lock, whose holder may wait for it.
        """
        while self.is_open:
            with self._news:
                self._news.wait_for(lambda: self._has_news, _EXPIRY_S if self._is_timed else None)
                self._has_news = False
                lsn = self._durable_lsn
            try:
                self._tell_durable(lsn)
            except CairnError as error:
                self._failed(error)
            except Exception as error:  # also a defect: else those that wait would do so for ever
                self._failed(_defect(error))
        if self._failure is not None:
            with self.lock:
                for queue in self._queues.values():
                    queue.on_end()
            self._tell_failure(self._failure)

    def _tell_durable(self, lsn: int) -> None:
        with self.lock:
            if self.is_open:
                self.inner.became_durable(lsn)
                self._expire()
            done = self._waiting.became_durable(lsn)
            if self.is_open:
                self.inner.kick()  # for what came while the last flush was under way
        tell(done)

    def _tell_failure(self, error: CairnError) -> None:
        with self.lock:
            left = self._waiting.failed()
        tell([(future, error) for future in left])


class UnitOfWork:
    """Work on several queues that is done together, or not at all. As a context manager it commits, and waits for it.

    Its calls raise `TransactionEnded` or `TransactionTimedOut` if it is over.
    """

    def __init__(self, store: Store, inner: StoreTransaction) -> None:
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
            self._store.ended(self.inner)
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


def _defect(error: BaseException) -> JournalFailed:
    return JournalFailed("store", f"it was ended by {error!r}", "open it again, and report this")
