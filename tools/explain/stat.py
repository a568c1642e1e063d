"""The use of space in a store: per container, per queue, and by type of record. Payloads are not read."""

from __future__ import annotations

import os
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field

import numpy as np

from ...journal.format.block import Block
from ...journal.format.record import HEAD_BYTES, Flag, RecordType, type_name
from ..history.queue_totals import head_at, queue_totals
from ..inspect.evidence import truncation_of
from ..inspect.journal_check import Progress
from .overview import StoreOverview, overview_of

_MOVED = int(Flag.MOVED)


@dataclass
class SlotStat:
    """The figures of one container of the log."""

    slot: int
    file: str = ""
    first_lsn: int = 0
    begun_us: int = 0
    incarnation: int = 0
    blocks: int = 0
    records: int = 0
    record_bytes: int = 0
    """Heads and payloads of all its records."""
    live_bytes: int = 0
    """The size of the records that are still needed."""
    types: Counter[str] = field(default_factory=Counter)
    is_needed: bool = False
    """True if the container is needed, if only for its ends of records elsewhere."""

    @property
    def dead_bytes(self) -> int:
        return max(0, self.record_bytes - self.live_bytes)

    def fields(self, container_bytes: int) -> dict[str, object]:
        reported = {name: value for name, value in vars(self).items() if name != "types"}
        ratio = round(self.live_bytes / container_bytes, 4)
        return reported | {"dead_bytes": self.dead_bytes, "live_ratio": ratio, "types": dict(self.types)}


@dataclass
class Stat:
    """The figures of a store."""

    store: str
    container_bytes: int = 0
    slots: list[SlotStat] = field(default_factory=list)
    queues: list[dict[str, object]] = field(default_factory=list)
    log: dict[str, object] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    truncation: str = ""
    """The reclaimed ranges of the history, as a sentence."""
    complete: bool = True

    def fields(self) -> dict[str, object]:
        """Return the figures of the store as the fields of a JSON object."""
        return {
            "store": self.store, "complete": self.complete, "log": self.log, "queues": self.queues,
            "containers": [slot.fields(self.container_bytes) for slot in self.slots], "notes": self.notes,
        }  # fmt: skip


class _Counts:
    """The sums over the heads of a log, by slot."""

    def __init__(self) -> None:
        self.slots: dict[int, SlotStat] = {}
        self.user_bytes = self.moved_bytes = self.own_bytes = self.block_bytes = 0

    def take(self, slot: int, block: Block) -> None:
        stat = self.slots.get(slot)
        if stat is None:
            stat = self.slots[slot] = SlotStat(slot)
        heads = block.table()
        sizes = heads["size"] + HEAD_BYTES
        kinds = heads["type"]
        moved = heads["flags"] & _MOVED > 0
        total = int(sizes.sum())
        self.moved_bytes += int(sizes[moved].sum())
        self.user_bytes += int(sizes[~moved & (kinds < RecordType.LOG_OPEN)].sum())
        self.own_bytes += int(sizes[~moved & (kinds >= RecordType.LOG_OPEN)].sum())
        self.block_bytes += block.end_lsn - block.lsn
        stat.blocks += 1
        stat.records += len(heads)
        stat.record_bytes += total
        for kind, number in enumerate(np.bincount(kinds).tolist()):
            if number:
                stat.types[type_name(kind)] += number


def stat_store(path: str, progress: Progress, connect: str | None = None, catalog: str | None = None) -> Stat:
    """The figures of the store at *path*. Raises `CairnError` if it is none."""
    counts = _Counts()
    overview = overview_of(path, progress, connect, catalog, counts.take)
    found = Stat(path, overview.reader.container_bytes, notes=overview.notes, complete=overview.complete)
    found.truncation = truncation_of(overview.reader)
    pins, reader = overview.state.pins, overview.reader
    for slot in reader.slots:
        head = reader.heads.by_slot[slot]
        one = counts.slots.get(slot) or SlotStat(slot)
        one.file, one.first_lsn = reader.heads.file_name(slot), head.slot_lsn
        one.begun_us, one.incarnation = head.time_us, head.incarnation
        one.live_bytes, one.is_needed = pins.live.get(slot, 0), pins.is_needed(slot)
        found.slots.append(one)
    found.queues = _queues(overview)
    found.log = _log(overview, counts)
    return found


def _queues(overview: StoreOverview) -> list[dict[str, object]]:
    reported: list[dict[str, object]] = []
    now_us = time.time_ns() // 1000
    for totals in queue_totals(overview.state):
        head = head_at(overview.reader, overview.state.place_of(totals.oldest_id))
        reported.append({
            "queue": overview.name_of(totals.queue_id), "queue_id": totals.queue_id, "messages": totals.messages,
            "bytes": totals.bytes, "oldest_message_id": totals.oldest_id,
            "oldest_time_us": None if head is None else head.time_us,
            "oldest_age_s": None if head is None else round((now_us - head.time_us) / 1e6, 3),
        })  # fmt: skip
    return reported


def _log(overview: StoreOverview, counts: _Counts) -> dict[str, object]:
    reader, state, size = overview.reader, overview.state, overview.reader.container_bytes
    used = len(reader.slots) * size
    in_log = set(reader.slots)
    dead = [slot for slot in reader.heads.by_slot if slot not in in_log]
    types: Counter[str] = Counter()
    for one in counts.slots.values():
        types.update(one.types)
    lives = state.pins.live_bytes
    written = counts.user_bytes + counts.moved_bytes
    return {
        "base_lsn": reader.heads.base_lsn, "end_lsn": overview.end_lsn, "container_bytes": size,
        "containers": len(reader.slots),
        "free_containers": len(reader.heads.free) + len(dead) + len(reader.heads.copied),
        "holes": len(reader.holes), "used_bytes": used, "live_bytes": lives,
        "live_ratio": round(lives / used, 4) if used else 0.0, "messages": state.on_queues,
        "records": types.total(), "types": dict(types), "user_bytes": counts.user_bytes,
        "relocated_bytes": counts.moved_bytes, "log_bytes": counts.own_bytes, "block_bytes": counts.block_bytes,
        "write_amplification": round(written / counts.user_bytes, 4) if counts.user_bytes else None,
        "checkpoint_lsn": overview.checkpoint_lsn or None,
        "checkpoint_age_s": round(time.time() - overview.checkpoint_time_s, 3) if overview.checkpoint_lsn else None,
        "closed": reader.heads.mark.closed, "read_bytes": overview.directory.read_bytes,
        "disk_free_bytes": _free_bytes(overview.path),
    }  # fmt: skip


def _free_bytes(path: str) -> int | None:
    with suppress(OSError):
        found = os.statvfs(path)
        return found.f_bavail * found.f_frsize
    return None
