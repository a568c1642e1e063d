"""Formatting a log, and opening one for writing: from its files to a `Journal` that stands behind its last block.

Opening never appends behind what it found: it starts a new incarnation in a new container. Whatever the log shows that
no claim proves durable was perhaps only in the page cache, and a failed sync may have left it marked clean there; so
it is written again, in place and byte for byte, and synced, before anything is shown. A crash in between changes
nothing: the same bytes are found again, or were never confirmed.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from uuid import UUID

from ..base.clock import Clock
from ..base.errors import CorruptJournal, DiskError, JournalFailed
from ..disk.seam import SECTOR_BYTES, Directory, File
from . import container
from .archive import Archive, ArchiveLimits
from .archiver import Archiver, Left
from .block import Block
from .log import Journal
from .mark import NAME as MARK_NAME
from .mark import Mark, MarkFile
from .pool import Pool
from .reader import Damage, LogReader
from .record import RecordType

DEFAULT_CONTAINER_BYTES = 1 << 20
MIN_CONTAINER_BYTES = 512 << 10
MIN_CONTAINERS = 2
"""A log keeps as many at least (checklist E6); a new one begins with `initial_containers` (E60)."""


@dataclass
class OpenReport:
    """What opening a log found and did."""

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
    """The block behind which reading began, if a checkpoint knew what is before it."""
    remarks: list[str] = field(default_factory=list)


def container_size(requested_bytes: int, min_bytes: int = MIN_CONTAINER_BYTES) -> int:
    """The container size that *requested_bytes* gives: at least 512 KiB, rounded up to the sector (checklist E59)."""
    size = max(requested_bytes, min_bytes)
    return -(-size // SECTOR_BYTES) * SECTOR_BYTES


def is_formatted(directory: Directory) -> bool:
    """Whether *directory* holds a log (perhaps a damaged one)."""
    return MARK_NAME in directory.names()


def format_log(directory: Directory, container_bytes: int, log_uuid: UUID, time_us: int) -> None:
    """Make an empty log whose containers have the size that `container_size` gave.

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
    held: Callable[[], bool] = lambda: False,
) -> tuple[Journal, OpenReport]:
    """Read the log, give every block from the base on to *visit* in order, and open it for writing.

    *prepare* may have the reader begin later before that.

    What leaves the log is kept in *archive*; what has left it already and is still there, too. *held*: see `Pool`.

    Raises `CorruptJournal` if something that was durable can't be read, `ForeignStore` for what is not ours,
    `DiskError` if the disk refuses to read, and then has changed nothing.
    """
    reader = LogReader(directory, live=False)
    prepare(reader)
    unproven: deque[tuple[int, int]] = deque()
    records = 0
    last_lsn = reader.resumed_lsn
    torn: Damage | None = None
    for found in reader.scan():
        if reader.read_error is not None:
            break
        if isinstance(found, Damage):
            if not found.torn:
                raise _corrupt(directory, found)
            torn = found
            break
        visit(found)
        records += found.head.records
        last_lsn = found.lsn
        unproven.append((found.lsn, found.end_lsn - found.lsn))
        while unproven and unproven[0][0] < reader.durable_lsn:
            unproven.popleft()
    if reader.read_error is not None:
        raise _unreadable(reader.read_error)
    report = OpenReport(
        log_uuid=reader.log_uuid,
        container_bytes=reader.container_bytes,
        incarnation=reader.incarnation + 1,
        base_lsn=reader.base_lsn,
        end_lsn=reader.end_lsn,
        closed_cleanly=reader.mark.closed and not unproven and torn is None,
        records=records,
        torn=torn,
        rewritten_bytes=sum(size for _, size in unproven),
        resumed_lsn=reader.resumed_lsn,
        remarks=reader.remarks,
    )
    _rewrite(reader, unproven)

    def make_pool(keep: int) -> Pool:
        pool = Pool(reader.directory, reader.container_bytes, reader.log_uuid, keep=keep, held=held)
        if archive is not None:
            place = Archive(archive, directory, reader.log_uuid, reader.container_bytes, clock, archive_limits)
            pool.archiver = Archiver(place, clock, pool.give_back, lambda: bool(pool.full or pool.low))
        return pool

    journal = _resume(reader, clock, last_lsn, initial_containers, max_write_buffers, make_pool)
    return journal, report


def _resume(
    reader: LogReader,
    clock: Clock,
    last_lsn: int,
    initial_containers: int,
    max_write_buffers: int,
    make_pool: Callable[[int], Pool],
) -> Journal:
    """The journal, standing in a new container, with its opening record durable."""
    size = reader.container_bytes
    slot = max((*reader.heads, (reader.end_lsn - 1) // size, reader.base_lsn // size - 1), default=-1) + 1
    if not last_lsn and not reader.heads:
        slot = reader.base_lsn // size
    base_lsn = reader.base_lsn if last_lsn else slot * size  # with no block to start from, the log starts here
    incarnation = reader.incarnation + 1
    mark = MarkFile(reader.directory.open(MARK_NAME, writable=True), reader.mark)
    try:
        mark.write(durable_lsn=reader.end_lsn, base_lsn=base_lsn, incarnation=incarnation, time_us=clock.wall_us())
        is_new = not reader.heads and not reader.free
        keep = max(initial_containers, MIN_CONTAINERS) if is_new else MIN_CONTAINERS
        pool = make_pool(keep)
        for number in reader.free:
            pool.adopt(number, None)
        chain = reader.chain_to(last_lsn) if last_lsn else []
        assert chain is not None  # the log was read through, or the reader resumed in it
        slots = {used: reader.heads[used].prev_lsn for used in chain}
        for used in slots:
            pool.adopt(reader.heads[used].number, used)
        _let_go(pool, reader, slots)
        while pool.lacks_spare() and pool.full is None:
            pool.prepare()
        pool.look_at_room()
    except BaseException:
        mark.close()
        raise
    journal = Journal(
        pool, mark, clock, incarnation=incarnation, slot=slot, prev_lsn=last_lsn, durable_lsn=reader.end_lsn,
        slots=slots, log_holes=reader.holes, max_write_buffers=max_write_buffers,
    )  # fmt: skip
    with abandoned_on_failure(journal):
        journal.append_own(RecordType.LOG_OPEN, extra=reader.end_lsn)
        journal.flush()
    return journal


@contextmanager
def abandoned_on_failure(journal: Journal) -> Iterator[None]:
    """While nothing runs on *journal* yet, an error releases its files, and what the disk said is the whole story."""
    try:
        yield
    except JournalFailed as error:
        journal.abandon()
        raise error.__cause__ or error from None
    except BaseException:
        journal.abandon()
        raise


def _let_go(pool: Pool, reader: LogReader, slots: Collection[int]) -> None:
    """Free the containers whose head is of a slot outside the log, but first archive what they still hold of it."""
    last_slot = (reader.end_lsn - 1) // reader.container_bytes
    known = [(slot, head.prev_lsn) for slot, head in reader.heads.items() if slot <= last_slot]
    known = sorted([*known, *((hole.first, hole.prev_lsn) for hole in reader.holes)])
    for slot, head in sorted(reader.heads.items()):
        if slot in slots:
            continue
        archiver = pool.archiver
        if archiver is not None and slot < last_slot:  # what was begun behind the end was never confirmed
            _, next_prev_lsn = known[bisect_left(known, (slot + 1, 0))]
            if archiver.archive.wants(slot, head.number, next_prev_lsn):
                archiver.take_over([Left(slot, head.number)])
                continue
        pool.adopt(head.number, None)


def _rewrite(reader: LogReader, unproven: Iterable[tuple[int, int]]) -> None:
    """Write the blocks that no claim proves durable again, and sync them; clear away half-made containers."""
    files: dict[int, File] = {}
    directory = reader.directory
    try:
        for lsn, size_bytes in unproven:
            slot, offset = divmod(lsn, reader.container_bytes)
            if slot not in files:
                files[slot] = directory.open(container.file_name(reader.heads[slot].number), writable=True)
                files[slot].write_at(0, files[slot].read_at(0, SECTOR_BYTES))
            files[slot].write_at(offset, files[slot].read_at(offset, size_bytes))
        for file in files.values():
            file.sync()
    finally:
        for file in files.values():
            file.close()
    for name in directory.names():
        if name.endswith(container.SUFFIX + ".new"):
            directory.unlink(name)
    directory.sync()


def _unreadable(error: DiskError) -> DiskError:
    """What can't be read now may be whole: never cut the log there."""
    remedy = "nothing was changed; `cairnmq salvage` recovers what the disk still reads"
    return DiskError(error.place, error.reason, f"{error.remedy}; {remedy}" if error.remedy else remedy)


def _corrupt(directory: Directory, damage: Damage) -> CorruptJournal:
    return CorruptJournal(
        directory.path,
        f"LSN {damage.first_lsn} to {damage.end_lsn} was durable and can't be read ({damage.why})",
        "nothing was changed; `cairnmq dump` shows what is whole; restore the files from a backup",
        damage.first_lsn,
        damage.end_lsn,
    )
