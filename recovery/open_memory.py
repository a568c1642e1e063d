"""The memory store, opened like any other: it is new each time, and its directory is not touched."""

from __future__ import annotations

from ..base.clock import Clock
from ..base.errors import InvalidOption
from ..store.contract.options import Progress, StoreOptions, refuse_archive
from ..store.directory.kind import refuse_other_kind
from ..store.mapped.memory_store import MemoryStore
from .report import SqlReport


def open_memory_store(
    path: str, clock: Clock, options: StoreOptions | None = None, progress: Progress | None = None
) -> tuple[MemoryStore, SqlReport]:
    """Return an empty store. Raises `ForeignStore` if *path*, which may be empty, holds a store whose messages last."""
    options = options or StoreOptions()
    if options.connect is not None or options.catalog is not None:
        raise InvalidOption("--connect, --catalog", "the memory store keeps nothing on a server", "leave them out")
    refuse_archive(options, "memory")
    if path:
        refuse_other_kind(path, "memory")
    return MemoryStore(), SqlReport(remarks=["in memory: messages are lost when the broker stops"])
