"""The lock on a store directory: one process at a time has a store open.

Locked with flock     | why
STORE                 | no operation on the files in it releases the lock
STORE/lock            | names the holder, and is what `is_locked` and older versions check
STORE/journal/log.mark or STORE/store.sqlite | hard-linked copies of the directory share it

The paths of these files, and of STORE/wiring.sqlite, are checked before anything is confirmed and once a second: the
next start would not find what is written to a file that was moved or replaced.
"""

from __future__ import annotations

import fcntl
import os
import time
from contextlib import suppress

from ...base.disk.file_lock import FileLock
from ...base.disk.real import disk_errors, not_a_file
from ...base.errors import StoreInUse
from ...base.private_files import open_private
from ...journal.format import log_mark
from ..contract.layout import JOURNAL_NAME, LOCK_NAME, SQL_STORE_NAME
from ..wiring.wiring import FILE_NAME as WIRING_NAME

_HOLDER_BYTES = 32
_LOOK_S = 0.5
_LOCKED_CONTENTS = (os.path.join(JOURNAL_NAME, log_mark.NAME), SQL_STORE_NAME)


def is_locked(path: str) -> bool:
    """Return whether a process holds a lock on the file or directory at *path*, or this can't be determined."""
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


def is_in_use(store: str) -> bool:
    """Return whether a program has the store in directory *store* open."""
    return is_locked(os.path.join(store, LOCK_NAME)) or is_locked(os.path.realpath(store))


class StoreLock:
    """The lock of this process on the store at *path*, until `close`. Children made by fork don't share it."""

    def __init__(self, path: str, *, writes: bool = True, is_locked: bool = False) -> None:
        """Raises `StoreInUse` and `DiskError`. Without *writes*, nothing is created, and others may do the same.

        *is_locked*: the caller has locked the directory itself.
        """
        self._path = path
        self._flags = os.O_RDWR if writes else os.O_RDONLY
        self._how = (fcntl.LOCK_EX if writes else fcntl.LOCK_SH) | fcntl.LOCK_NB
        self._locks: dict[str, FileLock] = {}
        self._wiring: tuple[int, int] | None = None
        place = os.path.join(path, LOCK_NAME)
        if os.path.exists(place) and not os.path.isfile(place):
            raise not_a_file(place)
        try:
            if not is_locked:
                self._lock_directory()
            if writes or os.path.exists(place):
                self._lock(place, os.O_CREAT if writes else 0)
            self.guard()
        except BaseException:
            self.close()
            raise
        if writes:
            with suppress(OSError):  # a full disk: the holder can't be recorded, but the lock holds
                os.pwrite(self._locks[place].fd, f"{os.getpid()}\n".encode().ljust(_HOLDER_BYTES), 0)

    def guard(self) -> None:
        """Lock and watch the contents of the store that exist now. Raises as the creation of the lock."""
        for name in _LOCKED_CONTENTS:
            place = os.path.join(self._path, name)
            if place not in self._locks and os.path.isfile(place):
                self._lock(place)
        self._wiring = self._wiring or self._find_wiring()

    def misplaced(self) -> str:
        """Return the path of what was removed, replaced or unmounted since it was locked; empty if nothing was."""
        if not self._locks:
            return self._path  # it was closed, or this is a child of the process that has the store
        for place, lock in self._locks.items():
            if not lock.is_in_place():
                return place
        return os.path.join(self._path, WIRING_NAME) if self._wiring != self._find_wiring() else ""

    def close(self) -> None:
        for lock in self._locks.values():
            lock.close()
        self._locks.clear()

    def _lock_directory(self) -> None:
        try:
            self._locks[self._path] = self._locked(self._path, os.O_RDONLY | os.O_DIRECTORY)
        except BlockingIOError as error:
            raise _in_use(self._path) from error
        except OSError:
            return  # a file system without locks on directories; of any other reason, the lock of the file reports

    def _lock(self, place: str, more_flags: int = 0) -> None:
        with disk_errors(place, "lock"):
            try:
                self._locks[place] = self._locked(place, self._flags | more_flags)
            except BlockingIOError as error:
                raise _in_use(self._path) from error

    def _locked(self, place: str, flags: int) -> FileLock:
        """Lock a file; a program that only looks whether it is locked has it for a moment."""
        end_s = time.monotonic() + _LOOK_S
        while True:
            try:
                return FileLock(place, flags=flags, how=self._how)
            except BlockingIOError:
                if time.monotonic() > end_s:
                    raise
                time.sleep(_LOOK_S / 20)

    def _find_wiring(self) -> tuple[int, int] | None:
        try:
            found = os.stat(os.path.join(self._path, WIRING_NAME))
        except OSError:
            return None
        return found.st_dev, found.st_ino


def _in_use(path: str) -> StoreInUse:
    try:
        with open(os.path.join(path, LOCK_NAME), "rb", opener=open_private) as file:
            holder = file.read(_HOLDER_BYTES).decode("ascii", "replace").strip()
    except OSError:
        holder = ""
    reason = f"another program has it open (process {holder or 'unknown'})"
    return StoreInUse(path, reason, "stop that one, or name another --store-dir")
