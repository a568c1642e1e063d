"""The writer of an all-SQL store: changes that gather during one commit form the next one.

The first statement of each commit moves `progress` from the start of the batch to its end, in this *life* of the store.
A batch is therefore committed once, even if the server failed during the commit and its outcome is unknown. It is not
committed at all if another process has opened the store meanwhile, which an unavailable server cannot prevent.

Transient errors (an unavailable, read-only or full server, a file that another program has locked) are waited for: the
batch is retried until it is written; `reason` has the cause. Nothing is lost, because nothing of it was confirmed. If
the disk of a file is full, the space reserve is released, and the batch is written. Any other error, like a failing or
read-only disk, or a reserve that does not suffice, ends the store, as it ends a journal.

Threads: `start`, `offer` and `stop` are for the thread that makes the calls of the store, `reason` for any.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable
from contextlib import closing, suppress

from sqlalchemy import Connection, select, update
from sqlalchemy.exc import SQLAlchemyError

from ...base.errors import (
    CairnError,
    DiskFull,
    JournalError,
    JournalFailed,
    SqlDenied,
    SqlReadOnly,
    SqlUnreachable,
    UnusableConnect,
)
from ..wiring import schema
from ..wiring.database import Database, explaining
from .batch import Batch
from .directory import SqlDirectory
from .space_reserve import SpaceReserve

PASSING = (SqlUnreachable, SqlDenied, SqlReadOnly, DiskFull, UnusableConnect)
"""Transient errors, which end without data loss, by themselves or after an intervention of an administrator."""
RETRY_S = 0.5
CHECK_S = 1.0
"""The interval at which an idle store checks its files and the free space."""


class SqlWriter:
    """Writes one batch at a time."""

    def __init__(self, database: Database, life: int, place: SqlDirectory) -> None:
        self.reason = ""
        """The reason why nothing can be written now; empty if writing works."""
        self.is_busy = False
        """True if a batch is not written yet. Set when one is offered, cleared by the thread of the writer."""
        self._database = database
        self._life = life
        self._batch: Batch | None = None
        self._failure: JournalFailed | None = None
        self._changed = threading.Condition()
        self._stopping = False
        self._has_denied = False
        """True if a message was refused since room was reported."""
        self._thread: threading.Thread | None = None
        self._misplaced = place.lock.misplaced
        self._reserve = SpaceReserve(place.path) if database.namespace is None else None
        self._look_at_room()

    def start(
        self, on_durable: Callable[[int], None], on_failure: Callable[[JournalError], None], on_room: Callable[[], None]
    ) -> None:
        """Each of them is called on the writer's thread, `on_durable` when the next batch may be offered."""
        self._thread = threading.Thread(
            target=self._run, args=(on_durable, on_failure, on_room), name="cairnmq-sql-writer", daemon=True
        )
        self._thread.start()

    def offer(self, batch: Batch) -> None:
        """Have *batch* written. Only if it is not busy."""
        with self._changed:
            self._batch = batch
            self.is_busy = True
            self._changed.notify_all()

    def stop(self) -> Batch | None:
        """Wait until nothing is under way any more; the batch that could not be written by then."""
        if self._thread is not None:
            with self._changed:
                self._stopping = True
                self._changed.notify_all()
            self._thread.join()
            self._thread = None
        return self._batch

    def write(self, batch: Batch) -> None:
        """Write it, in the caller's thread. Raises one of `PASSING`, after which it may be tried again, or
        `JournalFailed`, after which nothing can be written any more."""
        if self._failure is not None:
            raise self._failure
        try:
            try:
                self._commit(batch)
            except DiskFull:
                if self._reserve is None or not self._reserve.release():
                    raise
                self._empty_log()
                self._commit(batch)
            self._look_in_place()
        except CairnError as error:
            self.reason = error.reason
            if isinstance(error, PASSING if self._reserve is None else SqlUnreachable):
                raise
            self._failure = _final(error)
            raise self._failure from error
        self.reason = ""
        self._look_at_room()

    def denial_reason(self, size_bytes: int) -> str:
        """Return the reason why no message can be stored, beside *size_bytes* that wait; empty if one can."""
        found = self.reason
        if not found and self._reserve is not None:
            batch = self._batch
            found = self._reserve.denial_reason(size_bytes + (batch.size_bytes if batch is not None else 0))
        if found:
            self._has_denied = True
        return found

    def _report_room(self, on_room: Callable[[], None]) -> None:
        """Call *on_room* if messages can be stored again, after a denial to any thread."""
        if self._has_denied and not self.denial_reason(0):
            self._has_denied = False
            on_room()

    def _commit(self, batch: Batch) -> None:
        with explaining(self._database, "messages can't be written"), self._database.engine.begin() as sql:
            if self._begin(sql, batch):
                batch.execute(sql)

    def _look_at_room(self) -> None:
        if self._reserve is not None:
            self._reserve.look()
            if self._reserve.denial_reason(0):
                self._empty_log()

    def _empty_log(self) -> None:
        """Give the space of the log of SQLite back, as far as no reader needs it."""
        with suppress(sqlite3.Error, SQLAlchemyError), closing(self._database.engine.raw_connection()) as connection:
            connection.cursor().execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def _look_in_place(self) -> None:
        """Check the files: SQLite continues to write to a removed one, and confirmed changes would be lost."""
        if place := self._misplaced():
            remedy = "put it back, then start the broker again"
            raise JournalFailed(place, "it was removed or replaced while it was written to", remedy)

    def _begin(self, sql: Connection, batch: Batch) -> bool:
        """Return whether *batch* must be written. If not, it was written, and only the response was lost."""
        known = schema.progress.c
        here = (known.life == self._life) & (known.next_lsn == batch.begin_lsn)
        if sql.execute(update(schema.progress).where(here).values(next_lsn=batch.end_lsn)).rowcount == 1:
            return True
        found = sql.execute(select(known.life, known.next_lsn)).one_or_none()
        if found is None or tuple(found) != (self._life, batch.end_lsn):
            raise JournalFailed(
                self._database.place,
                "another process has opened this store meanwhile",
                "see that only one broker has this --store-dir and --catalog, then start again",
            )
        return False

    def _run(
        self, on_durable: Callable[[int], None], on_failure: Callable[[JournalError], None], on_room: Callable[[], None]
    ) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._batch is not None or self._stopping, CHECK_S)
                batch = self._batch
            if batch is None and self._stopping:
                return
            try:
                if batch is None:
                    self._look_in_place()
                    self._look_at_room()
                elif not self._write_at_last(batch):
                    return
            except JournalFailed as error:
                on_failure(error)
                return
            if batch is not None:
                self._batch, self.is_busy = None, False
                on_durable(batch.end_lsn)
            self._report_room(on_room)

    def _write_at_last(self, batch: Batch) -> bool:
        """Try until it is written; whether it was, before the writer was stopped."""
        while True:
            try:
                self.write(batch)
            except PASSING:
                with self._changed:
                    if self._changed.wait_for(lambda: self._stopping, RETRY_S):
                        return False
            else:
                return True


def _final(error: CairnError) -> JournalFailed:
    if isinstance(error, JournalFailed):
        return error
    return JournalFailed(error.place, error.reason, "see to that, then start the broker again")
