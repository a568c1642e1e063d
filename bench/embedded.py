"""Embedded stores as yardsticks: a group is one transaction, synced, of values under keys that only rise.

Beside the journal they only insert, which is the best that can happen to them; beside the store they delete, too. What
is not installed is left out, with a word: `pip install -e '.[bench]'` brings it.
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
    """A store that is open."""

    def put(self, first: int, values: Sequence[bytes]) -> None:
        """Insert *values* under the numbers from *first* on; durable on return."""
        ...

    def change(self, first: int, values: Sequence[bytes], removed: range) -> None:
        """Insert *values* under the numbers from *first* on and delete the numbers *removed*, in one transaction."""
        ...

    def close(self) -> None: ...


class Sqlite:
    """WAL, synchronous=FULL: a commit is one fsync of the write-ahead log."""

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
    """A commit writes the changed pages and syncs, then the meta page and syncs."""

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
    """A write batch, synced in the write-ahead log."""

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
"""Name to the module that is needed, and what opens a store in a directory."""


def installed() -> dict[str, Callable[[str], Embedded]]:
    """The stores there are, by name."""
    return {name: kind for name, (module, kind) in _NEEDS.items() if importlib.util.find_spec(module) is not None}


def left_out() -> list[str]:
    """The others, each in a sentence."""
    here = installed()
    return [f"{name} is left out: pip install {module}" for name, (module, _) in _NEEDS.items() if name not in here]
