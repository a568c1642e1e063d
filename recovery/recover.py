"""Recovery: from the store directory to a store whose maps are true again.

The journal is read once from its base; each record goes through `State.apply`, as it did when it was written. Then what
never became whole is deleted, and messages on queues that SQL does not know are kept and reported, never dropped.
Nothing is shown to anyone before the log is open and durable behind what was read.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from uuid import uuid4

from ..base.clock import Clock
from ..base.errors import CorruptJournal, ForeignStore
from ..disk.seam import Directory
from ..journal.block import Block
from ..journal.container import file_number
from ..journal.mark import NAME as MARK_NAME
from ..journal.opening import DEFAULT_CONTAINER_BYTES, format_log, is_formatted, open_log
from ..journal.reader import read_mark
from ..store.directory import StoreDirectory
from ..store.journal_store import JournalStore
from ..store.state import State
from ..store.wiring import RESTORE_OR_SALVAGE, Wiring
from .replay import Replay
from .report import RecoveryReport
from .verdict import explained


@dataclass(frozen=True)
class StoreOptions:
    """How to make and run the journal (checklist E59 to E61)."""

    container_bytes: int = DEFAULT_CONTAINER_BYTES
    """Used when the log is created; an existing log keeps its own."""
    initial_containers: int = 2
    max_write_buffers: int = 10
    """Sealed blocks that may wait for the disk; 0 for any number."""


Progress = Callable[[int, int], None]
"""Called now and then with the log bytes read so far and the bytes there are."""


def open_store(
    path: str, clock: Clock, options: StoreOptions | None = None, progress: Progress | None = None
) -> tuple[JournalStore, RecoveryReport]:
    """Open the store in directory *path*, creating it if it does not exist.

    Raises `StoreInUse`, `ForeignStore`, `CorruptJournal` or `DiskError`, and then has changed nothing that was there.
    """
    place = StoreDirectory(path)
    try:
        if is_formatted(place.journal) and not place.has_wiring():
            raise ForeignStore(
                place.wiring_path, "the wiring is gone, though there is a journal", RESTORE_OR_SALVAGE
            )
        wiring = Wiring.open(place.wiring_path)
        return recover(place.journal, wiring, clock, options or StoreOptions(), place.close, progress)
    except BaseException:
        place.close()
        raise


def recover(
    directory: Directory,
    wiring: Wiring,
    clock: Clock,
    options: StoreOptions,
    release: Callable[[], None] = lambda: None,
    progress: Progress | None = None,
) -> tuple[JournalStore, RecoveryReport]:
    """The store whose log is in *directory* and whose queues are in *wiring*; see `open_store`."""
    begun_s = clock.monotonic_s()
    created = _identify(directory, wiring, clock, options)
    mark = read_mark(directory)
    state = State(mark.container_bytes)
    replay = Replay(state, directory.path, mark.container_bytes)
    total_bytes = len(directory.names()) * mark.container_bytes
    read_bytes = 0

    def visit(block: Block) -> None:
        nonlocal read_bytes
        replay.take(block)
        read_bytes += block.end_lsn - block.lsn
        if progress is not None:
            progress(read_bytes, total_bytes)

    try:
        journal, log = open_log(
            directory,
            clock,
            visit=visit,
            initial_containers=options.initial_containers,
            max_write_buffers=options.max_write_buffers,
        )
    except CorruptJournal as error:
        raise explained(error, directory, {row.id: row.name for row in wiring.queues()}) from None
    replay.apply()
    state.finish(journal.slots)
    store = JournalStore(wiring, journal, state, release)
    discarded = store.discard_unfinished(clock.wall_us())
    store.kick()
    known = {row.id for row in store.queues()}
    on_queue = {queue_id: len(ids) for queue_id, ids in store.messages().items()}
    report = RecoveryReport(
        log=log,
        seconds=clock.monotonic_s() - begun_s,
        created=created,
        queues=len(known),
        messages=len(state),
        discarded=discarded,
        homeless={queue_id: count for queue_id, count in on_queue.items() if queue_id not in known},
    )
    return store, report


def _identify(directory: Directory, wiring: Wiring, clock: Clock, options: StoreOptions) -> bool:
    """Check that SQL and journal belong together; make the journal if the store is new, and say whether it was."""
    if is_formatted(directory) and not wiring.is_identified():
        why = "it does not say whose store this is, and there is a journal"
        raise ForeignStore(wiring.place, why, RESTORE_OR_SALVAGE)
    uuid, formatted = wiring.identify(uuid4())
    if is_formatted(directory):
        mark = read_mark(directory)
        if mark.log_uuid != uuid:
            raise ForeignStore(
                directory.path,
                f"the journal is of store {mark.log_uuid}, the wiring {wiring.place} of store {uuid}",
                "put back the files that belong together, or have `cairnmq salvage` recover what is whole",
            )
        if not formatted:
            wiring.set_formatted()
        return False
    if any(file_number(name) is not None for name in directory.names()):
        raise ForeignStore(
            f"{directory.path}/{MARK_NAME}", "it is gone: no mark says whose the containers are", RESTORE_OR_SALVAGE
        )
    if formatted:
        raise ForeignStore(
            directory.path,
            "the journal is gone, though the wiring knows that there was one",
            "restore it from a backup; remove the whole store directory to start with an empty store",
        )
    format_log(directory, options.container_bytes, uuid, clock.wall_us())
    wiring.set_formatted()
    return True
