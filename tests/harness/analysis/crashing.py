"""A store that receives random operations and crashes, for comparisons of analysis jobs with a model."""

from __future__ import annotations

import threading
from concurrent.futures import Future
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

from cairnmq.base.testing.manual_clock import ManualClock
from cairnmq.base.testing.memory_disk import MemoryDirectory
from cairnmq.recovery.recover import recover
from cairnmq.store.contract.options import StoreOptions
from cairnmq.store.journaled.store import JournalStore
from tests.analysis.clients import SMALL, Clients, Notes
from tests.harness.columns.logs import lay_out
from tests.harness.recovery.world import MemoryWiring
from tests.harness.store.stores import queue

OPTIONS = StoreOptions(container_bytes=SMALL, min_container_bytes=SMALL, reserve_bytes=4 * SMALL)
QUEUES = ("orders", "bills", "letters")


class Held:
    """An adapter of a journal store to `Clients`: operations are durable at once."""

    def __init__(self, inner: JournalStore) -> None:
        self.inner = inner
        self.lock = threading.RLock()

    def recorded(self, lsn: int, result: None) -> Future[None]:
        self.inner.kick()
        assert self.inner.durable_lsn > lsn
        done: Future[None] = Future()
        done.set_result(result)
        return done


class Crashing(Clients):
    """Clients of a store on a disk in memory; its archive is in a directory."""

    store: Any

    def __init__(self, seed: int, archive: Path) -> None:
        self.files, self.wiring = MemoryDirectory(), MemoryWiring()
        super().__init__(Path("unused"), Notes(seed), archive)

    def open(self) -> None:
        options = replace(OPTIONS, archive_dir=str(self.archive))
        inner, _ = recover(self.files, self.wiring, ManualClock(), options)
        inner.run_inline(inner.became_durable)
        self.store = Held(inner)
        self.ids = self.notes.ids = self.notes.ids or {name: queue(inner, name) for name in QUEUES}

    def crash(self) -> None:
        """Crash during work of which nothing was flushed, and recover."""
        durable = deepcopy(self.notes)
        self.work()
        self.store.inner.journal.abandon()
        durable.rng.seed(self.rng.random())
        durable.kills += 1
        super().__init__(self.path, durable, self.archive)

    def laid_out(self, path: Path) -> str:
        """Write the store to the directory *path*; return its path."""
        self.store.inner.kick()
        self.store.inner.journal.writer.write_mark()
        return lay_out(self.files, path)
