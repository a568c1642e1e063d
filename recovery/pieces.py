"""What a block that fails its checksum still proves.

The block's checksum covers everything, and each head carries its payload's. So what the checksum should be follows
from the heads alone, each payload standing in by its own checksum: if that agrees, the heads are as they were written,
and each payload is judged for itself. Then nothing about the block is unknown but the content of the payloads that
fail.

If it does not agree, or the block's head is gone, a record is believed only where it says the same thing twice: a
message whose payload agrees and whose id is where it stands; a dequeue that names its message twice, and the message
is there, on that queue.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from crc32c import crc32c

from ..disk.seam import SECTOR_BYTES
from ..journal.block import BLOCK_HEAD_BYTES, CRC, MAX_RECORDS, BadBlock, BlockHead, padded, peek
from ..journal.record import HEAD_BYTES, MAX_PAYLOAD_BYTES, Flag, RecordHead, RecordType, heads_of
from ..store.why import WHY_BITS
from .remains import block_places

_TYPES = frozenset(map(int, RecordType))


@dataclass
class BrokenBlock:
    """A block in which something is not as it was written."""

    lsn: int
    end_lsn: int
    """Behind its last byte, as far as that can be told."""
    proven: bool
    """Whether the heads are as they were written."""
    rows: list[tuple[int, RecordHead]] = field(default_factory=list)
    """The records, or what looks like some, each with its LSN."""
    payload_lsn: int = 0
    """Where the payloads begin."""
    whole: set[int] = field(default_factory=set)
    """The LSNs of the rows whose payload matches its checksum."""


def expected_crc(table: memoryview, rows: list[RecordHead]) -> int:
    """The checksum of a block with this head and these record heads (*table*, without the checksum itself)."""
    crc = crc32c(table)
    for row in rows:
        zeros = bytes(row.size)  # crc(c, data) = crc(0, data) ^ crc(c, zeros) ^ crc(0, zeros): it is linear
        crc = row.crc32c ^ crc32c(zeros, crc) ^ crc32c(zeros)
    return crc


def broken_blocks(data: bytes, lsn: int, log_id: int) -> Iterator[BrokenBlock]:
    """The broken blocks in *data*, which stands at *lsn*, where a block should begin."""
    view = memoryview(data)
    end = 0
    for at in sorted({0, *block_places(data, 0)}):
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
    """Without a head, the rows tell how many there are: they are numbered, and each payload follows the last."""
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
            found.whole.add(at)
    return found


def says_twice(lsn: int, row: RecordHead, number: int) -> bool:
    """Whether an unproven row is a plain message or a plain dequeue in all that it says."""
    if row.number != number or row.txn_id:
        return False
    if row.type == RecordType.START:
        return row.flags == Flag.ENQUEUE and row.message_id == lsn and row.size > 0 and not (row.undo_prev or row.extra)
    return (
        row.type == RecordType.DEQUEUE
        and row.flags & ~WHY_BITS == Flag.DELETE
        and row.message_id == row.undo_prev == row.extra > 0
        and not row.size
    )
