"""Changes of the in-memory tables, each recorded in the write log and numbered by an LSN.

An LSN is a number that rises with every change. It is also the ID of the message that it begins, and the position of
the message that it puts on a queue. Calls that a store shares with stores with a history have its *time_us*.

Threads: the one that makes the store's calls.
"""

from __future__ import annotations

from collections.abc import Iterable

from ...base.errors import MessageLocked, StoreError
from ..contract.transaction import TransactionLocks
from .memory_tables import MappedMessage, MemoryTables
from .write_log import WriteLog

MAX_PIECE_BYTES = 1 << 20
"""Longer content is stored in pieces of at most this size, so that rows and reads stay small."""


class MessageChanges:
    """Changes the tables of one store."""

    def __init__(self, tables: MemoryTables, log: WriteLog, next_lsn: int, locks: TransactionLocks) -> None:
        self.tables = tables
        self.log = log
        self.next_lsn = next_lsn
        """The LSN of the next change."""
        self._locks = locks

    def take_lsn(self) -> int:
        """Uses the next LSN, and returns it."""
        lsn = self.next_lsn
        self.next_lsn = lsn + 1
        return lsn

    def stage(self, piece: bytes, time_us: int, *, is_last: bool = False) -> int:
        """Begin a message on no queue, and allocate its ID. *is_last*: *piece* is all of its content."""
        first, rest = piece[:MAX_PIECE_BYTES], piece[MAX_PIECE_BYTES:]
        message_id = self.take_lsn()
        self.tables.messages[message_id] = MappedMessage([len(first)], is_complete=is_last and not rest)
        self.log.started(message_id, first, is_last=is_last and not rest)
        if rest:
            self._continue(message_id, rest, is_last=is_last)
        return message_id

    def append_content(self, message_id: int, piece: bytes, time_us: int, *, last: bool) -> None:
        """Append a piece to a staged message and to the batch. Raises `StoreError` if the message is complete."""
        message = self.tables.messages.get(message_id)
        if message is None or message.is_complete:
            raise StoreError(f"message {message_id}", "its content is complete, or it does not exist")
        self._continue(message_id, piece, is_last=last)

    def _continue(self, message_id: int, content: bytes, *, is_last: bool) -> None:
        self.take_lsn()
        message = self.tables.messages[message_id]
        for at in range(0, max(len(content), 1), MAX_PIECE_BYTES):
            part = content[at : at + MAX_PIECE_BYTES]
            ends = is_last and at + len(part) == len(content)
            self.log.continued(message_id, len(message.sizes), part, is_last=ends)
            message.sizes.append(len(part))
        message.is_complete = is_last

    def check_enqueue(self, message_id: int, queue_id: int) -> None:
        """Raise `StoreError` if the message is incomplete, or on that queue already."""
        message = self.tables.messages.get(message_id)
        if message is None or not message.is_complete:
            raise StoreError(f"message {message_id}", "it does not exist, or its content is not complete")
        if queue_id in message.places:
            raise StoreError(f"message {message_id}", f"it is on queue {queue_id} already")

    def enqueue(self, message_id: int, queue_id: int) -> int:
        """Puts a message on a queue that `check_enqueue` allows; the LSN."""
        lsn = self.take_lsn()
        self.tables.place(message_id, queue_id, lsn)
        self.log.placed(message_id, queue_id, lsn)
        return lsn

    def check_dequeue(self, message_id: int, queue_id: int) -> None:
        """Raise `StoreError` if the maps do not have the message on that queue."""
        if not self.tables.is_on(message_id, queue_id):
            raise StoreError(f"message {message_id}", f"it is not on queue {queue_id}")

    def dequeue(self, message_id: int, queue_id: int) -> int:
        """Takes a message off a queue that it is on; the LSN."""
        lsn = self.take_lsn()
        self.leave(message_id, self.tables.take(message_id, queue_id))
        return lsn

    def leave(self, message_id: int, position: int) -> None:
        """Records that a message left *position*; deletes a message without a queue that no transaction enqueues."""
        if self.tables.messages[message_id].places or self._locks.is_enqueued(message_id):
            self.log.taken(message_id, position)
        else:
            self.delete(message_id)

    def destroy(self, message_id: int, time_us: int) -> int:
        """Deletes a message that is on no queue; the LSN. Raises `StoreError`, `MessageLocked`."""
        message = self.tables.messages.get(message_id)
        if message is None or message.places:
            raise StoreError(f"message {message_id}", "it does not exist, or is still on a queue")
        if self._locks.is_enqueued(message_id):
            raise MessageLocked(f"message {message_id}", "a transaction puts it on a queue")
        return self.delete(message_id)

    def delete(self, message_id: int) -> int:
        """Deletes a message; the LSN."""
        del self.tables.messages[message_id]
        self.log.deleted(message_id)
        return self.take_lsn()

    def discard(self, message_ids: Iterable[int], time_us: int) -> None:
        """Deletes those of the messages that are on no queue."""
        for message_id in message_ids:
            message = self.tables.messages.get(message_id)
            if message is not None and not message.places:
                self.delete(message_id)
