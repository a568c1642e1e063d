"""The log as it was: every container of one log that is still anywhere, and the log cut at an LSN.

The log as of LSN X is what a crash at X would have left, with all of it on the disk: the slots from the base on that
the last block before X tells, without the holes that were known then, and of the last slot what stands below X. A
block that X lies in is shown with the records before X only. So recovery's own reading tells what was true at X, and
nothing else has to be understood here.

What is needed for that may stand in the log's directory, also in containers that have left the log and were not used
again yet, or in an archive. Base and holes only ever grow: behind the last slot that is missing, history is whole from
some LSN on. Nothing is ever written.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from itertools import pairwise, takewhile
from typing import NamedTuple
from uuid import UUID

import numpy as np

from ...base.disk.seam import SECTOR_BYTES, Directory, File
from ...base.errors import DiskError, ForeignStore, NotWhole
from ...journal.files.archive import archived_lsn
from ...journal.format import block, container
from ...journal.format import log_mark as mark
from ...journal.format.block import Block
from ...journal.format.container import DATA_OFFSET, ContainerHead
from ...journal.format.log_mark import PLACES, Mark
from ...journal.format.record import HEAD_BYTES, Flag, RecordType, heads_of
from ...journal.read.scanner import Damage, LogReader
from ...recovery.lenient_directory import ReadOnlyDirectory, ShownFile
from ...recovery.salvageable import log_id_of
from ...store.journaled.truncation import truncation_words
from ..inspect.block_table import heads_of_block
from ..inspect.loose_containers import LooseContainer, read_container_file
from ..inspect.point_in_time import time_words

_OWN = (RecordType.LOG_OPEN, RecordType.LOG_HOLES)


class KeptContainer(NamedTuple):
    """A container, wherever it is kept."""

    directory: Directory
    name: str
    head: ContainerHead

    @property
    def is_archived(self) -> bool:
        return archived_lsn(self.name) is not None


class LogCut(NamedTuple):
    """A cut of the log at an LSN."""

    lsn: int
    """Every record below it counts, and none from there on."""
    block_lsn: int
    """The last block that is shown; 0 if there is none."""
    block: bytes
    """It, perhaps with fewer records than it has."""
    damage: str = ""
    """The reason why the blocks between it and `lsn` can't be read."""

    @property
    def end_lsn(self) -> int:
        """Behind the last block."""
        return self.block_lsn + len(self.block)


class _Bytes(ShownFile):
    """A file in memory."""

    def __init__(self, name: str, data: bytes) -> None:
        super().__init__(name, data[:SECTOR_BYTES], None, len(data))
        self._data = data

    def read_at(self, offset: int, size_bytes: int) -> bytes:
        return self._data[offset : offset + size_bytes]


class _CutFile(ShownFile):
    """A container that ends with a cut: zeros behind it."""

    def __init__(self, name: str, first_sector: bytes, file: File, size_bytes: int, cut: LogCut) -> None:
        super().__init__(name, first_sector, file, size_bytes)
        self._cut = cut
        self._begin = cut.block_lsn % size_bytes

    def read_at(self, offset: int, size_bytes: int) -> bytes:
        end = max(offset, min(offset + size_bytes, self._size))
        before = super().read_at(offset, min(end, self._begin) - offset) if offset < self._begin else b""
        at = offset + len(before) - self._begin
        shown = self._cut.block[at : end - self._begin] if end > self._begin else b""
        return (before + shown).ljust(end - offset, b"\0")


class ShownLog(ReadOnlyDirectory):
    """Containers as if they were a log's directory, which a mark says is durable up to an LSN."""

    def __init__(
        self, kept: Sequence[KeptContainer], durable_lsn: int, base_lsn: int = 0, cut: LogCut | None = None
    ) -> None:
        first = kept[0].head
        self.path = kept[0].directory.path
        self._kept = kept
        self._cut = cut
        self._log_uuid = first.log_uuid
        one = mark.encode(Mark(False, 0, first.log_uuid, first.container_bytes, 1, durable_lsn, base_lsn, 0))
        self._mark = one.ljust(PLACES[1], b"\0") + one

    def names(self) -> list[str]:
        return [mark.NAME, *(container.file_name(number) for number in range(1, len(self._kept) + 1))]

    def open(self, name: str, *, writable: bool = False) -> File:
        if name == mark.NAME:
            return _Bytes(name, self._mark)
        number = container.file_number(name) or 0
        if not 0 < number <= len(self._kept):
            raise DiskError(f"{self.path}/{name}", "no such file")
        kept = self._kept[number - 1]
        head = container.encode_head(kept.head._replace(number=number, base_lsn=0, log_uuid=self._log_uuid))
        file = kept.directory.open(kept.name)
        size = kept.head.container_bytes
        if self._cut is not None and kept.head.slot == self._cut.block_lsn // size:
            return _CutFile(name, head, file, size, self._cut)
        return ShownFile(name, head, file, size)

    def place_of(self, name: str) -> str:
        """The real path of the container that is shown under *name*."""
        number = container.file_number(name) or 0
        kept = self._kept[number - 1]
        return f"{kept.directory.path}/{kept.name}"


class History:
    """All that is left of one log. Call `find_history` again when containers moved meanwhile."""

    def __init__(
        self, log_uuid: UUID, container_bytes: int, kept: dict[int, KeptContainer], notes: list[str], found: Mark | None
    ) -> None:
        """*found* is the log's mark, where there is one: it may know a newer base than all blocks."""
        self.log_uuid = log_uuid
        self._mark = found
        self.container_bytes = container_bytes
        self.kept = kept
        """By slot."""
        self.slots = sorted(kept)
        self.notes = notes

    # ---- reading on -----------------------------------------------------------------------------------------------

    def scan(self, from_lsn: int = 0) -> Iterator[Block | Damage]:
        """Blocks in order, of all slots that are kept from the one of *from_lsn* on, and the damage between them."""
        size = self.container_bytes
        at = max(0, bisect_right(self.slots, from_lsn // size) - 1)
        first = self.slots[at] if self.slots else 0
        for run in self._runs():
            if run[-1].head.slot < first:
                continue
            reader = LogReader(ShownLog(run, 0), history=True)
            yield from reader.scan(max(first, run[0].head.slot) * size)

    def _runs(self) -> Iterator[list[KeptContainer]]:
        run: list[KeptContainer] = []
        for slot in self.slots:
            if run and run[-1].head.slot + 1 != slot:
                yield run
                run = []
            run.append(self.kept[slot])
        if run:
            yield run

    # ---- where ----------------------------------------------------------------------------------------------------

    @property
    def first_lsn(self) -> int:
        """Of what is kept."""
        return self.slots[0] * self.container_bytes + DATA_OFFSET

    def truncation(self) -> str:
        """The reclaimed ranges that are kept nowhere, as a sentence; empty if nothing is missing."""
        size, first = self.container_bytes, self.kept[self.slots[0]].head
        gaps = [
            ((here + 1) * size, following * size)
            for here, following in pairwise(self.slots)
            if following != here + 1 and self.kept[following].head.prev_lsn // size > here
        ]
        return truncation_words(self.slots[0] * size, first.time_us, gaps)

    def end_lsn(self) -> int:
        """Behind the last block of the log."""
        for slot in reversed(self.slots):
            end = 0
            for found in self.scan(slot * self.container_bytes):
                if isinstance(found, Block):
                    end = found.end_lsn
                elif found.torn:
                    break
            if end:
                return end
        return self.first_lsn

    def lsn_at(self, time_us: int) -> int:
        """The first record that was appended after that time, or the end. Raises `NotWhole` for one before all."""
        known = [slot for slot in self.slots if self.kept[slot].head.time_us]
        times = [self.kept[slot].head.time_us for slot in known]
        at = bisect_right(times, time_us) - 1
        if at < 0 and known and known[0] > 0:
            raise NotWhole("that time", "the log and its archive begin later", self._begins())
        begin = known[max(0, at - 1)] if known else 0  # the block before a new container was filled a little earlier
        end = self.first_lsn
        for found in self.scan(begin * self.container_bytes):
            if isinstance(found, Damage):
                continue
            table = heads_of_block(found)
            later = np.flatnonzero((table["time_us"] > time_us) & (table["flags"] & Flag.MOVED == 0))
            if len(later):
                return found.record_lsn(int(later[0]))
            end = found.end_lsn
        return end

    def _begins(self) -> str:
        return f"what is kept begins at LSN {self.first_lsn}"

    def cut_at(self, lsn: int) -> LogCut:
        """The log cut at *lsn*, which lies in what is kept, or at its end. Raises `NotWhole` if it does not."""
        size = self.container_bytes
        at = bisect_left(self.slots, -(-lsn // size)) - 1
        while at >= 0:
            last: Block | None = None
            damage = ""
            slot = self.slots[at]
            for found in self.scan(slot * size):
                if isinstance(found, Damage) and found.torn:
                    break
                if isinstance(found, Damage):
                    damage = damage or (found.why if found.first_lsn < lsn else "")
                    continue
                if found.lsn + block.BLOCK_HEAD_BYTES >= lsn:
                    break
                last, damage = found, ""
            if last is not None:
                following = self._behind_missing(at, lsn, last)
                if following is not None:
                    return self._cut_behind_opening(following, lsn)
                return self._cut(last, lsn)._replace(lsn=lsn, damage=damage) if damage else self._cut(last, lsn)
            at -= 1
        if lsn <= DATA_OFFSET + block.BLOCK_HEAD_BYTES and self.slots[:1] == [0]:
            return LogCut(lsn, 0, b"")
        return self._cut_behind_opening(self.slots[0], lsn)

    def _behind_missing(self, at: int, lsn: int, last: Block) -> int | None:
        """The next slot that is kept, if *lsn* lies in or behind one that is missing before that; else None."""
        size = self.container_bytes
        if lsn <= (self.slots[at] + 1) * size or at + 1 == len(self.slots):
            return None
        following = self.slots[at + 1]
        return following if self.kept[following].head.prev_lsn // size > last.lsn // size else None

    def _cut_behind_opening(self, slot: int, lsn: int) -> LogCut:
        """Slots in which a broker only started are not archived: a cut behind where it ended is one behind the next.

        Between the two stand only records of the log's own. Raises `NotWhole` if *lsn* lies elsewhere in what is
        missing.
        """
        first = next(self.scan(slot * self.container_bytes), None)
        heads = first.heads() if isinstance(first, Block) else []
        own = list(takewhile(lambda head: head.type in _OWN, heads))
        if isinstance(first, Block) and any(one.type == RecordType.LOG_OPEN and one.extra <= lsn for one in own):
            return self._cut(first, first.record_lsn(len(own) - 1) + 1)
        gone = f"what stood up to LSN {slot * self.container_bytes} is not kept any more"
        raise NotWhole(f"LSN {lsn}", gone, self.whole_from_words())

    def _cut(self, last: Block, lsn: int) -> LogCut:
        """Behind the records of *last* that stand below *lsn*."""
        head = last.head
        count = min(head.records, -(-(lsn - last.record_lsn(0)) // HEAD_BYTES))
        payloads = last.body[HEAD_BYTES * head.records :]
        heads = last.body[: HEAD_BYTES * count]
        size = sum(one.size for one in heads_of(heads))
        data = block.encode(
            heads, [bytes(payloads[:size])], size, lsn=head.lsn, prev_lsn=head.prev_lsn, incarnation=head.incarnation,
            durable_lsn=head.durable_lsn, base_lsn=head.base_lsn, log_id=log_id_of(self.log_uuid),
            flags=head.flags,
        )  # fmt: skip
        return LogCut(min(lsn, last.end_lsn), head.lsn, bytes(data))

    def log_at(self, cut: LogCut) -> ShownLog:
        """The directory of the log as it was."""
        end = cut.block_lsn // self.container_bytes
        told = self._mark
        base_lsn = told.base_lsn if told is not None and told.durable_lsn <= cut.lsn else 0
        claim_lsn = cut.lsn if cut.damage else cut.end_lsn
        return ShownLog([self.kept[slot] for slot in self.slots if slot <= end], claim_lsn, base_lsn, cut)

    # ---- how much of it -------------------------------------------------------------------------------------------

    def is_whole_at(self, cut: LogCut) -> bool:
        """Return whether every container that the log then had is kept; nothing is said of what is in them."""
        if not cut.block_lsn:
            return True
        return LogReader(self.log_at(cut)).chain_to(cut.block_lsn) is not None

    def whole_from(self) -> int | None:
        """The LSN from which on history is whole up to the end, None if it is nowhere.

        To the container, or to the block in the last one.
        """
        low, high = 0, len(self.slots)
        while low < high:  # what is needed of the past only ever gets less, behind the last slot that is missing
            middle = (low + high) // 2
            if self._is_whole_behind(middle):
                high = middle
            else:
                low = middle + 1
        if low < len(self.slots):
            return self.first_lsn if low == 0 else self._end_of_first_block(low)
        ends = [one.end_lsn for one in self.scan(self.slots[-1] * self.container_bytes) if isinstance(one, Block)]
        at = bisect_left(ends, True, key=lambda end: self.is_whole_at(self.cut_at(end)))
        return ends[at] if at < len(ends) else None

    def whole_from_words(self) -> str:
        lsn = self.whole_from()
        if lsn is None:
            return "no point of its history is whole; name the archive, too"
        head = self.kept[lsn // self.container_bytes].head
        when = f", about {time_words(head.time_us)}" if head.time_us else ""
        return f"history is whole from LSN {lsn} on{when}"

    def _is_whole_behind(self, at: int) -> bool:
        """Return whether history is whole behind the first block of that slot, and all slots from there on are kept."""
        size = self.container_bytes
        for here, following in zip(self.slots[at:], self.slots[at + 1 :], strict=False):
            if self.kept[following].head.prev_lsn // size > here and following != here + 1:
                return False
        end = self._end_of_first_block(at)
        return end > 0 and self.is_whole_at(self.cut_at(end))

    def _end_of_first_block(self, at: int) -> int:
        found = next(self.scan(self.slots[at] * self.container_bytes), None)
        return found.end_lsn if isinstance(found, Block) else 0


def find_history(directories: Sequence[Directory]) -> History:
    """The containers that *directories* keep of one log: of the first one with a mark, or the only one there is.

    Raises `ForeignStore` if there is none, or none can be told to be meant, and `DiskError`.
    """
    notes: list[str] = []
    found = [one for directory in directories for one in _containers(directory, notes)]
    told = _mark_of(directories)
    meant = None if told is None else told.log_uuid
    logs = {log_id_of(one.head.log_uuid) for one in found}
    if meant is None and len(logs) > 1:
        raise ForeignStore(directories[0].path, f"containers of {len(logs)} logs are there", "name the store, too")
    if not found:
        raise ForeignStore(directories[0].path, "no containers of a log", "name a store directory, or an archive")
    log_uuid = meant or found[0].head.log_uuid
    kept: dict[int, KeptContainer] = {}
    for one in found:
        if log_id_of(one.head.log_uuid) != log_id_of(log_uuid):
            continue
        other = kept.get(one.head.slot)
        if other is None or (other.head.incarnation, other.is_archived) < (one.head.incarnation, one.is_archived):
            kept[one.head.slot] = one
    if not kept:
        raise ForeignStore(directories[0].path, "no container of this log is there", "name a store directory")
    size = next(iter(kept.values())).head.container_bytes
    return History(log_uuid, size, kept, notes, told)


def _mark_of(directories: Sequence[Directory]) -> Mark | None:
    for directory in directories:
        if mark.NAME in directory.names():
            found = mark.read(directory)
            if found is not None:
                return found
    return None


def _containers(directory: Directory, notes: list[str]) -> Iterator[KeptContainer]:
    names = [name for name in directory.names() if container.file_number(name) or archived_lsn(name) is not None]
    found = {name: _look_at(directory, name, None, notes) for name in names}
    size = next((given.head.container_bytes for given in found.values() if given and not given.finding), None)
    for name, given in found.items():
        if given is not None and given.finding is not None:  # its blocks tell what it holds, and the others its size
            given = _look_at(directory, name, size, notes) or given
            notes.append(f"{given.path}: {given.finding.why if given.finding else 'its head was damaged'}")
        if given is not None:
            yield KeptContainer(directory, name, given.head)


def _look_at(directory: Directory, name: str, container_bytes: int | None, notes: list[str]) -> LooseContainer | None:
    place = f"{directory.path}/{name}"
    try:
        file = directory.open(name)
        try:
            found = read_container_file(file, place, container_bytes)
            if found is not None and found.finding is not None:  # it may be whole, and only not ours to read
                container.decode_head(found.first_sector, place)
            return found
        except container.BadContainer:
            return found
        finally:
            file.close()
    except ForeignStore as error:
        if "newer than" in error.reason:
            raise
        notes.append(f"{place}: left out: {error.reason}")
    except DiskError as error:  # it moved to the archive since the names were read, or can't be read
        notes.append(str(error))
    return None
