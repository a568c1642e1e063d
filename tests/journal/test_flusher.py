"""Tests of the flusher threads: kicks make records durable, full buffers block appenders, errors are reported once."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from errno import EDQUOT, EFBIG, EIO, ENOSPC
from queue import SimpleQueue

import pytest

from cairnmq.base.disk.seam import Directory
from cairnmq.base.errors import JournalError, JournalFailed
from cairnmq.base.testing.faulty_disk import DiskCall, Fault, FaultyDirectory, Plan
from cairnmq.base.testing.memory_disk import MemoryDirectory
from cairnmq.journal.files import space_reserve as room
from cairnmq.journal.format import log_mark as mark
from cairnmq.journal.format.container import file_number
from cairnmq.journal.write import flusher as flusher_module
from cairnmq.journal.write.flusher import Flusher
from cairnmq.journal.write.journal import Journal
from tests.harness.journal.logs import BIG, SIZE, advance_base, container_of, new_log, put, read_all, reopen

SOON_S = 180
"""A time limit for threads on a busy machine, which no successful test reaches."""


class Owner:
    """A flusher whose reports can be awaited."""

    def __init__(self, journal: Journal) -> None:
        self.journal = journal
        self.durable: SimpleQueue[int] = SimpleQueue()
        self.failures: SimpleQueue[JournalError] = SimpleQueue()
        self.flusher = Flusher(journal, self.durable.put, self.failures.put)

    def until_durable(self, lsn: int) -> list[int]:
        """Kick, and again after each flush, until *lsn* is durable; return the reported LSNs."""
        told = []
        self.flusher.kick()
        while self.journal.writer.durable_lsn <= lsn:
            told.append(self.durable.get(timeout=SOON_S))
            self.flusher.kick()
        return told

    def failed_or_durable(self, lsn: int) -> Callable[[], bool]:
        return lambda: self.journal.writer.durable_lsn > lsn or not self.failures.empty()


@contextmanager
def owner(directory: Directory | None = None, *, buffers: int = 10) -> Iterator[Owner]:
    _, journal = new_log(directory, buffers=buffers)
    made = Owner(journal)
    try:
        assert wait_for(lambda: not journal.pool.lacks_spare())  # the reserve exists
        yield made
    finally:
        made.flusher.stop()


def put_without_end(journal: Journal) -> None:
    """Append records without checking for a failure, until an error is raised."""
    for _ in range(1000):
        put(journal, BIG)


def fail(kind: str, from_now: FaultyDirectory, errno: int = EIO, once: bool = False) -> Plan:
    """Return a plan that fails all further calls of *kind* on containers, or only the next one."""
    failed: list[int] = []

    def plan(call: DiskCall) -> Fault | None:
        if call.kind != kind or call.name == mark.NAME or (once and failed):
            return None
        failed.append(call.number)
        return Fault(errno)

    return plan


def test_everything_kicked_becomes_durable() -> None:
    directory = MemoryDirectory()
    with owner(directory) as own:
        told: list[int] = []
        for number in range(300):
            lsn = put(own.journal, b"%d" % number)
            own.flusher.kick()
            if number % 50 == 49:
                told += own.until_durable(lsn)
        told += own.until_durable(lsn)
        assert told == sorted(set(told))  # each flush is reported once, with rising LSNs
        assert told[-1] == own.journal.writer.durable_lsn > lsn
        assert own.journal.writer.meters.written.flushes <= 300
    assert [read.payload for read in read_all(directory)] == [b"%d" % number for number in range(300)]


def test_a_kick_while_a_flush_runs_is_served_by_the_next() -> None:
    """Records that are appended meanwhile go into one block: the natural group."""
    directory = MemoryDirectory()
    with owner(directory) as own:
        begun, go_on = threading.Event(), threading.Event()

        def gate(operation: str) -> None:
            if operation.startswith("write"):
                begun.set()
                assert go_on.wait(SOON_S)

        directory.on_operation = gate
        put(own.journal, b"first")
        own.flusher.kick()
        assert begun.wait(SOON_S)
        lsns = [put(own.journal, b"meanwhile") for _ in range(100)]
        own.flusher.kick()
        assert own.journal.writer.durable_lsn < lsns[0]
        directory.on_operation = None
        go_on.set()
        assert len(own.until_durable(lsns[-1])) == 2
        # one for the opening, one for the first record, and one for all the others
        assert own.journal.writer.meters.written.flushes == 3


def test_no_more_than_max_write_buffers_wait() -> None:
    """E61: the appender waits for the writer."""
    directory = MemoryDirectory()
    with owner(directory, buffers=2) as own:
        waits, go_on = threading.Event(), threading.Event()

        def gate(operation: str) -> None:
            assert go_on.wait(SOON_S)

        directory.on_operation = gate
        inner = own.journal.wait_for_writer
        assert inner is not None

        def tell(full: Callable[[], bool]) -> None:
            waits.set()
            inner(full)
            assert len(own.journal.writer.sealed) <= 2

        own.journal.wait_for_writer = tell
        lsns: list[int] = []
        appender = threading.Thread(target=lambda: lsns.extend(put(own.journal, BIG) for _ in range(60)))
        appender.start()
        try:
            assert waits.wait(SOON_S)
            assert appender.is_alive()
            assert len(own.journal.writer.sealed) <= 2
            assert len(lsns) < 60
        finally:
            go_on.set()
        appender.join(SOON_S)
        assert not appender.is_alive()
        own.until_durable(lsns[-1])
    assert [read.lsn for read in read_all(directory)] == lsns


def test_a_bell_for_room_does_not_leave_a_later_kick_unserved() -> None:
    """The writer may be woken for room and write a block between the seal and the wake-up of the kick."""
    with owner() as own:
        seal = own.journal.seal

        def seal_and_be_overtaken() -> bool:
            sealed = seal()
            own.flusher._wait_for_room(lambda: len(own.journal.writer.sealed) > 0)
            own.durable.get(timeout=SOON_S)
            return sealed

        own.journal.seal = seal_and_be_overtaken  # type: ignore[method-assign]
        put(own.journal, b"first")
        own.flusher.kick()
        own.journal.seal = seal  # type: ignore[method-assign]
        lsn = put(own.journal, b"second")

        def is_durable() -> bool:
            own.flusher.kick()
            return own.journal.writer.durable_lsn > lsn

        assert wait_for(is_durable)


@pytest.mark.parametrize("kind", ["write", "sync"])
@pytest.mark.parametrize("once", [True, False])
def test_a_failure_is_told_once_and_nothing_is_confirmed_after_it(kind: str, once: bool) -> None:
    """The disk may work again at once, but the journal does not."""
    inner = MemoryDirectory()
    directory = FaultyDirectory(inner)
    with owner(directory) as own:
        safe = put(own.journal, b"safe")
        own.until_durable(safe)
        durable_lsn = own.journal.writer.durable_lsn
        directory.plan = fail(kind, directory, once=once)
        put(own.journal, b"never confirmed")
        own.flusher.kick()
        error = own.failures.get(timeout=SOON_S)
        assert isinstance(error, JournalFailed)
        assert "nothing more is confirmed; restart the broker to recover" in str(error)
        directory.plan = None
        put(own.journal, b"nor this")
        own.flusher.kick()
        for _ in range(3):
            with pytest.raises(JournalFailed):
                own.journal.flush()
            with pytest.raises(JournalFailed):
                own.journal.writer.write_out()
        with pytest.raises(JournalFailed):
            put_without_end(own.journal)
        own.journal.writer.write_mark()
        assert own.journal.writer.durable_lsn == durable_lsn
        assert own.durable.empty()
        assert own.failures.empty()
    own.journal.close()
    found = mark.read(inner)
    assert found is not None
    assert not found.closed
    assert [read.payload for read in reopen(inner.after_power_cut([]))[2]] == [b"safe"]


def test_an_appender_that_waits_for_room_hears_of_the_failure() -> None:
    inner = MemoryDirectory()
    directory = FaultyDirectory(inner)
    with owner(directory, buffers=1) as own:
        directory.plan = fail("sync", directory)
        with pytest.raises(JournalFailed):
            put_without_end(own.journal)
        assert isinstance(own.failures.get(timeout=SOON_S), JournalFailed)


def test_a_container_that_can_not_be_given_back_stops_nothing() -> None:
    """E62: trimming is best effort."""
    inner = MemoryDirectory()
    directory = FaultyDirectory(inner)
    with owner(directory) as own:
        while len(own.journal.pool.slots()) < 8:
            own.until_durable(put(own.journal, BIG))
        directory.plan = fail("unlink", directory)
        advance_base(own.journal, 7 * SIZE)
        own.until_durable(put(own.journal, b"carries the base"))
        own.until_durable(put(own.journal, b"goes on"))
        assert "unlink" in [call.kind for call in directory.calls]
        assert own.failures.empty()
    assert [read.payload for read in reopen(inner)[2]][-1] == b"goes on"


def test_an_idle_log_writes_its_mark(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flusher_module, "IDLE_MARK_S", 0.01)
    directory = MemoryDirectory()
    written = threading.Event()
    with owner(directory) as own:
        lsn = put(own.journal, b"x")
        own.until_durable(lsn)
        directory.on_operation = lambda operation: written.set() if operation == f"sync {mark.NAME}" else None
        durable_lsn = own.journal.writer.durable_lsn
        found = mark.read(directory)
        if found is None or found.durable_lsn != durable_lsn:
            assert written.wait(SOON_S)
        directory.on_operation = None
    found = mark.read(directory.after_power_cut([]))
    assert found is not None
    assert found.durable_lsn == durable_lsn
    assert not found.closed


def test_a_mark_that_can_not_be_written_costs_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flusher_module, "IDLE_MARK_S", 0.01)
    inner = MemoryDirectory()
    directory = FaultyDirectory(inner)
    tried = threading.Event()

    def plan(call: DiskCall) -> Fault | None:
        if call.kind == "write" and call.name == mark.NAME:
            tried.set()
            return Fault(EIO)
        return None

    with owner(directory) as own:
        directory.plan = plan
        own.until_durable(put(own.journal, b"x"))
        assert tried.wait(SOON_S)
        own.until_durable(put(own.journal, b"y"))
        assert own.failures.empty()


@pytest.mark.parametrize("call", ["create", "write", "sync", "rename", "sync_names"])
@pytest.mark.parametrize("number", [ENOSPC, EDQUOT, EFBIG])
def test_a_full_disk_is_told_and_left_without_remains(monkeypatch: pytest.MonkeyPatch, call: str, number: int) -> None:
    """The writer continues in the reserve; the end of the full state is reported as well."""
    monkeypatch.setattr(flusher_module, "FULL_RETRY_S", 0.01)
    inner = MemoryDirectory()
    directory = FaultyDirectory(inner)

    def plan(made: DiskCall) -> Fault | None:
        mine = made.name.endswith(".new") or made.kind == "sync_names"
        if not mine or made.kind != call:
            return None
        tried.put(made)
        return Fault(number, 0.5)

    tried: SimpleQueue[DiskCall] = SimpleQueue()
    again = threading.Event()
    with owner(directory) as own:
        pool = own.journal.pool
        pool.on_room = again.set
        directory.plan = plan
        while pool.find_room() is None:
            own.until_durable(put(own.journal, BIG))
        for _ in range(2):
            tried.get(timeout=SOON_S)  # the second attempt comes after the first was reported
        assert pool.full is not None
        assert "no space left" in pool.full.reason
        assert pool.unclaimed >= room.reserve(SIZE, len(pool.slots())) - 1
        while pool.unclaimed > room.FOR_OPENINGS:
            own.until_durable(put(own.journal, BIG))
        assert not again.is_set()
        directory.plan = None
        assert again.wait(SOON_S)
        assert pool.find_room() is None
        assert not pool.lacks_spare()
        assert pool.spare >= room.SPARES_TO_RESUME
        left = [name for name in inner.names() if name != mark.NAME]
        assert len(left) == len(pool.slots()) + pool.free_count
        assert all(file_number(name) is not None for name in left)


def test_the_last_containers_are_for_openings() -> None:
    """When the reserve is used up, the journal fails, and the last containers remain for openings after kills."""
    inner = MemoryDirectory()
    directory = FaultyDirectory(inner)
    with owner(directory) as own:
        directory.plan = lambda call: Fault(ENOSPC) if call.kind == "create" else None
        lsns: list[int] = []
        while own.failures.empty():
            lsn = put(own.journal, BIG)
            own.flusher.kick()
            assert wait_for(own.failed_or_durable(lsn))
            lsns += [lsn] if own.journal.writer.durable_lsn > lsn else []
        assert "no space left" in str(own.failures.get())
        assert own.journal.pool.free_count == room.FOR_OPENINGS
    for _ in range(3):
        journal, _, found = reopen(directory)
        assert [read.lsn for read in found] == lsns
        journal.abandon()


class Disk(MemoryDirectory):
    """A disk with an adjustable amount of free space."""

    free = 1 << 40

    def free_bytes(self) -> int:
        return self.free


def test_a_disk_that_is_nearly_full_is_told_and_works_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """The low state has hysteresis, and its end is detected without any traffic."""
    monkeypatch.setattr(flusher_module, "FULL_RETRY_S", 0.01)
    directory = Disk()
    with owner(directory) as own:
        pool = own.journal.pool
        low, high = room.low_water(SIZE), room.high_water(SIZE)
        assert wait_for(lambda: not pool.lacks_spare())
        assert pool.low is None
        directory.free = low - pool.spare * SIZE - 1
        own.until_durable(put(own.journal, b"x"))
        assert wait_for(lambda: pool.low is not None)
        assert "4 MiB are left on the disk" in str(pool.low)
        own.until_durable(put(own.journal, b"still written"))
        directory.free = high - pool.spare * SIZE - 1
        own.until_durable(put(own.journal, b"still low"))
        assert pool.low is not None
        directory.free = high - pool.spare * SIZE
        assert wait_for(lambda: pool.low is None)
    directory.free = 0
    assert reopen(directory)[0].pool.low is not None


@pytest.mark.parametrize("hurt", ["mark", "container"])
def test_files_that_are_taken_away_end_the_journal(monkeypatch: pytest.MonkeyPatch, hurt: str) -> None:
    """An idle journal ends as well: records that would go to these files are not confirmed."""
    monkeypatch.setattr(flusher_module, "CHECK_S", 0.01)
    directory = MemoryDirectory()
    with owner(directory) as own:
        own.until_durable(put(own.journal, b"x"))
        slot = own.journal.writer.durable_lsn // SIZE
        directory.unlink(mark.NAME if hurt == "mark" else container_of(directory, slot))
        failure = own.failures.get(timeout=SOON_S)
        assert "removed, replaced or unmounted" in str(failure)
        put(own.journal, b"y")
        with pytest.raises(JournalFailed):
            own.journal.seal()


def wait_for(what: Callable[[], bool]) -> bool:
    never = threading.Event()
    for _ in range(SOON_S * 100):
        if what():
            return True
        never.wait(0.01)
    return False
