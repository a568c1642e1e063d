"""The lock on a store directory: one process at a time has a store open."""

from __future__ import annotations

import fcntl
import os
from contextlib import suppress

from ...base.disk.real import disk_errors, not_a_file
from ...base.errors import StoreInUse
from ...base.private_files import open_private
from ..contract.layout import LOCK_NAME

_HOLDER_BYTES = 32


def is_locked(path: str) -> bool:
    """Return whether a process holds a lock on the file at *path*, or this can't be determined."""
    try:
        fd = open_private(path, os.O_RDONLY)
    except FileNotFoundError:
        return False
    except OSError:
        return True  # unknown: wait
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(fd)
    return False


def lock_store(path: str) -> int:
    """Lock the store at *path* for this process, until the file descriptor that is returned is closed."""
    place = os.path.join(path, LOCK_NAME)
    if os.path.exists(place) and not os.path.isfile(place):
        raise not_a_file(place)
    with disk_errors(place, "open"):
        fd = open_private(place, os.O_RDWR | os.O_CREAT)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        raise _in_use(path, fd) from error
    with suppress(OSError):  # a full disk: the holder can't be recorded, but the lock holds
        os.pwrite(fd, f"{os.getpid()}\n".encode().ljust(_HOLDER_BYTES), 0)  # in place of the last one's
    return fd


def lock_unchanged(path: str) -> int:
    """Keep brokers out of the store at *path*, writing nothing; -1 if it has no lock file, so never had a broker."""
    place = os.path.join(path, LOCK_NAME)
    if not os.path.isfile(place):
        return -1
    with disk_errors(place, "open"):
        fd = open_private(place, os.O_RDONLY)
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError as error:
        raise _in_use(path, fd) from error
    return fd


def _in_use(path: str, fd: int) -> StoreInUse:
    holder = os.pread(fd, _HOLDER_BYTES, 0).decode("ascii", "replace").strip() or "unknown"
    os.close(fd)
    return StoreInUse(path, f"another broker has it (process {holder})", "stop that one, or name another --store-dir")
