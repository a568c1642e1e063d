"""A reader of a log that checks what no checksum covers, and finds blocks again."""

from __future__ import annotations

from uuid import UUID

from ...base.disk.seam import SECTOR_BYTES, Directory
from ...journal.format import container
from ...journal.format.block import BadBlock, Block, padded
from ...journal.read.scanner import LogReader
from ...recovery.lenient_directory import LenientDirectory, mended_directory
from ...recovery.log_identity import Identity, identify

_ZEROS = bytes(SECTOR_BYTES)


class CheckedReader(LogReader):
    """A `LogReader` that notes blocks whose padding is not zeros."""

    def __init__(self, directory: Directory) -> None:
        self.ragged: dict[int, int] = {}
        """The LSN of each such block, and where it ends."""
        super().__init__(directory)

    def _block_at(self, lsn: int) -> Block | BadBlock:
        found = super()._block_at(lsn)
        if isinstance(found, Block):
            size = found.head.size_bytes
            rest = padded(size) - size
            window = self._window(lsn // self.container_bytes) if rest else None
            if window is not None and window.at(lsn % self.container_bytes + size, rest)[:rest] != _ZEROS[:rest]:
                self.ragged[lsn] = lsn + size + rest
        return found

    def block_at(self, lsn: int) -> Block | None:
        """A block that was read before, again; None if the log has released it meanwhile."""
        found = self._block_at(lsn)
        return found if isinstance(found, Block) else None

    def file_name_of(self, lsn: int) -> str:
        """The name of the container that holds *lsn*, for verdicts."""
        head = self.heads.by_slot.get(lsn // self.container_bytes)
        return "no container" if head is None else container.file_name(head.number)


def open_checked(directory: Directory, store_uuid: UUID | None) -> tuple[Identity, LenientDirectory, CheckedReader]:
    """Return the identity of the log in *directory*, its lenient view, and a reader of that view.

    *store_uuid*: the UUID in SQL. Raises `NoLog` if no file identifies a log.
    """
    identity = identify(directory, store_uuid)
    mended = mended_directory(directory, identity)
    return identity, mended, CheckedReader(mended)
