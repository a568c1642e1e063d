"""Tests of archive faults: the log continues, missing history is reported, and archived containers are complete."""

from __future__ import annotations

import errno
import random
import threading

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cairnmq.base.disk.seam import Directory
from cairnmq.base.testing.faulty_disk import Fault, FaultyDirectory, Plan, ever_after, once
from cairnmq.base.testing.manual_clock import ManualClock
from cairnmq.base.testing.memory_disk import MemoryDirectory
from cairnmq.journal.files import archiver as archiver_module
from cairnmq.journal.files import space_reserve as room
from cairnmq.journal.files.archive import ROOM_BYTES, archived_lsn
from cairnmq.journal.write.flusher import Flusher
from tests.harness.journal.archives import ArchivedLog, archived_slots, history, on_one_disk, work
from tests.harness.journal.logs import BIG, SIZE, read_all, reopen

FULL = Fault(errno.ENOSPC, 0.5)


def faulty(plan: Plan | None, *, one_disk: bool, clock: ManualClock | None = None) -> ArchivedLog:
    directory = MemoryDirectory()
    inner = directory.beside("/archive") if one_disk else MemoryDirectory("/archive")
    log = ArchivedLog(FaultyDirectory(inner), directory, clock=clock or ManualClock())
    assert isinstance(log.archive, FaultyDirectory)
    log.archive.plan = plan
    return log


def test_a_full_archive_disk_stops_nothing_and_is_told(caplog: pytest.LogCaptureFixture) -> None:
    clock = ManualClock()
    log = faulty(None, one_disk=False, clock=clock)
    assert isinstance(log.archive, FaultyDirectory)
    log.fill(2)
    log.retire()
    log.archive.plan = ever_after(1, FULL, {"create", "write"})
    for _ in range(3):
        log.fill(2)
        log.retire()
    assert log.archiver.dropped == 6
    assert "no space left" in str(log.archiver.failure)
    assert f"history is missing from the archive /archive: 1 container of LSN {2 * SIZE} to {3 * SIZE}" in caplog.text
    assert caplog.text.count("history is missing") == 1, "not once for each container"
    log.archive.plan = None
    log.fill(2)
    log.retire()
    assert log.archiver.failure is None
    log.archiver.stop()
    assert f"5 containers of LSN {3 * SIZE} to {8 * SIZE}" in caplog.text
    assert archived_slots(log.archive) == [0, 1, 8, 9]
    assert [name for name in log.archive.names() if name.endswith(".new")] == []


@given(
    seed=st.integers(0, 2**32),
    call=st.integers(1, 60),
    forever=st.booleans(),
    one_disk=st.booleans(),
    code=st.sampled_from([errno.EIO, errno.ENOSPC, errno.EROFS]),
)
@settings(max_examples=40)
def test_an_error_at_any_call_costs_history_at_most(
    seed: int, call: int, forever: bool, one_disk: bool, code: int
) -> None:
    log = faulty((ever_after if forever else once)(call, Fault(code, 0.5)), one_disk=one_disk)
    rng = random.Random(seed)
    for _ in range(12):
        log.fill(rng.randint(1, 2))
        log.retire(*rng.sample(list(log.journal.extent.slots)[:-1], 1))
    assert isinstance(log.archive, FaultyDirectory)
    inner = log.archive.inner
    kept = {slot * SIZE for slot in (*archived_slots(inner), *log.journal.extent.slots)}
    assert history(inner, log.directory) == [item for item in log.appended if item[0] // SIZE * SIZE in kept]
    expected = set(range(max(log.journal.extent.slots) + 1))
    assert len(expected - {lsn // SIZE for lsn in kept}) <= log.archiver.dropped


class SmallDisk(MemoryDirectory):
    free = 1 << 40

    def free_bytes(self) -> int:
        return self.free


def test_the_last_room_on_the_disk_is_the_logs(caplog: pytest.LogCaptureFixture) -> None:
    """A container that moves costs the log a new one; without disk space for it, the container is reused instead."""
    directory = SmallDisk()
    log = ArchivedLog(directory.beside("/archive"), directory)
    directory.free = ROOM_BYTES - 1
    log.fill(3)
    log.retire()
    assert archived_slots(log.archive) == []
    assert log.archiver.dropped == 3
    assert "the log needs the room that is left on the disk; free some space" in caplog.text
    directory.free = ROOM_BYTES
    log.fill(3)
    log.retire()
    assert archived_slots(log.archive) == [3, 4, 5]


class Stuck(MemoryDirectory):
    """A disk whose syncs wait for an event."""

    def __init__(self) -> None:
        super().__init__("/archive")
        self.reached = threading.Event()
        self.free = threading.Event()

    def sync(self) -> None:
        self.reached.set()
        assert self.free.wait(180)
        super().sync()


class Threads:
    """A log with running flusher threads."""

    def __init__(self, log: ArchivedLog) -> None:
        self.log = log
        self.durable = threading.Condition()
        self.flusher = Flusher(log.journal, self._became_durable, self._failed)
        self.failure: Exception | None = None

    def _became_durable(self, _: int) -> None:
        with self.durable:
            self.durable.notify_all()

    def _failed(self, error: Exception) -> None:
        self.failure = error

    def flush(self) -> None:
        self.flusher.kick()
        wanted = self.log.journal.next_lsn
        with self.durable:
            assert self.durable.wait_for(lambda: self.log.journal.writer.durable_lsn >= wanted, 180)
        assert self.failure is None

    def fill(self, slots: int) -> None:
        last = next(reversed(self.log.journal.extent.slots)) + slots
        while next(reversed(self.log.journal.extent.slots)) < last:
            self.log.put()
            self.flush()

    def retire(self) -> None:
        self.log.journal.retire(list(self.log.journal.extent.slots)[:-1])
        self.log.put(1)
        self.flush()


def test_an_archive_that_hangs_stops_nothing(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(archiver_module, "WAITING_BYTES", 5 * SIZE)
    stuck = Stuck()
    log = ArchivedLog(stuck, MemoryDirectory())
    running = Threads(log)
    running.fill(2)
    running.retire()
    assert stuck.reached.wait(180)
    for _ in range(5):
        running.fill(2)
        running.retire()
    assert log.archiver.waiting <= 5
    assert log.archiver.dropped >= 4
    assert "the archive can't keep up" in caplog.text
    assert len(log.directory.names()) < 14 + room.reserve(SIZE, 0), "what is dropped is used again"
    stuck.free.set()
    running.flusher.stop()
    log.journal.close()
    reopened, _, found = reopen(log.directory, archive=stuck)
    assert [read.payload for read in found if read.head.type == 1] == [
        payload for lsn, payload in log.appended if lsn >= reopened.extent.base_lsn
    ]
    kept = {*archived_slots(stuck), *reopened.extent.slots}
    assert history(stuck, log.directory) == [item for item in log.appended if item[0] // SIZE in kept]


def test_what_waited_at_the_end_is_archived_at_the_next_opening() -> None:
    stuck = Stuck()
    log = ArchivedLog(stuck, MemoryDirectory())
    running = Threads(log)
    running.fill(5)
    running.retire()
    assert stuck.reached.wait(180)
    assert log.archiver.waiting == 4
    log.archiver._stopping = True
    stuck.free.set()
    running.flusher.stop()
    log.journal.close()
    assert len(archived_slots(stuck)) == 1
    reopen(log.directory, archive=stuck)
    assert archived_slots(stuck) == [0, 1, 2, 3, 4]
    assert history(stuck, log.directory) == log.appended


def check_cut(disk: MemoryDirectory, other: Directory | None, durable: int, appended: list[tuple[int, bytes]]) -> None:
    """Check a disk after a power cut: the archive is complete, or becomes so when the log is opened."""
    archive = other or disk.beside("/archive")
    again = ArchivedLog.__new__(ArchivedLog)
    again.directory, again.archive, again.options = disk, archive, {}
    again.journal, report, _ = reopen(disk, archive=archive)
    again.appended = [item for item in appended if item[0] < report.end_lsn]
    assert [item for item in again.appended if item[0] < durable] == [item for item in appended if item[0] < durable]
    assert history(archive, disk) == again.appended
    assert again.archiver.dropped == 0
    before = {name: archive.open(name).read_at(0, SIZE) for name in archive.names()}
    again.fill(2)
    again.retire()
    again.fill(2)
    assert history(archive, disk) == again.appended
    assert all(archive.open(name).read_at(0, SIZE) == data for name, data in before.items())


@given(seed=st.integers(0, 2**32), ordered=st.booleans())
@settings(max_examples=15)
def test_a_power_cut_at_any_step_loses_no_history_on_one_disk(seed: int, ordered: bool) -> None:
    rng = random.Random(seed)
    log = on_one_disk()
    held: list[tuple[MemoryDirectory, int, list[tuple[int, bytes]]]] = []

    def hold(_: str) -> None:
        held.append((log.directory.after_kill(), log.journal.writer.durable_lsn, list(log.appended)))

    log.directory.on_operation = hold
    assert isinstance(log.archive, MemoryDirectory)
    log.archive.on_operation = hold
    work(log, rng, 8)
    for disk, durable, appended in rng.sample(held, min(len(held), 4)):
        check_cut(disk.after_power_cut(rng, ordered=ordered), None, durable, appended)


@given(seed=st.integers(0, 2**32))
@settings(max_examples=15)
def test_a_power_cut_at_any_step_loses_no_history_on_two_disks(seed: int) -> None:
    rng = random.Random(seed)
    archive = MemoryDirectory("/archive")
    log = ArchivedLog(archive, MemoryDirectory())
    held: list[tuple[MemoryDirectory, MemoryDirectory, int, list[tuple[int, bytes]]]] = []

    def hold(_: str) -> None:
        moment = (log.directory.after_kill(), archive.after_kill(), log.journal.writer.durable_lsn, list(log.appended))
        held.append(moment)

    log.directory.on_operation = hold
    archive.on_operation = hold
    work(log, rng, 8)
    for disk, other, durable, appended in rng.sample(held, min(len(held), 4)):
        check_cut(disk.after_power_cut(rng), other.after_power_cut(rng), durable, appended)


def test_an_archive_that_was_given_up_after_a_power_cut_stays_whole() -> None:
    """A power cut may leave a container with both names, and the log is then opened without the archive."""
    log = on_one_disk()
    log.fill(3)
    moments: list[MemoryDirectory] = []
    log.directory.on_operation = lambda operation: moments.append(log.directory.after_kill())
    log.retire()
    seen = 0
    for moment in moments:
        cut = moment.after_power_cut(lambda item: item.kind != "unlink")
        archive = cut.beside("/archive")
        before = {
            name: archive.open(name).read_at(0, SIZE) for name in archive.names() if archived_lsn(name) is not None
        }
        seen += sum(archive.link_count(name) == 2 for name in before)
        journal = reopen(cut)[0]
        for _ in range(40):
            journal.append(1, BIG, time_us=1)
            journal.flush()
        assert {name: archive.open(name).read_at(0, SIZE) for name in before} == before
        assert read_all(cut)
    assert seen
