"""Holds: a reader keeps the containers of a store from being overwritten or removed."""

from __future__ import annotations

import fcntl
import os
from types import TracebackType

from ...base.disk.file_lock import FileLock
from ...base.disk.real import disk_errors
from ...base.errors import CairnError, HoldBroken
from ..contract.layout import HOLD_NAME


class Hold:
    """While it lasts, no container that is in the log when it begins is overwritten or removed. Ends with the process.

    Several may hold a store at once; the broker sees it when a container leaves the log (`StoreDirectory.is_held`). On
    a full disk, when it needs what is held, it removes the file, and only then uses that again. So what was read before
    a `check` that raises nothing was as it was when the hold began. As a context manager it ends with one.
    """

    def __init__(self, path: str) -> None:
        """Begin to hold the store in directory *path*."""
        self._place = os.path.join(path, HOLD_NAME)
        self._lock: FileLock | None = None
        with disk_errors(self._place, "lock"):
            while self.is_broken:  # the file that was opened may have been removed before it was locked
                self.end()
                self._lock = FileLock(self._place, how=fcntl.LOCK_SH)  # a broker that looks has it for a moment only

    @property
    def is_broken(self) -> bool:
        """Return whether the hold was broken, so that the held containers may have been reused."""
        return self._lock is None or self._lock.fd < 0 or not os.fstat(self._lock.fd).st_nlink

    def check(self) -> None:
        """Raise `HoldBroken` if held containers may have been reused."""
        if self.is_broken:
            reason = "the disk is full, and the broker had to reuse the space that was held for this"
            raise HoldBroken(self._place, reason, "free some space, or take messages off the queues, and try again")

    def __enter__(self) -> Hold:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        try:
            if error is None or isinstance(error, CairnError):  # which comes from that, if so
                self.check()
        finally:
            self.end()

    def end(self) -> None:
        if self._lock is not None:
            self._lock.close()
