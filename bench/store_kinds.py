"""The kinds of stores that are measured against each other on the same calls, each in one thread.

A group is called, then kicked, and durable when that returns. With the store's own threads a group waits for two
hand-overs, or is cut in halves that each wait for a sync of its own: `settlement` and `traffic` measure that.
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
"""A PostgreSQL server with a database for this; without one its row is left out."""


def _sql(path: str, connect: str | None = None) -> OwnedStore:
    options = StoreOptions(connect=connect, catalog=f"Bench{os.getpid()}" if connect else None)
    return find_kind("sql")(path, SystemClock(), options, None)[0]


KINDS: dict[str, Callable[[str], OwnedStore]] = {
    JOURNAL: lambda path: find_kind(JOURNAL)(path, SystemClock(), StoreOptions(initial_containers=8), None)[0],
    "SQL in SQLite": _sql,
    **({"SQL in PostgreSQL": lambda path: _sql(path, SERVER)} if SERVER else {}),
}
"""Name to what opens a new store in a directory. Those besides the journal are its yardsticks."""


def open_with_queue(kind: str, path: str) -> tuple[OwnedStore, int]:
    """A new store, ready, and the id of its one queue."""
    store = KINDS[kind](path)
    store.run_inline(store.became_durable)
    rows: list[QueueRow | Exception] = []
    store.create_queue("bench", rows.append)
    [row] = rows
    assert isinstance(row, QueueRow)
    return store, row.id


def make_durable(store: OwnedStore, lsn: int) -> None:
    """Everything up to the record at *lsn*."""
    store.kick()
    if store.durable_lsn <= lsn:
        raise BenchError(f"LSN {lsn} is not durable after a kick")
