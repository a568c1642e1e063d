"""Wiring stands in SQL: which queues there are, and whose store this is.

Every call commits before it returns, and may take milliseconds: never call it on the core. `read_queue_names` is for
tools and opens the file read-only.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from urllib.parse import quote
from uuid import UUID

from sqlalchemy import (
    Boolean,
    Column,
    Engine,
    Integer,
    MetaData,
    String,
    Table,
    create_engine,
    event,
    insert,
    inspect,
    select,
    update,
)
from sqlalchemy.engine import URL
from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from ..base.errors import CairnError, DiskError, DiskFull, ForeignStore, StoreError
from ..disk.real import RealDirectory, disk_error, not_a_file

FILE_NAME = "wiring.sqlite"
SCHEMA_VERSION = 1
RESTORE_OR_SALVAGE = "restore it from a backup, or have `cairnmq salvage` recover what is whole"
_HEADER = b"SQLite format 3\0"

_metadata = MetaData()
_store = Table(
    "store",
    _metadata,
    Column("uuid", String(36), primary_key=True),
    Column("schema_version", Integer, nullable=False),
    Column("formatted", Boolean, nullable=False),
)
_queues = Table(
    "queue",
    _metadata,
    Column("id", Integer, primary_key=True, autoincrement=True),
    Column("name", String(1024), nullable=False, unique=True),
    sqlite_autoincrement=True,  # an id is never used again: the journal may still know it
)


@dataclass(frozen=True)
class QueueRow:
    """A durable queue as SQL knows it."""

    id: int
    name: str


class Wiring:
    """The wiring of one store. Any thread; calls block on SQL."""

    def __init__(self, engine: Engine, place: str, sync_names: Callable[[], None] = lambda: None) -> None:
        """*sync_names* syncs the directory that the database and its rollback journal are in."""
        self._engine = engine
        self.place = place
        self._sync_names = sync_names

    @classmethod
    def open(cls, path: str) -> Wiring:
        """Open or create the SQLite file at *path*."""
        if not os.path.exists(path):
            try:
                os.close(os.open(path, os.O_CREAT | os.O_WRONLY, 0o600))
            except OSError as error:
                raise disk_error(path, "create", error) from error
        if not os.path.isfile(path):
            raise not_a_file(path)
        _check_header(path)
        engine = create_engine(URL.create("sqlite", database=path))

        @event.listens_for(engine, "connect")
        def durable(connection: object, _: object) -> None:
            cursor = connection.cursor()  # type: ignore[attr-defined]
            cursor.execute("PRAGMA synchronous=EXTRA")  # EXTRA also syncs the directory after a commit
            cursor.execute("PRAGMA foreign_keys=ON")
            cursor.close()

        return cls(engine, path, lambda: RealDirectory(os.path.dirname(os.path.abspath(path))).sync())

    def identify(self, new_uuid: UUID) -> tuple[UUID, bool]:
        """The store's UUID, *new_uuid* if it has none yet, and whether its journal was formatted."""
        with _explaining(self.place):
            tables = set(inspect(self._engine).get_table_names())
            if "store" not in tables and tables - set(_metadata.tables):
                raise ForeignStore(self.place, "not a wiring database of CairnMQ (it holds other tables)")
            with self._engine.connect() as sql:
                row = sql.execute(select(_store)).one_or_none() if "store" in tables else None
            if row is not None and row.schema_version > SCHEMA_VERSION:
                raise ForeignStore(
                    self.place,
                    f"schema version {row.schema_version} is newer than this program's {SCHEMA_VERSION}",
                    "use the CairnMQ version that wrote it",
                )
            _metadata.create_all(self._engine)
            if row is None:
                with self._engine.begin() as sql:
                    values = {"uuid": str(new_uuid), "schema_version": SCHEMA_VERSION, "formatted": False}
                    sql.execute(insert(_store).values(values))
                return new_uuid, False
            return UUID(row.uuid), bool(row.formatted)

    def is_identified(self) -> bool:
        """Whether it says whose store this is, which it does before there is a journal."""
        with _explaining(self.place), self._engine.connect() as sql:
            return "store" in inspect(sql).get_table_names() and sql.execute(select(_store)).first() is not None

    def set_formatted(self) -> None:
        """Note that the journal exists: from now on its absence is a loss, not a beginning."""
        with _explaining(self.place), self._engine.begin() as sql:
            sql.execute(update(_store).values(formatted=True))

    def queues(self) -> list[QueueRow]:
        with _explaining(self.place), self._engine.connect() as sql:
            rows = [QueueRow(row.id, row.name) for row in sql.execute(select(_queues).order_by(_queues.c.id))]
            if any(not isinstance(row.name, str) for row in rows):
                raise ValueError("a queue without a name")
            return rows

    def restore(self, rows: Iterable[QueueRow]) -> None:
        """Put back queues with the ids they had, into a wiring that has none."""
        with _explaining(self.place), self._engine.begin() as sql:
            for row in rows:
                sql.execute(insert(_queues).values(id=row.id, name=row.name))

    def create_queue(self, name: str) -> QueueRow:
        """The durable queue *name*, created if it does not exist.

        Raises `StoreError` if SQL refuses, `DiskError` if the names can't be synced: a commit ends with the rollback
        journal's name taken away, and SQLite calls it done also if it can't open the directory to sync that.
        """
        try:
            with self._engine.begin() as sql:
                row = sql.execute(select(_queues).where(_queues.c.name == name)).one_or_none()
                if row is not None:
                    queue_id = int(row.id)
                else:
                    made = sql.execute(insert(_queues).values(name=name))
                    assert made.inserted_primary_key is not None
                    queue_id = int(made.inserted_primary_key[0])
        except DBAPIError as error:
            reason = f"queue {name!r} can't be created ({error.orig})"
            if "is full" in reason:
                raise DiskFull(self.place, reason, "free some space") from error
            raise StoreError(self.place, reason) from error
        self._sync_names()  # also for a queue that exists: this may be the second try
        return QueueRow(queue_id, name)

    def close(self) -> None:
        self._engine.dispose()


def _check_header(path: str) -> None:
    """SQLite takes a file of a few bytes for an empty database, and would write over it."""
    try:
        with open(path, "rb") as file:
            start = file.read(len(_HEADER))
    except OSError as error:
        raise disk_error(path, "open", error) from error
    if start not in (b"", _HEADER) and not os.path.exists(path + "-journal"):  # else a commit is to be rolled back
        raise ForeignStore(path, "not a wiring database of CairnMQ (no SQLite header)", RESTORE_OR_SALVAGE)


@contextmanager
def _explaining(place: str) -> Iterator[None]:
    """Whatever SQLite, or the rows of a rotten file, raise is told as what it means."""
    try:
        yield
    except DBAPIError as error:
        raise _explained(place, error) from error
    except (SQLAlchemyError, TypeError, ValueError) as error:
        raise ForeignStore(place, f"not a wiring database of CairnMQ ({error})", RESTORE_OR_SALVAGE) from error


def _explained(place: str, error: DBAPIError) -> CairnError:
    """What SQLite's error means for a file that is only being opened."""
    return _explained_reason(place, str(error.orig))


def _explained_reason(place: str, reason: str) -> CairnError:
    if "is full" in reason:
        return DiskFull(place, f"no space left ({reason})", "free some space or raise the quota")
    if "disk I/O" in reason or "readonly" in reason or "unable to open" in reason:
        return DiskError(place, reason, "check the disk, the owner and the permissions")
    return ForeignStore(place, f"not a wiring database of CairnMQ ({reason})", RESTORE_OR_SALVAGE)


def copy_wiring(source: str, target: str, store_uuid: UUID) -> None:
    """Copy the wiring file at *source*, which may be in use, to the new file *target*, as of one moment, and sync it.

    Raises `ForeignStore` if it is not of store *store_uuid*.
    """
    if not os.path.exists(source):
        raise ForeignStore(source, "the wiring is gone, though there is a journal", "restore it from a backup")
    mode = "rw" if os.access(source, os.W_OK) else "ro"  # what a crash left half done is rolled back in reading
    try:
        with (
            closing(sqlite3.connect(f"file:{quote(source)}?mode={mode}", uri=True)) as old,
            closing(sqlite3.connect(target)) as new,
        ):
            old.backup(new)
            row = new.execute("SELECT uuid FROM store").fetchone()
        fd = os.open(target, os.O_RDWR)
        try:
            os.fchmod(fd, 0o600)
            os.fsync(fd)
        finally:
            os.close(fd)
    except sqlite3.Error as error:
        raise _explained_reason(source, str(error)) from error
    except OSError as error:
        raise disk_error(target, "fsync", error) from error
    if row is None or row[0] != str(store_uuid):
        raise ForeignStore(
            source, f"the wiring is of store {row and row[0]}, the journal of store {store_uuid}",
            "put back the files that belong together",
        )  # fmt: skip


def read_queue_names(path: str) -> dict[int, str]:
    """Queue id to name from the wiring file at *path*, opened read-only; empty if there is none."""
    if not os.path.exists(path):
        return {}
    if not os.path.isfile(path):
        raise not_a_file(path)
    engine = create_engine(URL.create("sqlite", database=f"file:{quote(path)}", query={"mode": "ro", "uri": "true"}))
    try:
        with _explaining(path), engine.connect() as sql:
            return {row.id: row.name for row in sql.execute(select(_queues))}
    finally:
        engine.dispose()
