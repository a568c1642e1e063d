"""Entries of messages that are new on a queue."""

from __future__ import annotations

from collections.abc import Sequence

from ..kernel.memory_budget import ENTRY_BYTES
from ..messages.entry import Entry
from ..messages.message_times import TimedEntry, times_of
from .queue import Queue


def entries_of(queue: Queue, kept: Sequence[tuple[bytes, bool]], ids: Sequence[int], timed: bool) -> list[Entry]:
    """Return new entries on *queue*, in the order of *ids*; *kept* has each content, and whether it is stored.

    *timed*: some may have times.
    """
    positions = queue.positions
    if not queue.queue_id:
        ids = ()
    if len(ids) == len(kept) and not timed:
        return [
            Entry(message_id, next(positions), content, len(content) + ENTRY_BYTES)
            for (content, _), message_id in zip(kept, ids, strict=True)
        ]
    fresh = iter(ids)
    entries: list[Entry] = []
    for content, stored in kept:
        message_id, position = next(fresh) if stored and ids else 0, next(positions)
        times = times_of(content, queue.policy.message_ttl_ms) if timed else None
        if times is None:
            entries.append(Entry(message_id, position, content, len(content) + ENTRY_BYTES))
        else:
            queue.begin_timing()
            entries.append(TimedEntry(message_id, position, content, len(content) + ENTRY_BYTES, times))
    return entries
