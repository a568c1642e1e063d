"""Content of a container that left the log.

Until its file is reused, a container holds its slot whole. If the power failed during reuse, any part may belong to the
new slot, while the head still names the old slot if the write of that sector was lost.
"""

from __future__ import annotations

from contextlib import suppress
from typing import NamedTuple

from ...base.disk.seam import File
from ..format import block
from ..format.block import BadBlock, BlockHead
from ..format.container import DATA_OFFSET
from ..format.record import HEAD, HEAD_BYTES, RecordHead
from .read_window import ReadWindow


class Content(NamedTuple):
    """The blocks that a container begins with."""

    last_lsn: int
    """The LSN of the last block; 0 without any."""
    end_lsn: int
    time_us: int
    """The time of the last record; 0 without any."""


def content_of(file: File, slot: int, container_bytes: int, log_id: int) -> Content:
    """Return the extent of the blocks of *slot* in *file*, up to the first place where no block follows."""
    window = ReadWindow(file, container_bytes)
    last = time_us = 0
    lsn = slot * container_bytes + DATA_OFFSET
    with suppress(BadBlock):
        while lsn % container_bytes:
            found = window.block_at(lsn, log_id)
            if found.head.records:
                at = HEAD_BYTES * (found.head.records - 1)
                time_us = RecordHead._make(HEAD.unpack_from(found.body, at)).time_us
            last, lsn = lsn, found.end_lsn
    return Content(last, lsn, time_us)


def is_complete(file: File, slot: int, container_bytes: int, log_id: int, next_prev_lsn: int) -> bool:
    """Return whether *file* holds the complete content of *slot*, as far as can be determined.

    *next_prev_lsn*: the last block before the next slot that is known.
    """
    content = content_of(file, slot, container_bytes, log_id)
    if not content.last_lsn:
        return False
    if next_prev_lsn // container_bytes <= slot:
        return content.last_lsn == next_prev_lsn  # in an older slot: the log went on without this one
    begin = slot * container_bytes
    data = file.read_at(0, container_bytes)
    for at in block.places_in(data, DATA_OFFSET):
        head = BlockHead._make(block.HEAD.unpack_from(data, at))
        if head.log_id == log_id and (head.lsn // container_bytes > slot or head.lsn == begin + at >= content.end_lsn):
            return False
    return True
