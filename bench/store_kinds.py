"""The kinds of stores that are measured against each other on the same calls, each in one thread.

A group is called, then kicked, and durable when that returns. With the store's own threads a group waits for two
hand-overs, or is cut in halves that each wait for a sync of its own: `settlement` and `traffic` measure that.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from cairnmq.base.clock import SystemClock
from cairnmq.recovery.recover import StoreOptions, open_store
from cairnmq.store.interface import MessageStore
from cairnmq.store.transaction import Transactions
from cairnmq.store.wiring import QueueRow

from .table import BenchError


class OneThreadStore(MessageStore, Protocol):
    """What a store of any kind has besides the calls of `MessageStore`."""

    transactions: Transactions

    def run_inline(self, on_durable: Callable[[int], None]) -> None: ...

    def became_durable(self, lsn: int) -> None: ...


JOURNAL = "journal"
KINDS: dict[str, Callable[[str], OneThreadStore]] = {
    JOURNAL: lambda path: open_store(path, SystemClock(), StoreOptions(initial_containers=8))[0],
}
"""Name to what opens a new store in a directory. Those besides the journal are its yardsticks."""


def open_with_queue(kind: str, path: str) -> tuple[OneThreadStore, int]:
    """A new store, ready, and the id of its one queue."""
    store = KINDS[kind](path)
    store.run_inline(store.became_durable)
    rows: list[QueueRow | Exception] = []
    store.create_queue("bench", rows.append)
    [row] = rows
    assert isinstance(row, QueueRow)
    return store, row.id


def make_durable(store: OneThreadStore, lsn: int) -> None:
    """Everything up to the record at *lsn*."""
    store.kick()
    if store.durable_lsn <= lsn:
        raise BenchError(f"LSN {lsn} is not durable after a kick")
