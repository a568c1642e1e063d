"""Reader that follows a log block by block while it is written, at some distance from its end. One thread at a time.

It proceeds from block to block, and from the last block of a container to the container that names it as its
predecessor. It therefore needs neither the base nor the holes of the log: data that left the log is readable until its
container is reused, see `store/journaled/retention_leases.py`. Reuse is detected because no container continues from
there: the requested data is lost.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

from ...base.disk.seam import Directory
from ...base.errors import JournalError
from ..files.read_window import ReadWindow
from ..files.record_lookup import SEE_DUMP, FoundRecord, read_record
from ..format import container
from ..format.block import BLOCK_HEAD_BYTES, BadBlock, Block
from ..format.container import DATA_OFFSET
from .container_heads import ContainerHeads


class HistoryReclaimed(JournalError):
    """An error for history that is lost because its container has been reused."""


class Follower:
    """A reader of one log from an LSN on."""

    def __init__(self, directory: Directory, from_lsn: int) -> None:
        """*from_lsn*: the LSN of the first required byte; earlier blocks in its container are skipped.

        Raises `HistoryReclaimed` if no container may lead there.
        """
        self._directory = directory
        self._from_lsn = from_lsn
        self._heads = ContainerHeads(directory, history=True)
        self._container_bytes = self._heads.container_bytes
        before = [slot for slot in self._heads.by_slot if slot <= from_lsn // self._container_bytes]
        if not before:
            raise HistoryReclaimed(f"LSN {from_lsn}", "its container is used for something else by now", _REMEDY)
        slot = max(before)  # if it is an older one, the log ended there and went on with a later one
        self.next_lsn = slot * self._container_bytes + DATA_OFFSET
        """The end of the last block that was returned or skipped."""
        self._last_lsn = 0
        """The LSN of the last block that was read; 0 for none."""
        self._slot = slot
        self._window: tuple[int, ReadWindow] | None = None
        """The slot that is open, with its read buffer."""

    def blocks(self, durable_lsn: int) -> Iterator[Block]:
        """Yield the next blocks that end at or before *durable_lsn*.

        Raises `HistoryReclaimed`, or `JournalError` where one can't be read. The next call continues at the end.
        """
        try:
            while self.next_lsn < durable_lsn:
                found = self._block()
                if found.end_lsn > durable_lsn:
                    return
                self._last_lsn, self.next_lsn = found.lsn, found.end_lsn
                if found.end_lsn > self._from_lsn:
                    yield found
        finally:
            self._close()  # the container may be used for something else, and its file be gone

    def read_record(self, lsn: int) -> FoundRecord:
        """The record at *lsn*, which may have left the log. Raises `JournalError`."""
        head = self._heads.by_slot.get(lsn // self._container_bytes)
        if head is None:
            raise HistoryReclaimed(f"LSN {lsn}", "no container holds it any more", _REMEDY)
        with closing(self._directory.open(container.file_name(head.number))) as file:
            return read_record(file, lsn, self._container_bytes, self._heads.log_id)

    def _block(self) -> Block:
        """The next one, which is durable."""
        found = self._block_at(self._slot, self.next_lsn)
        if found is not None and self._goes_on(found):
            return found
        self._close()
        self._heads = ContainerHeads(self._directory, history=True)
        found = self._block_at(self._slot, self.next_lsn)  # it may have been written between the two looks
        if found is not None and self._goes_on(found):
            return found
        later = [slot for slot in self._heads.by_slot if slot > self._slot]
        after = [slot for slot in later if self._heads.by_slot[slot].prev_lsn == self._last_lsn]
        for slot in sorted(after, key=lambda slot: self._heads.by_slot[slot].incarnation, reverse=True):
            first = self._block_at(slot, slot * self._container_bytes + DATA_OFFSET)
            if first is not None and self._goes_on(first):
                self._slot = slot
                return first
        if later or self._slot not in self._heads.by_slot:
            raise HistoryReclaimed(f"LSN {self.next_lsn}", "its container is used for something else by now", _REMEDY)
        raise JournalError(f"LSN {self.next_lsn}", "its block can't be read", SEE_DUMP)

    def _goes_on(self, found: Block) -> bool:
        return not self._last_lsn or found.head.prev_lsn == self._last_lsn

    def _block_at(self, slot: int, lsn: int) -> Block | None:
        offset = lsn - slot * self._container_bytes
        if offset + BLOCK_HEAD_BYTES > self._container_bytes or slot not in self._heads.by_slot:
            return None
        if self._window is None or self._window[0] != slot:
            self._close()
            file = self._directory.open(self._heads.file_name(slot))
            self._window = slot, ReadWindow(file, self._container_bytes)
        try:
            return self._window[1].block_at(lsn, self._heads.log_id)
        except BadBlock:
            return None

    def _close(self) -> None:
        if self._window is not None:
            self._window[1].file.close()
            self._window = None


_REMEDY = "start again"
