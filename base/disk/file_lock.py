"""Files and directories that one process has to itself, for as long as that process lives."""

from __future__ import annotations

import fcntl
import os
from weakref import WeakSet

from ..private_files import open_private
from .real import disk_errors

_ALONE = fcntl.LOCK_EX | fcntl.LOCK_NB


class FileLock:
    """A file or directory that this process has locked with flock until `close`.

    A child made by fork shares the descriptor, and would keep the lock of a dead parent: it closes its own.
    """

    def __init__(self, path: str, *, flags: int = os.O_RDWR | os.O_CREAT, how: int = _ALONE) -> None:
        """Raises `BlockingIOError` if another process has it, and `OSError`. *how*: see flock."""
        self.path = path
        self.fd = os.open(path, flags | os.O_CLOEXEC) if flags & os.O_DIRECTORY else open_private(path, flags)
        _locks.add(self)
        try:
            fcntl.flock(self.fd, how)
        except BaseException:
            self.close()
            raise
        found = os.fstat(self.fd)
        self._identity = found.st_dev, found.st_ino

    def is_in_place(self) -> bool:
        """Return whether this process still has the file, and its path still leads to it."""
        try:
            found = os.stat(self.path)
        except OSError:
            return False
        return self.fd >= 0 and (found.st_dev, found.st_ino) == self._identity

    def close(self) -> None:
        fd, self.fd = self.fd, -1
        if fd >= 0:
            os.close(fd)


def lock_file(path: str) -> FileLock | None:
    """Lock the file at *path*, which is made if it does not exist, and stays; None if another process has it.

    Raises `DiskError`. Any thread.
    """
    with disk_errors(path, "lock"):
        try:
            return FileLock(path)
        except BlockingIOError:
            return None


_locks: WeakSet[FileLock] = WeakSet()


def _release_in_child() -> None:
    for lock in list(_locks):
        lock.close()


os.register_at_fork(after_in_child=_release_in_child)
