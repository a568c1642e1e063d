"""What a wiring file still tells when it may be missing, rotten, or in the middle of a commit.

The file is read in a copy: SQLite rolls an interrupted commit back where it opens a database, and a damaged store is
never written to.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import closing
from typing import NamedTuple
from uuid import UUID

from ..base.errors import ForeignStore
from .wiring import SCHEMA_VERSION

_JOURNAL = "-journal"
_MAX_NAME = 1024


class Rescued(NamedTuple):
    """Whose store it was, and its queues by id; what is missing is told in `why`, which is "" for a whole file."""

    uuid: UUID | None
    queues: dict[int, str]
    why: str


def rescue(path: str) -> Rescued:
    """What the wiring file at *path* tells. Raises `ForeignStore` for one of a newer version."""
    if not os.path.lexists(path):
        return Rescued(None, {}, "it is missing")
    if not os.path.isfile(path):
        return Rescued(None, {}, "not a regular file")
    with tempfile.TemporaryDirectory(prefix="cairnmq-") as place:
        copy = os.path.join(place, "wiring.sqlite")
        try:
            shutil.copyfile(path, copy)
            if os.path.isfile(path + _JOURNAL):
                shutil.copyfile(path + _JOURNAL, copy + _JOURNAL)
        except OSError as error:
            return Rescued(None, {}, f"it can't be read: {error.strerror}")
        with closing(sqlite3.connect(copy)) as sql:
            sql.text_factory = lambda raw: raw.decode("utf-8", "replace")
            return _rescue(sql, path)


def _rescue(sql: sqlite3.Connection, path: str) -> Rescued:
    faults: list[str] = []
    checked = next(_rows(sql, "PRAGMA integrity_check", faults), ("ok",))
    if checked[0] != "ok":
        faults.append(str(checked[0]).partition("\n")[0])
    uuid: UUID | None = None
    for text, version in _rows(sql, "SELECT uuid, schema_version FROM store", faults):
        if isinstance(version, int) and version > SCHEMA_VERSION and not faults:
            raise ForeignStore(
                path,
                f"schema version {version} is newer than this program's {SCHEMA_VERSION}",
                "use the CairnMQ version that wrote it",
            )
        try:
            uuid = UUID(str(text))
        except ValueError:
            faults.append("the UUID of the store is none")
    queues: dict[int, str] = {}
    for order in ("ASC", "DESC"):  # what lies behind a bad page is reached from the other end
        for queue_id, name in _rows(sql, f"SELECT id, name FROM queue ORDER BY id {order}", faults):
            if not (isinstance(queue_id, int) and isinstance(name, str) and 0 < len(name) <= _MAX_NAME):
                faults.append("a queue without a name")
            elif queues.get(queue_id, name) != name or (name in queues.values() and queue_id not in queues):
                faults.append(f"queue {queue_id} is there twice")
            else:
                queues[queue_id] = name
    return Rescued(uuid, dict(sorted(queues.items())), "; ".join(dict.fromkeys(faults)))


def _rows(sql: sqlite3.Connection, query: str, faults: list[str]) -> Iterator[tuple[object, ...]]:
    """The rows up to the first that can't be read."""
    try:
        yield from sql.execute(query)
    except (sqlite3.Error, OverflowError, ValueError) as error:
        faults.append(str(error))
