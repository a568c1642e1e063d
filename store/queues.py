"""The queues of `library`: which messages are to be taken, and who has which.

Threads: any, as `library` says; what begins with `on_` is for it, with the lock held.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from heapq import heappop, heappush
from threading import Condition
from typing import TYPE_CHECKING

from ..base.errors import CairnError, StoreError
from .durable import Durable
from .wiring import QueueRow

if TYPE_CHECKING:
    from .library import Store


class Message:
    """A message that was taken off a queue, for its taker alone until it is accepted or released."""

    def __init__(self, queue: Queue, id: int) -> None:
        self.queue = queue
        self.id = id
        """The store's number for it: never used again."""

    @property
    def content(self) -> bytes:
        """All of it, read back from the disk if need be. Raises `JournalError` if it can't be."""
        store = self.queue.store.inner
        return b"".join([store.load_piece(self.id, number) for number in range(store.piece_count(self.id))])

    def read(self, offset: int, length: int) -> bytes:
        """A part of the content, of one that is larger than memory."""
        return self.queue.store.inner.load_content(self.id, offset, length)

    def accept(self) -> Durable[None]:
        """It is done with: once this is durable it never comes back."""
        return self.queue.accept([self])

    def release(self) -> None:
        """Put it back in its place, for whoever takes next."""
        self.queue.release([self])


class Queue:
    """A durable queue. Made by `Store.queue`."""

    def __init__(self, store: Store, row: QueueRow, ids: Iterable[int], locked: Iterable[int]) -> None:
        """*locked* are on it, too: transactions that are in doubt take them off."""
        self.store = store
        self.id = row.id
        self.name = row.name
        self.is_deleted = False
        self._ready = deque(ids)
        self._back: list[tuple[int, int]] = []  # released: a heap of turns and ids; all are older than what is ready
        self._taken: dict[int, int] = {message_id: turn for turn, message_id in enumerate(locked)}  # id to its turn
        self._turns = len(self._taken)
        self._changed = Condition(store.lock)

    def __len__(self) -> int:
        """How many messages are to be taken."""
        return len(self._ready) + len(self._back)

    def put(self, content: bytes) -> Durable[int]:
        """Put a message on the queue; its id."""
        store = self.store
        with store.lock:
            self.check()
            message_id, lsn = store.inner.put(self.id, content, store.now_us())
            return store.recorded(lsn, message_id, lambda: self.on_arrival((message_id,)))

    def put_all(self, contents: Sequence[bytes]) -> Durable[Sequence[int]]:
        """The same for many, cheaper; their ids. Each is a message of its own: a crash may leave the first of them."""
        store = self.store
        with store.lock:
            self.check()
            if not contents:
                return store.recorded(0, ())
            message_ids, lsn = store.inner.put_all(self.id, contents, store.now_us())
            return store.recorded(lsn, message_ids, lambda: self.on_arrival(message_ids))

    def take(self, timeout_s: float = 0.0) -> Message | None:
        """The oldest message that nobody has taken; None if there is none within *timeout_s*."""
        with self._changed:
            self.check()
            if not len(self) and timeout_s > 0:
                self._changed.wait_for(lambda: len(self) or self.is_deleted or not self.store.is_open, timeout_s)
                self.check()
            if self._back:
                turn, message_id = heappop(self._back)
            elif self._ready:
                turn, message_id = self._turns, self._ready.popleft()
                self._turns += 1
            else:
                return None
            self._taken[message_id] = turn
            return Message(self, message_id)

    def accept(self, messages: Sequence[Message]) -> Durable[None]:
        """Be done with messages that were taken off this queue, cheaper than one by one.

        Raises `StoreError`, with nothing done, if one of them is not taken any more.
        """
        store = self.store
        with store.lock:
            self.check_taken(messages)
            lsn = 0
            for message in messages:
                lsn = store.inner.dequeue(message.id, self.id, store.now_us())
                del self._taken[message.id]
            return store.recorded(lsn, None)

    def release(self, messages: Sequence[Message]) -> None:
        """Put back messages that were taken, each in its place. Raises as `accept` does."""
        with self.store.lock:
            self.check_taken(messages)
            for message in messages:
                self.on_release(message.id)

    def peek(self) -> Iterator[bytes]:
        """The contents of the messages that are to be taken just now, oldest first; none of them is taken."""
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
            self._ready.clear()
            self._back.clear()
            return store.recorded(lsn, None)

    # ---- with the lock held ---------------------------------------------------------------------------------------

    def on_arrival(self, message_ids: Iterable[int]) -> None:
        """They are durable."""
        if not self.is_deleted:
            self._ready.extend(message_ids)
            self._changed.notify_all()

    def on_release(self, message_id: int) -> None:
        """Whoever had the message has it no more; nothing if that is so already."""
        turn = self._taken.pop(message_id, None)
        if turn is not None:
            heappush(self._back, (turn, message_id))
            self._changed.notify_all()

    def on_accept(self, message_id: int) -> None:
        self._taken.pop(message_id, None)

    def on_deletion(self) -> None:
        self.is_deleted = True
        self._ready.clear()
        self._back.clear()
        self._taken.clear()
        self.on_end()

    def on_end(self) -> None:
        """Let go of those that wait."""
        self._changed.notify_all()

    def check(self) -> None:
        """Raises what ended the store, or `StoreError` if the queue was deleted."""
        self.store.check()
        if self.is_deleted:
            raise StoreError(f"queue {self.name}", "it was deleted")

    def check_taken(self, messages: Sequence[Message]) -> None:
        self.check()
        ids = {message.id for message in messages}
        if len(ids) != len(messages) or not ids <= self._taken.keys() or any(one.queue is not self for one in messages):
            raise StoreError(f"queue {self.name}", "a message is not taken off it, or not any more", "take it first")
