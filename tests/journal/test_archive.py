"""Tests of the archive: containers that leave the log are archived completely, once, within limits, without delays."""

from __future__ import annotations

import logging
import random
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cairnmq.base.errors import CairnError
from cairnmq.base.testing.manual_clock import ManualClock
from cairnmq.base.testing.memory_disk import MemoryDirectory
from cairnmq.journal.files.archive import ArchiveLimits, archive_name, archived_lsn
from cairnmq.journal.format.container import file_number
from cairnmq.journal.read.scanner import LogReader
from tests.harness.journal.archives import ArchivedLog, archived_slots, history, on_one_disk, on_two_disks, work
from tests.harness.journal.logs import LOG_UUID, SIZE, container_of, content, new_log, patch, read_all, reopen

BOTH = pytest.mark.parametrize("new", [on_one_disk, on_two_disks])
New = Callable[..., ArchivedLog]


@given(seed=st.integers(0, 2**32), one_disk=st.booleans())
@settings(max_examples=20)
def test_archive_and_log_together_are_all_there_ever_was(seed: int, one_disk: bool) -> None:
    log = on_one_disk() if one_disk else on_two_disks()
    work(log, random.Random(seed), 20)
    log.journal.flush()
    assert history(log.archive, log.directory) == log.appended
    assert log.archiver.dropped == 0
    live = {lsn for lsn, _ in log.appended if lsn // SIZE in log.journal.extent.slots}
    assert {read.lsn for read in read_all(log.directory) if read.head.type == 1} == live


@BOTH
def test_an_archived_container_is_the_container_byte_for_byte(new: New) -> None:
    log = new()
    log.fill(4)
    before = {slot: content(log.directory)[container_of(log.directory, slot)] for slot in range(4)}
    log.retire(1)
    log.retire(0, 2, 3)
    log.fill(6)
    assert {name: before[(archived_lsn(name) or 0) // SIZE] for name in log.archive.names()} == content(log.archive)
    assert log.archive.names() == [archive_name(slot * SIZE, LOG_UUID) for slot in range(4)]
    assert log.archiver.archive.archived == 4


def test_on_one_disk_the_file_itself_moves_and_is_never_written_again() -> None:
    log = on_one_disk()
    log.fill(3)
    written: list[str] = []
    log.directory.on_operation = lambda operation: written.append(operation)
    log.retire()
    assert not [operation for operation in written if operation.startswith("create")]
    assert [log.archive.link_count(name) for name in log.archive.names()] == [1, 1, 1]
    kept = content(log.archive)
    for _ in range(5):
        log.fill(3)
        log.retire()
    assert kept.items() <= content(log.archive).items()


def test_numbers_of_files_that_moved_are_used_again() -> None:
    log = on_one_disk()
    for _ in range(20):
        log.fill(3)
        log.retire()
    assert len(archived_slots(log.archive)) == 60
    assert max(file_number(name) or 0 for name in log.directory.names()) < 12


@BOTH
def test_the_size_limit_removes_the_oldest(new: New) -> None:
    log = new(archive_limits=ArchiveLimits(max_bytes=4 * SIZE + 1))
    for _ in range(6):
        log.fill(2)
        log.retire()
        assert log.archiver.archive.total_bytes <= 4 * SIZE
    assert archived_slots(log.archive) == [8, 9, 10, 11]
    assert (log.archiver.archive.removed, log.archiver.dropped) == (8, 0)
    log.reopen(close=True)  # free containers may still contain the removed history, which is the oldest
    assert archived_slots(log.archive) == [8, 9, 10, 11]


@BOTH
def test_the_age_limit_counts_from_the_last_record(new: New, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    clock = ManualClock()
    log = new(archive_limits=ArchiveLimits(max_age_s=100), clock=clock)
    archive = log.archiver.archive
    log.fill(1)
    clock.advance(90)
    log.journal.append(2, b"late", time_us=clock.wall_us())  # in slot 1, which was begun 90 s earlier
    log.fill(2)
    log.retire()
    for age_s, left in ((9, [0, 1, 2]), (2, [1, 2]), (88, [1, 2]), (2, [])):
        clock.advance(age_s)
        archive.keep_limits()
        assert archived_slots(log.archive) == left
    assert "removed: its last record is too old" in caplog.text
    log.reopen(close=True)
    assert archived_slots(log.archive) == []


def test_a_container_whose_age_nothing_tells_stays() -> None:
    log = on_one_disk(archive_limits=ArchiveLimits(max_age_s=1e9), clock=ManualClock())
    log.fill(3)
    log.retire()
    for name in log.archive.names()[:2]:
        patch(log.archive, name, 0, bytes(2048))
    log.reopen(close=True)
    log.archiver.archive.keep_limits()
    assert archived_slots(log.archive) == [0, 1, 2]


def test_an_archive_must_have_room_for_one_container() -> None:
    with pytest.raises(CairnError, match="no room for a container of 524288; give a larger --archive-max-size"):
        on_one_disk(archive_limits=ArchiveLimits(max_bytes=SIZE - 1))


def test_what_is_removed_by_hand_is_no_error() -> None:
    log = on_one_disk(archive_limits=ArchiveLimits(max_bytes=3 * SIZE, max_age_s=1e9))
    log.fill(3)
    log.retire()
    for name in log.archive.names():
        log.archive.unlink(name)
    log.fill(3)
    log.retire()
    assert len(archived_slots(log.archive)) == 3


def test_logs_share_an_archive_and_limit_only_themselves() -> None:
    log = on_one_disk(archive_limits=ArchiveLimits(max_bytes=SIZE))
    other = archive_name(0, LOG_UUID).replace(LOG_UUID.hex[:8], "01234567")
    log.archive.create(other).write_at(0, b"of another log")
    log.archive.create(other + ".new").write_at(0, b"being made")
    log.fill(3)
    log.retire()
    log.reopen(close=True)
    assert {other, other + ".new"} < set(log.archive.names())
    assert len(log.archive.names()) == 3


@BOTH
def test_another_container_of_the_same_lsns_is_never_replaced(new: New, caplog: pytest.LogCaptureFixture) -> None:
    """A store that was restored from a backup writes the same LSNs a second time."""
    log = new()
    log.archive.create(archive_name(SIZE, LOG_UUID)).write_at(0, b"the first life")
    log.fill(3)
    log.retire()
    assert content(log.archive)[archive_name(SIZE, LOG_UUID)] == b"the first life"
    assert archived_slots(log.archive) == [0, 1, 2]
    assert log.archiver.dropped == 1
    assert f"1 container of LSN {SIZE} to {2 * SIZE}" in caplog.text
    assert "another container of these LSNs is there already; give each store" in caplog.text


def test_an_archive_that_is_new_takes_what_is_left_over() -> None:
    """The archive begins with the free containers that are still complete."""
    directory = MemoryDirectory()
    log = ArchivedLog(MemoryDirectory("/other"), directory)
    log.fill(4)
    for name in log.archive.names():
        log.archive.unlink(name)
    log.options["archive_limits"] = ArchiveLimits(max_bytes=SIZE)
    log.retire()
    log.journal.close()
    free = {slot for slot, head in LogReader(directory).heads.by_slot.items() if slot < 4}
    archive = directory.beside("/archive")
    journal = reopen(directory, archive=archive)[0]
    assert set(archived_slots(archive)) == free
    opening = journal.extent.current_slot  # it contains nothing else, so the next opening retires it
    journal.close()
    assert reopen(directory, archive=archive)[0].pool.archiver is not None
    assert set(archived_slots(archive)) == free | {opening}


def test_what_was_being_used_again_is_not_taken_for_history() -> None:
    """A power failure during the reuse of a free container leaves its old header, but not all of its blocks."""
    log = on_two_disks()
    directory = log.directory
    log.fill(4)
    log.retire()
    log.journal.close()
    reader = LogReader(directory)
    left = [slot for slot in reader.heads.by_slot if slot not in reader.slots]
    assert left
    for slot in left:
        patch(directory, container_of(directory, slot), 1024, b"x" * 1024)
    archive = directory.beside("/archive")
    reopen(directory, archive=archive)
    assert archived_slots(archive) == []


def test_a_file_with_a_second_name_is_not_written_to() -> None:
    """A file with a second name stays unchanged, also if a power cut left files of a former archive here."""
    directory = MemoryDirectory()
    journal = new_log(directory)[1]
    elsewhere = directory.beside("/elsewhere")
    free = next(name for name in directory.names() if file_number(name) not in (None, *journal.pool.slots().values()))
    journal.close()
    directory.link(free, elsewhere, "mine")
    before = content(elsewhere)
    journal = reopen(directory)[0]
    assert free not in directory.names() or directory.link_count(free) == 1
    for _ in range(60):
        journal.append(1, bytes(60_000), time_us=1)
        journal.flush()
    assert content(elsewhere) == before
