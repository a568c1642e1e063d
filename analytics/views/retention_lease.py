"""Holding what a reader of history still wants: bookmarks in the store that a log belongs to."""

from __future__ import annotations

import logging

from ...base.errors import CairnError
from ...store.journaled.retention_leases import Bookmark, read_bookmark, write_bookmark
from ..scan.files import Log

log_of = logging.getLogger(__name__)


def store_of(log: Log) -> str:
    """The directory of the store that *log* is of. Raises `CairnError` for an archive, which holds what it has."""
    if not log.journal:
        raise CairnError(log.place, "an archive can't be held by a slot", "leave that out, or name the store")
    return log.store


def held_at(log: Log, name: str) -> int | None:
    """Return the LSN from which on the store keeps its log for that name; None if it does not."""
    found = read_bookmark(store_of(log), name)
    return None if found is None else found.lsn


def hold(log: Log, name: str, lsn: int, most_bytes: int) -> None:
    """Have the store keep its log from *lsn* on, even after it is reclaimed; and the data that is held already.

    A query that continues after a crash requests its beginning before it receives its position.
    """
    store = store_of(log)
    before = read_bookmark(store, name)
    write_bookmark(store, Bookmark(name, lsn if before is None else min(lsn, before.lsn), most_bytes))


def release_until(log: Log, name: str, lsn: int, most_bytes: int) -> None:
    """Releases everything below *lsn*. Makes a lease that the broker has dropped again, and reports that."""
    store = store_of(log)
    before = read_bookmark(store, name)
    if before is None:
        text = "%s: bookmark %s was dropped or removed; it is created again at LSN %d"
        log_of.warning(text, store, name, lsn, extra={"event": "bookmark.recreated"})
    if before is None or before.lsn < lsn or before.most_bytes != most_bytes:
        write_bookmark(store, Bookmark(name, lsn, most_bytes))
