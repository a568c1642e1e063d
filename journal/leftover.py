"""What a container that left the log still holds.

Until its file is used again it holds its slot whole. Of one that was being used again when the power failed, any part
may be of the new life; its head is of the old one all the same if that sector was among the lost.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from ..disk.seam import SECTOR_BYTES, File
from . import block
from .block import BLOCK_HEAD_BYTES, BadBlock, BlockHead
from .container import DATA_OFFSET
from .record import HEAD, HEAD_BYTES, RecordHead
from .window import Window

_MAGIC = block.MAGIC.to_bytes(4, "little")
_MAGIC_OFFSET = 4


class Content(NamedTuple):
    """The blocks that a container begins with."""

    last_lsn: int
    """Of the last block; 0 if there is none."""
    end_lsn: int
    time_us: int
    """When its last record was appended; 0 if there is none."""


def content_of(file: File, slot: int, container_bytes: int, log_id: int) -> Content:
    """What *file* holds of *slot*, up to the first place where no block follows."""
    window = Window(file, container_bytes)
    last = time_us = 0
    lsn = slot * container_bytes + DATA_OFFSET
    try:
        while True:
            offset = lsn % container_bytes
            if not offset:
                break
            head = block.peek(window.at(offset, BLOCK_HEAD_BYTES), lsn, log_id)
            found = block.decode(window.at(offset, head.size_bytes), lsn, log_id)
            if head.records:
                at = HEAD_BYTES * (head.records - 1)
                time_us = RecordHead._make(HEAD.unpack_from(found.body, at)).time_us
            last, lsn = lsn, found.end_lsn
    except BadBlock:
        pass
    return Content(last, lsn, time_us)


def is_whole(file: File, slot: int, container_bytes: int, log_id: int, next_prev_lsn: int) -> bool:
    """Whether *file* holds all there ever was of *slot*, as far as anything tells.

    *next_prev_lsn*: the last block before the next slot that is known.
    """
    content = content_of(file, slot, container_bytes, log_id)
    if not content.last_lsn:
        return False
    if next_prev_lsn // container_bytes <= slot:
        return content.last_lsn == next_prev_lsn  # in an older slot: the log went on without this one
    begin = slot * container_bytes
    for at, head in _block_heads(file.read_at(0, container_bytes)):
        if head.log_id == log_id and (head.lsn // container_bytes > slot or head.lsn == begin + at >= content.end_lsn):
            return False
    return True


def _block_heads(data: bytes) -> Iterator[tuple[int, BlockHead]]:
    """What stands in *data* where a block may begin."""
    at = data.find(_MAGIC, DATA_OFFSET)
    while 0 <= at <= len(data) - BLOCK_HEAD_BYTES:
        if at % SECTOR_BYTES == _MAGIC_OFFSET:
            yield at - _MAGIC_OFFSET, BlockHead._make(block.HEAD.unpack_from(data, at - _MAGIC_OFFSET))
        at = data.find(_MAGIC, at + 1)
