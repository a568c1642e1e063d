"""Recovery of a store from its directory.

The journal is read once from its base; each record goes through `State.apply`, as it did when it was written. Then
incomplete messages are deleted, and so are the messages of queues whose deletion is pending in SQL; messages on queues
that SQL does not know are kept and reported, never dropped. Nothing is visible to clients before the log is open and
durable behind the last block read.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import ExitStack, closing
from uuid import uuid4

from ..base.clock import Clock
from ..base.disk.real import RealDirectory
from ..base.disk.seam import Directory
from ..base.errors import CorruptJournal, ForeignStore, InvalidOption
from ..journal.files.held_containers import Holds
from ..journal.format.block import ACQUISITIONS, Block
from ..journal.format.container import file_number
from ..journal.format.log_mark import NAME as MARK_NAME
from ..journal.read.container_heads import read_mark
from ..journal.read.scanner import LogReader
from ..journal.write.open import abandoned_on_failure, container_size, format_log, is_formatted, open_log
from ..store.checkpoint.checkpoint_file import CheckpointFile, LmdbFile
from ..store.checkpoint.checkpointer import Checkpointer
from ..store.contract.options import Progress, StoreOptions
from ..store.directory.archive_lease import ArchiveLease
from ..store.directory.kind import JOURNAL, refuse_other_kind, refuse_sql
from ..store.directory.lock import StoreLock
from ..store.journaled.directory import StoreDirectory
from ..store.journaled.recovered_log import RecoveredLog
from ..store.journaled.retention_leases import Bookmarks
from ..store.journaled.store import JournalStore
from ..store.message_map.state import State
from ..store.wiring.database import RESTORE_OR_SALVAGE, parse_address
from ..store.wiring.location import open_wiring, tell_place
from ..store.wiring.wiring import Wiring
from .damage_report import explained
from .expunge import expunge_going
from .replay import Replay
from .report import RecoveryReport
from .restore import resume

SYNCERS = 3
"""Threads that sync containers which a long flush has left."""


def open_store(
    path: str, clock: Clock, options: StoreOptions | None = None, progress: Progress | None = None
) -> tuple[JournalStore, RecoveryReport]:
    """Open the store in directory *path*, creating it if it does not exist.

    Raises `StoreInUse`, `ForeignStore`, `CorruptJournal`, `DiskError`, or what a SQL server means, and then has changed
    nothing that was there and keeps no file open.
    """
    options = options or StoreOptions()
    refuse_other_kind(path, JOURNAL)
    with ExitStack() as undo:
        place = undo.enter_context(closing(StoreDirectory(path)))
        if is_formatted(place.journal) and not place.has_wiring() and options.connect is None:
            raise ForeignStore(place.wiring_path, "the wiring is missing, but there is a journal", RESTORE_OR_SALVAGE)
        wiring = undo.enter_context(closing(open_wiring(path, options.connect, options.catalog)))
        checkpoint = LmdbFile(place.checkpoint_path)
        lease = None
        if options.archive_dir is not None:
            lease = undo.enter_context(closing(ArchiveLease(path, options.archive_dir)))

        def release() -> None:
            if lease is not None:
                lease.close()
            place.close()

        if options.connect is not None:
            refuse_sql(wiring.database)
        store, report = recover(
            place.journal, wiring, clock, options, release, progress, checkpoint, place, SYNCERS, Bookmarks(path),
            place.lock, lease,
        )
        if options.connect is not None:
            with abandoned_on_failure(store.journal):
                tell_place(path, parse_address(options.connect, options.catalog))
        undo.pop_all()
    return store, report


def recover(
    directory: Directory,
    wiring: Wiring,
    clock: Clock,
    options: StoreOptions,
    release: Callable[[], None] = lambda: None,
    progress: Progress | None = None,
    checkpoint: CheckpointFile | None = None,
    holds: Holds | None = None,
    syncers: int = 0,
    bookmarks: Bookmarks | None = None,
    lock: StoreLock | None = None,
    lease: ArchiveLease | None = None,
) -> tuple[JournalStore, RecoveryReport]:
    """Return the store whose log is in *directory* and whose queues are in *wiring*; see `open_store`.

    *checkpoint* spares reading the log from its base, if it can be used. *holds*: reports whether a reader
    relies on the containers that are in the log now. *syncers*: see `journal.writing`. *bookmarks*: of those that read
    history. *lock*: it guards the files that are there after opening. *lease*: it is claimed for the archive.
    """
    begun_s = clock.monotonic_s()
    created, container_bytes = _identify(directory, wiring, clock, options)
    if lock is not None:
        lock.guard()
    archive = _archive_directory(options.archive_dir, directory)
    if lease is not None:
        lease.claim(directory)
    state = State(container_bytes)
    replay = Replay(state, directory.path, container_bytes)
    unusable: str | None = None
    read_bytes = total_bytes = 0

    def prepare(reader: LogReader) -> None:
        nonlocal total_bytes, unusable
        unusable = None if checkpoint is None else resume(state, checkpoint, reader)
        total_bytes = sum(
            min(reader.container_bytes, max(0, (slot + 1) * reader.container_bytes - reader.resumed_lsn))
            for slot in reader.slots
        )

    def visit(block: Block) -> None:
        nonlocal read_bytes
        replay.take(block)
        read_bytes += block.end_lsn - block.lsn
        if progress is not None:
            progress(read_bytes, total_bytes)

    try:
        journal, log = open_log(
            directory, clock, visit=visit, prepare=prepare, initial_containers=options.initial_containers,
            max_write_buffers=options.max_write_buffers, archive=archive,
            archive_limits=options.archive_limits, holds_archive=(lambda: True) if lease is None else lease.is_held,
            holds=holds, keeper=bookmarks, syncers=syncers,
            reserve_bytes=options.reserve_bytes, block_flags=ACQUISITIONS if options.acquisitions else 0,
            misplaced=(lambda: "") if lock is None else lock.misplaced,
        )  # fmt: skip
    except CorruptJournal as error:
        raise explained(error, directory, wiring.queue_names()) from None
    with abandoned_on_failure(journal):
        replay.apply()
        on_queue = replay.reconcile(journal.extent.slots)
        checkpointing = None
        if checkpoint is not None:
            checkpointing = Checkpointer(
                checkpoint, state, journal, clock, options.checkpoint_bytes, is_good=bool(log.resumed_lsn)
            )
            if unusable and not created:
                log.remarks.append(f"the checkpoint was not used: {unusable}; the whole log was read")
        wiring.migrate()  # only now: what is refused is not changed
        if checkpoint is not None and unusable:
            checkpoint.discard()  # a replay of the whole log may attribute ended records to other purges
        store = JournalStore(wiring, RecoveredLog(journal, state, checkpointing, bookmarks), release)
        discarded = store.discard_unfinished(clock.wall_us())
        expunged = expunge_going(store, on_queue, clock.wall_us())
        store.places.settle_all()
        store.kick()
        store.make_room()
        homeless = store.keep_homeless(on_queue)
    report = RecoveryReport(
        log=log, seconds=clock.monotonic_s() - begun_s, created=created, queues=len(store.queues()),
        messages=len(state), discarded=discarded, expunged=expunged, homeless=homeless,
    )  # fmt: skip
    return store, report


def _archive_directory(path: str | None, journal: Directory) -> Directory | None:
    if path is None:
        return None
    if os.path.realpath(path) == os.path.realpath(journal.path):
        raise InvalidOption(path, "the archive can't be the journal's own directory", "name another --archive-dir")
    return RealDirectory(path, create=True)


def _identify(directory: Directory, wiring: Wiring, clock: Clock, options: StoreOptions) -> tuple[bool, int]:
    """Check that SQL and journal belong together, and make the journal if the store is new.

    Whether it was new, and the container size of the journal.
    """
    if is_formatted(directory) and not wiring.is_identified():
        reason = "it has no store ID, but there is a journal"
        raise ForeignStore(wiring.place, reason, wiring.database.remedy)
    uuid, formatted = wiring.identify(uuid4())
    if is_formatted(directory):
        mark = read_mark(directory)
        if mark.log_uuid != uuid:
            raise ForeignStore(
                directory.path,
                f"the journal is of store {mark.log_uuid}, the wiring {wiring.place} of store {uuid}",
                "restore the files that belong together, or have `cairnmq salvage` recover the messages",
            )
        if not formatted:
            directory.sync()  # the creator of the mark stopped, perhaps before its name was durable
            wiring.set_formatted()
        return False, mark.container_bytes
    if any(file_number(name) is not None for name in directory.names()):
        raise ForeignStore(
            f"{directory.path}/{MARK_NAME}", "missing: the containers can't be assigned to a store", RESTORE_OR_SALVAGE
        )
    if formatted:
        empty = "remove the whole store directory to start with an empty store"
        if wiring.is_on_server:
            empty = f"name the --store-dir of store {uuid}, or another --catalog to start with an empty store"
        raise ForeignStore(
            directory.path,
            "the journal is missing, but the wiring belongs to one",
            f"restore it from a backup; {empty}",
        )
    size = container_size(options.container_bytes, options.min_container_bytes)
    format_log(directory, size, uuid, clock.wall_us())
    wiring.set_formatted()
    return True, size
