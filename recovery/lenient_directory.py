"""A directory view that makes damaged containers readable, as far as their content survives.

`LogReader` requires a mark, complete container heads, files of full size under their own names, and a disk without read
errors. This view of the real directory provides them:

* An unreadable head is reconstructed from the blocks after it.
* Missing data at the end of a file reads as zeros, and excess data is hidden.
* A file under the name of another one gets a matching head.
* A sector with a read error reads as zeros.

Nothing is written to the disk. Each repair is reported as a `Finding` or a remark.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing

from ..base.disk.seam import SECTOR_BYTES, ReadableDirectory, ReadableFile
from ..base.errors import CairnError, DiskError
from ..journal.format import container
from ..journal.format import log_mark as mark
from ..journal.format.container import ContainerHead
from .log_identity import Identity
from .salvageable import Finding, head_finding, log_id_of, position_by_blocks, try_head

_TEMPORARY = (container.SUFFIX + ".new", mark.NAME + ".new")


class ShownFile:
    """A file with another first sector and, beyond the real end, zeros up to *size_bytes*."""

    def __init__(self, name: str, first_sector: bytes, file: ReadableFile | None, size_bytes: int) -> None:
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

    def close(self) -> None:
        if self._file is not None:
            self._file.close()


class PatientFile:
    """A file whose unreadable sectors read as zeros: a bad sector costs only itself."""

    def __init__(self, file: ReadableFile, report: Callable[[str], None]) -> None:
        """*report* is called with the text of each read error."""
        self.name = file.name
        self._file = file
        self._report = report
        self._size = file.size_bytes()

    def size_bytes(self) -> int:
        return self._size

    def read_at(self, offset: int, size_bytes: int) -> bytes:
        try:
            return self._file.read_at(offset, size_bytes)
        except DiskError as error:
            self._report(str(error))
            end = min(offset + size_bytes, self._size)
            if end <= offset:
                return b""
            return b"".join(
                self._sector(at, min(SECTOR_BYTES - at % SECTOR_BYTES, end - at))
                for at in (offset, *range(offset - offset % SECTOR_BYTES + SECTOR_BYTES, end, SECTOR_BYTES))
            )

    def _sector(self, at: int, size_bytes: int) -> bytes:
        try:
            return self._file.read_at(at, size_bytes)
        except DiskError:
            return bytes(size_bytes)

    def close(self) -> None:
        self._file.close()


class LenientDirectory:
    """A journal directory with its mark, or with a substitute. It may be written to concurrently."""

    def __init__(self, directory: ReadableDirectory, identity: Identity) -> None:
        self.path = directory.path
        self.identity = identity
        """The mark to read the log by; shown in place of one that is missing or incomplete."""
        self.findings: dict[int, Finding] = {}
        """Container heads that could not be read, by the LSN of the slot."""
        self.remarks: list[str] = []
        self._directory = directory
        self._mark = identity.mark
        self._log_id = log_id_of(identity.mark.log_uuid)
        self._heads: dict[str, bytes] = {}
        self._spare: set[str] = set()
        self._shown_mark = b"" if identity.finding is None else mark.encode(identity.mark)

    def names(self) -> list[str]:
        names = [name for name in self._directory.names() if not name.endswith(_TEMPORARY)]
        return sorted({*names, mark.NAME}) if self._shown_mark else names

    def open(self, name: str) -> ReadableFile:
        if name == mark.NAME and self._shown_mark:
            return ShownFile(name, self._shown_mark, None, SECTOR_BYTES)
        file = self._directory.open(name)
        number = container.file_number(name)
        if number is None:
            return file
        try:
            return self._mended(PatientFile(file, self._remark), name, number)
        except CairnError:  # the reader gets the same error and reports it
            return file

    def _mended(self, file: ReadableFile, name: str, number: int) -> ReadableFile:
        wanted = self._mark.container_bytes
        sector, reason = try_head(file, name)
        if not reason:
            head = container.decode_head(sector, name)
            if head.log_uuid != self._mark.log_uuid:
                return file
            size = file.size_bytes()
            misplaced = head.number != number
            if misplaced and not self._is_missed(head):
                return file
            if size != wanted:
                self._remark(f"{self.path}/{name}: it has {size} bytes, a container has {wanted}")
            if misplaced:
                self._remark(f"{self.path}/{name}: it was written as {container.file_name(head.number)}")
                sector = container.encode_head(head._replace(number=number))
            return ShownFile(name, sector, file, wanted) if misplaced or size != wanted else file
        if name in self._spare:
            return file  # it is as it was: once it is in use it has a head
        if name not in self._heads:
            found = position_by_blocks(file, wanted, self._log_id)
            if found is None or not try_head(file, name)[1]:  # a spare one, or one just taken into use
                self._spare.add(name)
                return file
            slot_lsn = found.slot * wanted
            # of incarnation 0, so that a container with a head of its own goes before: this may be half a copy of it
            head = ContainerHead(0, self._mark.log_uuid, wanted, number, slot_lsn, 0, 0, 0)
            self._heads[name] = container.encode_head(head)
            durable_lsn = max(found.durable_lsn, self._mark.durable_lsn)
            self.findings[slot_lsn] = head_finding(name, slot_lsn, reason, durable_lsn)
        return ShownFile(name, self._heads[name], file, wanted)

    def _is_missed(self, head: ContainerHead) -> bool:
        """Return whether the container that *head* was written for does not hold its slot under its own name."""
        name = container.file_name(head.number)
        try:
            with closing(self._directory.open(name)) as file:
                own = container.read_head(file, name)
        except (container.BadContainer, CairnError):
            return True
        return (own.log_uuid, own.number, own.slot) != (head.log_uuid, head.number, head.slot)

    def _remark(self, remark: str) -> None:
        if remark not in self.remarks:
            self.remarks.append(remark)
