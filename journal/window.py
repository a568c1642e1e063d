"""A container read through a buffer."""

from __future__ import annotations

from ..disk.seam import File

_WINDOW_BYTES = 1 << 20


class Window:
    """Reads one container through a buffer, so that a scan costs a system call per 4 MiB."""

    def __init__(self, file: File, size_bytes: int) -> None:
        self.file = file
        self._size = size_bytes
        self._start = 0
        self._data = memoryview(b"")

    def at(self, offset: int, wanted_bytes: int) -> memoryview:
        """At least *wanted_bytes* from *offset* on, fewer only where the container ends."""
        wanted = max(0, min(wanted_bytes, self._size - offset))
        begin = offset - self._start
        if begin < 0 or begin + wanted > len(self._data):
            size = min(max(wanted, _WINDOW_BYTES), self._size - offset)
            self._data, self._start = memoryview(self.file.read_at(offset, size)), offset
            begin = 0
        return self._data[begin:]
