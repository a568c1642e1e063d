"""The MessageStore interface: the contract of a store with the broker and the cluster.

Every call that changes messages returns at once the LSN at which the change is recorded. The change is *durable*, and
may be confirmed, only when `durable_lsn` has passed that LSN. A whole batch therefore needs one check. `kick` requests
durability for all changes recorded so far; its callback `on_durable` is called once per flush.

Calls that change the wiring also return at once, and have no LSN. Each is executed on another thread, which calls
*done* once with the result or the error; the change is then durable in SQL. They are executed in the order of the
calls. None of them blocks the caller, even if the SQL server is unavailable: then *done* gets `SqlUnreachable` after
some seconds, message traffic continues, and the same call succeeds when the server is available again. All of them are
idempotent: creating an existing object returns it, and removing a missing one is no error. Other errors are
`CairnError`s, too, and leave everything unchanged.

All errors are `CairnError`s, raised by calls that then have no effect:

* `StoreError`: the operation is impossible (no such queue or message; the message is on the queue already, or no longer
  on it).
* `MessageLocked`: a transaction has locked the message.
* `DiskFull`: a message cannot be stored for lack of space (dequeuing continues to work).
* `BadXid`, `UnknownTransaction`, `TransactionEnded`, `TransactionTimedOut`: errors of transactions.
* `JournalFailed`: a write or a sync has failed. Every later call that needs the log raises it: nothing more is
  confirmed, and only a new start determines the state on the disk.

Threads: one thread at a time makes the calls (the core of the broker), but `load_piece`, `load_many`, `holds`, and the
calls about the wiring are for any thread. Message IDs are never 0, increase in the order of arrival, and are never
reused; neither are the IDs of queues and exchanges.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Protocol, TypeVar, runtime_checkable

from ...base.errors import CairnError
from .dequeue_reason import NOT_RECORDED, DequeueReason
from .transaction import Transactions
from .wiring_rows import Arguments, BindingRow, ConfigRow, ExchangeRow, QueueRow

_Found = TypeVar("_Found")
Done = Callable[[_Found | Exception], None]
"""Gets the result of a call, or the error."""


class MessageStore(Protocol):
    """Durable messages and the queues they are on (store design, checklist E64)."""

    durable_lsn: int
    """Everything recorded with a lower LSN is durable, as far as the owner has passed that on (`became_durable`)."""
    transactions: Transactions
    """Begin, commit, prepare, and those in doubt: see `transaction`."""

    @property
    def next_lsn(self) -> int:
        """The LSN above everything recorded so far: when `durable_lsn` reaches it, all changes are durable."""

    def last_flushes(self) -> Sequence[tuple[int, float]]:
        """Return the bytes and the seconds of each of the last flushes; empty for a store without flushes."""

    def queues(self) -> Iterable[QueueRow]:
        """The durable queues known when the store was opened."""

    def exchanges(self) -> Iterable[ExchangeRow]:
        """The durable exchanges known when the store was opened."""

    def bindings(self) -> Iterable[BindingRow]:
        """The bindings known when the store was opened; exchange and queue of each are known, too."""

    def configs(self) -> Iterable[ConfigRow]:
        """The configurations known when the store was opened."""

    def going_queues(self) -> Iterable[QueueRow]:
        """The queues that were being destroyed when the store was opened. None of their messages is there any more."""

    def create_queue(self, name: str, done: Done[QueueRow], arguments: Arguments | None = None) -> None:
        """Create a durable queue, or find the one there is."""

    def change_queue(self, queue_id: int, arguments: Arguments, done: Done[None]) -> None:
        """Give a durable queue other arguments; `StoreError` if it is not there."""

    def begin_destroy_queue(self, queue_id: int, done: Done[None]) -> None:
        """Remove a queue and its bindings from SQL, and record there that it is being deleted.

        The deletion is then final, and the name is free. After a crash recovery deletes the remaining messages. If a
        prepared transaction that concerned the queue was ended, wait until the end is durable: otherwise the
        transaction is in doubt again.
        """

    def finish_destroy_queue(self, queue_id: int, done: Done[None]) -> None:
        """Forget that note. Only when the journal's records that take the messages off the queue are durable."""

    def create_exchange(
        self, name: str, type: str, done: Done[ExchangeRow], arguments: Arguments | None = None
    ) -> None:
        """Create a durable exchange, or find the one there is; `StoreError` if that is of another type."""

    def destroy_exchange(self, exchange_id: int, done: Done[None]) -> None:
        """Take an exchange and its bindings away."""

    def bind(self, binding: BindingRow, done: Done[None]) -> None:
        """Bind a queue to an exchange; `StoreError` if either is not there."""

    def unbind(self, binding: BindingRow, done: Done[None]) -> None:
        """Take the binding of that exchange, queue and key away."""

    def create_config(self, name: str, settings: Arguments, done: Done[None]) -> None:
        """Keep settings under a name, in place of those there were."""

    def destroy_config(self, name: str, done: Done[None]) -> None:
        """Forget the settings of that name."""

    def messages(self) -> dict[int, array[int]]:
        """Queue id to the ids of the messages on it, in order, 8 bytes each. Looks at every message: for the start."""

    def put(self, queue_id: int, content: bytes, time_us: int) -> tuple[int, int]:
        """Store a complete message on a queue: its ID, and the LSN to wait for."""

    def put_all(self, queue_id: int, contents: Sequence[bytes], time_us: int) -> tuple[Sequence[int], int]:
        """Store a batch of complete messages on a queue, cheaper than `put`: the IDs in order, and one LSN to wait for.
        """

    def stage(self, piece: bytes, time_us: int) -> int:
        """Begin a message that arrives in pieces; its id. It is on no queue yet, and a crash discards it."""

    def append_content(self, message_id: int, piece: bytes, time_us: int, *, last: bool) -> None:
        """The next piece of a staged message."""

    def enqueue(self, message_id: int, queue_id: int, time_us: int) -> int:
        """Put a complete staged message on a queue; the LSN to wait for."""

    def dequeue(self, message_id: int, queue_id: int, time_us: int, reason: DequeueReason = NOT_RECORDED) -> int:
        """Dequeue a message, and delete it if this was its last queue; return the LSN to wait for.

        *reason* is for readers of the history; a store without a history may ignore it.
        """

    def dequeue_all(
        self, message_ids: Sequence[int], queue_id: int, time_us: int, reason: DequeueReason = NOT_RECORDED
    ) -> list[int]:
        """Dequeue a batch, cheaper than `dequeue`; the LSNs, ascending. Those before one that raises are dequeued."""

    def purge(self, queue_id: int, time_us: int, *, keep: Iterable[int] = (), is_final: bool = False) -> int:
        """Take all messages off a queue but *keep* and those that a transaction takes off; the LSN to wait for.

        One record, and no look at the messages, however many there are; they never come back. With *is_final* the queue
        is being deleted: open transactions that concern it are rolled back, and `MessageLocked` is raised, with nothing
        done, if a prepared one does (checklist E53).
        """

    def destroy(self, message_id: int, time_us: int) -> int:
        """Delete a message that is on no queue."""

    def size_of(self, message_id: int) -> int:
        """Return the size of a message's content in bytes; 0 for one that does not exist. Any thread."""

    def bytes_on(self, queue_id: int) -> int:
        """Return the total content of a queue's messages in bytes. After a purge it may take some flushes to fall."""

    def piece_count(self, message_id: int) -> int:
        """In how many pieces `load_piece` gives the content."""

    def load_piece(self, message_id: int, number: int) -> bytes:
        """A piece of a durable message's content, read back from the disk. Any thread."""

    def load_content(self, message_id: int, offset: int, length: int) -> bytes:
        """*length* bytes of a durable message's content from *offset* on, fewer only where it ends. Any thread.

        No more is read than the pieces they lie in, one at a time (checklist E31).
        """

    def load_many(self, message_ids: Sequence[int], most_bytes: int) -> list[bytes | CairnError | None]:
        """The contents of durable messages, read back together; stops when there are *most_bytes*. Any thread.

        An error where a content can't be read, None where it is in more than one piece. Fast in order of arrival.
        """

    def holds(self, message_id: int) -> bool:
        """Return whether the message exists. Any thread."""

    def kick(self) -> None:
        """Have everything recorded so far made durable soon.

        While a flush is under way it only takes note: kick again after each durable notice, there may be more by then.
        """

    def full(self, size_bytes: int = 0, records: int = 0) -> str:
        """Return the reason why no message can be stored now; empty if one can. Dequeuing works in any case.

        *size_bytes* and *records*: the size of a batch that is not limited by one read of a connection. A message has
        one record, and one more for each queue.
        """

    def room_bytes(self) -> int | None:
        """Return the bytes that can be stored until the store is full; None if unknown. Queries the disk."""

    def close(self) -> None:
        """Make everything durable and release the files."""


@runtime_checkable
class PurgesInSlices(Protocol):
    """A store whose `purge` examines each message: callers with other work use this method instead."""

    def purge_in_slices(
        self, queue_id: int, time_us: int, *, keep: Iterable[int] = (), is_final: bool = False
    ) -> Iterator[int]:
        """`MessageStore.purge`, in slices: the messages are off the queue at once, and deleted by going through this.

        The last LSN is the one to wait for. After a crash before that is durable, some of the messages may be there.
        """
