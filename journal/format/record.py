"""A record is the journal's unit of meaning: a head of 64 bytes, and a payload the journal never looks into.

All numbers are little-endian.

offset  size  field
     0     1  type        a `RecordType`
     1     1  flags       a `Flag` set
     2     2  number      of this head among the heads of its block, from 0
     4     4  place       of the payload, counted from the end of the block's last head
     8     4  size        of the payload in bytes
    12     4  crc32c      of the payload
    16     8  undo_prev   LSN of the first record of the object this one continues; 0 starts one; see `Flag.MOVED`
    24     8  message_id  LSN of the message's first record; 0 if no message is meant
    32     8  queue_id    from the wiring; 0 if no queue is meant
    40     8  txn_id      LSN of the transaction's first record; 0 outside a transaction
    48     8  time_us     wall clock, microseconds since 1970
    56     8  extra       depends on the type, see docs/reference/format.md

A record's LSN is the address of its head. Heads of one block stand side by side, so a block's heads are a table that
`struct.iter_unpack` or `numpy.frombuffer` (with `TABLE`) reads without a step per field.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from enum import IntEnum, IntFlag
from functools import partial
from typing import NamedTuple

import numpy as np

HEAD = struct.Struct("<BBHIIIQQQQQQ")
TABLE = np.dtype(
    [
        ("type", "<u1"), ("flags", "<u1"), ("number", "<u2"), ("place", "<u4"), ("size", "<u4"), ("crc32c", "<u4"),
        ("undo_prev", "<u8"), ("message_id", "<u8"), ("queue_id", "<u8"), ("txn_id", "<u8"), ("time_us", "<u8"),
        ("extra", "<u8"),
    ]
)  # fmt: skip
"""The layout of `HEAD` as a numpy structure."""
HEAD_BYTES = HEAD.size
MAX_PAYLOAD_BYTES = 64 * 1024
"""The largest payload of one record (checklist E18); longer content continues in Chunk records."""


FIRST_NOTE, END_NOTES = 64, 96
"""The types of notes: nothing depends on one, so a program that does not know it passes it by."""


class RecordType(IntEnum):
    """The papers' record types (store checklist E16, E33), and the log's own."""

    START = 1
    CHUNK = 2
    DELETE = 3
    ENQUEUE = 4
    DEQUEUE = 5
    DTX_START = 16
    TX_START = 17
    TX_END = 18
    TX_PREPARE = 19
    TX_COMMIT = 20
    TX_ROLLBACK = 21
    TX_DELETE = 22
    LOG_OPEN = 32
    QUEUE_DELETE = 33
    LOG_HOLES = 34
    ACQUIRE = FIRST_NOTE


class Flag(IntFlag):
    """Flags of a record. In a DEQUEUE the three highest bits hold a number that the store defines."""

    ENQUEUE = 1
    """On START: the message is complete and enqueued on `queue_id`, as by a following ENQUEUE record. On ACQUIRE: the
    messages have returned to `queue_id`."""
    DELETE = 2
    """On DEQUEUE: that was the last queue; the message is deleted, as by a following DELETE record."""
    MORE = 4
    """On START and CHUNK: content follows in a CHUNK."""
    MOVED = 8
    """The record was copied forward. On START, CHUNK and ENQUEUE `undo_prev` is the LSN of the original, which the copy
    replaces; DELETE and DEQUEUE copies repeat the original."""
    PREPARED = 16
    """On ENQUEUE and DEQUEUE: an operation of a prepared transaction, without effect before its commit."""


class RecordHead(NamedTuple):
    """One decoded head, fields in the order of the table above."""

    type: int
    flags: int
    number: int
    place: int
    size: int
    crc32c: int
    undo_prev: int
    message_id: int
    queue_id: int
    txn_id: int
    time_us: int
    extra: int


_new_head = partial(tuple.__new__, RecordHead)
"""Creates a `RecordHead` without the check of the number of fields in `_make`."""


def heads_of(table: memoryview) -> Iterator[RecordHead]:
    """Yield the heads of a block's head table, in order."""
    return map(_new_head, HEAD.iter_unpack(table))


def type_name(number: int) -> str:
    """Return the name of a record type; unknown numbers are shown as they are."""
    try:
        return RecordType(number).name.lower().replace("_", "-")
    except ValueError:
        return f"type-{number}"
