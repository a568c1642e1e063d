"""What is true of messages: which exist, on which queues, and what of the log they need.

State changes in one place: the methods below are called at run time as a record is appended, and by `apply` in recovery
as it is read back. So the two cannot drift.

A message id is the LSN of the message's first record. One queue, the common case, is stored as a plain int.
"""

from __future__ import annotations

from bisect import bisect_left

from ..journal.record import Flag, RecordHead, RecordType

START, CHUNK, DELETE = int(RecordType.START), int(RecordType.CHUNK), int(RecordType.DELETE)
ENQUEUE, DEQUEUE = int(RecordType.ENQUEUE), int(RecordType.DEQUEUE)
FLAG_ENQUEUE, FLAG_DELETE, FLAG_MORE = int(Flag.ENQUEUE), int(Flag.DELETE), int(Flag.MORE)

Queues = int | tuple[int, ...]
"""The queue a message is on; several, or none, as a tuple."""


class State:
    """The message map (checklist E50). One thread at a time."""

    def __init__(self, container_bytes: int) -> None:
        self.messages: dict[int, Queues] = {}
        self.chunks: dict[int, list[int]] = {}
        """LSNs of the Chunk records, for messages that have any."""
        self.growing: set[int] = set()
        """Messages whose content is not complete yet."""
        self.positions: dict[tuple[int, int], int] = {}
        """(message, queue) to the LSN of its Enqueue record, where that is not the message's own."""
        self.live: dict[int, int] = {}
        """Slot of the log to the number of messages that began there: what pins the base."""
        self._container_bytes = container_bytes
        self._oldest: int | None = None

    def started(self, lsn: int, flags: int, queue_id: int) -> None:
        """A Start record: a message exists, and with the enqueue flag is on its first queue."""
        self.messages[lsn] = queue_id if flags & FLAG_ENQUEUE else ()
        if flags & FLAG_MORE:
            self.growing.add(lsn)
        slot = lsn // self._container_bytes
        self.live[slot] = self.live.get(slot, 0) + 1

    def started_all(self, lsns: list[int], queue_id: int) -> None:
        """Start records with the enqueue flag, in order: `started` for each of them."""
        self.messages.update(dict.fromkeys(lsns, queue_id))
        live, size = self.live, self._container_bytes
        done = 0
        while done < len(lsns):
            slot = lsns[done] // size
            end = bisect_left(lsns, (slot + 1) * size, done)
            live[slot] = live.get(slot, 0) + end - done
            done = end

    def continued(self, lsn: int, flags: int, message_id: int) -> None:
        """A Chunk record: more of the content."""
        if message_id not in self.messages:
            return
        self.chunks.setdefault(message_id, []).append(lsn)
        if not flags & FLAG_MORE:
            self.growing.discard(message_id)

    def enqueued(self, lsn: int, message_id: int, queue_id: int) -> None:
        """An Enqueue record."""
        queues = self.messages.get(message_id)
        if queues is None:
            return
        if queues == ():
            self.messages[message_id] = queue_id
        else:
            self.messages[message_id] = (*(queues if isinstance(queues, tuple) else (queues,)), queue_id)
        self.positions[message_id, queue_id] = lsn

    def dequeued(self, flags: int, message_id: int, queue_id: int) -> int | None:
        """A Dequeue record; the slot whose pin falls if that deletes the message."""
        if flags & FLAG_DELETE:
            return self.deleted(message_id)
        queues = self.messages.get(message_id)
        if isinstance(queues, tuple):
            left = tuple(queue for queue in queues if queue != queue_id)
            self.messages[message_id] = left[0] if len(left) == 1 else left
            self.positions.pop((message_id, queue_id), None)
        return None

    def deleted(self, message_id: int) -> int | None:
        """A Delete record; the slot whose pin falls. `unpin` drops it once the record is durable."""
        queues = self.messages.pop(message_id, None)
        if queues is None:
            return None
        if self.positions:
            for queue_id in (queues,) if isinstance(queues, int) else queues:
                self.positions.pop((message_id, queue_id), None)
        if self.chunks:
            self.chunks.pop(message_id, None)
        if self.growing:
            self.growing.discard(message_id)
        return message_id // self._container_bytes

    def unpin(self, slot: int, count: int = 1) -> None:
        """*count* messages that began in *slot* are durably gone."""
        left = self.live[slot] - count
        if left:
            self.live[slot] = left
        else:
            del self.live[slot]

    def oldest_slot(self) -> int | None:
        """The first slot a live message began in; None without messages."""
        if self._oldest not in self.live:
            self._oldest = min(self.live, default=None)
        return self._oldest

    def apply(self, lsn: int, head: RecordHead) -> None:
        """Take in a record read back from the log (checklist E26 to E28: what has no Start is ignored)."""
        kind = head.type
        freed = None
        if kind == START:
            self.started(lsn, head.flags, head.queue_id)
        elif kind == DEQUEUE:
            freed = self.dequeued(head.flags, head.message_id, head.queue_id)
        elif kind == CHUNK:
            self.continued(lsn, head.flags, head.message_id)
        elif kind == ENQUEUE:
            self.enqueued(lsn, head.message_id, head.queue_id)
        elif kind == DELETE:
            freed = self.deleted(head.message_id)
        if freed is not None:
            self.unpin(freed)
