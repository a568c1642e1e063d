"""Divergent state of a store, kept before it is dropped: STORE/aside/MOMENT-LSN is a store that no broker runs.

A full container is never written again, and one with a second name is never reused (`journal/files/container_pool.py`).
The containers of the log therefore get second names there, which take no space until the log releases them. Only the
last one or two are copied, as far as they were written, and the wiring, which is small. Tools (`cairnmq as-of`) read
it.

It is made under a name that ends in `.partial` and renamed when it is completely on the disk; before it is removed, it
is renamed back. A state with a final name is therefore complete after a kill or a power cut, and partial ones are
removed when the next one is made. The newest *most* are kept. If the disk lacks space for a second log, older ones are
removed. If that is not sufficient, nothing is kept: `DiskFull`.

Threads: one at a time.
"""

from __future__ import annotations

import logging
import os
import shutil
from contextlib import closing
from datetime import UTC, datetime
from typing import NamedTuple

from ...base.clock import Clock
from ...base.disk.real import RealDirectory, disk_errors
from ...base.disk.seam import Directory
from ...base.errors import CorruptJournal, DiskFull
from ...journal.files import space_reserve as room
from ...journal.files.file_copies import copy
from ...journal.format import container
from ...journal.format.log_mark import Mark, MarkFile
from ...journal.read.scanner import Damage, LogReader
from ..contract.layout import ASIDE_NAME, JOURNAL_NAME
from ..directory.hold import Hold
from ..wiring.source import WiringSource
from ..wiring.wiring import FILE_NAME as WIRING_NAME

log = logging.getLogger(__name__)

PARTIAL = ".partial"
_COPY_BYTES = 1 << 20


class KeptState(NamedTuple):
    """A kept copy of divergent state."""

    path: str
    """The path of the directory."""
    end_lsn: int
    """The end of its log: the copy is complete as of that LSN."""


class Aside:
    """The kept divergent states of a store that this process has open."""

    def __init__(
        self, store: str, clock: Clock, most: int, connect: str | None = None, catalog: str | None = None
    ) -> None:
        """*most*: how many are kept, at least one; *connect*, *catalog*: the server that the wiring is on, if any."""
        self._store = os.path.abspath(store)
        self.path = os.path.join(self._store, ASIDE_NAME)
        self._clock = clock
        self._most = most
        self._connect, self._catalog = connect, catalog

    def names(self) -> list[str]:
        """Return the names of complete states, the oldest first. Raises `DiskError`."""
        if not os.path.isdir(self.path):
            return []
        return [name for name in RealDirectory(self.path).names() if not name.endswith(PARTIAL)]

    def keep(self, durable_lsn: int) -> KeptState:
        """Keep the current state, which is durable below *durable_lsn*.

        Raises `CairnError`, without any effect.
        """
        self._clear_away()
        source = RealDirectory(os.path.join(self._store, JOURNAL_NAME))
        root = RealDirectory(self.path, create=True)
        wiring = WiringSource(self._store, self._connect, self._catalog)
        before = wiring.queue_names()
        moment = datetime.fromtimestamp(self._clock.wall_us() / 1e6, UTC).strftime("%Y%m%dT%H%M%SZ")
        partial = os.path.join(self.path, f"{moment}-{durable_lsn}{PARTIAL}")
        try:
            with Hold(self._store) as hold:
                reader = LogReader(source)
                self._find_room(source, len(reader.slots) * reader.container_bytes, reader.container_bytes)
                target = RealDirectory(os.path.join(partial, JOURNAL_NAME), create=True)
                end_lsn = link_log(reader, source, target, durable_lsn, self._clock)
                wiring.copy(os.path.join(partial, WIRING_NAME), reader.log_uuid, before)
                RealDirectory(partial).sync()
                hold.check()  # containers with a second name stay; before, they may have been reused
                name = f"{moment}-{end_lsn}"
                if name not in self.names():  # else a kill came just behind it
                    root.rename(os.path.basename(partial), name)
                    root.sync()
        except BaseException:
            self._clear_away()
            raise
        self._clear_away()
        for old in self.names()[: -self._most]:
            self.give_up(old, f"{self._most} are kept")
        return KeptState(os.path.join(self.path, name), end_lsn)

    def give_up(self, name: str, reason: str) -> None:
        """Remove one. Raises `DiskError`."""
        event = {"event": "cluster.divergent-state-removed"}
        log.warning("%s: removed, as %s", os.path.join(self.path, name), reason, extra=event)
        root = RealDirectory(self.path)
        root.rename(name, name + PARTIAL)
        root.sync()
        self._clear_away()

    def make_room(self) -> None:
        """The disk is full: remove all of them. Raises `DiskError`."""
        for name in self.names():
            self.give_up(name, "the disk is full")

    def _find_room(self, source: Directory, log_bytes: int, container_bytes: int) -> None:
        """Remove old states until a second complete log fits on the disk. Raises `DiskFull` if it never does."""
        wanted = log_bytes + room.high_water(container_bytes)
        while (free := source.free_bytes()) < wanted:
            names = self.names()
            if not names:
                raise DiskFull(self.path, f"the log takes {wanted >> 20} MiB anew, and {free >> 20} MiB are left",
                               "free some space")  # fmt: skip
            self.give_up(names[0], "the disk is nearly full")

    def _clear_away(self) -> None:
        """Remove incomplete copies. Raises `DiskError`."""
        if not os.path.isdir(self.path):
            return
        for name in RealDirectory(self.path).names():
            if name.endswith(PARTIAL):
                place = os.path.join(self.path, name)
                with disk_errors(place, "remove"):
                    shutil.rmtree(place)


def link_log(reader: LogReader, source: Directory, target: Directory, durable_lsn: int, clock: Clock) -> int:
    """Make the empty *target* the log in *source*, which is held and may be written, up to where it ends now: that LSN.

    It is on the disk then. Raises `CannotLink`, `DiskError`, `CorruptJournal`.
    """
    size = reader.container_bytes
    heads = {slot: reader.heads.by_slot[slot] for slot in reader.slots}
    end_lsn = durable_lsn
    for found in reader.scan(durable_lsn):
        if isinstance(found, Damage):
            break
        end_lsn = max(end_lsn, found.end_lsn)
    if reader.heads.read_error is not None:
        raise reader.heads.read_error
    heads = {**{slot: reader.heads.by_slot[slot] for slot in reader.slots}, **heads}  # also what was begun since
    for slot, head in sorted(heads.items()):
        name = container.file_name(head.number)
        if (slot + 1) * size <= durable_lsn:
            source.link(name, target, name)
        elif slot * size < end_lsn:
            with closing(source.open(name)) as old, closing(target.create(name)) as new:
                copy(old, new, keep_bytes=end_lsn - slot * size)
    log = reader.heads
    mark = Mark(True, log.incarnation, reader.log_uuid, size, 1, end_lsn, log.base_lsn, clock.wall_us())
    MarkFile.format(target, mark).close()
    made = LogReader(target, live=False)
    if (made.heads.base_lsn, made.holes) != (reader.heads.base_lsn, reader.holes):
        raise CorruptJournal(target.path, "its table of slots differs from the log", "it is not kept",
                             reader.heads.base_lsn, end_lsn)  # fmt: skip
    return end_lsn
