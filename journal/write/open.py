"""Formatting a log, and opening a log for writing: from its files to a `Journal` positioned after its last block.

Opening never appends to the containers that it found: it starts a new incarnation in a new container. Blocks behind
the durability mark were perhaps only in the page cache. `rewrite_unproven` reads past the cache, and copies them to
sound containers, before any content is made visible.

Slots that hold only openings leave the log when the new one is written, so that a broker that is killed repeatedly uses
no additional space. They have no visible content and are not copied, but their containers are retired. The new opening
records them (`holes`), so that no reader misses them.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Collection, Container, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import NamedTuple
from uuid import UUID

from ...base.clock import Clock
from ...base.disk.seam import SECTOR_BYTES, Directory, ReadableDirectory
from ...base.errors import CorruptJournal, DiskError, JournalFailed
from ..files.archive import Archive, ArchiveLimits
from ..files.archiver import Archiver, Left
from ..files.container_pool import ContainerPool
from ..files.held_containers import NO_SLOT_HELD, Holds, Keeper
from ..files.space_reserve import RESERVE_BYTES
from ..format import container
from ..format.block import Block
from ..format.holes import Hole, encode_openings, hole_with, openings_from
from ..format.log_mark import NAME as MARK_NAME
from ..format.log_mark import Mark, MarkFile
from ..format.record import HEAD_BYTES, RecordType
from ..read.scanner import Damage, LogReader
from .journal import Journal
from .rewrite_unproven import copy_slots, forget_unproven, superseded

DEFAULT_CONTAINER_BYTES = 1 << 20
MIN_CONTAINER_BYTES = 512 << 10
MIN_CONTAINERS = 2
"""A log keeps as many at least (checklist E6); a new one begins with `initial_containers` (E60)."""
_OPENINGS = bytes((RecordType.LOG_OPEN, RecordType.LOG_HOLES))


@dataclass
class OpenReport:
    """Report of opening a log."""

    log_uuid: UUID
    container_bytes: int
    incarnation: int
    base_lsn: int
    end_lsn: int
    closed_cleanly: bool
    records: int
    torn: Damage | None
    rewritten_bytes: int
    resumed_lsn: int = 0
    """The block after which reading began, if a checkpoint covered the part before it."""
    remarks: list[str] = field(default_factory=list)


def container_size(requested_bytes: int, min_bytes: int = MIN_CONTAINER_BYTES) -> int:
    """Return the container size for *requested_bytes*: at least 512 KiB, rounded up to the sector (checklist E59)."""
    size = max(requested_bytes, min_bytes)
    return -(-size // SECTOR_BYTES) * SECTOR_BYTES


def is_formatted(directory: Directory) -> bool:
    """Return whether *directory* holds a log (perhaps a damaged one)."""
    return MARK_NAME in directory.names()


def format_log(directory: Directory, container_bytes: int, log_uuid: UUID, time_us: int) -> None:
    """Create an empty log whose containers have the size from `container_size`.

    A crash leaves either no mark, so no log, or a log that opens.
    """
    mark = Mark(True, 0, log_uuid, container_bytes, 0, 0, 0, time_us)
    MarkFile.format(directory, mark).close()


def open_log(
    directory: Directory,
    clock: Clock,
    *,
    visit: Callable[[Block], None],
    prepare: Callable[[LogReader], None] = lambda reader: None,
    initial_containers: int = 2,
    max_write_buffers: int = 10,
    archive: Directory | None = None,
    archive_limits: ArchiveLimits | None = None,
    holds_archive: Callable[[], bool] = lambda: True,
    holds: Holds | None = None,
    keeper: Keeper | None = None,
    syncers: int = 0,
    reserve_bytes: int = RESERVE_BYTES,
    block_flags: int = 0,
    misplaced: Callable[[], str] = lambda: "",
) -> tuple[Journal, OpenReport]:
    """Read the log, pass every block from the base on to *visit* in order, and open it for writing.

    *prepare* may set a later start for the reader.

    Containers that leave the log, or left it already and still exist, are kept in *archive*. *holds*, *keeper* and
    *reserve_bytes*: see `ContainerPool`. *syncers*: see `Writing`, *block_flags*: `Journal`, *misplaced*: `LogWriter`,
    *holds_archive*: `Archive`.

    Raises `CorruptJournal` if durable data is unreadable, `ForeignStore` for files of another store, and `DiskError`
    for a read error, which leaves everything unchanged.
    """
    reader = forget_unproven(directory)
    prepare(reader)
    found = _scan(reader, visit)
    extent = _Extent.of(reader, found)
    report = OpenReport(
        log_uuid=reader.log_uuid,
        container_bytes=reader.container_bytes,
        incarnation=reader.heads.incarnation + 1,
        base_lsn=reader.heads.base_lsn,
        end_lsn=reader.end_lsn,
        closed_cleanly=reader.heads.mark.closed and not found.unproven and found.torn is None,
        records=found.records,
        torn=found.torn,
        rewritten_bytes=sum(end - begin for begin, end in found.unproven),
        resumed_lsn=reader.resumed_lsn,
        remarks=reader.heads.remarks,
    )
    _clear_away(directory)
    is_new = not reader.heads.by_slot and not reader.heads.free
    pool = ContainerPool(
        directory, reader.container_bytes, reader.log_uuid, holds=holds, keeper=keeper, reserve_bytes=reserve_bytes,
        keep=max(initial_containers, MIN_CONTAINERS) if is_new else MIN_CONTAINERS,
    )  # fmt: skip
    if archive is not None:
        place = Archive(
            archive, directory, reader.log_uuid, reader.container_bytes, clock, archive_limits, holds_archive
        )
        pool.archiver = Archiver(place, clock, pool.give_back, lambda: pool.is_full)
    _fill(pool, reader, found, extent, report.incarnation)
    mark = MarkFile(directory.open(MARK_NAME, writable=True), reader.heads.mark)
    try:
        mark.write(
            durable_lsn=reader.end_lsn, base_lsn=extent.base_lsn, incarnation=report.incarnation,
            time_us=clock.wall_us(),
        )  # fmt: skip
        pool.begin()
        pool.look_at_room()
    except BaseException:
        mark.close()
        raise
    journal = Journal(
        pool, mark, clock, incarnation=report.incarnation, slot=extent.new_slot, prev_lsn=found.last_lsn,
        durable_lsn=reader.end_lsn, slots=extent.slots, log_holes=extent.holes, max_write_buffers=max_write_buffers,
        syncers=syncers, block_flags=block_flags, misplaced=misplaced,
    )  # fmt: skip
    with abandoned_on_failure(journal):
        journal.retire([*extent.openings, *extent.late], are_openings=True)
        before = found.openings_from(reader)
        payload = b"" if before is None else encode_openings(before)
        journal.append_control(RecordType.LOG_OPEN, payload, extra=reader.end_lsn)
        journal.flush()
    return journal, report


class _Found:
    """Result of scanning a log on opening."""

    def __init__(self, last_lsn: int) -> None:
        """*last_lsn*: the block behind which the scan begins; 0 for the base."""
        self.records = 0
        self.last_lsn = last_lsn
        self.torn: Damage | None = None
        self.unproven: deque[tuple[int, int]] = deque()
        """Begin and end of the last blocks, which are behind the durability mark."""
        self.openings: set[int] = set()
        """Slots that were read from their first block on, and hold nothing but openings."""
        self._noted: dict[int, int] = {}  # for such slots, what their opening recorded about those before

    def add(self, block: Block, durable_lsn: int, container_bytes: int) -> None:
        self.records += block.head.records
        self.last_lsn = block.lsn
        self.unproven.append((block.lsn, block.end_lsn))
        while self.unproven and self.unproven[0][0] < durable_lsn:
            self.unproven.popleft()
        slot, offset = divmod(block.lsn, container_bytes)
        if offset == container.DATA_OFFSET:
            self.openings.add(slot)
            noted = openings_from(block)
            self._noted = {} if noted is None else {slot: noted}
        if slot in self.openings:
            kinds = bytes(block.body[: HEAD_BYTES * block.head.records : HEAD_BYTES])
            if kinds.strip(_OPENINGS):
                self.openings.discard(slot)

    def openings_from(self, reader: LogReader) -> int | None:
        """Return the last block before the openings that the log ends with; None if it ends with other records."""
        slot = self.last_lsn // reader.container_bytes
        if slot not in self.openings:
            return None
        return self._noted.get(slot, reader.heads.by_slot[slot].prev_lsn)

    def ends(self, end_lsn: int, container_bytes: int, slots: Container[int]) -> dict[int, int]:
        """Return those of *slots* that hold unproven or torn blocks, each with the end of its last block."""
        ends = {begin // container_bytes: end for begin, end in self.unproven}
        if self.torn is not None and (slot := self.torn.first_lsn // container_bytes) in slots:
            ends[slot] = end_lsn
        return ends


class _Extent(NamedTuple):
    """The slots of a log as found on opening, and the slot in which it continues."""

    new_slot: int
    base_lsn: int
    holes: list[Hole]
    slots: dict[int, int]
    """The slots of the opened log in ascending order, each with the LSN of the last block before it."""
    openings: list[int]
    """The slots in `slots` that hold only openings."""
    late: list[int]
    """The slots in `slots` that left the log by a block after its end; another block, which stays, repeats that."""

    @classmethod
    def of(cls, reader: LogReader, found: _Found) -> _Extent:
        """Return the extent of the log that *reader* has read to its end."""
        size, by_slot = reader.container_bytes, reader.heads.by_slot
        base_slot, last_slot = reader.heads.base_lsn // size, (reader.end_lsn - 1) // size
        new_slot = max((*by_slot, last_slot, base_slot - 1), default=-1) + 1
        if not found.last_lsn:
            new_slot = new_slot if by_slot else base_slot
            return cls(new_slot, new_slot * size, reader.holes, {}, [], [])
        base_lsn, log_holes = reader.recorded_until(reader.end_lsn)
        chain = reader.chain_to(found.last_lsn)
        assert chain is not None  # the log was read through, or the reader resumed in it
        in_log = [slot for slot in by_slot if base_lsn <= slot * size <= last_slot * size]
        late = [slot for slot in in_log if slot not in chain and hole_with(log_holes, slot) is None]
        slots = {slot: by_slot[slot].prev_lsn for slot in sorted([*chain, *late])}
        return cls(new_slot, base_lsn, log_holes, slots, [slot for slot in slots if slot in found.openings], late)


def _scan(reader: LogReader, visit: Callable[[Block], None]) -> _Found:
    """Pass each block of the log to *visit*. Raises as `open_log`."""
    found = _Found(reader.resumed_lsn)
    for block in reader.scan():
        if reader.heads.read_error is not None:
            break
        if isinstance(block, Damage):
            if not block.torn:
                raise _corrupt(reader.directory, block)
            found.torn = block
            break
        visit(block)
        found.add(block, reader.durable_lsn, reader.container_bytes)
    if reader.heads.read_error is not None:
        raise _unreadable(reader.heads.read_error)
    return found


def _fill(pool: ContainerPool, reader: LogReader, found: _Found, extent: _Extent, incarnation: int) -> None:
    """Give the containers on the disk to *pool*, and copy slots whose last blocks are behind the durability mark."""
    heads, slots = reader.heads, extent.slots
    for number in heads.free:
        pool.give_back(Left(NO_SLOT_HELD, number))
    for slot in slots:
        pool.adopt(slot, heads.by_slot[slot].number)
    _let_go(pool, reader, slots)
    doubtful = found.ends(reader.end_lsn, reader.container_bytes, slots)
    copied = {slot: end for slot, end in doubtful.items() if slot not in extent.openings}
    in_use = [heads.by_slot[slot].number for slot in doubtful if slot not in copied]  # until the log has left them
    copy_slots(reader, pool, incarnation, copied)
    last_slot = (reader.end_lsn - 1) // reader.container_bytes
    begun = [head.number for slot, head in heads.by_slot.items() if slot > last_slot and slots]
    for number in [*begun, *superseded(reader), *in_use]:
        pool.retire(number)


@contextmanager
def abandoned_on_failure(journal: Journal) -> Iterator[None]:
    """Abandon *journal* on an error before it is in use, and raise a disk error in place of `JournalFailed`."""
    try:
        yield
    except JournalFailed as error:
        journal.abandon()
        raise error.__cause__ or error from None
    except BaseException:
        journal.abandon()
        raise


def _let_go(pool: ContainerPool, reader: LogReader, slots: Collection[int]) -> None:
    """Free the containers whose head names a slot outside the log; archive those that hold a part of it first.

    Containers that were started after the end of the log were never confirmed, and are in doubt: `_fill` retires them.
    """
    last_slot = (reader.end_lsn - 1) // reader.container_bytes
    known = [(slot, head.prev_lsn) for slot, head in reader.heads.by_slot.items() if slot <= last_slot]
    known = sorted([*known, *((hole.first, hole.prev_lsn) for hole in reader.holes)])
    for slot, head in sorted(reader.heads.by_slot.items()):
        if slot in slots or (slot > last_slot and slots):
            continue
        archiver = pool.archiver
        if archiver is not None and slot < last_slot:
            at = bisect_left(known, (slot + 1, 0))
            # the mark alone may know the base
            next_prev_lsn = known[at][1] if at < len(known) else reader.heads.base_lsn
            if archiver.archive.wants(slot, head.number, next_prev_lsn):
                archiver.take_over([Left(slot, head.number)])
                continue
        pool.give_back(Left(slot, head.number))


def _clear_away(directory: Directory) -> None:
    """Remove incomplete containers, and make the names of the others durable."""
    for name in directory.names():
        if name.endswith(container.SUFFIX + ".new"):
            directory.unlink(name)
    directory.sync()


def _unreadable(error: DiskError) -> DiskError:
    """Return *error* with a remedy. Unreadable blocks may be intact, so the log is never cut there."""
    remedy = "nothing was changed; `cairnmq salvage` recovers what the disk still reads"
    return DiskError(error.place, error.reason, f"{error.remedy}; {remedy}" if error.remedy else remedy)


def _corrupt(directory: ReadableDirectory, damage: Damage) -> CorruptJournal:
    return CorruptJournal(
        directory.path,
        f"LSN {damage.first_lsn} to {damage.end_lsn} was durable and can't be read ({damage.reason})",
        "nothing was changed; `cairnmq dump` shows what is whole; restore the files from a backup",
        damage.first_lsn,
        damage.end_lsn,
    )
