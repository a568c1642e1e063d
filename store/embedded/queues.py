"""The queues of `library`: the messages that can be taken, and their takers.

Threads: any, as in `library`; methods whose names begin with `on_` are called by it, with the lock held.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from heapq import heappop, heappush
from threading import TIMEOUT_MAX, Condition, RLock
from typing import Protocol, TypeVar

from ...base.errors import CairnError, StoreError
from ..contract.dequeue_reason import DequeueReason
from ..contract.durability import Durable
from ..contract.interface import MessageStore
from ..contract.wiring_rows import QueueRow

T = TypeVar("T")


class StoreLock(Protocol):
    """An open store, one call at a time: callers of `inner` must hold `lock`."""

    @property
    def inner(self) -> MessageStore: ...

    @property
    def lock(self) -> RLock: ...

    @property
    def is_open(self) -> bool: ...

    def check(self) -> None:
        """Raises the error that ended the store, or `StoreError` if this process must not use it."""

    def check_room(self) -> None:
        """Raise `DiskFull` while the store accepts no messages."""

    def now_us(self) -> int:
        """The wall-clock time."""

    def recorded(self, lsn: int, result: T, then: Callable[[], None] | None = None) -> Durable[T]:
        """A future that completes with *result* once *lsn* is durable, after a call of *then*; with the lock held."""


class Message:
    """A message that was taken from a queue, exclusive to its taker until it is accepted or released."""

    def __init__(self, queue: Queue, id: int) -> None:
        self.queue = queue
        self.id = id
        """The store's number for it: never used again."""

    @property
    def content(self) -> bytes:
        """All of it, read back from the disk if need be. Raises `JournalError` if it can't be."""
        self.queue.store.check()
        store = self.queue.store.inner
        return b"".join([store.load_piece(self.id, number) for number in range(store.piece_count(self.id))])

    def read(self, offset: int, length: int) -> bytes:
        """A part of the content, of one that is larger than memory."""
        self.queue.store.check()
        return self.queue.store.inner.load_content(self.id, offset, length)

    def accept(self) -> Durable[None]:
        """Accept the message: once this is durable, it is never delivered again."""
        return self.queue.accept([self])

    def release(self) -> None:
        """Release the message to its place, for the next taker."""
        self.queue.release([self])


class Queue:
    """A durable queue. Made by `Store.queue`."""

    def __init__(self, store: StoreLock, row: QueueRow, ids: Sequence[int], locked: Iterable[int]) -> None:
        """*ids* are on it, in order; transactions that are in doubt take *locked* of them off."""
        self.store = store
        self.id = row.id
        self.name = row.name
        self.is_deleted = False
        off = set(locked)
        turns_off = (turn for turn, message_id in enumerate(ids) if message_id in off)
        self._turns = 1 + max(turns_off, default=-1) if off else 0
        older = [*enumerate(ids[: self._turns])]
        self._ready = deque(ids[self._turns :])
        # released: a heap of turns and ids; all are older than what is ready
        self._back = [(turn, message_id) for turn, message_id in older if message_id not in off]
        # id to its turn, and to whom it was given; to nobody if it was taken before the store was opened
        self._taken: dict[int, tuple[int, Message | None]] = {
            message_id: (turn, None) for turn, message_id in older if message_id in off
        }
        self._purges = 0
        self._changed = Condition(store.lock)

    def __len__(self) -> int:
        """Return the number of messages that can be taken."""
        return len(self._ready) + len(self._back)

    def __iter__(self) -> Iterator[Message]:
        """Take messages, the oldest first, until none can be taken."""
        while (message := self.take()) is not None:
            yield message

    def put(self, content: bytes) -> Durable[int]:
        """Put a message on the queue; its id."""
        store = self.store
        with store.lock:
            self.check()
            store.check_room()
            message_id, lsn = store.inner.put(self.id, checked(content), store.now_us())
            return store.recorded(lsn, message_id, self.arrival((message_id,)))

    def put_all(self, contents: Sequence[bytes]) -> Durable[Sequence[int]]:
        """Put several messages on the queue, cheaper than `put`; their IDs. A crash may leave only the first ones."""
        store = self.store
        with store.lock:
            self.check()
            if not contents:
                return store.recorded(0, ())
            store.check_room()
            message_ids, lsn = store.inner.put_all(self.id, [*map(checked, contents)], store.now_us())
            return store.recorded(lsn, message_ids, self.arrival(message_ids))

    def put_in_pieces(self, pieces: Iterable[bytes]) -> Durable[int]:
        """Put one message of any length on the queue, never completely in memory; other calls may interleave.

        It is on the queue when all pieces are stored. If *pieces* or a call raises, all pieces are removed.
        """
        store, message_id = self.store, 0
        try:
            for piece in pieces:
                with store.lock:
                    self.check()
                    store.check_room()
                    if message_id:
                        store.inner.append_content(message_id, checked(piece), store.now_us(), last=False)
                    else:
                        message_id = store.inner.stage(checked(piece), store.now_us())
                    store.inner.kick()
            if not message_id:
                return self.put(b"")
            with store.lock:
                self.check()
                store.inner.append_content(message_id, b"", store.now_us(), last=True)
                lsn = store.inner.enqueue(message_id, self.id, store.now_us())
                return store.recorded(lsn, message_id, self.arrival((message_id,)))
        except BaseException:
            if message_id:
                with store.lock, suppress(CairnError):
                    store.inner.destroy(message_id, store.now_us())
            raise

    def take(self, timeout_s: float = 0.0) -> Message | None:
        """Take the oldest message that is not taken; return None if none arrives within *timeout_s*."""
        with self._changed:
            self.check()
            if not len(self) and timeout_s > 0:
                def has_ended() -> bool:
                    return len(self) > 0 or self.is_deleted or not self.store.is_open

                self._changed.wait_for(has_ended, min(timeout_s, TIMEOUT_MAX))
                self.check()
            if self._back:
                turn, message_id = heappop(self._back)
            elif self._ready:
                turn, message_id = self._turns, self._ready.popleft()
                self._turns += 1
            else:
                return None
            message = Message(self, message_id)
            self._taken[message_id] = turn, message
            return message

    def accept(self, messages: Sequence[Message]) -> Durable[None]:
        """Accept messages that were taken from this queue, cheaper than one by one.

        Raises `StoreError`, with nothing done, if one of them is not taken any more, or a transaction has it.
        """
        store = self.store
        with store.lock:
            self.check_taken(messages)
            self._check_locks(messages)
            lsn = 0
            for message in messages:
                lsn = store.inner.dequeue(message.id, self.id, store.now_us(), DequeueReason.ACCEPTED)
                del self._taken[message.id]
            return store.recorded(lsn, None)

    def release(self, messages: Sequence[Message]) -> None:
        """Put back messages that were taken, each in its place. Raises as `accept` does."""
        with self.store.lock:
            self.check_taken(messages)
            self._check_locks(messages)
            for message in messages:
                self.on_release(message.id, message)

    def peek(self) -> Iterator[bytes]:
        """The contents of the messages that can be dequeued now, oldest first; none of them is dequeued."""
        with self.store.lock:
            self.check()
            ids = [message_id for _, message_id in sorted(self._back)] + list(self._ready)
        for message_id in ids:
            try:
                content = Message(self, message_id).content
            except (CairnError, LookupError):
                if self.store.inner.holds(message_id):
                    raise
                continue  # somebody was faster
            yield content

    def purge(self) -> Durable[None]:
        """Delete all messages but those that are taken, however many there are, in one step."""
        store = self.store
        with store.lock:
            self.check()
            lsn = store.inner.purge(self.id, store.now_us(), keep=self._taken)
            self.on_purge()
            return store.recorded(lsn, None)

    # ---- with the lock held ---------------------------------------------------------------------------------------

    def arrival(self, message_ids: Iterable[int]) -> Callable[[], None]:
        """Return the callback that makes new messages takable once they are durable, unless a purge came in between."""
        purges = self._purges

        def arrive() -> None:
            if self._purges == purges:
                self._ready.extend(message_ids)
                self._changed.notify_all()

        return arrive

    def on_release(self, message_id: int, holder: Message | None) -> None:
        """Release the message of *holder*; no effect if it was released already."""
        turn, given = self._taken.get(message_id, (-1, None))
        if turn >= 0 and given is holder:
            del self._taken[message_id]
            heappush(self._back, (turn, message_id))
            self._changed.notify_all()

    def on_accept(self, message_id: int) -> None:
        self._taken.pop(message_id, None)

    def on_deletion(self) -> None:
        """Close the queue; its messages stay until SQL has deleted the queue."""
        self.is_deleted = True
        self.on_end()

    def on_purge(self) -> None:
        """Drop the messages that can be taken, and those that arrive later although they were put before."""
        self._ready.clear()
        self._back.clear()
        self._purges += 1

    def on_end(self) -> None:
        """Let go of those that wait."""
        self._changed.notify_all()

    def check(self) -> None:
        """Raise the error that ended the store, or `StoreError` if the queue was deleted."""
        self.store.check()
        if self.is_deleted:
            raise StoreError(f"queue {self.name}", "it was deleted")

    def check_taken(self, messages: Sequence[Message]) -> None:
        self.check()
        ids = {message.id for message in messages}
        if len(ids) != len(messages) or any(self._taken.get(one.id, (0, None))[1] is not one for one in messages):
            raise StoreError(f"queue {self.name}", "a message is not taken off it, or not any more", "take it first")

    def _check_locks(self, messages: Sequence[Message]) -> None:
        for message in messages:
            self.store.inner.transactions.locks.check_dequeue(message.id, self.id)


def checked(content: bytes) -> bytes:
    """*content* as it is now, if it is bytes: stores find out late that it is not, when half is done."""
    if not isinstance(content, (bytes, bytearray, memoryview)):
        raise TypeError(f"the content of a message is bytes, not {type(content).__name__}")
    return bytes(content)
