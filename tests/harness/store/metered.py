"""A small store for tests of its metrics."""

from __future__ import annotations

from typing import Any

from cairnmq.base.disk.seam import Directory
from cairnmq.base.testing.manual_clock import ManualClock
from cairnmq.recovery.recover import recover
from cairnmq.store.checkpoint.checkpoint_file import LmdbFile
from cairnmq.store.contract.options import StoreOptions
from cairnmq.store.journaled.store import JournalStore
from tests.harness.journal.logs import SIZE
from tests.harness.recovery.world import MemoryWiring


def open_store(
    disk: Directory, clock: ManualClock | None = None, checkpoint: LmdbFile | None = None, **options: Any
) -> JournalStore:
    chosen = StoreOptions(container_bytes=SIZE, **options)
    store, _ = recover(disk, MemoryWiring(), clock or ManualClock(), chosen, checkpoint=checkpoint)
    store.run_inline(store.became_durable)
    return store


def create_queue(store: JournalStore, name: str) -> int:
    made: list[object] = []
    store.create_queue(name, made.append)
    queue_id: int = made[0].id  # type: ignore[attr-defined]
    return queue_id
