"""Embedded stores as yardsticks, which write a group as one synced transaction of values with increasing keys.

Against the journal, the embedded stores only insert, which is their best case; against the store, they also delete.
Stores that are not installed are omitted with a remark; `pip install -e '.[bench]'` installs them.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import sqlite3
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import lmdb

_MAP_BYTES = 8 << 30


class Embedded(Protocol):
    """An open embedded store."""

    def put(self, first: int, values: Sequence[bytes]) -> None:
        """Insert *values* under the numbers from *first* on; durable on return."""
        ...

    def change(self, first: int, values: Sequence[bytes], removed: range) -> None:
        """Insert *values* under the numbers from *first* on and delete the numbers *removed*, in one transaction."""
        ...

    def close(self) -> None: ...


class Sqlite:
    """A SQLite store with WAL and synchronous=FULL, where a commit is one fsync of the write-ahead log."""

    def __init__(self, path: str) -> None:
        self._sql = sqlite3.connect(os.path.join(path, "db"), isolation_level=None)
        self._sql.execute("PRAGMA journal_mode=WAL")
        self._sql.execute("PRAGMA synchronous=FULL")
        self._sql.execute("CREATE TABLE message (id INTEGER PRIMARY KEY, content BLOB NOT NULL)")

    def put(self, first: int, values: Sequence[bytes]) -> None:
        self.change(first, values, range(0))

    def change(self, first: int, values: Sequence[bytes], removed: range) -> None:
        self._sql.execute("BEGIN")
        self._sql.executemany("INSERT INTO message VALUES (?, ?)", enumerate(values, first))
        self._sql.executemany("DELETE FROM message WHERE id = ?", zip(removed, strict=True))
        self._sql.execute("COMMIT")

    def close(self) -> None:
        self._sql.close()


class Lmdb:
    """An LMDB store, where a commit writes and syncs the changed pages, then the meta page."""

    def __init__(self, path: str) -> None:
        self._env = lmdb.open(path, map_size=_MAP_BYTES)

    def put(self, first: int, values: Sequence[bytes]) -> None:
        self.change(first, values, range(0))

    def change(self, first: int, values: Sequence[bytes], removed: range) -> None:
        with self._env.begin(write=True) as txn:
            for number, value in enumerate(values, first):
                txn.put(number.to_bytes(8, "big"), value, append=True)
            for number in removed:
                txn.delete(number.to_bytes(8, "big"))

    def close(self) -> None:
        self._env.close()


class RocksDb:
    """A RocksDB store, where a commit is a write batch synced in the write-ahead log."""

    def __init__(self, path: str) -> None:
        self._api: Any = importlib.import_module("rocksdict")
        self._db = self._api.Rdict(path, self._api.Options(raw_mode=True))
        options = self._api.WriteOptions()
        options.sync = True
        self._db.set_write_options(options)

    def put(self, first: int, values: Sequence[bytes]) -> None:
        self.change(first, values, range(0))

    def change(self, first: int, values: Sequence[bytes], removed: range) -> None:
        batch = self._api.WriteBatch(raw_mode=True)
        for number, value in enumerate(values, first):
            batch.put(number.to_bytes(8, "big"), value)
        for number in removed:
            batch.delete(number.to_bytes(8, "big"))
        self._db.write(batch)

    def close(self) -> None:
        self._db.close()


_NEEDS: dict[str, tuple[str, Callable[[str], Embedded]]] = {
    "SQLite": ("sqlite3", Sqlite),
    "LMDB": ("lmdb", Lmdb),
    "RocksDB": ("rocksdict", RocksDb),
}
"""Required module and constructor of each store, by name."""


def installed() -> dict[str, Callable[[str], Embedded]]:
    """Return the constructors of the installed stores, by name."""
    return {name: kind for name, (module, kind) in _NEEDS.items() if importlib.util.find_spec(module) is not None}


def left_out() -> list[str]:
    """Return a remark for each store that is not installed."""
    here = installed()
    return [f"{name} is left out: pip install {module}" for name, (module, _) in _NEEDS.items() if name not in here]
