"""Reading and copying of a wiring by tools. Nothing is ever written to the source wiring."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from urllib.parse import quote
from uuid import UUID

from sqlalchemy import create_engine
from sqlalchemy.engine import URL

from ...base.disk.real import disk_errors, not_a_file
from ...base.errors import ForeignStore
from ...base.private_files import open_private
from .database import RESTORE_OR_SALVAGE, Database, explain_sqlite
from .wiring import Wiring


def copy_wiring(source: str, target: str, store_uuid: UUID) -> None:
    """Copy the wiring file at *source*, which may be in use, to the new file *target*, as one snapshot, and sync it.

    Raises `ForeignStore` if it belongs to another store than *store_uuid*.
    """
    if not os.path.exists(source):
        raise ForeignStore(source, "the wiring is missing, but there is a journal", "restore it from a backup")
    try:
        with (
            closing(sqlite3.connect(f"file:{quote(source)}?mode={_mode(source)}", uri=True)) as old,
            closing(sqlite3.connect(target)) as new,
        ):
            old.backup(new)
            row = new.execute("SELECT uuid FROM store").fetchone()
    except sqlite3.Error as error:
        meaning = explain_sqlite(str(error))
        if meaning is None:
            reason = f"not a wiring database of CairnMQ ({error})"
            raise ForeignStore(source, reason, RESTORE_OR_SALVAGE) from error
        raise meaning[0](source, str(error), meaning[1]) from error
    sync_file(target)
    _check_uuid(source, None if row is None else row[0], store_uuid)


def copy_rows(source: Wiring, target: str, store_uuid: UUID) -> None:
    """Write a snapshot of *source* to the new file *target*, and sync it.

    Raises `ForeignStore` if it does not belong to store *store_uuid*, and the errors of SQL.
    """
    owner = source.owner()
    _check_uuid(source.place, None if owner is None else str(owner), store_uuid)
    with closing(Wiring.open(target)) as wiring:
        wiring.restore(store_uuid, source.rows(), formatted=True)
    sync_file(target)


def _check_uuid(place: str, found: str | None, store_uuid: UUID) -> None:
    if found != str(store_uuid):
        raise ForeignStore(
            place, f"the wiring is of store {found}, the journal of store {store_uuid}",
            "restore the files that belong together",
        )  # fmt: skip


def sync_file(path: str) -> None:
    """Have the file at *path* on the disk, for its owner only."""
    with disk_errors(path, "fsync"):
        fd = open_private(path, os.O_RDWR)
        try:
            os.fchmod(fd, 0o600)
            os.fsync(fd)
        finally:
            os.close(fd)


def file_wiring(path: str, mode: str = "ro") -> Wiring:
    """The wiring in the SQLite file at *path*, for reading.

    *mode* "rw": an incomplete transaction is rolled back in reading. Raises `CairnError` if *path* is not a file.
    """
    if not os.path.isfile(path):
        raise not_a_file(path)
    url = URL.create("sqlite", database=f"file:{quote(path)}", query={"mode": mode, "uri": "true"})
    return Wiring(Database(create_engine(url), path))


def read_queue_names(path: str, *, in_use: bool = False) -> dict[int, str]:
    """Return the names of queues by ID in the wiring file at *path*, opened read-only; empty without a wiring.

    *in_use*: an incomplete transaction after a crash is rolled back in reading, if that is allowed.
    """
    if not os.path.exists(path):
        return {}
    with closing(file_wiring(path, _mode(path) if in_use else "ro")) as wiring:
        return wiring.queue_names()


def _mode(path: str) -> str:
    return "rw" if os.access(path, os.W_OK) else "ro"
