"""Records by their LSN, each checked by its payload's own checksum: one in three small reads, many by windows.

Who reads a backlog asks for records that stand close together. Then one large read brings whole blocks of them, and
what is left per record is to unpack its head, cut out the payload and check it. Whatever does not look right in a
window is looked up once more by itself, which either finds it or says clearly what is wrong.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from itertools import islice
from typing import NamedTuple

from crc32c import crc32c

from ..base.errors import CairnError, DiskError, JournalError
from ..disk.seam import File
from .block import BLOCK_HEAD_BYTES, BadBlock, peek
from .record import HEAD, HEAD_BYTES, MAX_PAYLOAD_BYTES, RecordHead

WINDOW_BYTES = 1 << 20
"""One read of many records: no block is longer."""
_DENSE = 8
"""Fewer records than this within a window are read one by one."""
_unpack_place = struct.Struct("<2xHIII").unpack_from
"""Of a record head: number, place, size, CRC."""


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


def read_payloads(
    file: File, lsns: Sequence[int], most_bytes: int, container_bytes: int, log_id: int
) -> list[bytes | CairnError]:
    """The payloads of the records at *lsns*, all of them in the container *file*; an error where one can't be read.

    Stops behind the payload with which *most_bytes* is reached, so there may be fewer. Best in ascending order.
    """
    found: list[bytes | CairnError] = []
    left = most_bytes
    window = _Window(file, container_bytes)
    while len(found) < len(lsns) and left > 0:
        lsn = lsns[len(found)]
        ahead = lsns[min(len(found) + _DENSE, len(lsns)) - 1] - lsn
        some: list[bytes | CairnError] = []
        if len(lsns) - len(found) >= _DENSE and 0 <= ahead < WINDOW_BYTES:
            some += _read_block(window, lsns, len(found), left, container_bytes, log_id)
        if not some:
            some.append(_read_alone(file, lsn, container_bytes, log_id))
        found += some
        left -= sum(len(payload) for payload in some if isinstance(payload, bytes))
    return found


def _read_block(
    window: _Window, lsns: Sequence[int], at: int, most_bytes: int, container_bytes: int, log_id: int
) -> list[bytes]:
    """Payloads from *lsns[at]* on, as far as they stand in its block and can be read."""
    lsn = lsns[at]
    offset = lsn % container_bytes
    found: list[bytes] = []
    try:
        data, base = window.at(offset, HEAD_BYTES)
        first = offset - HEAD_BYTES * _unpack_place(data, offset - base)[0]
        begin = first - BLOCK_HEAD_BYTES
        data, base = window.at(begin, BLOCK_HEAD_BYTES)
        head = peek(memoryview(data)[begin - base :], lsn - offset + begin, log_id)
        if begin + head.size_bytes > container_bytes:
            return found
        data, base = window.at(begin, head.size_bytes)
    except (BadBlock, DiskError, struct.error):
        return found
    low = lsn - offset + first
    high = low + HEAD_BYTES * head.records
    heads, payloads = first - base, first - base + HEAD_BYTES * head.records
    for lsn in islice(lsns, at, None):
        if not low <= lsn < high or most_bytes <= 0:
            break
        number, place, size, crc = _unpack_place(data, heads + lsn - low)
        payload = data[payloads + place : payloads + place + size]
        if crc32c(payload) != crc or len(payload) != size or HEAD_BYTES * number != lsn - low:
            break
        found.append(payload)
        most_bytes -= size
    return found


def _read_alone(file: File, lsn: int, container_bytes: int, log_id: int) -> bytes | CairnError:
    try:
        return read_record(file, lsn, container_bytes, log_id).payload
    except CairnError as error:
        return error


class _Window:
    """The part of a container that was read last."""

    def __init__(self, file: File, container_bytes: int) -> None:
        self._file = file
        self._container_bytes = container_bytes
        self._start = 0
        self._data = b""

    def at(self, offset: int, size_bytes: int) -> tuple[bytes, int]:
        """Bytes that hold *size_bytes* from *offset* on, fewer only where the container ends; and where they begin."""
        if offset < 0:
            raise BadBlock(offset, "it would begin before its container")
        if offset < self._start or offset + size_bytes > self._start + len(self._data):
            size = max(size_bytes, min(WINDOW_BYTES, self._container_bytes - offset))
            self._data, self._start = self._file.read_at(offset, size), offset
        return self._data, self._start
