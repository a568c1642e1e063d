"""Containers as found in a directory, and what their blocks record: the log before each, and its durable end."""

from __future__ import annotations

import os
from bisect import bisect_left
from contextlib import closing, suppress
from dataclasses import dataclass
from typing import NamedTuple

from ...base.disk.real import RealFile
from ...base.disk.seam import SECTOR_BYTES
from ...base.errors import DiskError
from ...journal.format import block, container
from ...journal.format.block import BadBlock, Block
from ...journal.format.container import DATA_OFFSET, ContainerHead
from ...journal.format.holes import openings_from


@dataclass(frozen=True)
class KnownContainer:
    """A container that a directory holds."""

    path: str
    head: ContainerHead
    raw: bytes
    is_archived: bool


def _first_block(known: KnownContainer, log_id: int) -> Block | None:
    """The container's first block, if there is a complete one."""
    with closing(RealFile(known.path, os.O_RDONLY)) as file, suppress(BadBlock):
        lsn, size = known.head.slot_lsn + DATA_OFFSET, known.head.container_bytes
        view = memoryview(file.read_at(DATA_OFFSET, SECTOR_BYTES))
        head = block.peek(view, lsn, log_id)
        if head.size_bytes > len(view):
            view = memoryview(file.read_at(DATA_OFFSET, min(head.size_bytes, size - DATA_OFFSET)))
        return block.complete(head, view)
    return None


class Before(NamedTuple):
    """The log before a container."""

    prev_lsn: int
    """The last block before it; 0 without one. Always below the container, so that a chain of them ends."""
    kept_lsn: int
    """The last block before it in a slot that exists, or held more than openings; 0 if unknown."""
    openings_lsn: int
    """The start of the missing slots before it that held nothing but openings, or its own start."""

    @classmethod
    def of(cls, one: KnownContainer, slots: list[int], log_id: int) -> Before:
        """Return the log before *one*; *slots*: the existing ones."""
        slot_lsn, size = one.head.slot_lsn, one.head.container_bytes
        prev_lsn = one.head.prev_lsn if one.head.prev_lsn < slot_lsn else 0
        at = bisect_left(slots, one.head.slot)
        nearest = slots[at - 1] if at else -1
        if not slot_lsn or (prev_lsn and nearest >= prev_lsn // size):
            return cls(prev_lsn, prev_lsn, slot_lsn)
        first = _first_block(one, log_id)
        if not prev_lsn and first is not None and first.head.prev_lsn < slot_lsn:
            prev_lsn = first.head.prev_lsn  # the head was reconstructed from the blocks, or is wrong
        noted = None if first is None else openings_from(first)
        if noted is None or nearest >= prev_lsn // size:
            return cls(prev_lsn, prev_lsn, slot_lsn)
        first_slot = noted // size + 1 if noted else 0
        return cls(prev_lsn, noted if nearest < first_slot else 0, max(first_slot, nearest + 1) * size)


def recorded_durable_lsn(known: dict[int, KnownContainer], container_bytes: int, log_id: int) -> int:
    """Return the durable LSN in the newest complete block."""
    for slot in sorted(known, reverse=True):
        try:
            file = RealFile(known[slot].path, os.O_RDONLY)
        except DiskError:
            continue  # it left the log since
        with closing(file):
            if file.read_at(0, container.HEAD.size) != known[slot].raw:
                continue
            found = _last_claim(memoryview(file.read_at(0, container_bytes)), slot * container_bytes, log_id)
            if file.read_at(0, container.HEAD.size) == known[slot].raw and found:
                return found
    return 0


def _last_claim(data: memoryview, slot_lsn: int, log_id: int) -> int:
    """Return the highest `durable_lsn` of the chained blocks from the beginning of a container."""
    claim, at = 0, DATA_OFFSET
    with suppress(BadBlock):
        while at < len(data):
            found = block.decode(data[at:], slot_lsn + at, log_id)
            claim = max(claim, found.head.durable_lsn)
            at = found.end_lsn - slot_lsn
    return claim
