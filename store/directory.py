"""The store directory: the lock that lets one process have it, and holds; its layout is in `names`."""

from __future__ import annotations

import fcntl
import logging
import os
from types import TracebackType

from ..base.errors import CairnError, DiskError, ForeignStore, HoldBroken, StoreInUse
from ..disk.real import RealDirectory, disk_error, not_a_file
from .bookmarks import DIRECTORY as BOOKMARKS
from .names import ASIDE_NAME, CHECKPOINT_NAME, HOLD_NAME, JOURNAL_NAME, LOCK_NAME, MANIFEST_NAME
from .sql import RESTORE_OR_SALVAGE
from .wiring import FILE_NAME as WIRING_NAME
from .wiring_place import FILE_NAMES as WIRING_NAMES
from .wiring_place import has_sqlite, told_place

log = logging.getLogger(__name__)

_HOLDER_BYTES = 32


class StoreDirectory:
    """A store directory, locked for this process until `close`."""

    def __init__(self, path: str) -> None:
        """Create the directory if need be and lock it. Raises `StoreInUse`, `ForeignStore`, `DiskError`."""
        self.path = path
        root = RealDirectory(path, create=True)
        known = {JOURNAL_NAME, CHECKPOINT_NAME, LOCK_NAME, HOLD_NAME, ASIDE_NAME, BOOKMARKS, *WIRING_NAMES}
        if MANIFEST_NAME in root.names():
            raise ForeignStore(path, "a backup, which must stay as it is", "`cairnmq restore` makes a store of it")
        strangers = set(root.names()) - known - {"lost+found"}
        if strangers and not WIRING_NAMES & set(root.names()):
            raise ForeignStore(
                path, f"not a CairnMQ store, and not empty (it holds {min(strangers)!r})", "name another directory"
            )
        self._lock_fd = lock_store(path)
        try:
            self.journal = RealDirectory(os.path.join(path, JOURNAL_NAME), create=not self.has_wiring())
        except DiskError as error:
            self.close()
            if not self.has_wiring() or os.path.isdir(os.path.join(path, JOURNAL_NAME)):
                raise
            raise ForeignStore(
                error.place, f"the journal is gone, though there is a wiring ({error.reason})", RESTORE_OR_SALVAGE
            ) from error

    @property
    def checkpoint_path(self) -> str:
        return os.path.join(self.path, CHECKPOINT_NAME)

    @property
    def wiring_path(self) -> str:
        return os.path.join(self.path, WIRING_NAME)

    def has_wiring(self) -> bool:
        """Whether there is a wiring file with anything in it, or one is told of."""
        return has_sqlite(self.path) or bool(told_place(self.path))

    def is_held(self) -> bool:
        """Whether a backup counts on the containers that are in the log now: it may be copying them."""
        return is_locked(os.path.join(self.path, HOLD_NAME))

    def break_holds(self) -> bool:
        """Take the holds away; whether that could be done. Each `Hold` finds that its file has no name any more."""
        place = os.path.join(self.path, HOLD_NAME)
        try:
            os.unlink(place)
        except FileNotFoundError:
            pass
        except OSError as error:
            log.error("%s: it can't be removed, so what a backup holds is not used again: %s", place, error)
            return False
        log.error("%s: the disk is full, and what a backup or a reader held is used again: it ends by that", place)
        return True

    def close(self) -> None:
        if self._lock_fd >= 0:
            os.close(self._lock_fd)
            self._lock_fd = -1


def is_locked(path: str) -> bool:
    """Whether a process holds a lock on the file at *path*."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    except OSError:
        return True  # who can't tell waits
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(fd)
    return False


class Hold:
    """While it lasts, no container that is in the log when it begins is overwritten or removed. Ends with the process.

    Several may hold a store at once; the broker sees it when a container leaves the log (`StoreDirectory.is_held`). On
    a full disk, when it needs what is held, it removes the file, and only then uses that again. So what was read before
    a `check` that raises nothing was as it was when the hold began. As a context manager it ends with one.
    """

    def __init__(self, path: str) -> None:
        """Begin to hold the store in directory *path*."""
        self._place = os.path.join(path, HOLD_NAME)
        self._fd = -1
        try:
            while self.is_broken:  # the file that was opened may have been removed before it was locked
                self.end()
                self._fd = os.open(self._place, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
                fcntl.flock(self._fd, fcntl.LOCK_SH)  # a broker that looks has it for a moment only
        except OSError as error:
            raise disk_error(self._place, "lock", error) from error

    @property
    def is_broken(self) -> bool:
        """Whether what was held may be something else by now."""
        return self._fd < 0 or not os.fstat(self._fd).st_nlink

    def check(self) -> None:
        """Raises `HoldBroken` if what was held may be something else by now."""
        if self.is_broken:
            why = "the disk is full, and the broker had to use again what was held for this"
            raise HoldBroken(self._place, why, "free some space, or take messages off the queues, and try again")

    def __enter__(self) -> Hold:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        try:
            if error is None or isinstance(error, CairnError):  # which comes from that, if so
                self.check()
        finally:
            self.end()

    def end(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def lock_store(path: str) -> int:
    """Lock the store at *path* for this process, until the file descriptor that is returned is closed."""
    place = os.path.join(path, LOCK_NAME)
    if os.path.exists(place) and not os.path.isfile(place):
        raise not_a_file(place)
    try:
        fd = os.open(place, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise disk_error(place, "open", error) from error
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        raise _in_use(path, fd) from error
    try:
        os.pwrite(fd, f"{os.getpid()}\n".encode().ljust(_HOLDER_BYTES), 0)  # in place of the last one's
    except OSError:  # a full disk: who has it can't be told, but the lock itself holds
        pass
    return fd


def lock_unchanged(path: str) -> int:
    """Keep brokers out of the store at *path*, writing nothing; -1 if it has no lock file, so never had a broker."""
    place = os.path.join(path, LOCK_NAME)
    if not os.path.isfile(place):
        return -1
    try:
        fd = os.open(place, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise disk_error(place, "open", error) from error
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError as error:
        raise _in_use(path, fd) from error
    return fd


def _in_use(path: str, fd: int) -> StoreInUse:
    holder = os.pread(fd, _HOLDER_BYTES, 0).decode("ascii", "replace").strip() or "unknown"
    os.close(fd)
    return StoreInUse(path, f"another broker has it (process {holder})", "stop that one, or name another --store-dir")
