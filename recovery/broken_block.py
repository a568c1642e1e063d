"""Records that a block still proves although it fails its checksum.

The block's checksum covers everything, and each head carries its payload's. The expected checksum therefore follows
from the heads alone, with the checksum of each payload in place of the payload. If the result agrees, the heads are as
they were written, and each payload is checked by itself. Then only the content of the payloads that fail is unknown.

If it does not agree, or the block's head is lost, a record is accepted only if it is redundant. It must be a message
whose payload matches its checksum and whose ID equals its LSN, or a dequeue that names its message twice, if the
message exists on that queue.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from crc32c import crc32c

from ..base.disk.seam import SECTOR_BYTES
from ..journal.format.block import BLOCK_HEAD_BYTES, CRC, MAX_RECORDS, BadBlock, BlockHead, padded, peek, places_in
from ..journal.format.record import HEAD_BYTES, MAX_PAYLOAD_BYTES, Flag, RecordHead, RecordType, heads_of
from ..store.contract.dequeue_reason import REASON_BITS

_TYPES = frozenset(map(int, RecordType))


@dataclass
class BrokenBlock:
    """A block whose content differs from what was written."""

    lsn: int
    end_lsn: int
    """The LSN behind the last byte of the block, as far as it is known."""
    proven: bool
    """True if the heads are as they were written."""
    rows: list[tuple[int, RecordHead]] = field(default_factory=list)
    """The records, proven or not, each with its LSN."""
    payload_lsn: int = 0
    """The LSN at which the payloads begin."""
    complete: set[int] = field(default_factory=set)
    """The LSNs of the rows whose payload matches its checksum."""


def expected_crc(table: memoryview, rows: list[RecordHead]) -> int:
    """Return the checksum of a block with this head and these record heads (*table*, without the checksum itself)."""
    crc = crc32c(table)
    for row in rows:
        zeros = bytes(row.size)  # crc(c, data) = crc(0, data) ^ crc(c, zeros) ^ crc(0, zeros): it is linear
        crc = row.crc32c ^ crc32c(zeros, crc) ^ crc32c(zeros)
    return crc


def broken_blocks(data: bytes, lsn: int, log_id: int) -> Iterator[BrokenBlock]:
    """Yield the broken blocks in *data*, which is stored at *lsn*, where a block should begin."""
    view = memoryview(data)
    end = 0
    for at in sorted({0, *places_in(data, 0)}):
        if at < end or at % SECTOR_BYTES:
            continue
        found = _by_its_head(view[at:], lsn + at, log_id) or (_by_its_rows(view[at:], lsn + at) if at == 0 else None)
        if found is not None and found.rows:
            end = found.end_lsn - lsn
            yield found


def _by_its_head(view: memoryview, lsn: int, log_id: int) -> BrokenBlock | None:
    try:
        head = peek(view, lsn, log_id)
    except BadBlock:
        return None
    payloads = BLOCK_HEAD_BYTES + HEAD_BYTES * head.records
    if not head.records or payloads > len(view):
        return None
    rows = list(heads_of(view[BLOCK_HEAD_BYTES:payloads]))
    return _judged(view, lsn, head, rows)


def _by_its_rows(view: memoryview, lsn: int) -> BrokenBlock | None:
    """Return the block that the rows describe without a head: rows are numbered, and payloads follow each other."""
    rows: list[RecordHead] = []
    place = 0
    table = view[BLOCK_HEAD_BYTES : BLOCK_HEAD_BYTES + HEAD_BYTES * MAX_RECORDS]
    for row in heads_of(table[: len(table) // HEAD_BYTES * HEAD_BYTES]):
        if row.number != len(rows) or row.place != place or not _is_record(row):
            break
        rows.append(row)
        place += row.size
    return _judged(view, lsn, None, rows) if rows else None


def _is_record(row: RecordHead) -> bool:
    return row.type in _TYPES and row.size <= MAX_PAYLOAD_BYTES


def _judged(view: memoryview, lsn: int, head: BlockHead | None, rows: list[RecordHead]) -> BrokenBlock:
    payloads = BLOCK_HEAD_BYTES + HEAD_BYTES * len(rows)
    size = payloads + sum(row.size for row in rows) if head is None else head.size_bytes
    places = [0]
    for row in rows:
        places.append(places[-1] + row.size)
    proven = (
        head is not None
        and head.size_bytes == payloads + places[-1]
        and all(map(_is_record, rows))
        and [row.place for row in rows] == places[:-1]
        and [row.number for row in rows] == list(range(len(rows)))
        and expected_crc(view[CRC.size : payloads], rows) == head.crc32c
    )
    found = BrokenBlock(lsn, lsn + padded(size), proven, payload_lsn=lsn + payloads)
    for number, row in enumerate(rows):
        at = lsn + BLOCK_HEAD_BYTES + HEAD_BYTES * number
        found.rows.append((at, row))
        start = payloads + row.place
        fits = row.size <= MAX_PAYLOAD_BYTES and start + row.size <= len(view)
        if fits and crc32c(view[start : start + row.size]) == row.crc32c:
            found.complete.add(at)
    return found


def says_twice(lsn: int, row: RecordHead, number: int) -> bool:
    """Return whether all fields of an unproven row agree that it is a plain message or a plain dequeue."""
    if row.number != number or row.txn_id:
        return False
    if row.type == RecordType.START:
        return row.flags == Flag.ENQUEUE and row.message_id == lsn and row.size > 0 and not (row.undo_prev or row.extra)
    return (
        row.type == RecordType.DEQUEUE
        and row.flags & ~REASON_BITS == Flag.DELETE
        and row.message_id == row.undo_prev == row.extra > 0
        and not row.size
    )
