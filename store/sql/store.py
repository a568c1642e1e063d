"""The all-SQL store: messages, places and transactions in the same database as the wiring (checklist E4).

Calls change the maps and gather rows (`sql_batch`); `kick` passes the batch to one writer, which commits it
(`sql_writer`). No SQL statement is executed per message, and messages share syncs as in a journal.

A power cut leaves complete commits, at least up to `durable_lsn`. Calls between two kicks are in one commit.

Threads: as in `interface`. The store is created by `recovery.open_sql`. Without `start` it has no threads: `kick` then
writes in the thread of the caller, and raises the error of SQL on failure; the next one tries again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from ...base.errors import JournalError
from ..contract.transaction import FoundTransaction
from ..mapped.memory_tables import MemoryTables
from ..mapped.store import MappedStore
from ..wiring.wiring import Wiring
from .batch import Batch
from .databases import Databases
from .directory import SqlDirectory
from .reader import SqlReader
from .writer import SqlWriter


class SqlStore(MappedStore):
    """See the module."""

    def __init__(
        self,
        wiring: Wiring,
        databases: Databases,
        maps: MemoryTables,
        found: Iterable[FoundTransaction],
        next_lsn: int,
        life: int,
        place: SqlDirectory,
    ) -> None:
        """*place* is released when the store is closed."""
        self._batch = Batch(next_lsn)
        super().__init__(wiring, maps, self._batch, next_lsn)
        for one in found:
            self.transactions.restore(*one)
        self._unwritten: Batch | None = None
        """Handed over in the caller's thread, and refused."""
        self._reader = reader = SqlReader(databases.reading)
        self.load_piece, self.load_first, self.end_reads = reader.piece, reader.first_pieces, reader.end
        self._writer = SqlWriter(databases.writing, life, place)
        self._is_started = False
        self._release = place.close

    def start(
        self,
        on_durable: Callable[[int], None],
        on_failure: Callable[[JournalError], None],
        on_room: Callable[[], None] = lambda: None,
    ) -> None:
        self._is_started = True
        self.start_sql()
        self._writer.start(on_durable, on_failure, on_room)

    def kick(self) -> None:
        if self._is_started:
            if self._has_gathered and not self._writer.is_busy:
                self._writer.offer(self._cut())
            return
        if self._write_here():
            self._on_durable(self._batch.begin_lsn)

    @property
    def _has_gathered(self) -> bool:
        return self.next_lsn != self._batch.begin_lsn

    def _cut(self) -> Batch:
        """Return the current batch, and begin a new one."""
        batch = self._batch
        batch.end_lsn = self.next_lsn
        self.changes.log = self._batch = Batch(self.next_lsn)
        return batch

    def _write_here(self) -> bool:
        """Write all that is not written, without the writer's thread; whether there was anything."""
        wrote = False
        while self._unwritten is not None or self._has_gathered:
            if self._unwritten is None:
                self._unwritten = self._cut()
            self._writer.write(self._unwritten)
            self._unwritten = None
            wrote = True
        return wrote

    def full(self, size_bytes: int = 0, records: int = 0) -> str:
        writer, waiting = self._writer, self._unwritten
        size_bytes += self._batch.size_bytes + (waiting.size_bytes if waiting is not None else 0)
        return writer.denial_reason(size_bytes)

    def close(self) -> None:
        """Close the store. Raises the errors of SQL if the rest can't be written: it was not confirmed, and is lost."""
        self.close_sql()
        try:
            self._unwritten = self._writer.stop() or self._unwritten
            self._write_here()
            self.became_durable(self.next_lsn)
        finally:
            self._let_go()

    def abandon(self) -> None:
        """Let go of everything and write nothing more, as if the process had ended."""
        self.close_sql()
        self._writer.stop()
        self._let_go()

    def _let_go(self) -> None:
        self._reader.close()
        self._wiring.close()
        self._release()
