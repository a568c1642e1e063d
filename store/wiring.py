"""Wiring stands in SQL: which queues there are, and whose store this is.

Every call commits before it returns, and may take milliseconds: never call it on the core. `read_queue_names` is for
tools and opens the file read-only.
"""

from __future__ import annotations

import os
from collections.abc import Callable
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
from sqlalchemy.exc import DBAPIError

from ..base.errors import CairnError, DiskError, DiskFull, ForeignStore, StoreError
from ..disk.real import RealDirectory, disk_error

FILE_NAME = "wiring.sqlite"
SCHEMA_VERSION = 1

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
        try:
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
        except DBAPIError as error:
            raise _explained(self.place, error) from error
        return UUID(row.uuid), bool(row.formatted)

    def set_formatted(self) -> None:
        """Note that the journal exists: from now on its absence is a loss, not a beginning."""
        try:
            with self._engine.begin() as sql:
                sql.execute(update(_store).values(formatted=True))
        except DBAPIError as error:
            raise _explained(self.place, error) from error

    def queues(self) -> list[QueueRow]:
        try:
            with self._engine.connect() as sql:
                return [QueueRow(row.id, row.name) for row in sql.execute(select(_queues).order_by(_queues.c.id))]
        except DBAPIError as error:
            raise _explained(self.place, error) from error

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


def _explained(place: str, error: DBAPIError) -> CairnError:
    """What SQLite's error means for a file that is only being opened."""
    reason = str(error.orig)
    if "is full" in reason:
        return DiskFull(place, f"no space left ({reason})", "free some space or raise the quota")
    if "disk I/O" in reason or "readonly" in reason or "unable to open" in reason:
        return DiskError(place, reason, "check the disk, the owner and the permissions")
    return ForeignStore(place, f"not a wiring database of CairnMQ ({reason})", "restore it from a backup")


def read_queue_names(path: str) -> dict[int, str]:
    """Queue id to name from the wiring file at *path*, opened read-only; empty if there is none."""
    if not os.path.exists(path):
        return {}
    engine = create_engine(URL.create("sqlite", database=f"file:{quote(path)}", query={"mode": "ro", "uri": "true"}))
    try:
        with engine.connect() as sql:
            return {row.id: row.name for row in sql.execute(select(_queues))}
    except DBAPIError as error:
        raise _explained(path, error) from error
    finally:
        engine.dispose()
