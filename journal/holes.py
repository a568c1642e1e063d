"""Holes: slots of the log that were given back although older ones are still needed.

The log is the slots from the base on, without its holes. They stand in a LogHoles record, which every container begins
with while there are any, so that the newest container tells of all of them: a slot that is missing and not a hole was
lost. A hole also remembers the last block before it, because the chain that would prove that nothing is missing there
went with it.

payload of LogHoles, for each hole in ascending order
offset  size  field
     0     8  first      slot
     8     8  slots      how many, among which there may be some that were never started
    16     8  prev_lsn   the last block before the first slot; 0 if there is none
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import NamedTuple

_HOLE = struct.Struct("<QQQ")
HOLE_BYTES = _HOLE.size
MAX_HOLES = 2048
"""So that the record stays below 64 KiB; a slot that would need one more hole stays in the log."""


class Hole(NamedTuple):
    """Adjacent slots that are no longer part of the log."""

    first: int
    slots: int
    prev_lsn: int

    @property
    def end(self) -> int:
        """The first slot behind it."""
        return self.first + self.slots

    def holds(self, slot: int) -> bool:
        return self.first <= slot < self.end


def encode(holes: Iterable[Hole]) -> bytes:
    return b"".join(_HOLE.pack(*hole) for hole in holes)


def decode(payload: bytes | memoryview) -> list[Hole]:
    return [Hole(*fields) for fields in _HOLE.iter_unpack(payload)]


def add(holes: list[Hole], slot: int, prev_lsn: int, container_bytes: int) -> list[Hole]:
    """*holes* and *slot*, whose container named *prev_lsn* as the last block before it; neighbours are joined."""
    joined: list[Hole] = []
    for hole in sorted([*holes, Hole(slot, 1, prev_lsn)]):
        before = joined[-1] if joined else None
        if before is not None and before.holds(hole.prev_lsn // container_bytes):
            joined[-1] = before._replace(slots=hole.end - before.first)
        else:
            joined.append(hole)
    return joined


def from_slot(holes: list[Hole], slot: int) -> list[Hole]:
    """The holes from *slot*, which the log begins with, on."""
    return [hole for hole in holes if hole.first > slot]
