"""The database of an all-SQL store: one connection that writes, and others that read.

The wiring and the messages are written on the same connection, so on a server whatever is written is written by who
holds the catalog's advisory lock. In SQLite, with its log of its own (WAL), readers don't wait for the one who writes.
"""

from __future__ import annotations

import os
from typing import NamedTuple
from uuid import uuid4

from sqlalchemy import create_engine
from sqlalchemy.engine import URL

from ...base.disk.real import RealDirectory
from ...base.errors import UnusableConnect
from ..contract.layout import SQL_STORE_NAME
from ..wiring.database import Database, check_sqlite, explicit_transactions, open_postgresql, open_sqlite, parse_address
from ..wiring.wiring import Wiring
from .space_reserve import FILE_NAME as RESERVE_NAME

_NEW = SQL_STORE_NAME + ".new"
_NEW_NAMES = (_NEW, _NEW + "-journal")
_NAMES = [SQL_STORE_NAME + suffix for suffix in ("", "-wal", "-shm", "-journal")]
FILE_NAMES = frozenset({*_NAMES, *_NEW_NAMES, RESERVE_NAME})
_READERS = 4


class Databases(NamedTuple):
    """Two ways to the same tables."""

    writing: Database
    reading: Database

    def close(self) -> None:
        self.reading.engine.dispose()
        self.writing.engine.dispose()


def open_databases(store: str, connect: str | None, catalog: str | None) -> Databases:
    """Return the databases of the store in directory *store*; in SQLite if *connect* is None. No server is contacted
    yet.

    Raises `UnusableConnect`, `ForeignStore`, `DiskError`.
    """
    if connect is not None:
        address = parse_address(connect, catalog)
        return Databases(open_postgresql(address, alone=True), open_postgresql(address, alone=False))
    if catalog is not None:
        remedy = "leave it out, or name the server with --connect"
        raise UnusableConnect(f"--catalog {catalog!r}", "SQLite has no catalogs", remedy)
    path = os.path.join(store, SQL_STORE_NAME)
    _create_sqlite(store)
    check_sqlite(path)
    url = URL.create("sqlite", database=path)
    writer = create_engine(url, pool_size=1, max_overflow=0)
    reader = create_engine(url, pool_size=_READERS, max_overflow=0)
    # in this mode FULL is what EXTRA is without: each commit is synced
    writing = Database(explicit_transactions(writer, "journal_mode=WAL", "synchronous=FULL"), path)
    return Databases(writing, Database(explicit_transactions(reader, "query_only=ON"), path))


def _create_sqlite(store: str) -> None:
    """Create the database file of the store in directory *store*, if it does not exist or is empty.

    Schema and identity are committed under a temporary name, which is then changed: a file with the final name is a
    complete store, and one without them is rejected as damaged. A crash before that leaves only the file with the
    temporary name, which the next start removes.
    """
    directory = RealDirectory(store)
    for name in set(_NEW_NAMES) & set(directory.names()):
        directory.unlink(name)
    path = os.path.join(store, SQL_STORE_NAME)
    if os.path.lexists(path) and (not os.path.isfile(path) or os.path.getsize(path)):
        return
    database = open_sqlite(os.path.join(store, _NEW))
    try:
        Wiring(database, directory.sync).identify(uuid4())
    finally:
        database.engine.dispose()
    directory.rename(_NEW, SQL_STORE_NAME)
    directory.sync()
