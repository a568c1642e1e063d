"""One record by its LSN: three small reads, checked by the payload's own checksum."""

from __future__ import annotations

from typing import NamedTuple

from crc32c import crc32c

from ..base.errors import JournalError
from ..disk.seam import File
from .block import BLOCK_HEAD_BYTES, BadBlock, peek
from .record import HEAD, HEAD_BYTES, MAX_PAYLOAD_BYTES, RecordHead


class FoundRecord(NamedTuple):
    """A record read back from the disk."""

    lsn: int
    head: RecordHead
    payload: bytes


def read_record(file: File, lsn: int, container_bytes: int, log_id: int) -> FoundRecord:
    """The record whose head stands at *lsn*, in the container *file* that holds it. Raises `JournalError`.

    Any thread may call it for a record that is durable.
    """
    place = f"LSN {lsn}"
    offset = lsn % container_bytes
    raw = file.read_at(offset, HEAD_BYTES)
    if len(raw) < HEAD_BYTES:
        raise JournalError(place, "no record stands there: the container ends")
    head = RecordHead._make(HEAD.unpack(raw))
    before = HEAD_BYTES * head.number + BLOCK_HEAD_BYTES
    if before > offset:
        raise JournalError(place, "no record stands there")
    try:
        block = peek(memoryview(file.read_at(offset - before, BLOCK_HEAD_BYTES)), lsn - before, log_id)
    except BadBlock as error:
        raise JournalError(place, f"no record stands there: {error.why}") from error
    if head.number >= block.records or head.size > MAX_PAYLOAD_BYTES:
        raise JournalError(place, "no record stands there")
    start = offset - before + BLOCK_HEAD_BYTES + HEAD_BYTES * block.records + head.place
    payload = file.read_at(start, head.size)
    if crc32c(payload) != head.crc32c:
        raise JournalError(
            place, f"checksum fails over a payload of {head.size} bytes", "`cairnmq dump` shows what is damaged"
        )
    return FoundRecord(lsn, head, payload)
