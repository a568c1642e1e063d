"""A reader that skips payloads: of a block it reads its head and the heads of its records.

It therefore reads only some hundred MB of a journal of 10 GB. Unread bytes are not checked: corruption is detected only
if the heads do not fit the size of the block. Blocks behind the durability mark are read completely.
Payloads of records about the log itself are read, and checked by their own checksums.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt
from crc32c import crc32c

from ...base.disk.seam import SECTOR_BYTES, ReadableDirectory, ReadableFile
from ...base.errors import DiskError
from ...journal.format.block import BLOCK_HEAD_BYTES, MAX_RECORDS, BadBlock, Block, peek
from ...journal.format.record import HEAD_BYTES, RecordType
from ...journal.read.container_heads import ContainerHeads
from ...journal.read.scanner import LogReader

_SPEAKING = bytes([
    RecordType.DTX_START, RecordType.TX_END, RecordType.TX_COMMIT, RecordType.QUEUE_DELETE, RecordType.LOG_HOLES
])  # fmt: skip
"""Types whose payload recovery looks at."""
_WORDS, _PLACE_WORD, _SIZE_WORD, _CRC_WORD = HEAD_BYTES // 4, 1, 2, 3
_PAGE_BYTES = 4096
_SMALL_BYTES = 2048
"""Blocks below are read together, two pages at a time."""
_LARGE_BYTES = 16 << 10


class HeadsReader(LogReader):
    """Gives blocks whose body ends with the last record head, where that is all that matters."""

    def __init__(
        self, directory: ReadableDirectory, *, known: ContainerHeads | None = None,
        complete_below_bytes: int = _LARGE_BYTES, also: Iterable[RecordType] = (),
    ) -> None:  # fmt: skip
        """*complete_below_bytes*: of smaller blocks nothing is left out if one of their payloads is needed.

        *also*: other types whose payloads are.
        """
        self._speaking = _SPEAKING + bytes(also)
        self._complete_below_bytes = complete_below_bytes
        self._seen, self._seen_at = memoryview(b""), 0  # the last read bytes, and the LSN of their start
        self._wanted = _PAGE_BYTES
        super().__init__(directory, known=known)

    def _block_at(self, lsn: int) -> Block | BadBlock:
        if lsn >= self.durable_lsn:
            return super()._block_at(lsn)
        try:
            found = self._look(lsn)
        except BadBlock as error:
            return error
        except DiskError as error:
            self.heads.read_error = error
            return BadBlock(lsn, str(error))
        return super()._block_at(lsn) if found is None else found

    def _look(self, lsn: int) -> Block | None:
        """Return the block at *lsn* without its payloads; None if it must be read completely."""
        view = self._at(lsn, BLOCK_HEAD_BYTES)
        head = peek(view, lsn, self.log_id)
        size = BLOCK_HEAD_BYTES + HEAD_BYTES * head.records
        if head.records > MAX_RECORDS or lsn % self.container_bytes + head.size_bytes > self.container_bytes:
            return None
        if len(view) < size:
            view = self._at(lsn, size)
        body = view[BLOCK_HEAD_BYTES:size]
        words = np.frombuffer(body, "<u4", _WORDS * head.records).reshape(head.records, _WORDS)
        if int(words[:, _SIZE_WORD].sum()) + size != head.size_bytes:
            return None
        kinds = bytes(body[::HEAD_BYTES])
        if len(kinds.translate(None, self._speaking)) < len(kinds):
            speaking = np.isin(np.frombuffer(kinds, np.uint8), np.frombuffer(self._speaking, np.uint8))
            if head.size_bytes < self._complete_below_bytes:
                return None
            complete = self._with_payloads(lsn, body, words[speaking], head.size_bytes - BLOCK_HEAD_BYTES)
            if complete is None:
                return None
            body = complete
        self._wanted = 2 * _PAGE_BYTES if head.size_bytes < _SMALL_BYTES else _PAGE_BYTES
        return Block(head, body)

    def _with_payloads(
        self, lsn: int, heads: memoryview, chosen: npt.NDArray[np.uint32], size_bytes: int
    ) -> memoryview | None:
        """The block's body up to the last of these records' payloads, zeros for others; None if one is damaged."""
        ends = len(heads) + chosen[:, _PLACE_WORD].astype(np.int64) + chosen[:, _SIZE_WORD]
        body = memoryview(bytearray(min(int(ends.max()), size_bytes)))
        body[: len(heads)] = heads
        slot, offset = divmod(lsn + BLOCK_HEAD_BYTES, self.container_bytes)
        for place, size, crc in chosen[:, [_PLACE_WORD, _SIZE_WORD, _CRC_WORD]].tolist():
            at = len(heads) + place
            payload = self._file_of(slot).read_at(offset + at, size) if size else b""
            if len(payload) != size or at + size > size_bytes or crc32c(payload) != crc:
                return None
            body[at : at + size] = payload
        return body

    def _at(self, lsn: int, wanted_bytes: int) -> memoryview:
        """At least *wanted_bytes* from *lsn* on, fewer only where the container ends."""
        slot, offset = divmod(lsn, self.container_bytes)
        file = self._file_of(slot)  # the bytes seen are those of the open file
        at = lsn - self._seen_at
        wanted_bytes = min(wanted_bytes, self.container_bytes - offset)
        if not 0 <= at < len(self._seen):
            self._seen, self._seen_at = self._read(file, offset, wanted_bytes), lsn
            at = 0
        elif at + wanted_bytes > len(self._seen):
            known = bytes(self._seen[at:])
            more = self._read(file, offset + len(known), wanted_bytes - len(known))
            self._seen, self._seen_at = memoryview(known + bytes(more)), lsn
            at = 0
        return self._seen[at:]

    def _read(self, file: ReadableFile, offset: int, wanted_bytes: int) -> memoryview:
        size = min(max(wanted_bytes, self._wanted), self.container_bytes - offset)
        return memoryview(file.read_at(offset, size))

    def _file_of(self, slot: int) -> ReadableFile:
        window = self._window(slot)
        if window is None:
            raise BadBlock(slot * self.container_bytes + SECTOR_BYTES, "no container holds it")
        return window.file

    def _close(self) -> None:
        super()._close()
        self._seen = memoryview(b"")
