"""Holes: slots of the log that were reclaimed although older ones are still needed.

The log consists of the slots from the base on, without its holes. While holes exist, every container begins with a
LogHoles record that lists them, so that the newest container is sufficient to find all of them. A slot that is missing
and is not a hole was lost. A hole also records the last block before it, because the part of the chain that would prove
completeness was reclaimed with it.

payload of LogHoles, for each hole in ascending order
offset  size  field
     0     8  first      slot
     8     8  slots      the number of slots, some of which may never have been started
    16     8  prev_lsn   the last block before the first slot; 0 without one

A broker that is killed before it stores anything leaves a slot that holds only openings of the log, and that may be
reclaimed without an archive. Each opening records how far back such slots reach, so that readers know that nothing is
missing with them.

payload of LogOpen; empty if the slot before holds anything else
offset  size  field
     0     8  prev_lsn   the last block before those slots; 0 without one
"""

from __future__ import annotations

import struct
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from .block import Block
from .record import HEAD_BYTES, MAX_PAYLOAD_BYTES, RecordType

_HOLE = struct.Struct("<QQQ")
_OPENINGS = struct.Struct("<Q")
HOLE_BYTES = _HOLE.size
MAX_HOLES = 2048
"""The maximum number of holes, so that the record stays below 64 KiB."""
_SHARE = 64
"""The part of a container (1 of 64) that the record of all holes at its start may take."""
_MORE_OF_OPENINGS = 4
"""The factor for the limit of holes from openings; those of consecutive starts form one hole."""


class Hole(NamedTuple):
    """Adjacent slots that are no longer part of the log."""

    first: int
    slots: int
    prev_lsn: int

    @property
    def end(self) -> int:
        """The first slot behind the hole."""
        return self.first + self.slots

    def holds(self, slot: int) -> bool:
        return self.first <= slot < self.end


def hole_with(holes: Sequence[Hole], slot: int) -> Hole | None:
    """Return the hole that *slot* is in, found by bisection, as a log may have thousands."""
    at = bisect_right(holes, slot, key=_first) - 1
    return holes[at] if at >= 0 and holes[at].holds(slot) else None


def _first(hole: Hole) -> int:
    return hole.first


def most(container_bytes: int) -> int:
    """Return the maximum number of holes; a slot that would need one more stays in the log."""
    return min(MAX_HOLES, container_bytes // (_SHARE * HOLE_BYTES))


def most_of_openings(container_bytes: int) -> int:
    """Return the maximum number of holes for slots that hold only openings, each of which a kill leaves behind."""
    return min(_MORE_OF_OPENINGS * most(container_bytes), MAX_PAYLOAD_BYTES // HOLE_BYTES)


def encode(holes: Iterable[Hole]) -> bytes:
    return b"".join(_HOLE.pack(*hole) for hole in holes)


def decode(payload: bytes | memoryview) -> list[Hole]:
    return [Hole(*fields) for fields in _HOLE.iter_unpack(payload)]


def add(holes: list[Hole], slot: int, prev_lsn: int, container_bytes: int) -> list[Hole]:
    """Return *holes* with *slot*, whose container named *prev_lsn* as the last block before it, and join neighbors."""
    new = Hole(slot, 1, prev_lsn)
    at = bisect_left(holes, new)
    before, after = holes[:at], holes[at:]
    if before and before[-1].holds(prev_lsn // container_bytes):
        first = before.pop()
        new = first._replace(slots=new.end - first.first)
    if after and new.holds(after[0].prev_lsn // container_bytes):
        new = new._replace(slots=after.pop(0).end - new.first)
    return [*before, new, *after]


def from_slot(holes: list[Hole], slot: int) -> list[Hole]:
    """Return the holes behind *slot*, which the log begins with."""
    return [hole for hole in holes if hole.first > slot]


def encode_openings(prev_lsn: int) -> bytes:
    """Return the payload of a LogOpen record after slots that hold only openings."""
    return _OPENINGS.pack(prev_lsn)


def openings_from(found: Block) -> int | None:
    """Return `prev_lsn` of the LogOpen record in *found*; None without one, or if its payload is empty."""
    kinds = bytes(found.body[: HEAD_BYTES * found.head.records : HEAD_BYTES])
    at = kinds.find(RecordType.LOG_OPEN)
    payload = b"" if at < 0 else found.payload(found.heads()[at])
    if len(payload) != _OPENINGS.size:
        return None
    prev_lsn: int = _OPENINGS.unpack(payload)[0]
    return prev_lsn if prev_lsn < found.lsn else None
