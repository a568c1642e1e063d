"""Tests of openings, which read unproven blocks past the page cache, and copy them, also with crashes in between."""

from __future__ import annotations

import random
from errno import EIO, ENOSPC

import pytest

from cairnmq.base.errors import DiskError, JournalFailed
from cairnmq.base.testing.faulty_disk import DiskCall, Fault, FaultyDirectory, once
from cairnmq.base.testing.memory_disk import MemoryDirectory, Survivors
from cairnmq.journal.files import space_reserve as room
from cairnmq.journal.format.container import decode_head, encode_head, file_name
from cairnmq.journal.read.scanner import LogReader
from tests.harness.journal.logs import BIG, SIZE, container_of, content, new_log, patch, put, reopen


def killed(payloads: int = 3) -> tuple[MemoryDirectory, list[int]]:
    """Return a killed log with unproven blocks in its last slot and enough free containers, and the records' LSNs."""
    directory = MemoryDirectory()
    _, journal = new_log(directory, keep=6)
    lsns = []
    for _ in range(payloads):
        lsns.append(put(journal, BIG))
        journal.flush()
    journal.abandon()
    return directory, lsns


def no_room(call: DiskCall) -> Fault | None:
    """Fail the creation of files, as a full disk does."""
    return Fault(ENOSPC) if call.kind == "create" else None


def test_what_is_unproven_moves_to_another_container() -> None:
    """The blocks are copied byte for byte, and the old file is deleted."""
    directory, lsns = killed()
    slot = lsns[0] // SIZE
    old = container_of(directory, slot)
    before = content(directory)[old]
    journal, report, found = reopen(directory)
    new = container_of(directory, slot)
    after = content(directory)[new]
    assert [read.lsn for read in found] == lsns
    assert report.rewritten_bytes > 0
    assert new != old
    assert old not in directory.names()
    end = report.end_lsn - slot * SIZE
    assert after[512:end] == before[512:end]
    assert not any(after[end:])
    journal.abandon()


def test_nothing_moves_after_a_close() -> None:
    directory, lsns = killed()
    reopen(directory)[0].close()
    calls = FaultyDirectory(directory)
    journal, report, found = reopen(calls)
    assert report.rewritten_bytes == 0
    assert [read.lsn for read in found] == lsns
    kept = {container_of(directory, read.lsn // SIZE) for read in found}
    assert not [call for call in calls.calls if call.kind in ("write", "sync", "unlink") and call.name in kept]
    journal.abandon()


@pytest.mark.parametrize("also_later", [False, True])
def test_after_a_failed_sync_the_page_cache_is_not_believed(also_later: bool) -> None:
    """The block is in the page cache, but not on the disk: it was never confirmed, and is not recovered."""
    inner = MemoryDirectory()
    directory = FaultyDirectory(inner)
    _, journal = new_log(directory)
    sure = put(journal, b"sure")
    journal.flush()
    bad = container_of(inner, sure // SIZE)
    failed: list[DiskCall] = []

    def plan(call: DiskCall) -> Fault | None:
        if call.kind == "sync" and call.name == bad and (also_later or not failed):
            failed.append(call)
            return Fault(EIO)
        return None

    directory.plan = plan
    put(journal, b"lost")
    with pytest.raises(JournalFailed, match="nothing more is confirmed"):
        journal.flush()
    journal.abandon()
    assert b"lost" in content(inner)[bad], "as the page cache has it"
    if also_later:
        with pytest.raises(DiskError, match="sync"):
            reopen(directory)
        assert bad in inner.names()
        directory.plan = None
    journal, _, found = reopen(directory)
    assert [read.payload for read in found] == [b"sure"]
    assert bad not in inner.names()
    journal.abandon()
    cut = inner.after_power_cut([])
    assert [read.payload for read in reopen(cut)[2]] == [b"sure"]


@pytest.mark.parametrize("full", [False, True])
def test_a_crash_at_any_step_of_it_changes_nothing(full: bool) -> None:
    """I9: every later opening shows what the first one would, however often openings are interrupted."""
    directory, lsns = killed(12)
    rng = random.Random(1)
    cases = 0

    def opened(disk: MemoryDirectory) -> list[MemoryDirectory]:
        nonlocal cases
        cases += 1
        moments: list[MemoryDirectory] = []
        disk.on_operation = lambda _: moments.append(disk.after_kill())
        journal, _, found = reopen(FaultyDirectory(disk, no_room if full else None))
        assert [read.lsn for read in found] == lsns
        for read in found:
            assert journal.stored.read_record(read.lsn).payload == read.payload
        journal.abandon()
        return moments

    for moment in opened(directory.after_kill()):
        opened(moment.after_kill())
        survivors: tuple[Survivors, ...] = ([], rng)
        for kept in survivors:
            for again in rng.sample(opened(moment.after_power_cut(kept)), 3):
                opened(again.after_power_cut(rng))
    assert cases > 150


def test_an_error_at_any_call_of_it_is_told_and_changes_nothing() -> None:
    directory, lsns = killed()
    calls = FaultyDirectory(directory.after_kill())
    reopen(calls)[0].abandon()
    for call in calls.calls:
        disk = directory.after_kill()
        try:
            reopen(FaultyDirectory(disk, once(call.number, Fault(EIO, 0.5))))[0].abandon()
        except DiskError:
            pass
        for left in (disk.after_kill(), disk.after_power_cut([])):
            assert [read.lsn for read in reopen(left)[2]] == lsns, call


def test_two_containers_of_one_slot_are_told() -> None:
    """The later copy counts, whatever the names; the other one is deleted."""
    directory, lsns = killed()
    old = container_of(directory, lsns[0] // SIZE)
    held = content(directory)[old]
    reopen(directory)[0].close()
    new = container_of(directory, lsns[0] // SIZE)
    for name in (file_name(90), old):
        directory.create(name)
        number = int(name[:8])
        patch(directory, name, 0, renamed(held, number))
        reader = LogReader(directory)
        assert container_of(directory, lsns[0] // SIZE) == new
        assert reader.heads.copied == [number]
        assert any(f"{new} is the later copy and counts" in remark for remark in reader.heads.remarks)
        journal, report, found = reopen(directory)
        assert [read.lsn for read in found] == lsns
        assert any("is the later copy" in remark for remark in report.remarks)
        assert name not in directory.names()
        journal.close()


def renamed(data: bytes, number: int) -> bytes:
    """Return the bytes of a container as they would be in file *number*."""
    return encode_head(decode_head(data, "")._replace(number=number)) + data[512:]


def test_a_container_in_doubt_stays_on_a_full_disk_if_it_passes_a_trial() -> None:
    directory, lsns = killed()
    faulty = FaultyDirectory(directory, no_room)
    old, before = container_of(directory, lsns[0] // SIZE), len(directory.names())
    journal, _, _ = reopen(faulty)
    assert len(directory.names()) == before
    assert old in directory.names()
    journal.abandon()


def test_one_free_container_is_enough_to_open() -> None:
    directory, lsns = killed()
    for number in LogReader(directory).heads.free[1:]:
        directory.unlink(file_name(number))
    journal, _, found = reopen(FaultyDirectory(directory, no_room))
    assert [read.lsn for read in found] == lsns
    journal.abandon()


def test_kill_after_kill_takes_no_room() -> None:
    """The disk is full, and only the containers for openings are left."""
    directory, lsns = killed()
    for number in LogReader(directory).heads.free[room.FOR_OPENINGS :]:
        directory.unlink(file_name(number))
    files = len(directory.names())
    for number in range(30):
        faulty = FaultyDirectory(directory, no_room)
        journal, _, found = reopen(faulty)
        assert [read.lsn for read in found] == lsns
        if number % 3:
            journal.writer.write_mark()  # as when it was idle for a while
        journal.abandon()
        assert len(directory.names()) == files
