"""The MessageStore interface: what the broker and the cluster ask of a store.

Every call that changes something returns the LSN at which it is recorded, at once; it is *durable*, and only then may
anyone be told, when `durable_lsn` has passed that LSN. So a whole batch needs one look. `kick` asks for what was
recorded so far to be made durable; the store's owner hears of it in its `on_durable` callback, once per flush.

Calls that change the wiring return at once, too, and have no LSN: each is done on another thread, where *done* gets
the result or the error, once, and then it is durable in SQL. They are done in the order in which they were asked for.
None of them blocks the caller, also when the SQL server is away: then *done* gets `SqlUnreachable` after some
seconds, messages go on as before, and the same call succeeds when the server is back. Any of them may be repeated:
making what is there gives what is there, taking away what is gone is no error. Other errors are `CairnError`s too,
and have changed nothing.

Errors, all of them `CairnError`s, from calls that then have done nothing: `StoreError` for what can't be (no such queue
or message, on it already, not on it any more), `MessageLocked` where a transaction has the message, `DiskFull` for a
put while there is no room (taking goes on), `BadXid`, `UnknownTransaction`, `TransactionEnded`,
`TransactionTimedOut`. Once a write or a sync has failed every call that needs the log raises `JournalFailed`: nothing
more is confirmed, and only a new start tells what is true.

Threads: one thread at a time makes the calls (the broker's core), but `load_piece`, `load_many`, `holds`, and those
about wiring are for any thread. Message ids are never 0, rise in the order of arrival, and are never used again;
neither are the ids of queues and exchanges.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Protocol, runtime_checkable

from ...base.errors import CairnError
from .dequeue_reason import Why
from .transaction import Transactions
from .wiring_rows import Arguments, BindingRow, ConfigRow, ExchangeRow, QueueRow


class MessageStore(Protocol):
    """Durable messages and the queues they are on (store design, checklist E64)."""

    durable_lsn: int
    """Everything recorded with a lower LSN is durable, as far as the owner has passed that on (`became_durable`)."""
    transactions: Transactions
    """Begin, commit, prepare, and those in doubt: see `transaction`."""

    @property
    def next_lsn(self) -> int:
        """Above everything recorded so far: where `durable_lsn` has come to this, nothing is outstanding."""

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

    def create_queue(
        self, name: str, done: Callable[[QueueRow | Exception], None], arguments: Arguments | None = None
    ) -> None:
        """Create a durable queue, or find the one there is."""

    def change_queue(self, queue_id: int, arguments: Arguments, done: Callable[[Exception | None], None]) -> None:
        """Give a durable queue other arguments; `StoreError` if it is not there."""

    def begin_destroy_queue(self, queue_id: int, done: Callable[[Exception | None], None]) -> None:
        """Take a queue and its bindings out of SQL, and note there that it is going.

        Its deletion is final then, and its name free. What is still on it, recovery deletes after a crash. If a
        prepared transaction that concerned it was ended, wait until that is durable: else it is in doubt again.
        """

    def finish_destroy_queue(self, queue_id: int, done: Callable[[Exception | None], None]) -> None:
        """Forget that note. Only when the journal's records that take the messages off the queue are durable."""

    def create_exchange(
        self,
        name: str,
        type: str,
        done: Callable[[ExchangeRow | Exception], None],
        arguments: Arguments | None = None,
    ) -> None:
        """Create a durable exchange, or find the one there is; `StoreError` if that is of another type."""

    def destroy_exchange(self, exchange_id: int, done: Callable[[Exception | None], None]) -> None:
        """Take an exchange and its bindings away."""

    def bind(self, binding: BindingRow, done: Callable[[Exception | None], None]) -> None:
        """Bind a queue to an exchange; `StoreError` if either is not there."""

    def unbind(self, binding: BindingRow, done: Callable[[Exception | None], None]) -> None:
        """Take the binding of that exchange, queue and key away."""

    def create_config(self, name: str, settings: Arguments, done: Callable[[Exception | None], None]) -> None:
        """Keep settings under a name, in place of those there were."""

    def destroy_config(self, name: str, done: Callable[[Exception | None], None]) -> None:
        """Forget the settings of that name."""

    def messages(self) -> dict[int, array[int]]:
        """Queue id to the ids of the messages on it, in order, 8 bytes each. Looks at every message: for the start."""

    def put(self, queue_id: int, content: bytes, time_us: int) -> tuple[int, int]:
        """Store a whole message on a queue: its id, and the LSN to wait for."""

    def put_all(self, queue_id: int, contents: Sequence[bytes], time_us: int) -> tuple[Sequence[int], int]:
        """Store a batch of whole messages on a queue, cheaper than `put`: the IDs in order, and one LSN to wait for."""

    def stage(self, piece: bytes, time_us: int) -> int:
        """Begin a message that arrives in pieces; its id. It is on no queue yet, and a crash discards it."""

    def append_content(self, message_id: int, piece: bytes, time_us: int, *, last: bool) -> None:
        """The next piece of a staged message."""

    def enqueue(self, message_id: int, queue_id: int, time_us: int) -> int:
        """Put a complete staged message on a queue; the LSN to wait for."""

    def dequeue(self, message_id: int, queue_id: int, time_us: int, why: Why = Why.NOT_RECORDED) -> int:
        """Take a message off a queue, and delete it with the last one; the LSN to wait for.

        *why* is for whoever looks at the history; a store that keeps none need not keep it.
        """

    def dequeue_all(
        self, message_ids: Sequence[int], queue_id: int, time_us: int, why: Why = Why.NOT_RECORDED
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
        """Why nothing more can be stored just now; empty if it can. Taking messages off works all the same.

        For a batch whose size is not bounded by what one read of a connection brings: how many bytes it has, and in how
        many records; a message has one, and one more for each queue.
        """

    def room_bytes(self) -> int | None:
        """Return the bytes that can be stored until the store is full; None if unknown. Queries the disk."""

    def close(self) -> None:
        """Make everything durable and let go of the files."""


@runtime_checkable
class PurgesInSlices(Protocol):
    """A store whose `purge` looks at each message: whoever has other work calls this instead."""

    def purge_in_slices(
        self, queue_id: int, time_us: int, *, keep: Iterable[int] = (), is_final: bool = False
    ) -> Iterator[int]:
        """`MessageStore.purge`, in slices: the messages are off the queue at once, and deleted by going through this.

        The last LSN is the one to wait for. After a crash before that is durable, some of the messages may be there.
        """
