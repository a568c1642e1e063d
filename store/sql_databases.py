"""The database of an all-SQL store: one connection that writes, and others that read.

The wiring and the messages are written on the same connection, so on a server whatever is written is written by who
holds the catalog's advisory lock. In SQLite, with its log of its own (WAL), readers don't wait for the one who writes.
"""

from __future__ import annotations

import os
from typing import NamedTuple

from sqlalchemy import create_engine
from sqlalchemy.engine import URL

from ..base.errors import UnusableConnect
from .sql import Database, check_sqlite, open_postgresql, parse_address, whole_transactions

FILE_NAME = "store.sqlite"
"""Not the wiring's: what takes the one for the other finds nothing, and changes nothing."""
FILE_NAMES = frozenset({FILE_NAME, FILE_NAME + "-wal", FILE_NAME + "-shm", FILE_NAME + "-journal"})
_READERS = 4


class Databases(NamedTuple):
    """Two ways to the same tables."""

    writing: Database
    reading: Database

    def close(self) -> None:
        self.reading.engine.dispose()
        self.writing.engine.dispose()


def open_databases(store: str, connect: str | None, catalog: str | None) -> Databases:
    """Those of the store in directory *store*; in SQLite if *connect* is None. A server is not asked yet.

    Raises `UnusableConnect`, `ForeignStore`, `DiskError`.
    """
    if connect is not None:
        address = parse_address(connect, catalog)
        return Databases(open_postgresql(address, alone=True), open_postgresql(address, alone=False))
    if catalog is not None:
        remedy = "leave it out, or name the server with --connect"
        raise UnusableConnect(f"--catalog {catalog!r}", "SQLite has no catalogs", remedy)
    path = os.path.join(store, FILE_NAME)
    check_sqlite(path)
    url = URL.create("sqlite", database=path)
    writer = create_engine(url, pool_size=1, max_overflow=0)
    reader = create_engine(url, pool_size=_READERS, max_overflow=0)
    # in this mode FULL is what EXTRA is without: each commit is synced
    writing = Database(whole_transactions(writer, "journal_mode=WAL", "synchronous=FULL"), path)
    return Databases(writing, Database(whole_transactions(reader, "query_only=ON"), path))
