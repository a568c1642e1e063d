"""Options for opening a store of any kind."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from ...base.errors import InvalidOption
from ...journal.files.archive import ArchiveLimits
from ...journal.files.space_reserve import RESERVE_BYTES
from ...journal.write.open import DEFAULT_CONTAINER_BYTES, MIN_CONTAINER_BYTES

DEFAULT_CHECKPOINT_BYTES = 64 << 20
"""After a crash, recovery replays at most so much of the log, or twice the size of the last checkpoint."""
Progress = Callable[[int, int], None]
"""Called repeatedly with the log bytes read so far and their total."""


@dataclass(frozen=True)
class StoreOptions:
    """Options of the journal (checklist E59 to E61) and the location of the wiring (E56, E57)."""

    container_bytes: int = DEFAULT_CONTAINER_BYTES
    """Used when the log is created; an existing log keeps its own."""
    initial_containers: int = 2
    max_write_buffers: int = 10
    """Sealed blocks that may wait for the disk; 0 for any number."""
    checkpoint_bytes: int = DEFAULT_CHECKPOINT_BYTES
    """A checkpoint is taken when the log has grown by so much; 0 for only when it is closed."""
    min_container_bytes: int = MIN_CONTAINER_BYTES
    """Not an option of the broker: tests go below it, to meet the ends of containers more often."""
    reserve_bytes: int = RESERVE_BYTES
    """Nor is this: what a full disk takes of a log of small containers would be hundreds of them."""
    archive_dir: str | None = None
    """The directory for containers that left the log; None to keep none."""
    archive_limits: ArchiveLimits = ArchiveLimits()
    acquisitions: bool = False
    """True to record acquisitions, too; see `store.acquisitions`."""
    connect: str | None = field(default=None, repr=False)
    """The SQL server that the wiring is on, as a URL that may hold a password; None for SQLite in the store."""
    catalog: str | None = None
    """The namespace there, so that stores can share a database; None for the default one."""


def refuse_archive(options: StoreOptions, kind: str) -> None:
    """Raise `InvalidOption` for options that require a journal."""
    if options.archive_dir is not None:
        raise InvalidOption("--archive-dir", f"the {kind} store has no journal to archive", "leave it out")
    if options.acquisitions:
        reason = f"the {kind} store has no journal to write them in"
        raise InvalidOption("--journal-acquisitions", reason, "leave it out")
