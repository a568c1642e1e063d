"""Damaged containers made readable: what the broker rightly leaves alone, a tool shows as far as it goes.

`LogReader` wants a mark, whole container heads and full-sized files. A `Directory` that stands before the real one
gives it those: a head that can't be read is told from the blocks behind it, what was cut off a file reads as zeros, and
containers that lie about alone get a mark. Nothing is written anywhere; what was mended is a `Finding`.
"""

from __future__ import annotations

import os
from typing import NamedTuple
from uuid import UUID

from ..base.errors import DiskError, ForeignStore
from ..disk.real import RealFile
from ..disk.seam import SECTOR_BYTES, Buffer, Directory, File
from ..journal import container, mark
from ..journal.block import BLOCK_HEAD_BYTES
from ..journal.container import DATA_OFFSET, ContainerHead
from ..journal.mark import Mark
from .salvage import Finding, head_finding, log_id_of, salvage, try_head

_TEMPORARY = (container.SUFFIX + ".new", mark.NAME + ".new")


class ShownFile:
    """A file with another first sector and, beyond the real end, zeros up to *size_bytes*."""

    def __init__(self, name: str, first_sector: bytes, file: File | None, size_bytes: int) -> None:
        self.name = name
        self._first = first_sector
        self._file = file
        self._size = size_bytes

    def size_bytes(self) -> int:
        return self._size

    def read_at(self, offset: int, size_bytes: int) -> bytes:
        wanted = max(0, min(size_bytes, self._size - offset))
        data = self._file.read_at(offset, wanted).ljust(wanted, b"\0") if self._file else bytes(wanted)
        if offset < SECTOR_BYTES:
            data = (self._first[offset:] + data[SECTOR_BYTES - offset :])[:wanted]
        return data

    def write_at(self, offset: int, data: Buffer) -> None:
        raise DiskError(self.name, "a tool never writes")

    def sync(self) -> None:
        raise DiskError(self.name, "a tool never writes")

    def forget(self) -> None:
        """A tool shows what there is to be seen."""

    def is_in_place(self) -> bool:
        return self._file is None or self._file.is_in_place()

    def close(self) -> None:
        if self._file is not None:
            self._file.close()


class _Shown:
    """What the two directories below have in common: they are only for reading."""

    path: str

    def free_bytes(self) -> int:
        return 0

    def create(self, name: str) -> File:
        raise DiskError(self.path, "a tool never writes")

    def rename(self, old: str, new: str) -> None:
        raise DiskError(self.path, "a tool never writes")

    def unlink(self, name: str) -> None:
        raise DiskError(self.path, "a tool never writes")

    def sync(self) -> None:
        raise DiskError(self.path, "a tool never writes")


class MendedDirectory(_Shown):
    """A journal directory with its mark. It may be written meanwhile."""

    def __init__(self, directory: Directory, found: Mark) -> None:
        self.path = directory.path
        self.findings: dict[int, Finding] = {}
        """By the LSN of the slot: container heads that could not be read."""
        self.remarks: list[str] = []
        self._directory = directory
        self._mark = found
        self._log_id = log_id_of(found.log_uuid)
        self._heads: dict[str, bytes] = {}

    def names(self) -> list[str]:
        return [name for name in self._directory.names() if not name.endswith(_TEMPORARY)]

    def open(self, name: str, *, writable: bool = False) -> File:
        file = self._directory.open(name)
        number = container.file_number(name)
        if number is None:
            return file
        try:
            return self._mended(file, name, number)
        except DiskError:  # the reader meets the same error and tells it
            return file

    def _mended(self, file: File, name: str, number: int) -> File:
        wanted = self._mark.container_bytes
        sector, why = try_head(file, name)
        if not why:
            size = file.size_bytes()
            if size == wanted or container.decode_head(sector, name).log_uuid != self._mark.log_uuid:
                return file
            self._remark(f"{self.path}/{name}: it has {size} bytes, a container has {wanted}")
            return ShownFile(name, sector, file, wanted)
        if name not in self._heads:
            found = salvage(file, wanted, self._log_id)
            if found is None or not try_head(file, name)[1]:  # a spare one, or one just taken into use
                return file
            slot_lsn = found.slot * wanted
            head = ContainerHead(self._mark.incarnation, self._mark.log_uuid, wanted, number, slot_lsn, 0, 0, 0)
            self._heads[name] = container.encode_head(head)
            self.findings[slot_lsn] = head_finding(name, slot_lsn, why, max(found.durable_lsn, self._mark.durable_lsn))
        return ShownFile(name, self._heads[name], file, wanted)

    def _remark(self, remark: str) -> None:
        if remark not in self.remarks:
            self.remarks.append(remark)


class Given(NamedTuple):
    """A container file that was named by itself."""

    path: str
    head: ContainerHead
    first_sector: bytes
    """As it was read when the file was first seen."""
    size_bytes: int
    """Of the file."""
    finding: Finding | None

    def is_recycled(self) -> bool:
        """Whether a broker has begun to write another slot of the log into the file since."""
        try:
            file = RealFile(self.path, os.O_RDONLY)
        except DiskError:
            return True
        try:
            return file.read_at(0, SECTOR_BYTES) != self.first_sector
        except DiskError:
            return False
        finally:
            file.close()


class GivenDirectory(_Shown):
    """Containers of neighbouring slots, as if they were a whole log that begins with the first of them."""

    def __init__(self, run: list[Given], durable_lsn: int) -> None:
        """*durable_lsn* is the mark's claim, 0 without one."""
        first = run[0].head
        self.path = os.path.dirname(run[0].path) or "."
        self._run = run
        self._log_uuid = first.log_uuid
        self._mark = mark.encode(Mark(False, 0, first.log_uuid, first.container_bytes, 1, durable_lsn, 0, 0))

    def names(self) -> list[str]:
        return [mark.NAME, *(container.file_name(number) for number in range(len(self._run)))]

    def open(self, name: str, *, writable: bool = False) -> File:
        if name == mark.NAME:
            return ShownFile(name, self._mark, None, SECTOR_BYTES)
        number = container.file_number(name) or 0
        given = self._run[number]
        head = given.head._replace(number=number, base_lsn=0, log_uuid=self._log_uuid)
        file = RealFile(given.path, os.O_RDONLY)
        return ShownFile(name, container.encode_head(head), file, head.container_bytes)


def look_at(path: str, container_bytes: int | None) -> Given | None:
    """The container at *path*, None if it was never used. Raises `ForeignStore` if it is none.

    *container_bytes* is for a head that can't be read; without it the file's size must do.
    """
    file = RealFile(path, os.O_RDONLY)
    try:
        sector, why = try_head(file, path)
        if not why:
            return Given(path, container.decode_head(sector, path), sector, file.size_bytes(), None)
        size = container_bytes or file.size_bytes()
        found = salvage(file, size, None) if size >= DATA_OFFSET + BLOCK_HEAD_BYTES else None
        if found is not None:
            slot_lsn = found.slot * size
            uuid = UUID(bytes=found.log_id.to_bytes(8, "little") + bytes(8))
            finding = head_finding(os.path.basename(path), slot_lsn, why, found.durable_lsn)
            head = ContainerHead(0, uuid, size, 0, slot_lsn, 0, 0, 0)
            return Given(path, head, sector, file.size_bytes(), finding)
        if file.size_bytes() and not file.read_at(0, file.size_bytes()).strip(b"\0"):
            return None
    finally:
        file.close()
    raise ForeignStore(path, f"not a container of a journal ({why})", "containers have names like 00000001.cairn")


def container_bytes_of(path: str) -> int | None:
    """The container size that the head of *path* tells, None if it can't be read."""
    file = RealFile(path, os.O_RDONLY)
    try:
        sector, why = try_head(file, path)
    finally:
        file.close()
    return None if why else container.decode_head(sector, path).container_bytes
