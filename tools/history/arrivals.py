"""Arrivals on queues, from the log: each message when it got to a queue, in order, once for each queue.

An arrival is the Start record that put a message on its queue, or an Enqueue record; of a transaction when its commit
is read, and never without it. Copies that relocation made are none. Where the log has a message before what is read,
its content is looked for there.
"""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from ...base.disk.real import RealFile
from ...base.errors import JournalError
from ...journal.files.record_lookup import FoundRecord, read_record
from ...journal.format.block import Block
from ...journal.format.record import HEAD_BYTES, Flag, RecordHead, RecordType, heads_of
from ...journal.read.scanner import Damage
from .history import History

_MOST_OPEN = 8
_START, _CHUNK, _ENQUEUE = RecordType.START, RecordType.CHUNK, RecordType.ENQUEUE


class Arrival(NamedTuple):
    """A message got to a queue."""

    lsn: int
    """The LSN of the record that enqueues the message."""
    time_us: int
    queue_id: int
    message_id: int
    pieces: tuple[int, ...]
    """The LSNs of the records with its content; none if `payload` is all of it."""
    payload: bytes


class RecordReader:
    """Reads records of a history by LSN; a few files stay open. Close it."""

    def __init__(self, history: History) -> None:
        self._history = history
        self._files: OrderedDict[int, RealFile] = OrderedDict()

    def payload(self, lsn: int) -> bytes:
        """Raises `JournalError` if it can't be read."""
        return self.record(lsn).payload

    def record(self, lsn: int) -> FoundRecord:
        """The record at *lsn*: its head and its payload. Raises `JournalError` if it can't be read."""
        history = self._history
        return read_record(self._file_at(lsn), lsn, history.container_bytes, history.log.log_id)

    def raw(self, first_lsn: int, end_lsn: int) -> bytes:
        """Return the bytes of a range within one container of the history. Raises `JournalError` on failure."""
        return self._file_at(first_lsn).read_at(first_lsn % self._history.container_bytes, end_lsn - first_lsn)

    def _file_at(self, lsn: int) -> RealFile:
        history = self._history
        slot = lsn // history.container_bytes
        file = self._files.get(slot)
        if file is None:
            kept = history.containers.get(slot)
            if kept is None:
                is_ahead, end = lsn >= history.end_lsn, f"the log ends at LSN {history.end_lsn}"
                reason, remedy = (end, "") if is_ahead else ("its container was reclaimed", "name the archive, too")
                raise JournalError(f"LSN {lsn}", reason, remedy)
            file = self._files[slot] = RealFile(kept.path, os.O_RDONLY)
            if len(self._files) > _MOST_OPEN:
                self._files.popitem(last=False)[1].close()
        return file

    def content(self, arrival: Arrival) -> bytes:
        """All of a message. Raises `JournalError`."""
        if not arrival.pieces:
            return arrival.payload
        return b"".join(map(self.payload, arrival.pieces))

    def close(self) -> None:
        for file in self._files.values():
            file.close()
        self._files.clear()


class Arrivals:
    """One pass over the arrivals of a history."""

    def __init__(
        self, history: History, from_lsn: int, end_lsn: int, wanted: Callable[[int], bool] = lambda queue_id: True
    ) -> None:
        """Read the records from *from_lsn* on and before *end_lsn*, of queues that are *wanted*."""
        self.damage: list[Damage] = []
        """The damage that was met so far."""
        self.unreadable: list[int] = []
        """Messages that arrived, and whose content is not kept any more, so far."""
        self._history = history
        self._from_lsn = from_lsn
        self._end_lsn = end_lsn
        self._wanted = wanted
        self._pieces: dict[int, dict[int, int]] = {}  # of messages that may be enqueued later: number to LSN
        self._gathered: dict[int, list[Arrival]] = {}  # of transactions whose commit was not read yet

    def __iter__(self) -> Iterator[Arrival]:
        size = self._history.container_bytes
        for found in self._history.scan(self._from_lsn // size * size):
            if isinstance(found, Damage):
                if found.torn or found.first_lsn >= self._end_lsn:
                    return
                self.damage.append(found)
                continue
            if found.lsn >= self._end_lsn:
                return
            yield from self._of_block(found)

    def _of_block(self, block: Block) -> Iterator[Arrival]:
        table = block.body[: HEAD_BYTES * block.head.records]
        for number, head in enumerate(heads_of(table)):
            lsn = block.record_lsn(number)
            kind, flags = head.type, head.flags
            if kind in (_START, _CHUNK):
                if kind == _CHUNK or flags != Flag.ENQUEUE:
                    self._pieces.setdefault(head.message_id, {})[head.extra if kind == _CHUNK else 0] = lsn
                if kind == _CHUNK or not flags & Flag.ENQUEUE:
                    continue
            elif kind == RecordType.TX_COMMIT:
                yield from self._gathered.pop(head.txn_id, ())
                continue
            elif kind in (RecordType.DEQUEUE, RecordType.DELETE):
                if kind == RecordType.DELETE or (flags & Flag.DELETE and not head.txn_id):
                    self._pieces.pop(head.message_id, None)
                continue
            elif kind != _ENQUEUE:
                continue
            if flags & (Flag.MOVED | Flag.PREPARED) or not self._from_lsn <= lsn < self._end_lsn:
                continue
            if not self._wanted(head.queue_id):
                continue
            arrival = self._arrival(block, lsn, head)
            if arrival is None:
                self.unreadable.append(head.message_id)
            elif head.txn_id:
                self._gathered.setdefault(head.txn_id, []).append(arrival)
            else:
                yield arrival

    def _arrival(self, block: Block, lsn: int, head: RecordHead) -> Arrival | None:
        fields = lsn, head.time_us, head.queue_id, head.message_id
        if head.type == _START:
            return Arrival(*fields, (), bytes(block.payload(head)))
        pieces = self._pieces.get(head.message_id, {})
        if 0 not in pieces:
            pieces = self._pieces[head.message_id] = self._found_before(head.message_id, lsn) | pieces
        numbers = sorted(pieces)
        if numbers != list(range(len(numbers))) or not numbers:
            return None
        return Arrival(*fields, tuple(pieces[number] for number in numbers), b"")

    def _found_before(self, message_id: int, lsn: int) -> dict[int, int]:
        """The records with the content of a message that began before what is read: number to LSN."""
        pieces: dict[int, int] = {}
        for found in self._history.scan(message_id):
            if isinstance(found, Damage):
                continue
            if found.lsn > lsn:
                break
            table = found.table()
            kinds = table["type"]
            for number in np.flatnonzero(
                (table["message_id"] == message_id) & ((kinds == _START) | (kinds == _CHUNK))
            ).tolist():
                head = found.heads()[number]
                pieces[head.extra if head.type == _CHUNK else 0] = found.record_lsn(number)
        return pieces
