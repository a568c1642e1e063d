"""A block is what one group commit writes: a head, the record heads side by side, the payloads, zeros up to the sector.

offset  size  field
     0     4  crc32c       of bytes 4 .. size
     4     4  magic        "CNBK"
     8     2  format       1
    10     2  flags        1: acquisitions are recorded (`ACQUISITIONS`)
    12     4  records      how many
    16     4  size         head, record heads and payloads in bytes, without the padding
    20     4  incarnation  of the log: how many times it was opened for writing
    24     8  lsn          the position of the block in the log
    32     8  prev_lsn     the block before it; 0 for the first of all
    40     8  durable_lsn  every byte below this was known to be on the disk when the block was written
    48     8  base_lsn     every record below this was dead when the block was written
    56     8  log_id       the first half of the log's UUID
    64  64 * records        record heads
     .     .               payloads

A block lies within one container and starts at a sector. It is valid only at the position `lsn`, in the log `log_id`.
Zeros, blocks of an earlier use of the container, and blocks of another store therefore never decode.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from crc32c import crc32c

from ...base.disk.seam import SECTOR_BYTES
from .record import HEAD_BYTES, TABLE, RecordHead, heads_of

FORMAT = 1
MAGIC = 0x4B424E43
MAGIC_BYTES, _MAGIC_OFFSET = MAGIC.to_bytes(4, "little"), 4
HEAD = struct.Struct("<IIHHIIIQQQQQ")
CRC = struct.Struct("<I")
BLOCK_HEAD_BYTES = HEAD.size
ACQUISITIONS = 1
"""While this block gathered, every acquisition of a stored message was appended as a note."""
MAX_RECORDS = 0xFFFF
_NOTHING = bytes(BLOCK_HEAD_BYTES)
_new = tuple.__new__  # `_make` counts the fields, which takes longer than the rest


class BlockHead(NamedTuple):
    """The fields of the table above."""

    crc32c: int
    magic: int
    format: int
    flags: int
    records: int
    size_bytes: int
    incarnation: int
    lsn: int
    prev_lsn: int
    durable_lsn: int
    base_lsn: int
    log_id: int


class BadBlock(Exception):
    """The bytes at *lsn* are not one complete block of this log."""

    def __init__(self, lsn: int, reason: str) -> None:
        super().__init__(f"no block at LSN {lsn}: {reason}")
        self.lsn = lsn
        self.reason = reason


class Block(NamedTuple):
    """A decoded block; `body` holds the record heads and the payloads."""

    head: BlockHead
    body: memoryview

    @property
    def lsn(self) -> int:
        return self.head.lsn

    @property
    def end_lsn(self) -> int:
        return self.head.lsn + padded(self.head.size_bytes)

    def record_lsn(self, number: int) -> int:
        return self.head.lsn + BLOCK_HEAD_BYTES + HEAD_BYTES * number

    def heads(self) -> list[RecordHead]:
        return list(heads_of(self.body[: HEAD_BYTES * self.head.records]))

    def table(self) -> npt.NDArray[np.void]:
        """The record heads, not copied, with the fields of `record.TABLE`."""
        return np.frombuffer(self.body, TABLE, self.head.records)

    def payload(self, head: RecordHead) -> memoryview:
        start = HEAD_BYTES * self.head.records + head.place
        return self.body[start : start + head.size]

    def payload_lsn(self, head: RecordHead) -> int:
        """The log address of the payload's first byte."""
        return self.head.lsn + BLOCK_HEAD_BYTES + HEAD_BYTES * self.head.records + head.place


def padded(size_bytes: int) -> int:
    """Return *size_bytes* rounded up to a multiple of the sector size."""
    return -(-size_bytes // SECTOR_BYTES) * SECTOR_BYTES


def places_in(data: bytes, first: int) -> Iterator[int]:
    """Yield the offsets from *first* on of the sectors that may begin a block. Fast where there are none."""
    at = data.find(MAGIC_BYTES, first)
    while 0 <= at <= len(data) - BLOCK_HEAD_BYTES:
        if at % SECTOR_BYTES == _MAGIC_OFFSET:
            yield at - _MAGIC_OFFSET
        at = data.find(MAGIC_BYTES, at + 1)


def encode(
    heads: bytes | bytearray | memoryview,
    payloads: list[bytes],
    payload_bytes: int,
    *,
    lsn: int,
    prev_lsn: int,
    incarnation: int,
    durable_lsn: int,
    base_lsn: int,
    log_id: int,
    flags: int = 0,
) -> bytearray:
    """The block's bytes, padded. *heads* is the packed head table, *payloads* the records' payloads in order."""
    size = BLOCK_HEAD_BYTES + len(heads) + payload_bytes
    count = len(heads) // HEAD_BYTES
    head = HEAD.pack(0, MAGIC, FORMAT, flags, count, size, incarnation, lsn, prev_lsn, durable_lsn, base_lsn, log_id)
    data = bytearray().join((head, heads, *payloads, bytes(-size % SECTOR_BYTES)))
    CRC.pack_into(data, 0, crc32c(memoryview(data)[4:size]))
    return data


def peek(view: memoryview, lsn: int, log_id: int) -> BlockHead:
    """The block head at the start of *view* if it claims to be a block of this log at *lsn*; no checksum is done."""
    if len(view) < BLOCK_HEAD_BYTES:
        raise BadBlock(lsn, f"{len(view)} bytes left, a head takes {BLOCK_HEAD_BYTES}")
    head = _new(BlockHead, HEAD.unpack_from(view))
    if head.magic != MAGIC:
        raise BadBlock(lsn, "nothing was written there" if view[:BLOCK_HEAD_BYTES] == _NOTHING else "no magic number")
    if head.lsn != lsn:
        raise BadBlock(lsn, f"stale: it claims LSN {head.lsn}")
    if head.log_id != log_id:
        raise BadBlock(lsn, f"foreign: it belongs to log {head.log_id:016x}")
    if head.format > FORMAT:
        raise BadBlock(lsn, f"its format {head.format} is newer than {FORMAT}")
    if head.size_bytes < BLOCK_HEAD_BYTES + HEAD_BYTES * head.records:
        raise BadBlock(lsn, f"{head.records} records do not fit its size of {head.size_bytes}")
    return head


def decode(view: memoryview, lsn: int, log_id: int) -> Block:
    """Decode the block at *lsn*, the start of *view*. Pure: a test needs only bytes. Raises `BadBlock`."""
    return complete(peek(view, lsn, log_id), view)


def complete(head: BlockHead, view: memoryview) -> Block:
    """Return the block at the start of *view* whose *head* `peek` returned, if its checksum proves that it is complete.
    """
    if head.size_bytes > len(view):
        raise BadBlock(head.lsn, f"its size of {head.size_bytes} passes the end of the container")
    if crc32c(view[4 : head.size_bytes]) != head.crc32c:
        raise BadBlock(head.lsn, f"checksum fails over {head.size_bytes} bytes")
    return Block(head, view[BLOCK_HEAD_BYTES : head.size_bytes])
