"""The payload of a log-open record: the slots before it that hold nothing but openings.

A broker that is killed before it stores anything leaves such a slot, which may be reclaimed without an archive. Each
opening therefore records how far back such slots reach, so that readers know that nothing is missing with them. The
payload is empty if the slot before holds anything else.

offset  size  field
     0     8  prev_lsn  the last block before those slots; 0 without one
"""

from __future__ import annotations

import struct

from .block import Block
from .record import HEAD_BYTES, RecordType

_PREV_LSN = struct.Struct("<Q")


def encode(prev_lsn: int) -> bytes:
    return _PREV_LSN.pack(prev_lsn)


def openings_from(found: Block) -> int | None:
    """Return `prev_lsn` of the log-open record in *found*; None without one, or if its payload is empty."""
    kinds = bytes(found.body[: HEAD_BYTES * found.head.records : HEAD_BYTES])
    at = kinds.find(RecordType.LOG_OPEN)
    payload = b"" if at < 0 else found.payload(found.heads()[at])
    if len(payload) != _PREV_LSN.size:
        return None
    prev_lsn: int = _PREV_LSN.unpack(payload)[0]
    return prev_lsn if prev_lsn < found.lsn else None
