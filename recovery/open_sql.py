"""Recovery of an all-SQL store from its databases.

Opening begins a new incarnation (*life*) of the store in one commit. An earlier broker may still write, on a connection
that the server has not closed yet: it detects the new incarnation and ends. Then the lengths, places and transactions
are read, but no content.

A power cut leaves a whole number of commits. A message that is incomplete, or on no queue, was never confirmed and is
deleted. Messages of queues that are being deleted are deleted, too. Messages of queues that SQL does not know are kept
and reported, as with a journal.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from typing import Any
from uuid import uuid4

from sqlalchemy import Connection, Select, func, insert, select, update

from ..base.clock import Clock
from ..base.errors import ForeignStore
from ..store.contract.options import Progress, StoreOptions, refuse_archive
from ..store.contract.transaction import Dequeue, Enqueue, FoundTransaction, TxState
from ..store.directory.kind import SQL
from ..store.mapped.memory_tables import MappedMessage, MemoryTables
from ..store.sql.databases import Databases, open_databases
from ..store.sql.directory import SqlDirectory
from ..store.sql.store import SqlStore
from ..store.wiring import schema
from ..store.wiring.database import explaining, parse_address
from ..store.wiring.location import tell_place
from ..store.wiring.wiring import Wiring
from .expunge import expunge_going
from .report import SqlReport

_AT_ONCE = 10_000
"""Rows that are read together."""


def open_sql_store(
    path: str, clock: Clock, options: StoreOptions | None = None, progress: Progress | None = None
) -> tuple[SqlStore, SqlReport]:
    """Open the all-SQL store in directory *path*, creating it if it does not exist.

    Raises `StoreInUse`, `ForeignStore`, `DiskError`, or what a SQL server means, and then keeps nothing open.
    """
    options = options or StoreOptions()
    refuse_archive(options, SQL)
    with ExitStack() as undo:
        place = undo.enter_context(closing(SqlDirectory(path, on_server=options.connect is not None)))
        databases = undo.enter_context(closing(open_databases(path, options.connect, options.catalog)))
        found = recover_sql(databases, place, clock)
        if options.connect is not None:
            tell_place(path, parse_address(options.connect, options.catalog), {"store": SQL})
        undo.pop_all()
    return found


def recover_sql(databases: Databases, place: SqlDirectory, clock: Clock) -> tuple[SqlStore, SqlReport]:
    """Return the store that is in *databases*, locked by *place*; see `open_sql_store`."""
    begun_s = clock.monotonic_s()
    place.lock.guard()
    wiring = Wiring(databases.writing, place.sync)
    if place.was_there and not wiring.is_identified():
        remedy = f"restore it from a backup; if nothing was ever stored there, remove {place.path}"
        raise ForeignStore(wiring.place, "the database of a store, without its tables", remedy)
    wiring.identify(uuid4())
    wiring.migrate()
    next_lsn, life = _begin_life(databases)
    place.sync()
    maps, found = _read(databases)
    store = SqlStore(wiring, databases, maps, found, next_lsn, life, place)
    messages = len(maps.messages)
    on_queue = {queue_id: len(ids) for queue_id, ids in maps.queues.items()}
    homeless = store.keep_homeless(on_queue)
    discarded = store.discard_unfinished()
    expunged = expunge_going(store, on_queue, clock.wall_us())
    store.kick()
    report = SqlReport(
        seconds=clock.monotonic_s() - begun_s,
        created=life == 1,
        queues=len(store.queues()),
        messages=messages - discarded - sum(expunged.values()),
        discarded=discarded,
        expunged=expunged,
        homeless=homeless,
    )
    return store, report


@contextmanager
def _sql(databases: Databases, what: str) -> Iterator[Connection]:
    with explaining(databases.writing, what), databases.writing.engine.begin() as sql:
        yield sql


def _begin_life(databases: Databases) -> tuple[int, int]:
    """Return the next LSN, and the number of this incarnation."""
    known = schema.progress.c
    with _sql(databases, "the store can't be opened") as sql:
        row = sql.execute(select(known.next_lsn, known.life)).one_or_none()
        if row is not None:
            sql.execute(update(schema.progress).values(life=row.life + 1))
            return row.next_lsn, row.life + 1
        if sql.scalar(select(schema.store.c.formatted)):
            reason = "it is the wiring of a store that has a journal"
            raise ForeignStore(databases.writing.place, reason, "use --store journal, or name another --catalog")
        sql.execute(insert(schema.progress).values(next_lsn=1, life=1))
        return 1, 1


def _read(databases: Databases) -> tuple[MemoryTables, list[FoundTransaction]]:
    """Return all tables without the contents, read in one transaction."""
    m, p, q = schema.message.c, schema.piece.c, schema.placement.c
    maps = MemoryTables()
    with _sql(databases, "the messages can't be read") as sql:
        for message_id, size_bytes, is_last in _rows(sql, select(m.id, func.length(m.content), m.is_last)):
            maps.messages[message_id] = MappedMessage([size_bytes], is_complete=is_last)
        pieces = select(p.message_id, p.number, func.length(p.content), p.is_last).order_by(p.message_id, p.number)
        for message_id, _, size_bytes, is_last in _rows(sql, pieces):
            maps.messages[message_id].sizes.append(size_bytes)
            maps.messages[message_id].is_complete = is_last
        places = select(q.message_id, q.queue_id, q.position).order_by(q.position)
        for message_id, queue_id, position in _rows(sql, places):
            maps.place(message_id, queue_id, position)
        return maps, [*_prepared(sql), *_decided(sql)]


def _rows(sql: Connection, statement: Select[Any]) -> Iterator[Any]:
    return iter(sql.execute(statement, execution_options={"yield_per": _AT_ONCE}))


def _prepared(sql: Connection) -> Iterator[FoundTransaction]:
    i = schema.intention.c
    operations: dict[int, list[Enqueue | Dequeue]] = defaultdict(list)
    for row in sql.execute(select(schema.intention).order_by(i.prepared_id, i.number)):
        kind = Dequeue if row.is_dequeue else Enqueue
        operations[row.prepared_id].append(kind(row.message_id, row.queue_id))
    for row in sql.execute(select(schema.prepared).order_by(schema.prepared.c.id)):
        yield bytes(row.xid), row.id, TxState.PREPARED, operations[row.id]


def _decided(sql: Connection) -> Iterator[FoundTransaction]:
    for row in sql.execute(select(schema.decision).order_by(schema.decision.c.id)):
        state = TxState.DECIDED_COMMIT if row.committed else TxState.DECIDED_ROLLBACK
        yield bytes(row.xid), row.id, state, ()
