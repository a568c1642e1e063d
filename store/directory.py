"""The store directory: its layout, and the lock that lets one process have it.

STORE/lock              held with flock by the broker that runs on it
STORE/wiring.sqlite     queues and the store's identity, in SQL
STORE/journal/          the log's containers and its mark
STORE/checkpoint/       the message map as of an LSN, in LMDB; a cache, made again when it is gone
"""

from __future__ import annotations

import fcntl
import os

from ..base.errors import DiskError, ForeignStore, StoreInUse
from ..disk.real import RealDirectory, disk_error
from .wiring import FILE_NAME as WIRING_NAME

JOURNAL_NAME = "journal"
CHECKPOINT_NAME = "checkpoint"
LOCK_NAME = "lock"
_HOLDER_BYTES = 32


class StoreDirectory:
    """A store directory, locked for this process until `close`."""

    def __init__(self, path: str) -> None:
        """Create the directory if need be and lock it. Raises `StoreInUse`, `ForeignStore`, `DiskError`."""
        self.path = path
        root = RealDirectory(path, create=True)
        known = {JOURNAL_NAME, CHECKPOINT_NAME, LOCK_NAME, WIRING_NAME, WIRING_NAME + "-journal", "lost+found"}
        strangers = set(root.names()) - known
        if strangers and WIRING_NAME not in root.names():
            raise ForeignStore(
                path, f"not a CairnMQ store, and not empty (it holds {min(strangers)!r})", "name another directory"
            )
        self._lock_fd = _lock(path)
        try:
            self.journal = RealDirectory(os.path.join(path, JOURNAL_NAME), create=True)
        except DiskError:
            self.close()
            raise

    @property
    def checkpoint_path(self) -> str:
        return os.path.join(self.path, CHECKPOINT_NAME)

    @property
    def wiring_path(self) -> str:
        return os.path.join(self.path, WIRING_NAME)

    def has_wiring(self) -> bool:
        """Whether there is a wiring file with anything in it."""
        return os.path.exists(self.wiring_path) and os.path.getsize(self.wiring_path) > 0

    def close(self) -> None:
        if self._lock_fd >= 0:
            os.close(self._lock_fd)
            self._lock_fd = -1


def _lock(path: str) -> int:
    place = os.path.join(path, LOCK_NAME)
    try:
        fd = os.open(place, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise disk_error(place, "open", error) from error
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        holder = os.pread(fd, _HOLDER_BYTES, 0).decode("ascii", "replace").strip() or "unknown"
        os.close(fd)
        raise StoreInUse(
            path, f"another broker has it (process {holder})", "stop that one, or name another --store-dir"
        ) from error
    try:
        os.pwrite(fd, f"{os.getpid()}\n".encode().ljust(_HOLDER_BYTES), 0)  # in place of the last one's
    except OSError:  # a full disk: who has it can't be told, but the lock itself holds
        pass
    return fd
