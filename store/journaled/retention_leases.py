"""Bookmarks: a reader of the log as history records its position, and later data is kept for it.

STORE/bookmarks/NAME.json is a JSON object with `lsn`, the first byte that is still needed, and `most_bytes`, the
maximum distance to the end of the log. It is written under another name, synced, and renamed, by the reader, whether or
not a broker runs.

A container that left the log and holds data after the LSN of a bookmark is not reused until the bookmark has passed it.
A reader may therefore be absent for a while, even over restarts of the broker. But no reader holds the log
indefinitely: the broker *drops* a bookmark, by removing the file, when its distance to the end of the log exceeds
`most_bytes`, or when the disk is full. It reports that in its log and in the metrics. The reader detects it by the
missing file, or by the missing data.
"""

from __future__ import annotations

import json
import logging
import os
import re
from contextlib import closing, suppress
from typing import NamedTuple

from ...base.disk.real import RealDirectory, disk_error
from ...base.errors import CairnError, DiskError

log = logging.getLogger(__name__)

DIRECTORY = "bookmarks"
_SUFFIX = ".json"
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}")
_ALARM = 0.75
"""The share of the maximum distance at which a warning is logged that the bookmark will be dropped."""
NOWHERE = 1 << 64
"""An LSN above all others."""


class Bookmark(NamedTuple):
    """The position of a reader of history."""

    name: str
    lsn: int
    most_bytes: int


def write_bookmark(store: str, bookmark: Bookmark) -> None:
    """Write *bookmark* down in the store directory *store*, durably. Raises `CairnError`."""
    if not _NAME.fullmatch(bookmark.name):
        remedy = "use letters, digits, and _ . - within"
        raise CairnError(f"bookmark {bookmark.name!r}", "no such name can be given", remedy)
    directory = RealDirectory(os.path.join(store, DIRECTORY), create=True)
    name = bookmark.name + _SUFFIX
    temporary = f"{name}.{os.getpid()}.new"
    with suppress(DiskError):
        directory.unlink(temporary)
    with closing(directory.create(temporary)) as file:
        file.write_at(0, json.dumps({"lsn": bookmark.lsn, "most_bytes": bookmark.most_bytes}).encode() + b"\n")
        file.sync()
    directory.rename(temporary, name)
    directory.sync()


def read_bookmark(store: str, name: str) -> Bookmark | None:
    """Return the bookmark of that name; None if it is missing or unreadable."""
    path = os.path.join(store, DIRECTORY, name + _SUFFIX)
    try:
        with open(path, encoding="utf-8") as file:
            found = json.load(file)
        lsn, most_bytes = found["lsn"], found["most_bytes"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    is_sound = all(isinstance(one, int) and 0 <= one < NOWHERE for one in (lsn, most_bytes))
    return Bookmark(name, lsn, most_bytes) if is_sound else None


def remove_bookmark(store: str, name: str) -> bool:
    """Remove a bookmark; return whether it existed."""
    try:
        os.unlink(os.path.join(store, DIRECTORY, name + _SUFFIX))
    except FileNotFoundError:
        return False
    except OSError as error:
        raise disk_error(os.path.join(store, DIRECTORY, name + _SUFFIX), "remove", error) from error
    return True


def read_bookmarks(store: str) -> list[Bookmark]:
    """Return all readable bookmarks, by name."""
    try:
        names = sorted(os.listdir(os.path.join(store, DIRECTORY)))
    except OSError:
        return []
    stems = [name.removesuffix(_SUFFIX) for name in names if name.endswith(_SUFFIX)]
    return [found for stem in stems if _NAME.fullmatch(stem) and (found := read_bookmark(store, stem)) is not None]


class Bookmarks:
    """The bookmarks of one store, as its broker honours them. Any thread, one at a time."""

    def __init__(self, store: str) -> None:
        self.dropped = 0
        """The number of bookmarks that were dropped since the start."""
        self._store = store
        self._warned: set[str] = set()

    def known(self) -> list[Bookmark]:
        return read_bookmarks(self._store)

    def add(self, bookmark: Bookmark) -> None:
        """Store *bookmark*, or replace the one of its name. Raises `CairnError`."""
        write_bookmark(self._store, bookmark)

    def move(self, bookmark: Bookmark) -> CairnError | None:
        """Write a bookmark unless it was removed meanwhile; return the error if it can't be written."""
        try:
            if read_bookmark(self._store, bookmark.name) is not None:
                write_bookmark(self._store, bookmark)
        except CairnError as error:
            return error
        return None

    def remove(self, name: str) -> CairnError | None:
        """Remove the bookmark of a reader that does not return; return the error if it can't be removed."""
        try:
            remove_bookmark(self._store, name)
        except CairnError as error:
            return error
        return None

    def kept_from(self, end_lsn: int, is_full: bool) -> int:
        """Return the LSN from which on reclaimed data is kept; `NOWHERE` for none.

        *end_lsn*: the approximate end of the log. *is_full*: the disk is full, so all bookmarks are dropped.
        """
        lowest = NOWHERE
        for bookmark in read_bookmarks(self._store):
            behind = end_lsn - bookmark.lsn
            if is_full or behind > bookmark.most_bytes:
                self._drop(bookmark, "the disk is full" if is_full else f"it may be {bookmark.most_bytes} bytes behind")
                continue
            if behind > _ALARM * bookmark.most_bytes and bookmark.name not in self._warned:
                self._warned.add(bookmark.name)
                log.warning(
                    "bookmark %s is %d bytes behind the log, and dropped at %d: its reader is too slow or has stopped",
                    bookmark.name, behind, bookmark.most_bytes, extra={"event": "bookmark.late"},
                )  # fmt: skip
            elif behind <= _ALARM / 2 * bookmark.most_bytes:
                self._warned.discard(bookmark.name)
            lowest = min(lowest, bookmark.lsn)
        return lowest

    def _drop(self, bookmark: Bookmark, reason: str) -> None:
        try:
            if remove_bookmark(self._store, bookmark.name):
                self.dropped += 1
                reported = "bookmark %s was dropped at LSN %d (%s): its reader may miss history"
                log.error(reported, bookmark.name, bookmark.lsn, reason, extra={"event": "bookmark.dropped"})
        except DiskError as error:
            reported = "bookmark %s can't be removed, and no longer retains containers: %s"
            log.error(reported, bookmark.name, error, extra={"event": "bookmark.failed"})
