"""Totals of each queue, and its oldest message, from the message map."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from ...base.disk.seam import ReadableFile
from ...base.errors import CairnError
from ...journal.files.record_lookup import FoundRecord, read_head, read_record
from ...journal.format.record import HEAD_BYTES, RecordHead
from ...journal.read.scanner import LogReader
from ...store.message_map.message_entry import SIZE_BITS, SIZE_MASK
from ...store.message_map.state import State

T = TypeVar("T")


@dataclass
class QueueTotals:
    """The totals of one queue."""

    queue_id: int
    messages: int = 0
    bytes: int = 0
    """Heads and payloads of its messages' records; what is on several queues counts for each."""
    oldest_id: int = 0
    """The message with the lowest position."""
    oldest_position: int = 1 << 64


def queue_totals(state: State) -> list[QueueTotals]:
    """Return the totals of all queues with messages, the largest first."""
    found: dict[int, QueueTotals] = {}
    for queue_id, count, size_bytes, first_id in _plain(state):
        totals = found.setdefault(queue_id, QueueTotals(queue_id))
        totals.messages += count
        totals.bytes += size_bytes
        if first_id < totals.oldest_position:
            totals.oldest_id = totals.oldest_position = first_id
    for message_id, detailed in state.detailed.items():
        size_bytes = sum(size for _, size in detailed.records())
        for queue_id, (position, _) in detailed.queues.items():
            totals = found.setdefault(queue_id, QueueTotals(queue_id))
            totals.messages += 1
            totals.bytes += size_bytes
            if position < totals.oldest_position:
                totals.oldest_id, totals.oldest_position = message_id, position
    return sorted(found.values(), key=lambda totals: -totals.bytes)


def _plain(state: State) -> Iterator[tuple[int, int, int, int]]:
    """Yield for each page and queue the ID, the number of messages, their size, and the first message."""
    for page in state.pages.values():
        ids = np.fromiter(page.keys(), np.uint64, len(page))
        values: npt.NDArray[np.int64] = np.fromiter(page.values(), np.int64, len(page))
        queues, firsts, which, counts = np.unique(
            values >> SIZE_BITS, return_index=True, return_inverse=True, return_counts=True
        )
        sizes = np.bincount(which, weights=(values & SIZE_MASK) + HEAD_BYTES)
        yield from zip(queues.tolist(), counts.tolist(), map(int, sizes), ids[firsts].tolist(), strict=True)


def head_at(reader: LogReader, lsn: int) -> RecordHead | None:
    """The head of a record; None if it can't be read."""
    return _read_at(reader, lsn, read_head)


def record_at(reader: LogReader, lsn: int) -> FoundRecord | None:
    """The record at *lsn*, head and payload; None if it can't be read."""
    return _read_at(reader, lsn, read_record)


def _read_at(reader: LogReader, lsn: int, read: Callable[[ReadableFile, int, int, int], T]) -> T | None:
    with suppress(CairnError):
        slot = lsn // reader.container_bytes
        with closing(reader.directory.open(reader.heads.file_name(slot))) as file:
            return read(file, lsn, reader.container_bytes, reader.log_id)
    return None
