"""The history of one log: its containers in the store and in archives, and those that left it and are not reused yet.

`History.log` is that as a `Log`, for questions that numpy answers; `History.scan` reads block by block. Nothing is
written.
"""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import replace

from ...analytics.lifetimes.extent import extent_as_of, whole_from
from ...analytics.scan.files import Log, log_of_containers, looked_at
from ...analytics.scan.known_containers import KnownContainer
from ...analytics.scan.log_scan import ScanOptions, first_lsn_since
from ...base.disk.real import RealDirectory
from ...base.errors import DiskError, ForeignStore, IncompleteResult
from ...journal.files.archive import archived_lsn
from ...journal.format import container
from ...journal.format import log_mark as mark
from ...journal.format.block import Block
from ...journal.format.container import DATA_OFFSET
from ...journal.format.log_mark import Mark
from ...journal.read.scanner import Damage, LogReader
from ...recovery.salvageable import log_id_of
from ..inspect.loose_containers import LooseContainer, LooseDirectory, check_one_history, read_container, runs_of
from ..inspect.point_in_time import PointInTime, time_words

_PERMISSIVE = ScanOptions(permissive=True)


class History:
    """The remaining containers of one log. Call `find_history` again when containers moved meanwhile."""

    def __init__(self, containers: dict[int, LooseContainer], log: Log, notes: list[str], found: Mark | None) -> None:
        """*found* is the mark of the log, where there is one: its base may be newer than that of all blocks."""
        self.containers = containers
        """Containers by slot."""
        self.container_bytes = log.container_bytes
        self.slots = sorted(containers)
        self.notes = notes
        self.first_lsn = self.slots[0] * self.container_bytes + DATA_OFFSET
        self.end_lsn = self._end_lsn()
        """The LSN behind the last block of the log."""
        base_lsn = found.base_lsn if found is not None and found.durable_lsn <= self.end_lsn else 0
        known = {
            slot: KnownContainer(one.path, one.head, one.first_sector[: container.HEAD.size], one.is_archived)
            for slot, one in containers.items()
        }
        self.log = log_of_containers(replace(log, base_lsn=base_lsn, durable_lsn=self.end_lsn), known)

    def scan(self, from_lsn: int = 0) -> Iterator[Block | Damage]:
        """Blocks in order, of all slots that are kept from the one of *from_lsn* on, and the damage between them."""
        size = self.container_bytes
        at = max(0, bisect_right(self.slots, from_lsn // size) - 1)
        first = self.slots[at] if self.slots else 0
        for run in runs_of(self.containers):
            if run[-1].head.slot >= first:
                reader = LogReader(LooseDirectory(run, 0), history=True)
                yield from reader.scan(max(first, run[0].head.slot) * size)

    def _end_lsn(self) -> int:
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

    def lsn_of(self, moment: PointInTime) -> int:
        """Return the LSN of *moment*: that of the first record after a time, or the end.

        Raises `IncompleteResult` for a time before the kept history.
        """
        if moment.lsn is not None:
            return moment.lsn
        if moment.time_us is None:
            return self.end_lsn
        begun = [piece for piece in self.log.pieces if piece.begun_us]
        if begun and begun[0].slot_lsn and begun[0].begun_us > moment.time_us:
            begins = f"the history begins at LSN {self.first_lsn}"
            raise IncompleteResult("that time", "the log and its archive begin later", begins)
        found = first_lsn_since(self.log, moment.time_us + 1, _PERMISSIVE)
        return self.end_lsn if found is None else found

    def complete_from_words(self) -> str:
        """The LSN from which on history is complete, as a sentence."""
        lsn = whole_from(self.log)
        if extent_as_of(self.log, lsn).missing is not None:
            return "its history is not complete at any point in time; name the archive, too"
        head = self.containers.get(lsn // self.container_bytes)
        when = f", about {time_words(head.head.time_us)}" if head is not None and head.head.time_us else ""
        return f"history is complete from LSN {lsn} on{when}"


def find_history(directories: Sequence[RealDirectory]) -> History:
    """Return the containers of one log in *directories*: of the first log with a mark, or of the only log.

    Raises `ForeignStore` for no log, or an ambiguous choice, and `DiskError`.
    """
    return looked_at(lambda: _find(directories))


def _find(directories: Sequence[RealDirectory]) -> History:
    notes: list[str] = []
    found = [one for directory in directories for one in _containers(directory, notes)]
    reported = _mark_of(directories)
    logs = {log_id_of(one.head.log_uuid) for one in found}
    if reported is None and len(logs) > 1:
        raise ForeignStore(directories[0].path, f"containers of {len(logs)} logs are there", "name the store, too")
    if not found:
        raise ForeignStore(directories[0].path, "no containers of a log", "name a store directory, or an archive")
    log_uuid = found[0].head.log_uuid if reported is None else reported.log_uuid
    kept: dict[int, LooseContainer] = {}
    for one in found:
        if log_id_of(one.head.log_uuid) != log_id_of(log_uuid):
            continue
        other = kept.get(one.head.slot)
        if other is None or (other.head.incarnation, other.is_archived) < (one.head.incarnation, one.is_archived):
            kept[one.head.slot] = one
    base_lsn = 0 if reported is None else reported.base_lsn
    journals = [directory.path for directory in directories if mark.NAME in directory.names()]
    check_one_history(found, journals, base_lsn, log_id_of(log_uuid))
    if not kept:
        raise ForeignStore(directories[0].path, "no container of this log is there", "name a store directory")
    size = next(iter(kept.values())).head.container_bytes
    return History(kept, Log(directories[0].path, log_uuid, size, 0, 0, (), ()), notes, reported)


def _mark_of(directories: Sequence[RealDirectory]) -> Mark | None:
    marks = (mark.read(directory) for directory in directories if mark.NAME in directory.names())
    return next(filter(None, marks), None)


def _containers(directory: RealDirectory, notes: list[str]) -> Iterator[LooseContainer]:
    names = [name for name in directory.names() if container.file_number(name) or archived_lsn(name) is not None]
    paths = [os.path.join(directory.path, name) for name in names]
    found = {path: _look_at(path, None, notes) for path in paths}
    size = next((given.head.container_bytes for given in found.values() if given and not given.finding), None)
    for path, given in found.items():
        if given is not None and given.finding is not None:  # its blocks tell what it holds, and the others its size
            given = _look_at(path, size, notes) or given
            notes.append(f"{path}: {given.finding.reason if given.finding else 'its head was damaged'}")
        if given is not None:
            yield given


def _look_at(path: str, container_bytes: int | None, notes: list[str]) -> LooseContainer | None:
    found = None
    try:
        found = read_container(path, container_bytes)
        if found is not None and found.finding is not None:  # it may be complete, and of a newer format
            container.decode_head(found.first_sector, path)
        return found
    except container.BadContainer:
        return found
    except ForeignStore as error:
        if "newer than" in error.reason:
            raise
        notes.append(f"{path}: left out: {error.reason}")
    except DiskError as error:  # it moved to the archive since the names were read, or can't be read
        notes.append(str(error))
    return None
