"""Container files that were named by themselves, shown as if they were a log of their own.

`LogReader` wants a mark and whole container heads; a `Directory` in front of the files gives it those. Nothing is
written anywhere; what was mended is a `Finding`.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, suppress
from functools import partial
from typing import NamedTuple
from uuid import UUID

from ...base.disk.real import RealDirectory, RealFile
from ...base.disk.seam import SECTOR_BYTES, ReadableFile
from ...base.errors import DiskError, ForeignStore
from ...journal.files.archive import LEASE, archived_lsn
from ...journal.format import container
from ...journal.format import log_mark as mark
from ...journal.format.block import BLOCK_HEAD_BYTES
from ...journal.format.container import DATA_OFFSET, ContainerHead
from ...journal.format.log_mark import Mark
from ...journal.read.container_chain import ChainedContainer, check_history
from ...recovery.lenient_directory import ShownFile
from ...recovery.salvageable import MOST_BYTES, Finding, head_finding, log_id_of, position_by_blocks, try_head
from ...store.directory.archive_lease import refuse_other_copy


def is_empty_archive(path: str) -> bool:
    """Return whether the archive in the directory *path* has received nothing yet."""
    return all(name.endswith(LEASE) for name in RealDirectory(path).names())


class LooseContainer(NamedTuple):
    """A container file that was named by itself."""

    path: str
    head: ContainerHead
    first_sector: bytes
    """The first sector, as read when the file was first opened."""
    size_bytes: int
    """The size of the container file."""
    finding: Finding | None

    @property
    def is_archived(self) -> bool:
        """Return whether the container is in an archive."""
        return archived_lsn(os.path.basename(self.path)) is not None

    def is_recycled(self) -> bool:
        """Return whether a broker has begun to write another slot of the log into the file since."""
        try:
            file = RealFile(self.path, os.O_RDONLY)
        except DiskError:
            return True
        with closing(file), suppress(DiskError):
            return file.read_at(0, SECTOR_BYTES) != self.first_sector
        return False


class LooseDirectory:
    """Containers of neighbouring slots, as if they were a whole log that begins with the first of them."""

    def __init__(self, run: list[LooseContainer], durable_lsn: int) -> None:
        """*durable_lsn* is the mark's claim, 0 without one."""
        first = run[0].head
        self.path = os.path.dirname(run[0].path) or "."
        self._run = run
        self._log_uuid = first.log_uuid
        self._mark = mark.encode(Mark(False, 0, first.log_uuid, first.container_bytes, 1, durable_lsn, 0, 0))

    def names(self) -> list[str]:
        return [mark.NAME, *(container.file_name(number) for number in range(len(self._run)))]

    def open(self, name: str) -> ReadableFile:
        if name == mark.NAME:
            return ShownFile(name, self._mark, None, SECTOR_BYTES)
        number = container.file_number(name) or 0
        given = self._run[number]
        head = given.head._replace(number=number, base_lsn=0, log_uuid=self._log_uuid)
        file = RealFile(given.path, os.O_RDONLY)
        return ShownFile(name, container.encode_head(head), file, head.container_bytes)


def runs_of(by_slot: Mapping[int, LooseContainer]) -> Iterator[list[LooseContainer]]:
    """The containers in runs of neighboring slots, in order."""
    run: list[LooseContainer] = []
    for slot in sorted(by_slot):
        if run and run[-1].head.slot + 1 != slot:
            yield run
            run = []
        run.append(by_slot[slot])
    if run:
        yield run


def check_one_history(found: list[LooseContainer], journals: Iterable[str], base_lsn: int, log_id: int) -> None:
    """Raise `ForeignStore` if archived containers are not of the history of those of the log from *base_lsn* on.

    *journals*: the directories of those.
    """
    known = [one for one in found if log_id_of(one.head.log_uuid) == log_id and one.finding is None]
    archived = [one for one in known if one.is_archived]
    own = {one.head.slot: one for one in sorted(known, key=lambda one: one.head.incarnation)
           if not one.is_archived and one.head.slot_lsn >= base_lsn}  # fmt: skip
    chained = [ChainedContainer(one.path, one.head, partial(RealFile, one.path, os.O_RDONLY))
               for one in (*own.values(), *archived)]  # fmt: skip
    places = {(os.path.dirname(one.path) or ".", one.head.log_uuid) for one in archived}
    for journal in journals:
        for place, log_uuid in sorted(places):
            refuse_other_copy(journal, place, log_uuid)
    if archived:
        check_history(chained, log_id)


def read_container(path: str, container_bytes: int | None) -> LooseContainer | None:
    """The container at *path*, None if it was never used. Raises `ForeignStore` if it is none.

    *container_bytes* is for a head that can't be read; without it the file's size must do.
    """
    with closing(RealFile(path, os.O_RDONLY)) as file:
        sector, reason = try_head(file, path)
        if not reason:
            head, size = container.decode_head(sector, path), file.size_bytes()
            if head.container_bytes > max(size, MOST_BYTES):  # it would be searched for blocks sector by sector
                claim = f"it has {size} bytes, and its head claims {head.container_bytes}"
                raise ForeignStore(path, claim, "restore the file from a backup, or remove it")
            return LooseContainer(path, head, sector, size, None)
        size = container_bytes or file.size_bytes()
        found = position_by_blocks(file, size, None) if size >= DATA_OFFSET + BLOCK_HEAD_BYTES else None
        if found is not None:
            slot_lsn = found.slot * size
            uuid = UUID(bytes=found.log_id.to_bytes(8, "little") + bytes(8))
            finding = head_finding(os.path.basename(path), slot_lsn, reason, found.durable_lsn)
            head = ContainerHead(0, uuid, size, 0, slot_lsn, 0, 0, 0)
            return LooseContainer(path, head, sector, file.size_bytes(), finding)
        if 0 < file.size_bytes() <= MOST_BYTES and not file.read_at(0, file.size_bytes()).strip(b"\0"):
            return None
        remedy = "containers have names like 00000001.cairn"
        raise ForeignStore(path, f"not a container of a journal ({reason})", remedy)


def container_bytes_of(path: str) -> int | None:
    """Return the container size in the head of *path*; None if it is unreadable."""
    with closing(RealFile(path, os.O_RDONLY)) as file:
        sector, reason = try_head(file, path)
    return None if reason else container.decode_head(sector, path).container_bytes
