"""What a damaged container still tells, and how damage is told.

A container's head says which slot of the log the file holds. If it can't be read, the blocks say it too: each knows its
LSN and its log, and only the newest life of the file can hold the highest slot.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple
from uuid import UUID

from ..base.errors import CairnError
from ..disk.seam import SECTOR_BYTES, File
from ..journal import block, container
from ..journal.block import BLOCK_HEAD_BYTES, BadBlock, BlockHead
from ..journal.container import DATA_OFFSET, BadContainer

_MAGIC = block.MAGIC.to_bytes(4, "little")
_MAGIC_OFFSET = 4


@dataclass(frozen=True)
class Finding:
    """Damage: what lies in `first_lsn .. end_lsn` can't be read, or is not what was written."""

    kind: Literal["corrupt", "torn"]
    """Torn if no claim says that it ever was on the disk; such a thing a power cut does."""
    first_lsn: int
    end_lsn: int
    place: str
    """The file's name, "" if there is none."""
    why: str

    def sentence(self) -> str:
        size = self.end_lsn - self.first_lsn
        where = self.place or "no container"
        return f"{where}: {size} bytes up to LSN {self.end_lsn}: {self.why}" if size else f"{where}: {self.why}"

    def fields(self) -> dict[str, object]:
        return {
            "kind": self.kind, "first_lsn": self.first_lsn, "end_lsn": self.end_lsn,
            "size_bytes": self.end_lsn - self.first_lsn, "file": self.place or None, "why": self.why,
        }  # fmt: skip


class Told(NamedTuple):
    """What the blocks of a container without a head tell."""

    slot: int
    log_id: int
    durable_lsn: int


def told_by_blocks(file: File, container_bytes: int, log_id: int | None) -> Told | None:
    """The slot that the newest whole blocks in *file* say they are in; None without any. *log_id* None: of any."""
    data = file.read_at(0, container_bytes)
    found: Told | None = None
    for at in block_places(data):
        head = BlockHead._make(block.HEAD.unpack_from(data, at))
        if head.lsn % container_bytes != at or log_id not in (None, head.log_id):
            continue
        try:
            block.decode(memoryview(data)[at:], head.lsn, head.log_id)
        except BadBlock:
            continue
        slot = head.lsn // container_bytes
        if found is None or slot > found.slot:
            found = Told(slot, head.log_id, head.durable_lsn)
        elif slot == found.slot:
            found = found._replace(durable_lsn=max(found.durable_lsn, head.durable_lsn))
    return found


def block_places(data: bytes, first: int = DATA_OFFSET) -> Iterator[int]:
    """The sectors of a container that may begin a block, quickly found: a large one may hold nothing at all."""
    place = data.find(_MAGIC, first)
    while 0 <= place <= len(data) - BLOCK_HEAD_BYTES:
        if place % SECTOR_BYTES == _MAGIC_OFFSET:
            yield place - _MAGIC_OFFSET
        place = data.find(_MAGIC, place + 1)


def try_head(file: File, place: str) -> tuple[bytes, str]:
    """The first sector, and what is wrong with it ("" if nothing is)."""
    sector = file.read_at(0, SECTOR_BYTES)
    try:
        container.decode_head(sector, place)
    except BadContainer as error:
        return sector, str(error)
    except CairnError as error:
        return sector, error.reason
    return sector, ""


def head_finding(name: str, slot_lsn: int, why: str, claim_lsn: int) -> Finding:
    """A container head that could not be read, and what the highest claim makes of it."""
    return Finding("corrupt" if claim_lsn > slot_lsn else "torn", slot_lsn, slot_lsn + DATA_OFFSET, name, why)


def log_id_of(log_uuid: UUID) -> int:
    """As it stands in block heads."""
    return int.from_bytes(log_uuid.bytes[:8], "little")
