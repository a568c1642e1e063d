"""Metrics of the writer, updated once per flush, never per record.

One thread at a time counts, any thread reads. Related values are replaced together, so a reader never sees half of a
flush; a histogram may be one flush ahead of the next one.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from ...base.histogram import Histogram

FSYNC_BOUNDS_S = (
    0.00005, 0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0,
)  # fmt: skip
"""Bounds from a drive with a power-loss-protected cache to a failing one."""
RECORD_BOUNDS = tuple(float(2**n) for n in range(17))
BYTE_BOUNDS = tuple(float(2**n) for n in range(9, 25))
"""Bounds from one sector to more than the size of all waiting blocks."""
LAST_FLUSHES = 64


class Written(NamedTuple):
    """Totals of durable data since the log was opened."""

    flushes: int = 0
    blocks: int = 0
    records: int = 0
    record_bytes: int = 0
    """Heads and payloads of all records."""
    moved_bytes: int = 0
    """The size of the copies that compaction made, out of `record_bytes`."""
    own_bytes: int = 0
    """The size of the records of the log about itself, out of `record_bytes`."""
    block_bytes: int = 0
    """Whole blocks: block heads, records, and the padding up to the sector."""


class Meters:
    """The metrics of a journal's writer."""

    def __init__(self) -> None:
        self.written = Written()
        self.fsync_s = Histogram(FSYNC_BOUNDS_S)
        self.group_records = Histogram(RECORD_BOUNDS)
        self.group_bytes = Histogram(BYTE_BOUNDS)
        self.last_flushes: deque[tuple[int, float]] = deque(maxlen=LAST_FLUSHES)
        """The bytes that each of the last flushes wrote, and the seconds that it waited for the disk."""
