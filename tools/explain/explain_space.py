"""The use of the disk: the files of a store by purpose, and the live part of the log by queue."""

from __future__ import annotations

import os
from dataclasses import dataclass, field

from ...analytics.scan.journal_directory import journal_of
from ...base.disk.real import disk_usage
from ...store.contract.layout import CHECKPOINT_NAME, JOURNAL_NAME
from ..history.queue_totals import queue_totals
from ..inspect.journal_check import Progress
from .overview import overview_of


@dataclass
class SpaceReport:
    """Bytes on the disk."""

    store: str
    total_bytes: int = 0
    parts: list[tuple[str, int, str]] = field(default_factory=list)
    """Purpose, bytes and remedy. They add up to the total."""
    queues: list[tuple[str, int, int]] = field(default_factory=list)
    """Name, messages, bytes; the largest first."""
    notes: list[str] = field(default_factory=list)
    complete: bool = True

    def fields(self) -> dict[str, object]:
        """Return the use of space as the fields of a JSON object."""
        queues = [{"queue": name, "messages": count, "bytes": size} for name, count, size in self.queues]
        return vars(self) | {"parts": self.part_fields(), "queues": queues}

    def part_fields(self) -> list[dict[str, object]]:
        """Return the parts of the store as JSON objects."""
        return [{"what": what, "bytes": size, "remedy": remedy or None} for what, size, remedy in self.parts]


def explain_space(path: str, progress: Progress, connect: str | None = None, catalog: str | None = None) -> SpaceReport:
    """The use of the disk by the store at *path*. Raises `CairnError` if that is none."""
    overview = overview_of(path, progress, connect, catalog)
    reader, size, pins = overview.reader, overview.reader.container_bytes, overview.state.pins
    found = SpaceReport(path, notes=overview.notes, complete=overview.complete)
    totals = queue_totals(overview.state)
    found.queues = [(overview.name_of(one.queue_id), one.messages, one.bytes) for one in totals]
    used = len(reader.slots) * size
    journal = disk_usage(journal_of(path))
    of_transactions = sum(size_bytes for _, size_bytes in overview.state.outcomes.records())
    found.parts = [
        ("messages", pins.live_bytes - of_transactions, "consume, purge or move them: see the queues"),
        ("transactions in doubt", of_transactions, "`cairnmq ctl transactions list`" if of_transactions else ""),
        ("dead records, padding and unused ends in the log", used - pins.live_bytes,
         "compaction keeps them below the live records and three containers"),
        ("containers outside the log, and the durability mark", journal - used,
         "kept for reuse; half of them are removed when the log needs few"),
    ]  # fmt: skip
    if journal_of(path) != path:
        checkpoint = disk_usage(os.path.join(path, CHECKPOINT_NAME))
        found.parts.append(("the checkpoint", checkpoint, ""))
        rest = [name for name in sorted(os.listdir(path)) if name not in (JOURNAL_NAME, CHECKPOINT_NAME)]
        kept = [name for name in rest if name.startswith("quarantine")]
        for name in kept:
            found.parts.append((name, disk_usage(os.path.join(path, name)), "left by a salvage, for you to look at"))
        others = sum(disk_usage(os.path.join(path, name)) for name in rest if name not in kept)
        found.parts.append(("the wiring and locks", others, ""))
    found.total_bytes = sum(size_bytes for _, size_bytes, _ in found.parts)
    return found
