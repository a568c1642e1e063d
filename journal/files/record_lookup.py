"""Records by their LSN, each checked by its payload's own checksum: one in three small reads, many by windows.

Readers of a backlog request records that are close together. One large read then returns whole blocks of them, and each
record only costs unpacking its head, slicing the payload and checking it. A record that looks wrong in a window is
looked up again by itself, which either finds it or raises a precise error.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import NamedTuple

from crc32c import crc32c

from ...base.disk.seam import ReadableFile
from ...base.errors import CairnError, DiskError, JournalError
from ..format.block import BLOCK_HEAD_BYTES, BadBlock, peek
from ..format.record import HEAD, HEAD_BYTES, MAX_PAYLOAD_BYTES, RecordHead
from .read_window import WINDOW_BYTES, ReadWindow

SEE_DUMP = "`cairnmq dump` shows records and damage"
"""The remedy of errors about records."""
_DENSE = 8
"""Fewer records than this within a window are read one by one."""
_unpack_place = struct.Struct("<2xHIII").unpack_from
"""Unpacks number, place, size and CRC of a record head."""


class FoundRecord(NamedTuple):
    """A record read back from the disk."""

    lsn: int
    head: RecordHead
    payload: bytes


def read_record(file: ReadableFile, lsn: int, container_bytes: int, log_id: int) -> FoundRecord:
    """Return the record whose head is at *lsn*, in the container *file* that holds it. Raises `JournalError`.

    Any thread may call it for a record that is durable.
    """
    head, payloads = _read_head(file, lsn, container_bytes, log_id)
    payload = file.read_at(payloads + head.place, head.size)
    if crc32c(payload) != head.crc32c:
        raise JournalError(f"LSN {lsn}", f"checksum fails over a payload of {head.size} bytes", SEE_DUMP)
    return FoundRecord(lsn, head, payload)


def read_head(file: ReadableFile, lsn: int, container_bytes: int, log_id: int) -> RecordHead:
    """Return the head of the record at *lsn*, without its payload. Raises `JournalError`."""
    return _read_head(file, lsn, container_bytes, log_id)[0]


def _read_head(file: ReadableFile, lsn: int, container_bytes: int, log_id: int) -> tuple[RecordHead, int]:
    """Return the head, and the offset in *file* at which the payloads of its block begin."""
    place = f"LSN {lsn}"
    offset = lsn % container_bytes
    raw = file.read_at(offset, HEAD_BYTES)
    if len(raw) < HEAD_BYTES:
        raise JournalError(place, "no record begins there: the container ends", SEE_DUMP)
    head = RecordHead._make(HEAD.unpack(raw))
    before = HEAD_BYTES * head.number + BLOCK_HEAD_BYTES
    if before > offset:
        raise JournalError(place, "no record begins there", SEE_DUMP)
    try:
        block = peek(memoryview(file.read_at(offset - before, BLOCK_HEAD_BYTES)), lsn - before, log_id)
    except BadBlock as error:
        raise JournalError(place, f"no record begins there: {error.reason}", SEE_DUMP) from error
    if head.number >= block.records or head.size > MAX_PAYLOAD_BYTES:
        raise JournalError(place, "no record begins there", SEE_DUMP)
    return head, offset - before + BLOCK_HEAD_BYTES + HEAD_BYTES * block.records


def read_heads(file: ReadableFile, lsns: Iterable[int], container_bytes: int, log_id: int) -> dict[int, RecordHead]:
    """Return the heads of the records at *lsns*, ascending, in their container *file*; blocks are read completely.

    Raises `JournalError` at one whose block fails its checksum.
    """
    found: dict[int, RecordHead] = {}
    window = ReadWindow(file, container_bytes)
    heads: list[RecordHead] = []
    first_lsn = 0
    for lsn in lsns:
        if not 0 <= lsn - first_lsn < HEAD_BYTES * len(heads):
            first_lsn, heads = _heads_around(window, lsn, container_bytes, log_id)
        number, beside = divmod(lsn - first_lsn, HEAD_BYTES)
        if beside or number >= len(heads):
            raise JournalError(f"LSN {lsn}", "no record begins there", SEE_DUMP)
        found[lsn] = heads[number]
    return found


def _heads_around(window: ReadWindow, lsn: int, container_bytes: int, log_id: int) -> tuple[int, list[RecordHead]]:
    """Return the heads of the block that has a record at *lsn*, and the LSN of the first one."""
    offset = lsn % container_bytes
    raw = window.at(offset, HEAD_BYTES)
    before = BLOCK_HEAD_BYTES + (HEAD_BYTES * _unpack_place(raw)[0] if len(raw) >= HEAD_BYTES else offset)
    try:
        if before > offset:
            raise BadBlock(lsn, "no record begins there")
        block = window.block_at(lsn - before, log_id)
    except BadBlock as error:
        raise JournalError(f"LSN {lsn}", error.reason, SEE_DUMP) from error
    return block.record_lsn(0), block.heads()


def read_payloads(
    file: ReadableFile, lsns: Sequence[int], at: int, most_bytes: int, container_bytes: int, log_id: int
) -> tuple[list[bytes | CairnError], int]:
    """Return the payloads of the records from *lsns[at]* on in its container, *file*, and their total size.

    An unreadable payload is replaced by an error. Stops after the payload that reaches *most_bytes*. Fast for records
    that are close together, in ascending order.
    """
    found: list[bytes | CairnError] = []
    done_bytes = 0
    window = ReadWindow(file, container_bytes)
    slot = lsns[at] // container_bytes
    while at < len(lsns) and done_bytes < most_bytes and lsns[at] // container_bytes == slot:
        some: list[bytes] = []
        if at + _DENSE <= len(lsns) and 0 <= lsns[at + _DENSE - 1] - lsns[at] < WINDOW_BYTES:
            some, size = _read_block(window, lsns, at, most_bytes - done_bytes, container_bytes, log_id)
            found += some
            at += len(some)
            done_bytes += size
        if not some:
            one = _read_alone(file, lsns[at], container_bytes, log_id)
            found.append(one)
            at += 1
            done_bytes += len(one) if isinstance(one, bytes) else 0
    return found, done_bytes


def _read_block(
    window: ReadWindow, lsns: Sequence[int], at: int, most_bytes: int, container_bytes: int, log_id: int
) -> tuple[list[bytes], int]:
    """Return the readable payloads from *lsns[at]* on that are in its block, and their total size in bytes."""
    lsn = lsns[at]
    offset = lsn % container_bytes
    found: list[bytes] = []
    try:
        data, base = window.around(offset, HEAD_BYTES)
        first = offset - HEAD_BYTES * _unpack_place(data, offset - base)[0]
        begin = first - BLOCK_HEAD_BYTES
        if begin < 0:
            return found, 0
        data, base = window.around(begin, BLOCK_HEAD_BYTES)
        head = peek(memoryview(data)[begin - base :], lsn - offset + begin, log_id)
        if begin + head.size_bytes > container_bytes:
            return found, 0
        data, base = window.around(begin, head.size_bytes)
    except (BadBlock, DiskError, struct.error):
        return found, 0
    low = lsn - offset + first
    high = low + HEAD_BYTES * head.records
    heads = first - base - low
    payloads = first - base + HEAD_BYTES * head.records
    done_bytes = 0
    for lsn in islice(lsns, at, None):
        if not low <= lsn < high or done_bytes >= most_bytes:
            break
        number, place, size, crc = _unpack_place(data, heads + lsn)
        place += payloads
        payload = data[place : place + size]
        if crc32c(payload) != crc or len(payload) != size or low + HEAD_BYTES * number != lsn:
            break
        found.append(payload)
        done_bytes += size
    return found, done_bytes


def _read_alone(file: ReadableFile, lsn: int, container_bytes: int, log_id: int) -> bytes | CairnError:
    try:
        return read_record(file, lsn, container_bytes, log_id).payload
    except CairnError as error:
        return error
