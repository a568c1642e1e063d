"""The directory of an all-SQL store: its layout, and the lock that lets one process have it.

STORE/lock              held with flock by the program that has the store open, as is STORE itself
STORE/store.sqlite      wiring, messages and transactions, with its log (-wal) and that one's index (-shm)
STORE/wiring.json       instead of it, if they are on a server: which one
"""

from __future__ import annotations

from ...base.accounts.trusted_logins import FILE_NAMES as TRUSTED_NAMES
from ...base.disk.real import RealDirectory
from ...base.errors import ForeignStore
from ..contract.layout import LOCK_NAME
from ..directory.kind import SQL, kind_of, refuse_other_kind
from ..directory.lock import StoreLock
from ..directory.refusals import refuse_shared, refuse_unfinished
from ..wiring.location import FILE_NAMES as WIRING_NAMES
from ..wiring.location import recorded_place
from .databases import FILE_NAMES


class SqlDirectory:
    """Locked for this process until `close`."""

    def __init__(self, path: str, *, on_server: bool) -> None:
        """Create the directory if need be and lock it. Raises `StoreInUse`, `ForeignStore`, `DiskError`.

        *on_server*: whether the messages are to be on a server.
        """
        refuse_other_kind(path, SQL)
        self.path = path
        refuse_unfinished(path)
        self._root = RealDirectory(path, create=True)
        refuse_shared(path)
        self.was_there = kind_of(path) == SQL
        """True if the directory already contained a store."""
        strangers = set(self._root.names()) - {LOCK_NAME, "lost+found", *FILE_NAMES, *WIRING_NAMES, *TRUSTED_NAMES}
        if strangers and not self.was_there:
            raise ForeignStore(
                path, f"not a CairnMQ store, and not empty (it holds {min(strangers)!r})", "name another directory"
            )
        where = recorded_place(path)
        if where and not on_server:
            raise ForeignStore(path, f"this store is in {where}", "name that with --connect and --catalog")
        if self.was_there and on_server and not where:
            raise ForeignStore(path, "this store is in a file here, not on a server", "leave --connect out")
        self.lock = StoreLock(path)

    def sync(self) -> None:
        """Have the names of its files last."""
        self._root.sync()

    def close(self) -> None:
        self.lock.close()
