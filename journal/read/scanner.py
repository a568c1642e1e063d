"""The only reader of journals, for recovery and the tools. It never writes.

It follows the chain of blocks from the base. Where the chain breaks, it resynchronizes at the next sector that holds a
complete block of this log at its own LSN, and classifies the bytes between:

* nothing, when that block starts a container and names the last block read as its predecessor: the rest of the old
  container was left unused, or an earlier recovery cut a torn tail there;
* nothing, when a hole follows the last block read, and that block stands behind the hole (`journal/format/holes.py`);
* `Damage` otherwise. It is *corrupt* if a surviving claim (the durable LSN of a block or of the mark) proves that the
  place was once on the disk, and *torn* otherwise. No record after a torn place was confirmed; recovery cuts there.

A reader may read a log while it is written (`live`): it then ends at the position of the writer. A container that is
recycled during the read is detected by its head, and reading continues at the new base. Recovery has exclusive use.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from ...base.disk.seam import SECTOR_BYTES, ReadableDirectory
from ...base.errors import DiskError
from ..files.read_window import ReadWindow
from ..format import block, holes
from ..format.block import BadBlock, Block, BlockHead
from ..format.container import DATA_OFFSET
from ..format.holes import Hole, hole_with
from ..format.record import HEAD, RecordType
from .container_heads import ContainerHeads


@dataclass(frozen=True)
class Damage:
    """Damage: no block of the chain can be read in `first_lsn .. end_lsn`."""

    first_lsn: int
    end_lsn: int
    reason: str
    torn: bool
    """True if these bytes are behind the durability mark: they may never have been on the disk."""


class _Recorded(NamedTuple):
    """The base and the holes of the log according to the blocks of a container."""

    base_lsn: int
    holes: list[Hole] | None
    """The holes; None if no record of them was found."""
    is_all: bool
    """True if this is complete; otherwise the previous container may hold more."""


class LogReader:
    """A reader of one log. One thread at a time; the log may be written concurrently."""

    def __init__(
        self, directory: ReadableDirectory, *, live: bool = True, history: bool = False,
        known: ContainerHeads | None = None,
    ) -> None:  # fmt: skip
        """Read the mark and all container heads of *directory*. Raises `ForeignStore` if it holds no log of ours.

        *live*: a writer may be active; data that seems damaged is then read again, and so are all container heads.
        *history*: read all containers, even below the base and in holes. *known*: the heads from an earlier read.
        """
        self.directory = directory
        self.heads = heads = ContainerHeads(directory, history=history, known=known)
        self.log_uuid, self.log_id, self.container_bytes = heads.log_uuid, heads.log_id, heads.container_bytes
        self._live = live
        self._history = history
        self.slots: list[int] = []
        """The slots of the log that are there, ascending."""
        self.holes: list[Hole] = []
        """The slots from the base on that are no longer part of the log."""
        self.recycled: list[tuple[int, int]] = []
        """LSN ranges that left the log while `scan` was about to read them."""
        self.durable_lsn = heads.mark.durable_lsn
        """The highest claim seen so far."""
        self.last: Block | None = None
        """The last block of the chain that `scan` gave; its head stays valid."""
        self.end_lsn = 0
        """The end of the chain in the last `scan`."""
        self.resumed_lsn = 0
        """The block behind which `scan` begins, if it does not begin at the base."""
        self._resume: Block | None = None
        self._open: tuple[int, ReadWindow] | None = None
        self._learn()

    def scan(self, from_lsn: int = 0) -> Iterator[Block | Damage]:
        """Yield the blocks from the base (or from the container of *from_lsn*) on, in order, and any damage between.

        Records after a torn `Damage` were never confirmed: recovery stops there.
        """
        lsn = self._first_block(self._slot_from(max(from_lsn, self.heads.base_lsn) // self.container_bytes))
        self.last = None
        if self._resume is not None:
            self._note(self._resume)
            self.last, self._resume = self._resume, None
            lsn = self.last.end_lsn
        self.end_lsn = lsn
        try:
            while True:
                found = self._block_at(lsn)
                following = found if isinstance(found, Block) and self._follows(found) else self._successor(lsn)
                if following is not None:
                    self._note(following)
                    self.last = following
                    lsn = self.end_lsn = following.end_lsn
                    yield following
                    continue
                if (behind := self._behind_hole()) > lsn:  # a missing range, if any, begins there
                    lsn = behind
                    self.end_lsn = lsn - lsn % self.container_bytes
                    found = self._block_at(lsn)
                moved = self._live and self._moved_on(lsn)
                damage = None if moved else self._damage(lsn, found)
                if damage is not None and self._live:  # unless the writer was at work between two looks
                    if self._appeared(lsn):
                        continue
                    moved = self._moved_on(lsn)
                if moved:
                    removed_lsn, lsn = lsn, self._first_block(self._slot_from(lsn // self.container_bytes))
                    self.recycled.append((removed_lsn, lsn))
                    self.last = None
                    continue
                if damage is None:
                    return
                yield damage
                lsn = damage.end_lsn
                self.last = None
                if not isinstance(self._block_at(lsn), Block):
                    return
        finally:
            self._close()

    def resume_after(self, lsn: int, crc: int) -> bool:
        """Have the next `scan` begin behind the block at *lsn*, whose checksum is *crc*.

        False if it does not exist, or if an earlier container of the log is missing: then a scan is required.
        """
        try:
            found = self._block_at(lsn) if self.holds(lsn // self.container_bytes) else None
        finally:
            self._close()
        if not isinstance(found, Block) or found.head.crc32c != crc or self.chain_to(lsn) is None:
            return False
        self._resume = found
        self.resumed_lsn = lsn
        return True

    def chain_to(self, lsn: int) -> list[int] | None:
        """Return the log's slots up to the one of *lsn*, ascending, by the containers' heads.

        None if a container is missing, or names no earlier block before it.

        A slot that a crash left over, and the log then skipped, is not included.
        """
        base_slot = self.heads.base_lsn // self.container_bytes
        slot = lsn // self.container_bytes
        chain: list[int] = []
        while slot >= base_slot:
            hole = hole_with(self.holes, slot)
            if hole is None:
                if slot not in self.heads.by_slot:
                    return None
                chain.append(slot)
            prev_lsn = self.heads.by_slot[slot].prev_lsn if hole is None else hole.prev_lsn
            if slot == base_slot or not prev_lsn:
                break
            if prev_lsn >= slot * self.container_bytes:
                return None  # a damaged head: what is before a slot is below it
            slot = prev_lsn // self.container_bytes
        return chain[::-1]

    def holds(self, slot: int) -> bool:
        """Return whether *slot* is part of the log, even if its container is missing."""
        return slot >= self.heads.base_lsn // self.container_bytes and hole_with(self.holes, slot) is None

    def _learn(self) -> None:
        """Raise the base to the one recorded in the blocks of the newest container, and read the holes from there.

        The heads of containers may know only an older base, while older containers were reused since. A base or a hole
        that some block records is valid, whether or not that block was ever confirmed: the records that it rests on
        were durable before. If a crash or damage destroyed the first block of a container, and with it the holes, the
        previous container has them.
        """
        self.holes = []
        try:
            for slot in sorted(() if self._history else self.heads.by_slot, reverse=True):
                recorded = self._recorded_in(slot)
                self.heads.raise_base(recorded.base_lsn)
                self.holes = self.holes if recorded.holes is None else recorded.holes
                if recorded.is_all:
                    break
        finally:
            self._close()
        base_slot = self.heads.base_lsn // self.container_bytes
        self.holes = holes.from_slot(self.holes, base_slot)
        self.slots = [slot for slot in sorted(self.heads.by_slot) if self.holds(slot)]

    def recorded_until(self, end_lsn: int) -> tuple[int, list[Hole]]:
        """Return the base and the holes that are recorded in the log up to its end at *end_lsn*.

        Records of a later block are valid, but are lost if the block is cut off.
        """
        slot = (end_lsn - 1) // self.container_bytes
        try:
            recorded = self._recorded_in(slot, end_lsn)
        finally:
            self._close()
        if not recorded.is_all:
            return self.heads.base_lsn, self.holes
        heads = [head.base_lsn for at, head in self.heads.by_slot.items() if at <= slot]
        base_lsn = max(recorded.base_lsn, self.heads.mark.base_lsn, *heads)
        return base_lsn, holes.from_slot(recorded.holes or [], base_lsn // self.container_bytes)

    def _recorded_in(self, slot: int, end_lsn: int = 1 << 64) -> _Recorded:
        """Return the base and the holes in the blocks of *slot* up to *end_lsn*, also those behind a corrupt one."""
        before: Block | None = None
        recorded = _Recorded(0, None, False)
        for found in self._complete_blocks_in(slot, self._first_block(slot)):
            if found.lsn >= end_lsn:
                break
            if before is not None and (
                found.head.incarnation < before.head.incarnation
                or (found.lsn == before.end_lsn and found.head.prev_lsn != before.lsn)
            ):
                continue  # it was left over in a slot that was started again, and knows older holes
            before = found
            is_all = recorded.is_all or found.lsn == self._first_block(slot)
            recorded = recorded._replace(base_lsn=max(recorded.base_lsn, found.head.base_lsn), is_all=is_all)
            for at in range(0, HEAD.size * found.head.records, HEAD.size):
                if found.body[at] == RecordType.LOG_HOLES:
                    listed = holes.decode(found.payload(found.heads()[at // HEAD.size]))
                    recorded = recorded._replace(holes=listed, is_all=True)
        return recorded

    def _slot_from(self, slot: int) -> int:
        """Return the first slot of the log at or behind *slot*, as far as the containers show."""
        slot = max(slot, self.heads.base_lsn // self.container_bytes)
        at = bisect_left(self.slots, slot)
        inside = hole_with(self.holes, slot)
        return slot if inside is None else self.slots[at] if at < len(self.slots) else inside.end

    def _first_block(self, slot: int) -> int:
        return slot * self.container_bytes + DATA_OFFSET

    def _window(self, slot: int) -> ReadWindow | None:
        if self._open is not None and self._open[0] == slot:
            return self._open[1]
        self._close()
        if slot not in self.heads.by_slot:
            return None
        window = ReadWindow(self.directory.open(self.heads.file_name(slot)), self.container_bytes)
        self._open = (slot, window)
        return window

    def _close(self) -> None:
        if self._open is not None:
            self._open[1].file.close()
            self._open = None

    def _block_at(self, lsn: int) -> Block | BadBlock:
        try:
            window = self._window(lsn // self.container_bytes)
            return BadBlock(lsn, "no container holds it") if window is None else window.block_at(lsn, self.log_id)
        except BadBlock as error:
            return error
        except DiskError as error:
            self.heads.read_error = error
            return BadBlock(lsn, str(error))

    def _follows(self, found: Block) -> bool:
        return self.last is None or (found.head.prev_lsn == self.last.lsn and not self._is_left_over(found.head))

    def _is_left_over(self, head: BlockHead) -> bool:
        """Return whether the block is of an earlier incarnation than the last one, in a slot that was restarted."""
        return self.last is not None and head.incarnation < self.last.head.incarnation

    def _note(self, found: Block) -> None:
        head = found.head
        if head.durable_lsn > self.durable_lsn:
            self.durable_lsn = head.durable_lsn
        if head.incarnation > self.heads.incarnation:
            self.heads.incarnation = head.incarnation
        self.heads.raise_base(head.base_lsn)

    def _behind_hole(self) -> int:
        """Return the LSN at which the log continues if a hole follows the last block read; 0 if none does."""
        hole = None if self.last is None else self._hole_behind(self.last.lsn)
        if hole is None:
            return 0
        at = bisect_left(self.slots, hole.end)
        if at < len(self.slots) and hole.holds(self.heads.by_slot[self.slots[at]].prev_lsn // self.container_bytes):
            return self._first_block(self.slots[at])  # slots between them were never started
        return self._first_block(hole.end)

    def _hole_behind(self, lsn: int) -> Hole | None:
        return next((hole for hole in self.holes if hole.prev_lsn == lsn), None)

    def _successor(self, lsn: int) -> Block | None:
        """Return the first block of a later slot that names the last block read, or one in the hole behind that."""
        if self.last is None:
            return None
        hole = self._hole_behind(self.last.lsn)
        behind = -(-lsn // self.container_bytes) if hole is None else hole.end
        for slot in self.slots[bisect_left(self.slots, behind) :]:  # nearly always it is the very next one
            first = self._block_at(self._first_block(slot))
            if not isinstance(first, Block):
                continue
            if self._follows(first) or (
                hole is not None
                and hole.holds(first.head.prev_lsn // self.container_bytes)
                and not self._is_left_over(first.head)
            ):
                return first
        return None

    def _moved_on(self, lsn: int) -> bool:
        """Read the heads and the base again; return whether the writer has reclaimed the slot of *lsn* meanwhile."""
        self._close()
        if not self.heads.read_again():
            return False
        self._learn()
        return not self.holds(lsn // self.container_bytes)

    def _appeared(self, lsn: int) -> bool:
        """Return whether the block that was missing at *lsn*, or its successor, was written meanwhile."""
        self._close()
        found = self._block_at(lsn)
        if isinstance(found, Block) and self._follows(found):
            return True
        return self._successor(lsn) is not None

    def _damage(self, lsn: int, found: Block | BadBlock) -> Damage | None:
        """Return the damage from *lsn* on; None if the log ends there."""
        next_lsn = 0
        claim = self.durable_lsn
        for later in self._complete_blocks_after(lsn):
            if not self._is_left_over(later.head):
                next_lsn = next_lsn or later.lsn
            claim = max(claim, later.head.durable_lsn)
            if next_lsn and claim > lsn:
                break
        torn = claim <= lsn
        self.durable_lsn = max(self.durable_lsn, claim)
        reason = found.reason if isinstance(found, BadBlock) else f"its block follows that at LSN {found.head.prev_lsn}"
        if not next_lsn and torn:
            begun = self._looks_begun(lsn)
            return Damage(lsn, lsn + SECTOR_BYTES, reason, True) if begun else None
        return Damage(lsn, next_lsn or claim, reason, torn)

    def _looks_begun(self, lsn: int) -> bool:
        try:
            window = self._window(lsn // self.container_bytes)
            if window is None:
                return False
            head = block.peek(window.at(lsn % self.container_bytes, block.BLOCK_HEAD_BYTES), lsn, self.log_id)
        except BadBlock:
            return False
        except DiskError as error:
            self.heads.read_error = error
            return False
        return not self._is_left_over(head)

    def _complete_blocks_after(self, lsn: int) -> Iterator[Block]:
        """Yield every complete block after *lsn*, chained or not."""
        for slot in self.slots[bisect_left(self.slots, lsn // self.container_bytes) :]:
            yield from self._complete_blocks_in(slot, max(self._first_block(slot), lsn + SECTOR_BYTES))

    def _complete_blocks_in(self, slot: int, lsn: int) -> Iterator[Block]:
        """Yield every complete block of *slot* from *lsn* on, chained or not, found sector by sector."""
        while (begin := self._next_begin(slot, lsn)) is not None:
            found = self._block_at(begin)
            if isinstance(found, Block):
                yield found
                lsn = found.end_lsn
            else:
                lsn = begin + SECTOR_BYTES

    def _next_begin(self, slot: int, lsn: int) -> int | None:
        """Return the first sector of *slot* from *lsn* on that has a block's magic number, without decoding."""
        start = slot * self.container_bytes
        while lsn < start + self.container_bytes:
            try:
                window = self._window(slot)
                if window is None:
                    return None
                sectors = window.at(lsn - start, SECTOR_BYTES)
            except DiskError as error:
                self.heads.read_error = error
                lsn += SECTOR_BYTES
                continue
            for at in range(0, len(sectors), SECTOR_BYTES):
                if sectors[at + 4 : at + 8] == block.MAGIC_BYTES:
                    return lsn + at
            lsn += max(len(sectors), SECTOR_BYTES)
        return None
