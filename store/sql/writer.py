"""The writer of an all-SQL store: changes that gather during one commit form the next one.

The first statement of each commit moves `progress` from the start of the batch to its end, in this *life* of the store.
A batch is therefore committed once, even if the server failed during the commit and its outcome is unknown. It is not
committed at all if another process has opened the store meanwhile, which an unavailable server cannot prevent.

Transient errors (an unavailable or read-only server, a full disk) are waited for: the batch is retried until it is
written; `reason` has the cause. Nothing is lost, because nothing of it was confirmed. Any other error, like a failing
disk, ends the store, because the content of the disk is then unknown.

Threads: `start`, `offer` and `stop` are for the thread that makes the calls of the store, `reason` for any.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from sqlalchemy import Connection, select, update

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

PASSING = (SqlUnreachable, SqlDenied, SqlReadOnly, DiskFull, UnusableConnect)
"""Transient errors, which end without data loss, by themselves or after an intervention of an administrator."""
RETRY_S = 0.5


class SqlWriter:
    """Writes one batch at a time."""

    def __init__(self, database: Database, life: int, misplaced: Callable[[], str]) -> None:
        """*misplaced*: returns a file of the store that was moved or removed."""
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
        self._thread: threading.Thread | None = None
        self._misplaced = misplaced

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
            with explaining(self._database, "messages can't be written"), self._database.engine.begin() as sql:
                if self._begin(sql, batch):
                    batch.execute(sql)
            self._look_in_place()
        except PASSING as error:
            self.reason = error.reason
            raise
        except CairnError as error:
            self._failure = _final(error)
            self.reason = error.reason
            raise self._failure from error
        self.reason = ""

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
                self._changed.wait_for(lambda: self._batch is not None or self._stopping)
                batch = self._batch
            if batch is None:
                return
            try:
                if not self._write_at_last(batch, on_room):
                    return
            except JournalFailed as error:
                on_failure(error)
                return
            self._batch, self.is_busy = None, False
            on_durable(batch.end_lsn)

    def _write_at_last(self, batch: Batch, on_room: Callable[[], None]) -> bool:
        """Try until it is written; whether it was, before the writer was stopped."""
        while True:
            was_full = bool(self.reason)
            try:
                self.write(batch)
            except PASSING:
                with self._changed:
                    if self._changed.wait_for(lambda: self._stopping, RETRY_S):
                        return False
            else:
                if was_full:
                    on_room()
                return True


def _final(error: CairnError) -> JournalFailed:
    if isinstance(error, JournalFailed):
        return error
    return JournalFailed(error.place, error.reason, "see to that, then start the broker again")
