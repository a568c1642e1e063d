"""A container read through a buffer, so that a scan of it costs a system call per window."""

from __future__ import annotations

from ...base.disk.seam import ReadableFile
from ..format import block
from ..format.block import BLOCK_HEAD_BYTES, Block

WINDOW_BYTES = 1 << 20
"""The size of the read buffer, which is also the maximum size of a block."""


class ReadWindow:
    """The part of a container that was read last."""

    def __init__(self, file: ReadableFile, container_bytes: int) -> None:
        self.file = file
        self._container_bytes = container_bytes
        self._start = 0
        self._data = b""
        self._view = memoryview(b"")

    def at(self, offset: int, wanted_bytes: int) -> memoryview:
        """At least *wanted_bytes* from *offset* on, fewer only where the container ends."""
        at = offset - self._start
        if at < 0 or at + wanted_bytes > len(self._data):
            at = offset - self.around(offset, wanted_bytes)[1]
        return self._view[at:]

    def block_at(self, lsn: int, log_id: int) -> Block:
        """Return the block at *lsn*. Raises `BadBlock`."""
        offset = lsn % self._container_bytes
        view = self.at(offset, BLOCK_HEAD_BYTES)
        head = block.peek(view, lsn, log_id)
        return block.complete(head, view if head.size_bytes <= len(view) else self.at(offset, head.size_bytes))

    def around(self, offset: int, wanted_bytes: int) -> tuple[bytes, int]:
        """Bytes that hold *wanted_bytes* from *offset* on, fewer only at the container's end; and where they begin."""
        wanted = max(0, min(wanted_bytes, self._container_bytes - offset))
        if offset < self._start or offset + wanted > self._start + len(self._data):
            size = min(max(wanted, WINDOW_BYTES), self._container_bytes - offset)
            self._data, self._start = self.file.read_at(offset, size), offset
            self._view = memoryview(self._data)
        return self._data, self._start
