"""Makers of all kinds of stores, for the conformance suite."""

from __future__ import annotations

import shutil
import tempfile
from typing import cast

from cairnmq.base.testing.manual_clock import ManualClock
from cairnmq.recovery.open_memory import open_memory_store
from cairnmq.recovery.open_sql import open_sql_store
from cairnmq.store.contract.options import StoreOptions
from cairnmq.store.contract.owner import OwnedStore
from cairnmq.store.journaled.store import JournalStore
from cairnmq.store.sql.store import SqlStore
from tests.harness.postgresql import Server
from tests.harness.store.stores import Disk


class MemoryMaker:
    keeps = False
    can_crash = True

    def open(self) -> OwnedStore:
        return open_memory_store("", ManualClock())[0]

    def crash(self, store: OwnedStore) -> None:
        """Do nothing: the store holds no resources."""

    def remove(self) -> None: ...


class JournalMaker:
    """A maker of journal stores on a disk in memory; data that is not flushed is lost in a crash."""

    keeps = True
    can_crash = True
    """True if `crash` can be called; it loses unflushed data."""

    def __init__(self) -> None:
        self._disk = Disk()

    def open(self) -> OwnedStore:
        return self._disk.open()[0]

    def crash(self, store: OwnedStore) -> None:
        cast(JournalStore, store).journal.abandon()

    def remove(self) -> None: ...


class SqlMaker:
    """A maker of SQL stores in a temporary directory, or in a catalog on *server*."""

    keeps = True
    can_crash = True

    def __init__(self, server: Server | None = None, catalog: str = "") -> None:
        self.path = tempfile.mkdtemp(prefix="cairn-sql-")
        self._server, self._catalog = server, catalog
        self.options = StoreOptions() if server is None else StoreOptions(connect=server.url(), catalog=catalog)

    def open(self) -> SqlStore:
        return open_sql_store(self.path, ManualClock(), self.options)[0]

    def crash(self, store: OwnedStore) -> None:
        cast(SqlStore, store).abandon()

    def remove(self) -> None:
        shutil.rmtree(self.path)
        if self._server is not None:
            self._server.sql(f"""DROP SCHEMA "{self._catalog.replace('"', '""')}" CASCADE""")
