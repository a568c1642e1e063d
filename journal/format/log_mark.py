"""The mark: a small file beside the containers that identifies the log and records how far it was known to be durable.

Blocks claim what was durable *before* them. The mark claims the rest when the log becomes idle or is closed. It is a
separate file, so that even the loss of the newest container is detected. It exists from formatting on and is written
alternately to two places 4096 bytes apart: a torn write leaves the older one. A stale mark only weakens detection.

If only process kills matter, the mark is written and not synced, so that no thread waits for the disk. The other place
then holds a synced mark, and is not overwritten before this one is synced, too.

offset  size  field
     0     4  crc32c          of bytes 4 .. 88
     4     4  magic           "CNMK"
     8     2  format          1
    10     2  flags           1: the log was closed
    12     4  incarnation     the last one that was begun
    16    16  log UUID
    32     8  container size  in bytes
    40     8  sequence        the higher of the two places counts
    48     8  durable_lsn     every byte below it is on the disk
    56     8  base_lsn        every record below it is dead
    64     8  time_us
    72    16  zeros
"""

from __future__ import annotations

import struct
from contextlib import closing
from typing import NamedTuple
from uuid import UUID

from crc32c import crc32c

from ...base.disk.seam import SECTOR_BYTES, Directory, File, ReadableDirectory
from ...base.errors import ForeignStore
from .container import in_sector, uuid_of

FORMAT = 1
MAGIC = 0x4B4D4E43
HEAD = struct.Struct("<IIHHI16sQQQQQ16x")
NAME = "log.mark"
PLACES = (0, 4096)


class Mark(NamedTuple):
    """The fields of the mark in the order of the table above, without checksum, magic and format."""

    closed: bool
    incarnation: int
    log_uuid: UUID
    container_bytes: int
    sequence: int
    durable_lsn: int
    base_lsn: int
    time_us: int


def encode(mark: Mark) -> bytes:
    closed, incarnation, log_uuid, *rest = mark
    return in_sector(HEAD.pack(0, MAGIC, FORMAT, int(closed), incarnation, log_uuid.bytes, *rest))


def decode(data: bytes, place: str) -> Mark | None:
    """Decode a mark; None if *data* is invalid. Raises `ForeignStore` for a newer format."""
    if len(data) < HEAD.size:
        return None
    crc, magic, version, flags, incarnation, uuid, *rest = HEAD.unpack_from(data)
    if magic != MAGIC or crc != crc32c(data[4 : HEAD.size]):
        return None
    if version > FORMAT:
        raise ForeignStore(
            place,
            f"store format {version} is newer than this program's format {FORMAT}",
            "use the CairnMQ version that wrote it",
        )
    return Mark(bool(flags & 1), incarnation, uuid_of(uuid), *rest)


def read(directory: ReadableDirectory) -> Mark | None:
    """Return the newest valid mark in *directory*; None if the file has no valid one, which no crash can cause."""
    return max((mark for mark in read_places(directory) if mark), key=lambda mark: mark.sequence, default=None)


def read_places(directory: ReadableDirectory) -> list[Mark | None]:
    """Return the marks in both places; None for an invalid one."""
    with closing(directory.open(NAME)) as file:
        return [decode(file.read_at(place, SECTOR_BYTES), f"{directory.path}/{NAME}") for place in PLACES]


class MarkFile:
    """The mark, opened for writing. One thread at a time."""

    def __init__(self, file: File, mark: Mark) -> None:
        self._file = file
        self.mark = mark
        self.is_synced = False
        """True if the newest mark is known to survive a power cut."""

    @classmethod
    def format(cls, directory: Directory, mark: Mark) -> MarkFile:
        """Write the first mark of a new log: made under another name, so that it is never seen half."""
        temporary = NAME + ".new"
        if temporary in directory.names():
            directory.unlink(temporary)
        file = directory.create(temporary)
        try:
            for place in PLACES:
                file.write_at(place, encode(mark))
            file.sync()
            directory.rename(temporary, NAME)
            directory.sync()
        except BaseException:
            file.close()
            raise
        return cls(file, mark)

    def write(
        self,
        *,
        durable_lsn: int,
        base_lsn: int,
        incarnation: int,
        time_us: int,
        closed: bool = False,
        sync: bool = True,
    ) -> None:
        """Write the next mark, and *sync* it or not."""
        if sync and not self.is_synced:
            self._file.sync()
            self.is_synced = True
        step = 1 if self.is_synced else 2  # into the other place, or again into this one
        mark = self.mark._replace(
            sequence=self.mark.sequence + step, durable_lsn=durable_lsn, base_lsn=base_lsn,
            incarnation=incarnation, time_us=time_us, closed=closed,
        )  # fmt: skip
        self._file.write_at(PLACES[mark.sequence % 2], encode(mark))
        if sync:
            self._file.sync()
        self.mark, self.is_synced = mark, sync

    def is_in_place(self) -> bool:
        """See `File.is_in_place`."""
        return self._file.is_in_place()

    def close(self) -> None:
        self._file.close()
