"""Tests of the durability mark, which is always complete: a torn or lost write leaves the previous one."""

from __future__ import annotations

import random
import struct
from errno import EIO
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cairnmq.base.disk.seam import SECTOR_BYTES
from cairnmq.base.errors import DiskError, ForeignStore
from cairnmq.base.testing.faulty_disk import Fault, FaultyDirectory, ever_after
from cairnmq.base.testing.memory_disk import MemoryDirectory
from cairnmq.journal.format import log_mark as mark
from cairnmq.journal.format.log_mark import Mark, MarkFile
from tests.harness.journal.logs import patch, with_crc

U32, U64 = st.integers(0, 2**32 - 1), st.integers(0, 2**64 - 1)
MARKS = st.builds(Mark, st.booleans(), U32, st.uuids(), U64, U64, U64, U64, U64)
FIRST = Mark(True, 0, UUID(int=5), 524288, 0, 0, 0, 1)


def write(file: MarkFile, durable_lsn: int) -> None:
    file.write(durable_lsn=durable_lsn, base_lsn=0, incarnation=1, time_us=2)


def durable_lsn(directory: MemoryDirectory) -> int:
    found = mark.read(directory)
    assert found is not None
    return found.durable_lsn


@given(some=MARKS)
def test_what_was_encoded_is_decoded(some: Mark) -> None:
    data = mark.encode(some)
    assert len(data) == SECTOR_BYTES
    assert mark.decode(data, "x") == some


def test_every_flipped_bit_is_detected() -> None:
    data = mark.encode(FIRST)
    for place in range(mark.HEAD.size):
        for bit in range(8):
            rotten = bytearray(data)
            rotten[place] ^= 1 << bit
            assert mark.decode(bytes(rotten), "x") is None


@given(size=st.integers(0, 600))
def test_zeros_never_decode(size: int) -> None:
    assert mark.decode(bytes(size), "x") is None


def test_a_newer_format_is_told_from_damage() -> None:
    data = mark.encode(FIRST)
    newer = with_crc(data[:8] + struct.pack("<H", 2) + data[10:], mark.HEAD.size)
    with pytest.raises(ForeignStore, match="store format 2 is newer than this program's format 1"):
        mark.decode(newer, "x")


@pytest.mark.parametrize("sector_bytes", [512, 4096])
def test_a_power_cut_while_formatting_leaves_no_mark_or_a_whole_one(sector_bytes: int) -> None:
    directory = MemoryDirectory(sector_bytes=sector_bytes)
    seen = set()

    def cut(_: str) -> None:
        for seed in range(20):
            left = directory.after_power_cut(random.Random(seed))
            there = mark.NAME in left.names()
            seen.add(there)
            if there:
                assert mark.read(left) == FIRST
            else:
                MarkFile.format(left, FIRST)  # a leftover file under the other name does no harm
                assert mark.read(left) == FIRST

    directory.on_operation = cut
    MarkFile.format(directory, FIRST)
    assert seen == {True, False}
    assert mark.read(directory.after_power_cut([])) == FIRST


@given(writes=st.integers(1, 6), seed=st.integers(0, 2**32), sector_bytes=st.sampled_from([512, 4096]))
def test_a_power_cut_leaves_the_newest_or_the_one_before(writes: int, seed: int, sector_bytes: int) -> None:
    directory = MemoryDirectory(sector_bytes=sector_bytes)
    file = MarkFile.format(directory, FIRST)
    for number in range(1, writes + 1):
        moments: list[MemoryDirectory] = []
        directory.on_operation = lambda _, moments=moments: moments.append(directory.after_kill())
        write(file, number)
        directory.on_operation = None
        for moment in moments:
            assert durable_lsn(moment.after_power_cut(random.Random(seed))) in (number - 1, number)
        assert durable_lsn(directory.after_power_cut([])) == number


@given(syncs=st.lists(st.booleans(), max_size=8), seed=st.integers(0, 2**32), sector_bytes=st.sampled_from([512, 4096]))
def test_marks_that_are_not_synced_never_cost_one_that_was(syncs: list[bool], seed: int, sector_bytes: int) -> None:
    """Unsynced marks never damage a synced one, whatever a power cut does to their sectors; a kill loses none."""

    def rot(name: str, sector: int, synced: bytes) -> bytes:
        return b"rot" * sector_bytes

    directory = MemoryDirectory(sector_bytes=sector_bytes)
    file = MarkFile.format(directory, FIRST)
    safe = 0
    for number, sync in enumerate(syncs, 1):
        moments: list[MemoryDirectory] = []
        directory.on_operation = lambda _, moments=moments: moments.append(directory.after_kill())
        file.write(durable_lsn=number, base_lsn=0, incarnation=1, time_us=2, sync=sync)
        directory.on_operation = None
        for moment in moments:
            assert durable_lsn(moment) in (number - 1, number)
            assert safe <= durable_lsn(moment.after_power_cut(random.Random(seed), junk=rot)) <= number
        safe = number if sync else safe
        assert durable_lsn(directory.after_power_cut([], junk=rot)) >= safe
        assert durable_lsn(directory.after_kill()) == number


@pytest.mark.parametrize("writes", [1, 2, 3])
def test_a_torn_place_leaves_the_other_one(writes: int) -> None:
    directory = MemoryDirectory()
    file = MarkFile.format(directory, FIRST)
    for number in range(1, writes + 1):
        write(file, number)
    patch(directory, mark.NAME, mark.PLACES[writes % 2] + 30, b"torn")
    assert durable_lsn(directory) == writes - 1
    patch(directory, mark.NAME, mark.PLACES[(writes + 1) % 2] + 30, b"rotten")
    assert mark.read(directory) is None


def test_a_failed_write_leaves_the_one_before() -> None:
    """The next write replaces the failed one, so that one copy of the mark is always complete."""
    inner = MemoryDirectory()
    directory = FaultyDirectory(inner)
    file = MarkFile.format(directory, FIRST)
    write(file, 1)
    for share in (0.0, 0.3, 1.0):
        directory.plan = ever_after(1, Fault(EIO, share), kinds={"write"} if share < 1 else {"sync"})
        with pytest.raises(DiskError):
            write(file, 2)
        assert durable_lsn(inner.after_power_cut([])) == 1
        assert durable_lsn(inner.after_kill()) in (1, 2)
        assert file.mark.durable_lsn == 1
    directory.plan = None
    write(file, 3)
    assert durable_lsn(inner.after_power_cut([])) == 3
