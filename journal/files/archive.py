"""The archive: a directory that keeps containers that left the log, before their files are reused.

`LLLLLLLLLLLLLLLLLLLL-UUUUUUUU.cairn` is a complete container. L is the LSN of its first byte in 20 digits, so that
names sort in log order. U is the first 8 hexadecimal digits of the UUID of the log, so that logs can share the
directory.

If both directories are on one file system, the container itself moves: its second name is created and synced, and then
the first one is removed (`Pool.settle`). A file with two names is never written to. Otherwise the container is copied,
synced under a temporary name, and renamed. After a power cut the container is in the directory of the log, in the
archive, or in both, and no partial file has a final name.

Threads: one at a time (`Archiver`). The counters may be read by any.
"""

from __future__ import annotations

import logging
from bisect import bisect_right, insort
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import dataclass
from uuid import UUID

from ...base.clock import Clock
from ...base.disk.seam import SECTOR_BYTES, Directory
from ...base.errors import CairnError, CannotLink, DiskError, DiskFull, InvalidOption
from ..format import container
from ..format import log_mark as mark
from ..format.container import BadContainer
from .file_copies import NEW, copy, new_file
from .recycled_content import content_of, is_complete

log = logging.getLogger(__name__)

LEASE = ".lease"
ROOM_BYTES = 64 << 20
"""Free disk space above which a container moves to the archive: each one costs the log a new file."""


@dataclass(frozen=True)
class ArchiveLimits:
    """Limits of an archive. Containers beyond them are removed, the oldest first."""

    max_bytes: int | None = None
    max_age_s: float | None = None
    """Counted from the last record in a container."""


def archive_name(lsn: int, log_uuid: UUID) -> str:
    """Return the archive name of the container whose first byte has this LSN."""
    return f"{lsn:020d}-{log_uuid.hex[:8]}{container.SUFFIX}"


def lease_name(log_uuid: UUID) -> str:
    """Return the name of the lease of a log in an archive."""
    return f"{log_uuid.hex[:8]}{LEASE}"


def archived_lsn(name: str) -> int | None:
    """Return the LSN in the name of an archived container, None if *name* is not one."""
    lsn, dash, uuid = name.removesuffix(container.SUFFIX).partition("-")
    is_one = name.endswith(container.SUFFIX) and dash and len(lsn) == 20 and lsn.isdecimal() and len(uuid) == 8
    return int(lsn) if is_one else None


class Archive:
    """The archive of one log, open for writing."""

    def __init__(
        self,
        directory: Directory,
        journal: Directory,
        log_uuid: UUID,
        container_bytes: int,
        clock: Clock,
        limits: ArchiveLimits | None = None,
        is_held: Callable[[], bool] = lambda: True,
    ) -> None:
        """Archive containers of *journal*. Files that an interrupted copy left in *directory* are removed.

        *is_held*: returns whether no other store may write there.
        """
        self.directory = directory
        self.limits = limits or ArchiveLimits()
        self.container_bytes = container_bytes
        self.archived = 0
        """The number of containers that were archived since the start."""
        self.removed = 0
        """The number of containers that were removed because of the limits since the start."""
        self._journal = journal
        self._log_uuid = log_uuid
        self._log_id = int.from_bytes(log_uuid.bytes[:8], "little")
        self._clock = clock
        self._is_held = is_held
        self._oldest = (-1, 0)  # the LSN of the oldest container, and the time of its last record
        if self.limits.max_bytes is not None and self.limits.max_bytes < container_bytes:
            raise InvalidOption(
                f"{directory.path}",
                f"an archive of {self.limits.max_bytes} bytes has no room for a container of {container_bytes}",
                "give a larger --archive-max-size",
            )
        own = f"-{log_uuid.hex[:8]}{container.SUFFIX}"
        names = directory.names()
        for name in names:
            if name.endswith(own + NEW):
                directory.unlink(name)
        self._lsns = [lsn for name in names if name.endswith(own) and (lsn := archived_lsn(name)) is not None]
        self._can_link = self._is_on_one_disk()

    @property
    def total_bytes(self) -> int:
        """Size of this log's containers in the archive, in bytes."""
        return len(self._lsns) * self.container_bytes

    def store(self, slot: int, number: int) -> None:
        """Put the container with file *number*, which held *slot*, into the archive.

        The file may then have a second name, even after a `CairnError` that it may not survive a power cut.
        """
        if not self._is_held():
            reason = f"{lease_name(self._log_uuid)} was removed or replaced, or could not be created"
            raise CairnError(self.directory.path, reason, "start the broker again")
        lsn = slot * self.container_bytes
        name, source = archive_name(lsn, self._log_uuid), container.file_name(number)
        if _is_there(self.directory, name):
            if _head(self.directory, name) == _head(self._journal, source):
                return
            raise CairnError(f"{self.directory.path}/{name}", "another container of these LSNs is there already",
                             "give each store that was restored from one backup an archive of its own")  # fmt: skip
        if self._lsns and lsn < self._lsns[0] and self._is_full(self.container_bytes):
            return  # the oldest is removed first, which is this one
        self.keep_limits(self.container_bytes)
        if self._can_link:
            self._link(source, name)
        else:
            self._copy(source, name)
        insort(self._lsns, lsn)
        self.archived += 1
        with suppress(DiskError):  # it is tried again, and told, by `keep_limits`
            self.keep_limits()

    def wants(self, slot: int, number: int, next_prev_lsn: int) -> bool:
        """Return whether file *number*, found outside the log, holds all of *slot*, which the archive lacks.

        *next_prev_lsn*: the last block before the next slot that is known outside the archive.
        """
        lsn = slot * self.container_bytes
        at = bisect_right(self._lsns, lsn)
        if at and self._lsns[at - 1] == lsn:
            return False
        if at < len(self._lsns) and self._lsns[at] <= next_prev_lsn:  # the archive knows a nearer one
            name = archive_name(self._lsns[at], self._log_uuid)
            with suppress(BadContainer):
                next_prev_lsn = container.decode_head(_head(self.directory, name), name).prev_lsn
        with closing(self._journal.open(container.file_name(number))) as file:
            return is_complete(file, slot, self.container_bytes, self._log_id, next_prev_lsn)

    def _is_on_one_disk(self) -> bool:
        """Return whether files of the log can be hard-linked into the archive; tested with the mark."""
        name = archive_name(0, self._log_uuid) + NEW
        try:
            self._journal.link(mark.NAME, self.directory, name)
        except (CannotLink, DiskFull):
            return False
        self.directory.unlink(name)
        return True

    def _link(self, source: str, name: str) -> None:
        if self._journal.free_bytes() < ROOM_BYTES:
            raise DiskFull(self.directory.path, "the log needs the room that is left on the disk", "free some space")
        self._journal.link(source, self.directory, name)
        self.directory.sync()

    def _copy(self, source: str, name: str) -> None:
        with closing(self._journal.open(source)) as file, new_file(self.directory, name) as target:
            copy(file, target)

    def keep_limits(self, more_bytes: int = 0) -> None:
        """Remove the oldest containers until *more_bytes* fit into the limits. Raises `DiskError`."""
        while self._lsns:
            if self._is_full(more_bytes):
                reason = "the archive has its size"
            elif self.limits.max_age_s is not None and self._age_s() > self.limits.max_age_s:
                reason = "its last record is too old"
            else:
                return
            name = archive_name(self._lsns[0], self._log_uuid)
            if _is_there(self.directory, name):  # else an operator was faster
                self.directory.unlink(name)
            log.debug("%s/%s removed: %s", self.directory.path, name, reason)
            del self._lsns[0]
            self.removed += 1

    def _is_full(self, more_bytes: int) -> bool:
        return self.limits.max_bytes is not None and self.total_bytes + more_bytes > self.limits.max_bytes

    def _age_s(self) -> float:
        """Return the age of the oldest container in seconds."""
        lsn = self._lsns[0]
        if self._oldest[0] != lsn:
            self._oldest = (lsn, self._last_time_us(lsn))
        return (self._clock.wall_us() - self._oldest[1]) / 1_000_000

    def _last_time_us(self, lsn: int) -> int:
        """Return the time of the last record in the container at *lsn*, or else the time in its head."""
        name = archive_name(lsn, self._log_uuid)
        if not _is_there(self.directory, name):
            return 0
        with closing(self.directory.open(name)) as file, suppress(BadContainer):
            content = content_of(file, lsn // self.container_bytes, self.container_bytes, self._log_id)
            return content.time_us or container.read_head(file, name).time_us
        return self._clock.wall_us()  # its age is unknown: only the size limit removes it


def _is_there(directory: Directory, name: str) -> bool:
    """Return whether the file exists, without listing the directory, which may be large."""
    try:
        directory.link_count(name)
    except DiskError:
        return False
    return True


def _head(directory: Directory, name: str) -> bytes:
    with closing(directory.open(name)) as file:
        return file.read_at(0, SECTOR_BYTES)
