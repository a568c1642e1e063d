"""The kinds of stores that are compared by the same calls, each in one thread.

The operations of a group are called, then kicked, and are durable when the kick returns. With the threads of a store, a
group would wait for two thread switches, or be split in halves with separate syncs; `settlement` and `traffic` measure
that case.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from os import environ

from cairnmq.base.clock import SystemClock
from cairnmq.store.contract.options import StoreOptions
from cairnmq.store.contract.owner import OwnedStore
from cairnmq.store.contract.registry import find_kind
from cairnmq.store.contract.wiring_rows import QueueRow

from .table import BenchError

JOURNAL = "journal"
SERVER = environ.get("CAIRN_BENCH_CONNECT")
"""Connection string of a PostgreSQL database; without it, the rows of PostgreSQL are omitted."""


def _sql(path: str, connect: str | None = None) -> OwnedStore:
    options = StoreOptions(connect=connect, catalog=f"Bench{os.getpid()}" if connect else None)
    return find_kind("sql")(path, SystemClock(), options, None)[0]


KINDS: dict[str, Callable[[str], OwnedStore]] = {
    JOURNAL: lambda path: find_kind(JOURNAL)(path, SystemClock(), StoreOptions(initial_containers=8), None)[0],
    "SQL in SQLite": _sql,
    **({"SQL in PostgreSQL": lambda path: _sql(path, SERVER)} if SERVER else {}),
}
"""Functions that open a new store in a directory, by name; kinds other than the journal are its yardsticks."""


def open_with_queue(kind: str, path: str) -> tuple[OwnedStore, int]:
    """Open a new store with one queue; return the store and the ID of the queue."""
    store = KINDS[kind](path)
    store.run_inline(store.became_durable)
    rows: list[QueueRow | Exception] = []
    store.create_queue("bench", rows.append)
    [row] = rows
    assert isinstance(row, QueueRow)
    return store, row.id


def make_durable(store: OwnedStore, lsn: int) -> None:
    """Make all records up to the record at *lsn* durable."""
    store.kick()
    if store.durable_lsn <= lsn:
        raise BenchError(f"LSN {lsn} is not durable after a kick")
