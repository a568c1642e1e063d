"""A container is a file of fixed size that holds one slot of the log; slot n is the LSNs n * size .. (n + 1) * size.

Its first sector is the container head; blocks follow at the next sector. Files are named by their number, for example
`00000007.cairn`, and never renamed. The slot of a file is recorded only in its head, so recycling changes no name.

offset  size  field
     0     4  crc32c          of bytes 4 .. 80
     4     4  magic           "CNCT"
     8     2  format          1
    10     2  sector          size in bytes
    12     4  incarnation     in which the slot was started, or copied to this file (the later copy counts)
    16    16  log UUID
    32     8  container size  in bytes, the head included
    40     8  number          the file's, as in its name
    48     8  slot_lsn        the LSN of the file's first byte: slot * container size
    56     8  prev_lsn        the last block written before the slot was started
    64     8  base_lsn        of the log at that time
    72     8  time_us         at that time
"""

from __future__ import annotations

import struct
from functools import lru_cache
from typing import NamedTuple
from uuid import UUID

from crc32c import crc32c

from ...base.disk.seam import SECTOR_BYTES, ReadableFile
from ...base.errors import ForeignStore

FORMAT = 1
MAGIC = 0x54434E43
HEAD = struct.Struct("<IIHHI16sQQQQQQ")
SUFFIX = ".cairn"
DATA_OFFSET = SECTOR_BYTES
"""The position of the first block of a container."""


class ContainerHead(NamedTuple):
    """The fields of the container head in the order of the table above, without checksum, magic and format."""

    incarnation: int
    log_uuid: UUID
    container_bytes: int
    number: int
    slot_lsn: int
    prev_lsn: int
    base_lsn: int
    time_us: int

    @property
    def slot(self) -> int:
        return self.slot_lsn // self.container_bytes


class BadContainer(Exception):
    """The file has no valid container head; it may be a free container."""


@lru_cache(maxsize=8)
def uuid_of(data: bytes) -> UUID:
    """The UUID of a log: to make one takes longer than all the rest of a head, and all heads have the same."""
    return UUID(bytes=data)


def file_name(number: int) -> str:
    return f"{number:08d}{SUFFIX}"


def file_number(name: str) -> int | None:
    """The number in a container's file name, None if *name* is not one."""
    stem = name.removesuffix(SUFFIX)
    return int(stem) if name.endswith(SUFFIX) and len(stem) == 8 and stem.isdecimal() else None


def encode_head(head: ContainerHead) -> bytes:
    """Encode the head of a container in one sector."""
    incarnation, log_uuid, *rest = head
    return in_sector(HEAD.pack(0, MAGIC, FORMAT, SECTOR_BYTES, incarnation, log_uuid.bytes, *rest))


def in_sector(head: bytes) -> bytes:
    """Return a sector with *head*, whose first four bytes become the checksum of the others."""
    return (struct.pack("<I", crc32c(head[4:])) + head[4:]).ljust(SECTOR_BYTES, b"\0")


def decode_head(data: bytes, place: str) -> ContainerHead:
    """Decode the head of a container. Raises `BadContainer` for an invalid head, `ForeignStore` for a newer format."""
    if len(data) < HEAD.size:
        raise BadContainer(f"{len(data)} bytes, a container head takes {HEAD.size}")
    crc, magic, version, sector, incarnation, uuid, *rest = HEAD.unpack_from(data)
    if magic != MAGIC:
        raise BadContainer("never used" if not any(data) else "no magic number")
    if crc != crc32c(data[4 : HEAD.size]):
        raise BadContainer("checksum of the container head fails")
    if version > FORMAT or sector != SECTOR_BYTES:
        raise ForeignStore(
            place,
            f"container format {version} with sectors of {sector} bytes is newer than this program's format {FORMAT}",
            "use the CairnMQ version that wrote it",
        )
    size, _, slot_lsn, *_ = rest
    if size <= DATA_OFFSET or slot_lsn % size:
        raise BadContainer(f"wrong size of {size} bytes for LSN {slot_lsn}")
    return ContainerHead(incarnation, uuid_of(uuid), *rest)


def read_head(file: ReadableFile, place: str) -> ContainerHead:
    """The head of *file*; see `decode_head`."""
    return decode_head(file.read_at(0, SECTOR_BYTES), place)
