"""The MessageStore interface: what the broker and the cluster ask of a store.

Every call that changes something returns the LSN at which it is recorded, at once; it is *durable*, and only then may
anyone be told, when `durable_lsn` has passed that LSN. So a whole batch needs one look. `kick` asks for what was
recorded so far to be made durable; the store's owner hears of it in its `on_durable` callback, once per flush.

Threads: one thread at a time makes the calls (the broker's core), but `load_piece`, `load_many` and `holds` are for any
thread. Message ids are never 0, rise in the order of arrival, and are never used again.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from ..base.errors import CairnError
from .wiring import QueueRow


class MessageStore(Protocol):
    """Durable messages and the queues they are on (store design, checklist E64)."""

    durable_lsn: int

    def queues(self) -> Iterable[QueueRow]:
        """The durable queues known when the store was opened."""
        ...

    def messages(self) -> dict[int, array[int]]:
        """Queue id to the ids of the messages on it, in order, 8 bytes each. Looks at every message: for the start."""
        ...

    def create_queue(self, name: str, done: Callable[[QueueRow | Exception], None]) -> None:
        """Create a durable queue. *done* gets it or the error, on another thread."""
        ...

    def put(self, queue_id: int, content: bytes, time_us: int) -> tuple[int, int]:
        """Store a whole message on a queue: its id, and the LSN to wait for."""
        ...

    def put_all(self, queue_id: int, contents: Sequence[bytes], time_us: int) -> tuple[Sequence[int], int]:
        """The same for a batch, cheaper: the ids in order, and the LSN to wait for, for all of them."""
        ...

    def stage(self, piece: bytes, time_us: int) -> int:
        """Begin a message that arrives in pieces; its id. It is on no queue yet, and a crash discards it."""
        ...

    def append_content(self, message_id: int, piece: bytes, time_us: int, *, last: bool) -> None:
        """The next piece of a staged message."""
        ...

    def enqueue(self, message_id: int, queue_id: int, time_us: int) -> int:
        """Put a complete staged message on a queue; the LSN to wait for."""
        ...

    def dequeue(self, message_id: int, queue_id: int, time_us: int) -> int:
        """Take a message off a queue, and delete it with the last one; the LSN to wait for."""
        ...

    def destroy(self, message_id: int, time_us: int) -> int:
        """Delete a message that is on no queue."""
        ...

    def piece_count(self, message_id: int) -> int:
        """In how many pieces `load_piece` gives the content."""
        ...

    def load_piece(self, message_id: int, number: int) -> bytes:
        """A piece of a durable message's content, read back from the disk. Any thread."""
        ...

    def load_content(self, message_id: int, offset: int, length: int) -> bytes:
        """*length* bytes of a durable message's content from *offset* on, fewer only where it ends. Any thread.

        No more is read than the pieces they lie in, one at a time (checklist E31).
        """
        ...

    def load_many(self, message_ids: Sequence[int], most_bytes: int) -> list[bytes | CairnError | None]:
        """The contents of durable messages, read back together; stops when there are *most_bytes*. Any thread.

        An error where a content can't be read, None where it is in more than one piece. Fast in order of arrival.
        """
        ...

    def holds(self, message_id: int) -> bool:
        """Whether the message exists. Any thread."""
        ...

    def kick(self) -> None:
        """Have everything recorded so far made durable soon.

        While a flush is under way it only takes note: kick again after each durable notice, there may be more by then.
        """
        ...

    def full(self) -> str:
        """Why nothing more can be stored just now; empty if it can. Taking messages off works all the same."""
        ...

    def close(self) -> None:
        """Make everything durable and let go of the files."""
        ...
