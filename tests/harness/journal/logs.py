"""Helpers for logs on a disk in memory."""

from __future__ import annotations

import struct
from typing import Any, NamedTuple
from uuid import UUID

from crc32c import crc32c

from cairnmq.base.clock import Clock
from cairnmq.base.disk.seam import Directory
from cairnmq.base.testing.manual_clock import ManualClock
from cairnmq.base.testing.memory_disk import MemoryDirectory
from cairnmq.journal.format.block import Block
from cairnmq.journal.format.record import RecordHead, RecordType
from cairnmq.journal.read.scanner import Damage, LogReader
from cairnmq.journal.write.journal import Journal
from cairnmq.journal.write.open import MIN_CONTAINER_BYTES, OpenReport, format_log, open_log

SIZE = MIN_CONTAINER_BYTES
LOG_UUID = UUID("6ba7b810-9dad-11d1-80b4-00c04fd430c8")
LOG_ID = int.from_bytes(LOG_UUID.bytes[:8], "little")
START = int(RecordType.START)
BIG = bytes(range(256)) * 256
"""The largest payload of one record."""


OWN = (RecordType.LOG_OPEN, RecordType.LOG_HOLES)
"""Records that the log writes for itself."""


class Read(NamedTuple):
    """A record as returned by the reader."""

    lsn: int
    head: RecordHead
    payload: bytes


def new_log(
    directory: Directory | None = None, *, keep: int = 2, buffers: int = 10, **options: Any
) -> tuple[Directory, Journal]:
    directory = directory or MemoryDirectory()
    format_log(directory, SIZE, LOG_UUID, 1)
    return directory, reopen(directory, keep=keep, buffers=buffers, **options)[0]


def reopen(
    directory: Directory, *, keep: int = 2, buffers: int = 10, clock: Clock | None = None, **options: Any
) -> tuple[Journal, OpenReport, list[Read]]:
    """Open the log with *options* of `open_log`; return also the records that it held, except its own."""
    found: list[Read] = []
    journal, report = open_log(
        directory,
        clock or ManualClock(),
        visit=lambda block: found.extend(records_of(block)),
        initial_containers=keep,
        max_write_buffers=buffers,
        **options,
    )
    return journal, report, [read for read in found if read.head.type not in OWN]


def records_of(block: Block) -> list[Read]:
    heads = block.heads()
    return [Read(block.record_lsn(number), head, bytes(block.payload(head))) for number, head in enumerate(heads)]


def scan(directory: Directory, from_lsn: int = 0) -> list[Block | Damage]:
    """Return all blocks from *from_lsn* on, and the damage, as a tool reads them."""
    return list(LogReader(directory).scan(from_lsn))


def blocks(directory: Directory) -> list[Block]:
    """Return all blocks of a log; check that it has no damage."""
    found = scan(directory)
    assert not [damage for damage in found if isinstance(damage, Damage)]
    return [block for block in found if isinstance(block, Block)]


def read_all(directory: Directory) -> list[Read]:
    """Return all records of a log without damage, except the log's own."""
    found = [read for block in blocks(directory) for read in records_of(block)]
    return [read for read in found if read.head.type not in OWN]


def advance_base(journal: Journal, base_lsn: int) -> None:
    """Retire every slot below the one that holds *base_lsn*."""
    journal.retire([slot for slot in journal.extent.slots if slot < base_lsn // journal.container_bytes])


def container_start(journal: Journal, lsn: int) -> int:
    """Return the first LSN of the container that holds *lsn*."""
    return lsn - lsn % journal.container_bytes


def put(journal: Journal, payload: bytes) -> int:
    return journal.append(START, payload, time_us=1)


def container_of(directory: Directory, slot: int) -> str:
    """Return the name of the file that holds *slot*."""
    return f"{LogReader(directory).heads.by_slot[slot].number:08d}.cairn"


def patch(directory: Directory, name: str, at: int, data: bytes) -> None:
    """Overwrite bytes of a file, and sync it."""
    file = directory.open(name, writable=True)
    file.write_at(at, data)
    file.sync()
    file.close()


def flip(directory: Directory, name: str, at: int, mask: int = 1) -> None:
    """Simulate rot: flip bits of one byte, and sync the file."""
    file = directory.open(name)
    byte = file.read_at(at, 1)[0]
    file.close()
    patch(directory, name, at, bytes([byte ^ mask]))


def flip_lsn(directory: Directory, lsn: int, mask: int = 1) -> None:
    slot, at = divmod(lsn, SIZE)
    flip(directory, container_of(directory, slot), at, mask)


def content(directory: Directory) -> dict[str, bytes]:
    """Return the content of every file, by name."""
    found = {}
    for name in directory.names():
        file = directory.open(name)
        found[name] = file.read_at(0, file.size_bytes())
        file.close()
    return found


def with_crc(data: bytes, covered: int) -> bytes:
    """Return *data* with a valid checksum in its first 4 bytes, which covers the bytes from 4 to *covered*."""
    return struct.pack("<I", crc32c(data[4:covered])) + data[4:]
