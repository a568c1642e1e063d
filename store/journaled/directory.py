"""The directory of a journal store; `contract.layout` lists its entries."""

from __future__ import annotations

import logging
import os

from ...base.accounts.trusted_logins import FILE_NAMES as TRUSTED_NAMES
from ...base.disk.real import RealDirectory
from ...base.errors import DiskError, ForeignStore, SharedDirectory
from ...journal.files.file_copies import NEW
from ..checkpoint.checkpoint_file import symbolic_link
from ..contract.layout import (
    ARCHIVE_LEASE_NAME,
    ASIDE_NAME,
    CHECKPOINT_NAME,
    HOLD_NAME,
    JOURNAL_NAME,
    LOCK_NAME,
    MANIFEST_NAME,
)
from ..directory.lock import StoreLock, is_locked
from ..directory.refusals import refuse_shared, refuse_unfinished
from ..wiring.database import RESTORE_OR_SALVAGE
from ..wiring.location import FILE_NAMES as WIRING_NAMES
from ..wiring.location import has_sqlite, recorded_place
from ..wiring.wiring import FILE_NAME as WIRING_NAME
from .retention_leases import DIRECTORY as BOOKMARKS

log = logging.getLogger(__name__)
_HOLD_BROKEN = {"event": "disk.hold-broken"}

OWN_NAMES = frozenset(
    {JOURNAL_NAME, CHECKPOINT_NAME, LOCK_NAME, HOLD_NAME, ASIDE_NAME, BOOKMARKS, *WIRING_NAMES, *TRUSTED_NAMES,
     ARCHIVE_LEASE_NAME, ARCHIVE_LEASE_NAME + NEW}
)
"""The names that may occur in a store directory."""


class StoreDirectory:
    """A store directory, locked for this process until `close`."""

    def __init__(self, path: str, *, is_locked: bool = False) -> None:
        """Create the directory if need be and lock it. Raises `StoreInUse`, `ForeignStore`, `DiskError`.

        *is_locked*: the caller has locked the directory itself.
        """
        self.path = path
        refuse_unfinished(path)
        root = RealDirectory(path, create=True)
        refuse_shared(path)
        if MANIFEST_NAME in root.names():
            raise ForeignStore(path, "a backup, which must stay as it is", "`cairnmq restore` makes a store of it")
        strangers = set(root.names()) - OWN_NAMES - {"lost+found"}
        if strangers and not WIRING_NAMES & set(root.names()):
            raise ForeignStore(
                path, f"not a CairnMQ store, and not empty (it holds {min(strangers)!r})", "name another directory"
            )
        if link := symbolic_link(self.checkpoint_path):
            remedy = "put the directory itself there, or delete the link: the next start then reads the whole log"
            raise DiskError(link, "a symbolic link, which is not followed", remedy)
        self.lock = StoreLock(path, is_locked=is_locked)
        try:
            self.journal = RealDirectory(os.path.join(path, JOURNAL_NAME), create=not self.has_wiring())
        except DiskError as error:
            self.close()
            if not self.has_wiring() or os.path.isdir(os.path.join(path, JOURNAL_NAME)):
                raise
            raise ForeignStore(
                error.place, f"the journal is missing, but there is a wiring ({error.reason})", RESTORE_OR_SALVAGE
            ) from error
        try:
            refuse_shared(self.journal.path)
        except SharedDirectory:
            self.close()
            raise

    @property
    def checkpoint_path(self) -> str:
        return os.path.join(self.path, CHECKPOINT_NAME)

    @property
    def wiring_path(self) -> str:
        return os.path.join(self.path, WIRING_NAME)

    def has_wiring(self) -> bool:
        """Return whether a wiring file with content exists, or the store names a server."""
        return has_sqlite(self.path) or bool(recorded_place(self.path))

    def is_held(self) -> bool:
        """Return whether a backup holds the containers that are in the log now."""
        return is_locked(os.path.join(self.path, HOLD_NAME))

    def break_holds(self) -> bool:
        """Take the holds away; whether that could be done. Each `Hold` finds that its file has no name any more."""
        place = os.path.join(self.path, HOLD_NAME)
        try:
            os.unlink(place)
        except FileNotFoundError:
            pass
        except OSError as error:
            text = "%s: can't be removed, so containers that a backup reads are not reused: %s; remove it"
            log.error(text, place, error, extra=_HOLD_BROKEN)
            return False
        text = "%s: the disk is full; containers that backups and readers hold are reused, and these end with an error"
        log.error(text, place, extra=_HOLD_BROKEN)
        return True

    def close(self) -> None:
        self.lock.close()
