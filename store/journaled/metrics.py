"""The journal in figures, read off what is there anyway: nothing is counted per message.

Any thread may ask. Figures of one flush belong together; figures of different parts of the store may be a moment apart.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ...base.disk.seam import Directory
from ...base.errors import DiskError
from ...base.histogram import HistogramValue
from ...journal.write.journal import Journal
from .store import JournalStore


def _shown(meaning: str) -> Any:
    """Return a field that management shows with this *meaning*."""
    return field(metadata={"meaning": meaning})


@dataclass(frozen=True)
class JournalMetrics:
    """All of it. Counters begin at 0 when the store is opened."""

    fsync_s: HistogramValue
    """Seconds that each sync of a container took."""
    group_records: HistogramValue
    """Records that each flush made durable."""
    group_bytes: HistogramValue
    """Bytes that each flush wrote, in complete blocks."""
    bookmarks: tuple[tuple[str, int], ...]
    """The name of each reader of history, and its distance to the end of the log in bytes."""

    flushes: int = _shown("Flushes since the start.")
    blocks: int = _shown("Blocks written since the start.")
    records: int = _shown("Records made durable since the start.")
    user_bytes: int = _shown("Headers and payloads of durable records of messages since the start.")
    relocated_bytes: int = _shown("Headers and payloads of durable records that compaction copied since the start.")
    log_bytes: int = _shown("Headers and payloads of durable records about the log itself since the start.")
    block_bytes: int = _shown("All bytes written since the start: the three above, block headers and padding.")

    base_lsn: int = _shown("The beginning of the log.")
    durable_lsn: int = _shown("The end of the durable part of the log.")
    end_lsn: int = _shown("The end of the log, with records that are not yet durable.")
    slots: int = _shown("Slots of the log, each in one container.")
    used_bytes: int = _shown("The size of the log: the bytes of its slots.")
    live_bytes: int = _shown("Records that messages need, headers and payloads.")
    live_ratio: float = _shown("`journal-live-bytes` divided by `journal-used-bytes`, 0 to 1.")
    holes: int = _shown("Reclaimed ranges in the middle of the log.")
    base_slot: int = _shown("The number of the oldest slot of the log.")
    base_held_by: str = _shown("A description of what keeps the oldest slot in the log.")
    base_holder_kind: str = _shown("`message`, `transaction`, `purge`, `records`, `log-end` or `none`.")

    free_containers: int = _shown("Containers that are ready for new slots.")
    made_containers: int = _shown("Containers created since the start.")
    archived_containers: int = _shown("Containers moved or copied to the archive since the start.")
    dropped_containers: int = _shown("Containers that left the log since the start without being archived.")

    kept_containers: int = _shown("Containers that left the log, and that a backup or a reader of history still needs.")
    dropped_bookmarks: int = _shown("Bookmarks dropped since the start: too far behind, or on a full disk.")

    write_amplification: float = _shown("User and relocated bytes divided by user bytes; 1 without any.")
    emptied_slots: int = _shown("Slots that compaction emptied since the start.")
    is_relocating: bool = _shown("Whether compaction is in progress.")
    unreadable_slots: int = _shown("Slots that compaction cannot empty because they are unreadable.")

    checkpoints: int = _shown("Checkpoints taken since the start.")
    checkpoint_age_s: float | None = _shown(
        "Seconds since the last checkpoint; null if none was taken since the start."
    )
    checkpoint_lsn: int = _shown("The end of the log in the last checkpoint; 0 without a checkpoint.")
    checkpoint_bytes: int = _shown("Bytes that the last checkpoint wrote.")
    replay_bytes: int = _shown("The part of the log after the checkpoint, which a start after a crash reads.")
    checkpoint_failure: str = _shown("Why checkpoints fail; empty if they do not.")

    disk_free_bytes: int | None = _shown("Free space in the file system of the journal; null if unknown.")
    disk_full: str = _shown("Why no container can be created in advance; empty if one can.")
    disk_low: str = _shown("Why no message can be stored; empty if one can.")


def measure(store: JournalStore) -> JournalMetrics:
    """The figures of *store* now."""
    journal, relocation, checkpointing = store.journal, store.relocation, store.checkpointing
    pool, meters = journal.pool, journal.writer.meters
    archiver = pool.archiver
    written = meters.written
    user_bytes = written.record_bytes - written.moved_bytes - written.own_bytes
    durable_lsn, base_lsn = journal.writer.durable_lsn, journal.extent.base_lsn
    bookmarks = () if store.bookmarks is None else store.bookmarks.known()
    base_slot = base_lsn // journal.container_bytes
    held_by, holder_kind = store.held_by(base_slot)
    live_bytes = store.state.pins.live_bytes
    used_bytes = len(journal.extent.slots) * journal.container_bytes
    checkpoint_lsn = 0 if checkpointing is None else checkpointing.end_lsn
    return JournalMetrics(
        fsync_s=meters.fsync_s.value(), group_records=meters.group_records.value(),
        group_bytes=meters.group_bytes.value(), flushes=written.flushes, blocks=written.blocks,
        records=written.records, user_bytes=user_bytes, relocated_bytes=written.moved_bytes,
        log_bytes=written.own_bytes, block_bytes=written.block_bytes, base_lsn=base_lsn, durable_lsn=durable_lsn,
        end_lsn=max(journal.next_lsn, durable_lsn), slots=used_bytes // journal.container_bytes, used_bytes=used_bytes,
        live_bytes=live_bytes, live_ratio=min(1.0, live_bytes / used_bytes), holes=len(journal.extent.holes),
        base_slot=base_slot, base_held_by=held_by, base_holder_kind=holder_kind, free_containers=pool.free_count,
        made_containers=pool.made, archived_containers=0 if archiver is None else archiver.archive.archived,
        dropped_containers=pool.released if archiver is None else archiver.dropped, kept_containers=pool.limbo_count,
        bookmarks=tuple([(bookmark.name, max(0, durable_lsn - bookmark.lsn)) for bookmark in bookmarks]),
        dropped_bookmarks=0 if store.bookmarks is None else store.bookmarks.dropped,
        write_amplification=1 + (written.moved_bytes / user_bytes if user_bytes else 0),
        emptied_slots=relocation.emptied, is_relocating=relocation.is_at_work,
        unreadable_slots=len(relocation.victims.unreadable),
        checkpoints=0 if checkpointing is None else checkpointing.taken,
        checkpoint_age_s=None if checkpointing is None else checkpointing.age_s, checkpoint_lsn=checkpoint_lsn,
        checkpoint_bytes=0 if checkpointing is None else checkpointing.written_bytes,
        replay_bytes=_log_bytes(journal, max(checkpoint_lsn, base_lsn), durable_lsn),
        checkpoint_failure="" if checkpointing is None else checkpointing.failure,
        disk_free_bytes=_free_bytes(pool.directory), disk_full="" if pool.full is None else pool.full.reason,
        disk_low="" if pool.low is None else pool.low.reason,
    )  # fmt: skip


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
