"""The chain from one container to the next, where they lie in a log and in an archive.

Each container names the last block before it (`prev_lsn`). The containers of two stores of one origin (a copy, or two
stores restored from one backup) have the same names and the same log UUID. Where the containers of one follow those of
the other, that block is missing, or a slot has two different heads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from typing import NamedTuple

from ...base.disk.seam import ReadableFile
from ...base.errors import DiskError, ForeignStore
from ..format import block, container
from ..format.block import BLOCK_HEAD_BYTES, BadBlock
from ..format.container import BadContainer, ContainerHead


class ChainedContainer(NamedTuple):
    """A container of a log or of its archive."""

    place: str
    head: ContainerHead
    open: Callable[[], ReadableFile]


class ChainBreak(NamedTuple):
    """Two containers that are not of one history."""

    earlier: ChainedContainer
    later: ChainedContainer
    reason: str


def chain_breaks(containers: Iterable[ChainedContainer], log_id: int) -> Iterator[ChainBreak]:
    """Yield the pairs among *containers* that do not belong together, in the order of LSNs.

    One block head is read per container. A container without its predecessor is not compared: that is a gap.
    """
    by_slot: dict[int, ChainedContainer] = {}
    for one in sorted(containers, key=lambda one: (one.head.slot, one.head.incarnation)):
        head, twin = one.head, by_slot.get(one.head.slot)
        if twin is not None and twin.head._replace(number=0) != head._replace(number=0):
            yield ChainBreak(twin, one, f"{one.place} is another container of LSN {head.slot_lsn}")
        by_slot[head.slot] = one
        earlier = by_slot.get(head.prev_lsn // head.container_bytes) if head.prev_lsn else None
        if earlier is not None and earlier.head.slot != head.slot and not _has_block(earlier, head.prev_lsn, log_id):
            yield ChainBreak(earlier, one, f"it lacks the block at LSN {head.prev_lsn}, which precedes {one.place}")


def check_history(containers: Iterable[ChainedContainer], log_id: int) -> None:
    """Raise `ForeignStore` if *containers*, those of a log and of its archive, are not of one history."""
    found = next(chain_breaks(containers, log_id), None)
    if found is not None:
        remedy = ("another store of the same origin used this archive: leave the archive out, or move the other's "
                  "files (`cairnmq verify --archive-dir` lists the places)")  # fmt: skip
        raise ForeignStore(found.earlier.place, f"not of the history of {found.later.place}: {found.reason}", remedy)


def _has_block(one: ChainedContainer, lsn: int, log_id: int) -> bool:
    try:
        with closing(one.open()) as file:
            try:
                block.peek(memoryview(file.read_at(lsn % one.head.container_bytes, BLOCK_HEAD_BYTES)), lsn, log_id)
            except BadBlock:
                return container.read_head(file, one.place) != one.head  # it was reused meanwhile
    except (BadContainer, DiskError):
        return True  # unreadable, or it left the archive since: no evidence
    return True
