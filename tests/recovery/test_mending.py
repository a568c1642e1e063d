"""Tests that sectors that the disk cannot read cost as little data as possible."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from cairnmq.base.disk.seam import SECTOR_BYTES, File
from cairnmq.base.errors import DiskError
from cairnmq.base.testing.memory_disk import MemoryDirectory
from cairnmq.journal.format.block import Block
from cairnmq.recovery.damage_survey import survey
from cairnmq.recovery.lenient_directory import PatientFile
from tests.harness.journal.logs import BIG, blocks, content, new_log, put

SECTORS = 12


class BadSectors:
    """A file with some unreadable sectors."""

    def __init__(self, file: File, bad: set[int]) -> None:
        self.name = file.name
        self._file = file
        self._bad = bad

    def size_bytes(self) -> int:
        return self._file.size_bytes()

    def read_at(self, offset: int, size_bytes: int) -> bytes:
        if self._bad & set(range(offset // SECTOR_BYTES, -(-(offset + size_bytes) // SECTOR_BYTES))):
            raise DiskError(self.name, "read failed: Input/output error")
        return self._file.read_at(offset, size_bytes)

    def write_at(self, offset: int, data: bytes | bytearray | memoryview) -> None:
        raise NotImplementedError

    def sync(self) -> None:
        raise NotImplementedError

    def forget(self) -> None:
        raise NotImplementedError

    def is_in_place(self) -> bool:
        return True

    def close(self) -> None:
        self._file.close()


@given(st.sets(st.integers(0, SECTORS)), st.integers(0, SECTORS * SECTOR_BYTES), st.integers(0, 8 * SECTOR_BYTES))
def test_a_bad_sector_is_zeros_and_the_others_are_read(bad: set[int], offset: int, size: int) -> None:
    data = bytes(number % 251 + 1 for number in range(SECTORS * SECTOR_BYTES - 100))
    directory = MemoryDirectory()
    directory.create("file").write_at(0, data)
    told: list[str] = []
    patient = PatientFile(BadSectors(directory.open("file"), bad), told.append)
    hit = bad & set(range(offset // SECTOR_BYTES, -(-(offset + size) // SECTOR_BYTES)))
    shown = bytes(
        0 if hit and at // SECTOR_BYTES in bad else data[at] for at in range(offset, min(offset + size, len(data)))
    )
    assert patient.read_at(offset, size) == shown
    assert bool(told) == bool(hit)


def test_a_bad_sector_costs_its_block_alone() -> None:
    directory = MemoryDirectory()
    _, journal = new_log(directory)
    for _ in range(5):
        put(journal, BIG)
        journal.flush()
    journal.close()
    hurt: Block = blocks(directory)[3]
    before = content(directory)

    class OnABadDisk(MemoryDirectory):
        def names(self) -> list[str]:
            return directory.names()

        def open(self, name: str, *, writable: bool = False) -> File:  # type: ignore[override]
            file = directory.open(name)
            return BadSectors(file, {hurt.lsn // SECTOR_BYTES + 9} if name == "00000001.cairn" else set())

    found = survey(OnABadDisk())
    assert [(gap.finding.first_lsn, gap.finding.end_lsn) for gap in found.gaps] == [(hurt.lsn, hurt.end_lsn)]
    assert [gap.unknown for gap in found.gaps] == [[]]  # its record headers are proven
    assert any("Input/output error" in remark for remark in found.remarks())
    assert content(directory) == before
