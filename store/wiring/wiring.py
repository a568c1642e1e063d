"""The wiring in SQL: queues, exchanges, bindings and configurations, and the identity of the store.

Every call is one transaction, committed before it returns. It may take milliseconds, and seconds if a server is
unavailable: never call it on the core. Any thread may, one at a time.

An error leaves the wiring unchanged, except for `SqlUnreachable`: if a server fails during a commit, the outcome is
unknown. All calls are therefore idempotent: creating an existing object returns it; removing a missing one is no error.

A queue is deleted in two steps, because the journal has to record it in between (`begin_destroy_queue`).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TypeVar
from uuid import UUID

from sqlalchemy import BigInteger, ColumnElement, Connection, Table, cast, delete, insert, inspect, select, text, update
from sqlalchemy.schema import CreateSchema

from ...base.disk.real import RealDirectory
from ...base.errors import ForeignStore, StoreError
from ..contract.wiring_rows import Arguments, BindingRow, ConfigRow, ExchangeRow, QueueRow, Rows
from . import schema
from .database import Database, DatabaseAddress, explaining, open_postgresql, open_sqlite
from .row_check import MAX_NAME_BYTES, RowCheck, raw_columns
from .schema import VERSION

FILE_NAME = "wiring.sqlite"
_Row = TypeVar("_Row")


class Wiring:
    """The wiring of one store. See the module for threads and errors."""

    def __init__(self, database: Database, sync_names: Callable[[], None] = lambda: None) -> None:
        """*sync_names* syncs the directory that the database and its rollback journal are in, if they are in one."""
        self.database = database
        self._sync_names = sync_names

    @classmethod
    def open(cls, path: str) -> Wiring:
        """Open or create the SQLite file at *path*. Raises `ForeignStore` or `DiskError`."""
        database = open_sqlite(path)
        return cls(database, lambda: RealDirectory(os.path.dirname(os.path.abspath(path))).sync())

    @classmethod
    def connect(cls, address: DatabaseAddress, *, alone: bool = True) -> Wiring:
        """The wiring on the server at *address* (checklist E56, E57). Raises `UnusableConnect` without its driver.

        The server is not asked yet. *alone*: no other broker may have that catalog; it would get `StoreInUse`.
        """
        return cls(open_postgresql(address, alone=alone))

    @property
    def place(self) -> str:
        """The location of the wiring as readable text."""
        return self.database.place

    @property
    def is_on_server(self) -> bool:
        return self.database.namespace is not None

    # ---- whose it is ----------------------------------------------------------------------------------------------

    def identify(self, new_uuid: UUID) -> tuple[UUID, bool]:
        """Return the UUID of the store, *new_uuid* if it has none yet, and whether its journal was formatted.

        The wiring is only read: an older schema is kept until `migrate`. Raises `ForeignStore` for other databases and
        newer schemas, and the errors of SQL.
        """
        with self._opening() as sql:
            row = self._identity(sql)
        if row is None:
            with self._opening(writes=True) as sql:
                self._make(sql, new_uuid)
            return new_uuid, False
        return row

    def owner(self) -> UUID | None:
        """Return the UUID of the store that this wiring belongs to; None if it is unused."""
        with self._opening() as sql:
            row = self._identity(sql)
        return None if row is None else row[0]

    def is_identified(self) -> bool:
        """Return whether the wiring names its store, which it does before the journal is created."""
        return self.owner() is not None

    def set_formatted(self) -> None:
        """Note that the journal exists: from now on its absence is a loss, not a beginning."""
        with self._opening(writes=True) as sql:
            sql.execute(update(schema.store).values(formatted=True))

    def migrate(self) -> None:
        """Bring the schema of an identified wiring to this program's version, in one transaction."""
        with self._opening() as sql:
            version = sql.scalar(select(schema.store.c.schema_version))
        if version != VERSION:
            with self._opening(writes=True) as sql:
                self._upgrade(sql)

    def _make(self, sql: Connection, uuid: UUID) -> None:
        self._upgrade(sql)
        sql.execute(insert(schema.store).values(uuid=str(uuid), schema_version=VERSION, formatted=False))

    def _upgrade(self, sql: Connection) -> None:
        namespace = self.database.namespace
        if namespace is not None and not inspect(sql).has_schema(namespace):
            sql.execute(CreateSchema(namespace))
        schema.upgrade(sql, namespace)

    def _identity(self, sql: Connection) -> tuple[UUID, bool] | None:
        tables = set(inspect(sql).get_table_names(self.database.namespace))
        if "store" not in tables and tables - {*schema.metadata.tables, schema.VERSION_TABLE}:
            reason = "not a wiring database of CairnMQ (it holds other tables)"
            remedy = "name another --catalog" if self.is_on_server else self.database.remedy
            raise ForeignStore(self.place, reason, remedy)
        if "store" not in tables:
            return None
        known = schema.store.c
        row = sql.execute(select(known.uuid, known.schema_version, known.formatted)).one_or_none()
        if row is not None and row.schema_version > VERSION:
            raise ForeignStore(
                self.place,
                f"schema version {row.schema_version} is newer than this program's {VERSION}",
                "use the CairnMQ version that wrote it",
            )
        return None if row is None else (UUID(row.uuid), bool(row.formatted))

    # ---- what there is --------------------------------------------------------------------------------------------

    def queue_names(self) -> dict[int, str]:
        """Queue id to name, those that are going left out; also of an older schema."""
        with self._opening() as sql:
            return _names(sql)

    def rows(self) -> Rows:
        """Return all rows in one snapshot. The schema must be that of this version."""
        with self._opening() as sql:

            check = RowCheck(self.place)

            def read(kind: Callable[..., _Row], table: Table) -> list[_Row]:
                rows = sql.execute(select(*raw_columns(table)).order_by(*table.primary_key))
                return [kind(*values) for row in rows if (values := check.values(table, row)) is not None]

            queues, exchanges = read(QueueRow, schema.queue), read(ExchangeRow, schema.exchange)
            ids = {row.id for row in queues}, {row.id for row in exchanges}
            bindings = read(BindingRow, schema.binding)
            for row in bindings:
                if row.queue_id not in ids[0] or row.exchange_id not in ids[1]:
                    check.add("binding", (row.exchange_id, row.queue_id), "the queue or the exchange does not exist")
            last_id = sql.scalar(select(schema.store.c.last_id))
            return Rows(
                queues,
                exchanges,
                [row for row in bindings if row.queue_id in ids[0] and row.exchange_id in ids[1]],
                read(ConfigRow, schema.config),
                read(QueueRow, schema.going_queue),
                last_id if isinstance(last_id, int) else 0,
                check.defects,
            )

    def restore(self, uuid: UUID, rows: Rows, *, formatted: bool) -> None:
        """Make this unused wiring the wiring of store *uuid* with all *rows*, in one transaction.

        Raises `ForeignStore` if it belongs to a store.
        """
        if self.is_identified():
            remedy = "name another --catalog" if self.is_on_server else "name another file"
            raise ForeignStore(self.place, "a store's wiring already exists there", remedy)
        with self._writing("the wiring can't be restored") as sql:
            self._make(sql, uuid)
            for table, values in (
                (schema.queue, rows.queues),
                (schema.exchange, rows.exchanges),
                (schema.binding, rows.bindings),
                (schema.config, rows.configs),
            ):
                if values:
                    sql.execute(insert(table), [vars(row) for row in values])
            for row in rows.going:
                sql.execute(insert(schema.going_queue).values(id=row.id, name=row.name))
            sql.execute(update(schema.store).values(last_id=rows.used_id, formatted=formatted))

    def note_going(self, names: Mapping[int, str]) -> None:
        """Note of those of the queues *names* that are not there that they are going."""
        with self._writing("a deletion of a queue can't be recorded") as sql:
            known = {*_names(sql), *sql.scalars(select(schema.going_queue.c.id))}
            for queue_id, name in names.items():
                if queue_id not in known:
                    sql.execute(insert(schema.going_queue).values(id=queue_id, name=name))

    def skip_ids(self, last_id: int) -> None:
        """Give no id up to *last_id* to anything: the journal has seen it, though this wiring has not."""
        with self._writing(f"ids up to {last_id} can't be left out") as sql:
            last = schema.store.c.last_id
            lower = cast(last, BigInteger) < last_id
            sql.execute(update(schema.store).where(lower).values(last_id=last_id))

    # ---- queues ---------------------------------------------------------------------------------------------------

    def create_queue(self, name: str, arguments: Arguments | None = None) -> QueueRow:
        """The durable queue *name*, created if it does not exist.

        Raises `StoreError` if SQL refuses, `DiskError` if the names can't be synced: a commit ends with the rollback
        journal's name taken away, and SQLite calls it done also if it can't open the directory to sync that.
        """
        return self.create_queues(((name, arguments),))[0]

    def create_queues(self, asked: Sequence[tuple[str, Arguments | None]]) -> list[QueueRow]:
        """Create queues with their arguments in one transaction: all of them, or none. Raises as `create_queue`."""
        q = schema.queue.c
        what = f"queue {asked[0][0]!r}" if len(asked) == 1 else f"{len(asked)} queues"
        for name, _ in asked:
            _check_name("queue", name)
        names = [name for name, _ in asked]
        with self._writing(f"{what} can't be created") as sql:
            found = sql.execute(select(q.id, q.name, q.arguments).where(q.name.in_(names)))
            rows = {row.name: QueueRow(*row) for row in found}
            missing: dict[str, Arguments] = {}
            for name, arguments in asked:
                if name not in rows:
                    missing.setdefault(name, arguments or {})
            if missing:
                ids = self._next_ids(sql, len(missing))
                made = [QueueRow(id, name, dict(missing[name])) for id, name in zip(ids, missing, strict=True)]
                sql.execute(insert(schema.queue), [vars(row) for row in made])
                rows.update({row.name: row for row in made})
            return [rows[name] for name in names]

    def change_queue(self, queue_id: int, arguments: Arguments) -> None:
        """Give the queue these arguments, in place of those it has. Raises `StoreError` if it is not there."""
        with self._writing(f"queue {queue_id} can't be changed") as sql:
            statement = update(schema.queue).where(schema.queue.c.id == queue_id).values(arguments=dict(arguments))
            if not sql.execute(statement).rowcount:
                raise StoreError(f"queue {queue_id}", "not found")

    def begin_destroy_queue(self, queue_id: int) -> None:
        """Take the queue away, its bindings first, and leave a note that it is going (checklist E2, E53).

        From now on it is not found, and its name is free for another queue with another id. The note stays until
        `finish_destroy_queue`, which is for when the journal's own record of the deletion is durable: recovery can
        distinguish a queue that was deleted from one that SQL lost. For a queue that is being deleted, or was deleted,
        nothing changes.
        """
        q = schema.queue.c
        with self._writing(f"queue {queue_id} can't be destroyed") as sql:
            name = sql.scalar(select(q.name).where(q.id == queue_id))
            if name is not None:
                sql.execute(delete(schema.binding).where(schema.binding.c.queue_id == queue_id))
                sql.execute(delete(schema.queue).where(q.id == queue_id))
                sql.execute(insert(schema.going_queue).values(id=queue_id, name=name))

    def finish_destroy_queue(self, queue_id: int) -> None:
        """Remove the note that the queue is being deleted: its deletion is durable in the journal."""
        with self._writing(f"queue {queue_id} can't be forgotten") as sql:
            sql.execute(delete(schema.going_queue).where(schema.going_queue.c.id == queue_id))

    # ---- exchanges and bindings -----------------------------------------------------------------------------------

    def create_exchange(self, name: str, type: str, arguments: Arguments | None = None) -> ExchangeRow:
        """The durable exchange *name*, created if it does not exist. `StoreError` if it is of another type."""
        _check_name("exchange", name)
        e = schema.exchange.c
        with self._writing(f"exchange {name!r} can't be created") as sql:
            row = sql.execute(select(e.id, e.name, e.type, e.arguments).where(e.name == name)).one_or_none()
            if row is not None and row.type != type:
                raise StoreError(f"exchange {name!r}", f"it already exists with type {row.type}", "destroy it first")
            if row is not None:
                return ExchangeRow(*row)
            made = ExchangeRow(self._next_ids(sql, 1)[0], name, type, dict(arguments or {}))
            sql.execute(insert(schema.exchange).values(**vars(made)))
            return made

    def destroy_exchange(self, exchange_id: int) -> None:
        """Take the exchange away, its bindings first (checklist E2)."""
        with self._writing(f"exchange {exchange_id} can't be destroyed") as sql:
            sql.execute(delete(schema.binding).where(schema.binding.c.exchange_id == exchange_id))
            sql.execute(delete(schema.exchange).where(schema.exchange.c.id == exchange_id))

    def bind(self, binding: BindingRow) -> None:
        """Bind a queue to an exchange; arguments replace those that a binding of this key had.

        Raises `StoreError` if either is not there: SQL itself refuses it (checklist E2).
        """
        _check_name("binding key", binding.key, least_bytes=0)
        with self._writing(f"queue {binding.queue_id} can't be bound to exchange {binding.exchange_id}") as sql:
            sql.execute(delete(schema.binding).where(_is(binding)))
            sql.execute(insert(schema.binding).values(**vars(binding)))

    def unbind(self, binding: BindingRow) -> None:
        """Take the binding of this exchange, queue and key away."""
        with self._writing(f"queue {binding.queue_id} can't be unbound from exchange {binding.exchange_id}") as sql:
            sql.execute(delete(schema.binding).where(_is(binding)))

    # ---- configurations -------------------------------------------------------------------------------------------

    def create_config(self, name: str, settings: Arguments) -> None:
        """Keep *settings* under *name*, in place of those that were there."""
        _check_name("configuration", name)
        with self._writing(f"configuration {name!r} can't be kept") as sql:
            sql.execute(delete(schema.config).where(schema.config.c.name == name))
            sql.execute(insert(schema.config).values(name=name, settings=dict(settings)))

    def destroy_config(self, name: str) -> None:
        with self._writing(f"configuration {name!r} can't be destroyed") as sql:
            sql.execute(delete(schema.config).where(schema.config.c.name == name))

    def close(self) -> None:
        self.database.engine.dispose()

    # ---- transactions ---------------------------------------------------------------------------------------------

    @contextmanager
    def _opening(self, *, writes: bool = False) -> Iterator[Connection]:
        engine = self.database.engine
        with explaining(self.database), engine.begin() if writes else engine.connect() as sql:
            yield sql

    @contextmanager
    def _writing(self, what: str) -> Iterator[Connection]:
        with explaining(self.database, what), self.database.engine.begin() as sql:
            yield sql
        self._sync_names()  # also if nothing changed: this may be the second try

    def _next_ids(self, sql: Connection, count: int) -> range:
        """Take *count* consecutive IDs."""
        last = schema.store.c.last_id
        sql.execute(update(schema.store).values(last_id=last + count))
        end = int(sql.execute(select(last)).scalar_one()) + 1
        return range(end - count, end)


def _is(binding: BindingRow) -> ColumnElement[bool]:
    b = schema.binding.c
    return (b.exchange_id == binding.exchange_id) & (b.queue_id == binding.queue_id) & (b.key == binding.key)


def _check_name(kind: str, name: str, least_bytes: int = 1) -> None:
    size_bytes = len(name.encode())
    if not least_bytes <= size_bytes <= MAX_NAME_BYTES:
        raise StoreError(f"{kind} {name[:80]!r}", f"it has {least_bytes} to {MAX_NAME_BYTES} bytes, not {size_bytes}")


def _names(sql: Connection) -> dict[int, str]:
    rows = sql.execute(text("SELECT id, name FROM queue ORDER BY id"))
    return {row.id: row.name for row in rows if isinstance(row.name, str)}
