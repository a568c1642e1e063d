"""The journal in figures, read off what is there anyway: nothing is counted per message.

Any thread may ask. Figures of one flush belong together; figures of different parts of the store may be a moment apart.
"""

from __future__ import annotations

from dataclasses import dataclass

from ...base.disk.seam import Directory
from ...base.errors import DiskError
from ...base.histogram import HistogramValue
from ...journal.write.journal import Journal
from .retention_leases import Bookmarks
from .store import JournalStore


@dataclass(frozen=True)
class JournalMetrics:
    """All of it. Counters begin at 0 when the store is opened."""

    fsync_s: HistogramValue
    """Seconds that each sync of a container took."""
    group_records: HistogramValue
    """Records that each flush made durable."""
    group_bytes: HistogramValue
    """Bytes that each flush wrote, in complete blocks."""
    flushes: int
    blocks: int
    records: int
    """Durable ones, whatever they are of."""
    user_bytes: int
    """Heads and payloads of durable records that messages caused."""
    relocated_bytes: int
    """Heads and payloads of durable records that relocation copied."""
    log_bytes: int
    """Heads and payloads of durable records of the log about itself."""
    block_bytes: int
    """All written bytes: block heads and padding, and the three above."""

    base_lsn: int
    durable_lsn: int
    end_lsn: int
    """Every record appended so far lies below."""
    slots: int
    """Slots of the log; each takes a container."""
    used_bytes: int
    """The bytes used in these slots."""
    live_bytes: int
    """Records that are needed by messages, heads and payloads."""
    live_ratio: float
    """live_bytes / used_bytes, 0 to 1."""
    holes: int
    """Runs of slots that left the log although older ones are still in it."""
    base_slot: int
    base_held_by: str
    """The description of the holder of the oldest slot, which determines the base."""
    base_holder_kind: str
    """The kind of it: message, transaction, purge, records, log-end, none."""

    free_containers: int
    """Ready for the log to go on in."""
    made_containers: int
    """The number of containers made so far; a log of constant size makes none."""
    archived_containers: int
    """Left the log so far and are in the archive."""
    dropped_containers: int
    """Left the log so far, with the history they held: into no archive."""

    kept_containers: int
    """Left the log so far, and are held by a backup, or kept for bookmarks."""
    bookmarks: tuple[tuple[str, int], ...]
    """The name of each reader of history, and its distance to the end of the log in bytes."""
    dropped_bookmarks: int
    """Bookmarks that were dropped so far: they were too far behind, or the disk was full."""

    write_amplification: float
    """(user_bytes + relocated_bytes) / user_bytes; 1 while there are none."""
    emptied_slots: int
    """Slots from which all live records were copied forward so far."""
    is_relocating: bool
    unreadable_slots: int
    """Slots that can't be emptied because they can't be read."""

    checkpoints: int
    """Taken so far."""
    checkpoint_age_s: float | None
    """The time since the last checkpoint; None without one since the store was opened."""
    checkpoint_lsn: int
    """The end of the log in the last checkpoint; 0 without a checkpoint."""
    checkpoint_bytes: int
    """The bytes that the last checkpoint wrote."""
    replay_bytes: int
    """The size of the log after the checkpoint, which a start after a crash would read."""
    checkpoint_failure: str
    """The reason why checkpoints fail; empty if they work."""

    disk_free_bytes: int | None
    """The free space in the file system of the journal; None if unknown."""
    disk_full: str
    """The reason why no container can be made in advance; empty if one can."""
    disk_low: str
    """The reason why no message can be stored; empty if one can."""


def measure(store: JournalStore) -> JournalMetrics:
    """The figures of *store* now."""
    journal, relocation, checkpointing = store.journal, store.relocation, store.checkpointing
    pool, meters = journal.pool, journal.writer.meters
    archiver = pool.archiver
    written = meters.written
    user_bytes = written.record_bytes - written.moved_bytes - written.own_bytes
    durable_lsn, base_lsn = journal.writer.durable_lsn, journal.extent.base_lsn
    live_bytes = store.state.pins.live_bytes
    used_bytes = len(journal.extent.slots) * journal.container_bytes
    checkpoint_lsn = 0 if checkpointing is None else checkpointing.end_lsn
    return JournalMetrics(
        fsync_s=meters.fsync_s.value(),
        group_records=meters.group_records.value(),
        group_bytes=meters.group_bytes.value(),
        flushes=written.flushes,
        blocks=written.blocks,
        records=written.records,
        user_bytes=user_bytes,
        relocated_bytes=written.moved_bytes,
        log_bytes=written.own_bytes,
        block_bytes=written.block_bytes,
        base_lsn=base_lsn,
        durable_lsn=durable_lsn,
        end_lsn=max(journal.next_lsn, durable_lsn),
        slots=used_bytes // journal.container_bytes,
        used_bytes=used_bytes,
        live_bytes=live_bytes,
        live_ratio=min(1.0, live_bytes / used_bytes),
        holes=len(journal.extent.holes),
        base_slot=base_lsn // journal.container_bytes,
        base_held_by=store.held_by(base_lsn // journal.container_bytes),
        base_holder_kind=store.holder_kind(base_lsn // journal.container_bytes),
        free_containers=pool.free_count,
        made_containers=pool.made,
        archived_containers=0 if archiver is None else archiver.archive.archived,
        dropped_containers=pool.released if archiver is None else archiver.dropped,
        kept_containers=pool.limbo_count,
        bookmarks=_behind(store.bookmarks, durable_lsn),
        dropped_bookmarks=0 if store.bookmarks is None else store.bookmarks.dropped,
        write_amplification=1 + (written.moved_bytes / user_bytes if user_bytes else 0),
        emptied_slots=relocation.emptied,
        is_relocating=relocation.is_at_work,
        unreadable_slots=len(relocation.victims.unreadable),
        checkpoints=0 if checkpointing is None else checkpointing.taken,
        checkpoint_age_s=None if checkpointing is None else checkpointing.age_s,
        checkpoint_lsn=checkpoint_lsn,
        checkpoint_bytes=0 if checkpointing is None else checkpointing.written_bytes,
        replay_bytes=_log_bytes(journal, max(checkpoint_lsn, base_lsn), durable_lsn),
        checkpoint_failure="" if checkpointing is None else checkpointing.failure,
        disk_free_bytes=_free_bytes(pool.directory),
        disk_full="" if pool.full is None else pool.full.reason,
        disk_low="" if pool.low is None else pool.low.reason,
    )


def _behind(bookmarks: Bookmarks | None, durable_lsn: int) -> tuple[tuple[str, int], ...]:
    known = [] if bookmarks is None else bookmarks.known()
    return tuple((bookmark.name, max(0, durable_lsn - bookmark.lsn)) for bookmark in known)


def _log_bytes(journal: Journal, begin_lsn: int, end_lsn: int) -> int:
    """Return the size of the log in bytes between two LSNs, without its holes."""
    size = journal.container_bytes
    missing = sum(max(0, hole.end * size - max(hole.first * size, begin_lsn)) for hole in journal.extent.holes)
    return max(0, end_lsn - begin_lsn - missing)


def _free_bytes(directory: Directory) -> int | None:
    try:
        return directory.free_bytes()
    except DiskError:
        return None
