"""A journal store in memory, whose process can be killed and whose disk can lose power or fail, for tests.

For programs that embed a store or a broker: what they do with a store can be tested against every crash, in
milliseconds and without files. See `base.testing` for the disk, and docs/reference/stores.md for an example.
"""

from __future__ import annotations

import sqlite3
from typing import cast

from ..base.testing.faulty_disk import FaultyDirectory, Plan
from ..base.testing.manual_clock import ManualClock
from ..base.testing.memory_disk import MemoryDirectory, Survivors
from ..journal.write.open import MIN_CONTAINER_BYTES
from ..store.contract.options import StoreOptions
from ..store.journaled.store import JournalStore
from ..store.wiring.database import open_memory
from ..store.wiring.wiring import Wiring
from .recover import recover
from .report import RecoveryReport


class MemoryWiring(Wiring):
    """A wiring in an SQLite database in memory, which outlives `close`. Its commits survive each simulated crash."""

    def __init__(self) -> None:
        super().__init__(open_memory())
        self.sqlite = cast(sqlite3.Connection, self.database.engine.raw_connection().driver_connection)
        """The connection to the database, the only one."""

    def close(self) -> None:
        """Keep the database for the next start."""


class SimulatedStore:
    """The disk, the wiring and the clock of a journal store. They outlive the stores that are opened on them."""

    def __init__(self, options: StoreOptions | None = None, wiring: Wiring | None = None) -> None:
        """Create an empty disk. Without *options*, the containers are as small as a broker's can be."""
        self.files = MemoryDirectory()
        """The journal's directory."""
        self.clock = ManualClock()
        self.wiring = MemoryWiring() if wiring is None else wiring
        self._options = options or StoreOptions(container_bytes=MIN_CONTAINER_BYTES, max_write_buffers=3)
        self._store: JournalStore | None = None

    def open(self, plan: Plan | None = None) -> tuple[JournalStore, RecoveryReport]:
        """Recover the store from the disk. It has no threads: `kick` returns when everything is durable.

        *plan* fails calls to the disk, see `base.testing.faulty_disk`.
        """
        directory = self.files if plan is None else FaultyDirectory(self.files, plan)
        self._store, report = recover(directory, self.wiring, self.clock, self._options)
        self._store.run_inline(self._store.became_durable)
        return self._store, report

    def kill(self) -> None:
        """End the process of the open store. Written data survives; data that was only appended in memory is lost."""
        self._abandon()
        self.files = self.files.after_kill()

    def cut_power(self, survivors: Survivors = ()) -> None:
        """Cut the power: of what was written and not synced, only *survivors* stay. See `MemoryDirectory`."""
        self._abandon()
        self.files = self.files.after_power_cut(survivors)

    def _abandon(self) -> None:
        if self._store is not None:
            self._store.journal.abandon()
            self._store = None
