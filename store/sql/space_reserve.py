"""Disk space of an all-SQL store in a file: a reserve file, and the free space below which no message is admitted.

STORE/store.sqlite-reserve occupies space for a full disk. A commit that finds the disk full deletes the file and is
retried: the commit contains dequeues, and messages that were admitted before the disk was full. The reserve is created
again when there is room. Its size is that of the log (WAL) of SQLite, so that a checkpoint can empty the log.
"""

from __future__ import annotations

import os
import shutil
from contextlib import suppress

from ...base.private_files import open_private
from ..contract.layout import SQL_STORE_NAME

FILE_NAME = SQL_STORE_NAME + "-reserve"
RESERVE_BYTES = 4 << 20
LOW_WATER_BYTES = 2 << 20
"""Free space beside the reserve that is left to others when storing stops."""
_COPIES = 2
"""A content is written to the log of SQLite, and to the file."""


class SpaceReserve:
    """The reserve of the store in directory *store*. `free_bytes` may be read by any thread."""

    def __init__(self, store: str) -> None:
        self._store = store
        self._path = os.path.join(store, FILE_NAME)
        self.free_bytes = 0
        """The free space at the last look."""
        self.release()

    def look(self) -> None:
        """Look at the free space, and make the reserve if it does not exist and there is room."""
        with suppress(OSError):  # unknown: the next commit shows it
            self.free_bytes = shutil.disk_usage(self._store).free
        if not self._exists and self.free_bytes >= RESERVE_BYTES + LOW_WATER_BYTES:
            self._make()

    def denial_reason(self, size_bytes: int) -> str:
        """Return the reason why messages of *size_bytes* can't be admitted; empty if they can."""
        if not self._exists:
            return "no space left: the reserve is in use"
        needed_bytes = LOW_WATER_BYTES + _COPIES * size_bytes
        return f"no space left for {needed_bytes} bytes" if self.free_bytes < needed_bytes else ""

    def release(self) -> bool:
        """Delete the reserve; return whether there was one."""
        self._exists = False
        try:
            os.unlink(self._path)
        except OSError:
            return False
        return True

    def _make(self) -> None:
        try:
            fd = open_private(self._path, os.O_RDWR | os.O_CREAT)
            try:
                os.posix_fallocate(fd, 0, RESERVE_BYTES)
            finally:
                os.close(fd)
        except OSError:
            self.release()
            return
        self._exists = True
        self.free_bytes -= RESERVE_BYTES
