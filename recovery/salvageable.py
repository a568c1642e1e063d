"""Identification of a damaged container from its blocks, and findings of damage.

A container's head names the slot of the log that the file holds. If it can't be read, the blocks identify the slot:
each holds its LSN and its log, and only the newest use of the file can hold the highest slot.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple
from uuid import UUID

from ..base.disk.seam import SECTOR_BYTES, ReadableFile
from ..base.errors import CairnError
from ..base.texts import counted
from ..journal.format import block, container
from ..journal.format.block import BadBlock, BlockHead
from ..journal.format.container import DATA_OFFSET, BadContainer

MOST_BYTES = 1 << 30
"""The largest container. Larger files are not searched for blocks: they would be read into memory as a whole."""


@dataclass(frozen=True)
class Finding:
    """Damage: the range `first_lsn .. end_lsn` is unreadable, or differs from what was written."""

    kind: Literal["corrupt", "torn"]
    """Torn if the range is behind the durability mark, as after a power failure; else corrupt."""
    first_lsn: int
    end_lsn: int
    place: str
    """The name of the file; empty if no file is affected."""
    reason: str

    def sentence(self) -> str:
        size = self.end_lsn - self.first_lsn
        where = self.place or "no container"
        lost = f"{counted(size, 'byte')} up to LSN {self.end_lsn}: " if size else ""
        return f"{where}: {lost}{self.reason}"

    def fields(self) -> dict[str, object]:
        return {
            "kind": self.kind, "first_lsn": self.first_lsn, "end_lsn": self.end_lsn,
            "size_bytes": self.end_lsn - self.first_lsn, "file": self.place or None, "reason": self.reason,
        }  # fmt: skip


class ContainerPosition(NamedTuple):
    """Position of a container without a head, as its blocks give it."""

    slot: int
    log_id: int
    durable_lsn: int


def position_by_blocks(file: ReadableFile, container_bytes: int, log_id: int | None) -> ContainerPosition | None:
    """Return the slot that the newest complete blocks in *file* name; None without any. *log_id* None: of any log."""
    if container_bytes > MOST_BYTES:
        return None
    data = file.read_at(0, container_bytes)
    found: ContainerPosition | None = None
    for at in block.places_in(data, DATA_OFFSET):
        head = BlockHead._make(block.HEAD.unpack_from(data, at))
        if head.lsn % container_bytes != at or log_id not in (None, head.log_id):
            continue
        try:
            block.decode(memoryview(data)[at:], head.lsn, head.log_id)
        except BadBlock:
            continue
        slot = head.lsn // container_bytes
        if found is None or slot > found.slot:
            found = ContainerPosition(slot, head.log_id, head.durable_lsn)
        elif slot == found.slot:
            found = found._replace(durable_lsn=max(found.durable_lsn, head.durable_lsn))
    return found


def try_head(file: ReadableFile, place: str) -> tuple[bytes, str]:
    """Return the first sector, and the reason why it is not a valid head ("" if it is)."""
    sector = file.read_at(0, SECTOR_BYTES)
    try:
        container.decode_head(sector, place)
    except BadContainer as error:
        return sector, str(error)
    except CairnError as error:
        return sector, error.reason
    return sector, ""


def head_finding(name: str, slot_lsn: int, reason: str, claim_lsn: int) -> Finding:
    """Return the finding for an unreadable container head: corrupt if *claim_lsn* lies above its slot, else torn."""
    return Finding("corrupt" if claim_lsn > slot_lsn else "torn", slot_lsn, slot_lsn + DATA_OFFSET, name, reason)


def log_id_of(log_uuid: UUID) -> int:
    """Return the log ID that block heads hold: the first 8 bytes of *log_uuid*."""
    return int.from_bytes(log_uuid.bytes[:8], "little")
