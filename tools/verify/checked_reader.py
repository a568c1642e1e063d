"""A reader of a log that checks what no checksum covers, and finds blocks again."""

from __future__ import annotations

from uuid import UUID

from ...base.disk.seam import SECTOR_BYTES, ReadableDirectory
from ...journal.format.block import BadBlock, Block, padded
from ...journal.read.scanner import LogReader
from ...recovery.lenient_directory import LenientDirectory
from ...recovery.log_identity import identify

_ZEROS = bytes(SECTOR_BYTES)


class CheckedReader(LogReader):
    """A `LogReader` that notes blocks whose padding is not zeros."""

    def __init__(self, directory: ReadableDirectory, store_uuid: UUID | None) -> None:
        """*store_uuid*: the UUID in SQL. Raises `NoLog` if no file identifies a log."""
        self.mended = LenientDirectory(directory, identify(directory, store_uuid))
        self.ragged: dict[int, int] = {}
        """The LSN of each such block, and where it ends."""
        super().__init__(self.mended)

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
        return self.heads.file_name(lsn // self.container_bytes) or "no container"
