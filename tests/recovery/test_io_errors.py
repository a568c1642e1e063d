"""Tests of I/O errors at any call, once or permanently: they are reported, no later operation is confirmed, and the
next start finds the correct state.

Data that the kernel shows after a failed sync may not be on the disk, even if a later sync succeeds
(`MemoryFile.sync_failed`), so each state is recovered after a kill, and then after a power cut.
"""

from __future__ import annotations

from collections.abc import Callable
from os import environ

import pytest

from cairnmq.base.disk.seam import Directory
from cairnmq.base.errors import DiskError
from cairnmq.base.testing.faulty_disk import FaultyDirectory
from cairnmq.base.testing.memory_disk import MemoryDirectory
from cairnmq.journal.read.scanner import LogReader
from cairnmq.journal.write import open as opening
from cairnmq.journal.write.log_writer import LogWriter
from tests.harness.recovery.checker import Broken
from tests.harness.recovery.cores import on_all_cores
from tests.harness.recovery.explorer import Explorer
from tests.harness.recovery.io_errors import Case, Outcomes, all_errors, cases, run
from tests.harness.recovery.workload import workload
from tests.harness.recovery.world import World
from tests.harness.thorough import THOROUGH

SEED = int(environ.get("CAIRN_SEED", "1"))
LIVES = 2
PARTS = 31
"""The number of parts of the cases of a run; it shares no divisor with the eight errors of a call."""
DONE = PARTS if THOROUGH else 3


@pytest.fixture
def explorer() -> Explorer:
    return Explorer()


@pytest.mark.timeout(0)  # yields the cores to other tests
def test_every_error_at_every_call(tell: Callable[[str], None]) -> None:
    """The containers are small; a thorough run tests every call of these runs."""
    total = Outcomes()
    parts = ((SEED, number, part, PARTS) for number in range(LIVES) for part in range(DONE))
    for outcomes in on_all_cores(all_errors, parts):
        total.add(outcomes)
    tell("\n".join(total.lines()))
    assert abs(total.told.total() - total.calls * 8 * DONE / PARTS) < DONE * LIVES
    assert len(total.faults) == 4
    assert min(total.told[name] for name in ("JournalFailed", "DiskError", "DiskFull")) > 100 * DONE // PARTS


# ---- at the real container size, with SQLite ------------------------------------------------------------------------


def calls() -> list[str]:
    """Return the kind of every call of the workload."""
    world = World(MemoryDirectory())
    faulty = world.through = FaultyDirectory(world.disk)
    workload(world)
    return [call.kind for call in faulty.calls]


def test_an_error_at_any_call(explorer: Explorer) -> None:
    every = list(cases(len(calls())))
    for case in every[:: len(every) // 60]:
        run(World(MemoryDirectory()), workload, case, explorer)


def test_a_failed_sync_is_never_tried_again(explorer: Explorer) -> None:
    """After a sync of the workload has failed once, the process confirms nothing more."""
    syncs = [number for number, kind in enumerate(calls(), 1) if kind == "sync"]
    for number in syncs[::4]:
        run(World(MemoryDirectory()), workload, Case(number, "EIO", False), explorer)


# ---- seeded defects -------------------------------------------------------------------------------------------------


def test_a_journal_that_tries_again_is_found(monkeypatch: pytest.MonkeyPatch, explorer: Explorer) -> None:
    real = LogWriter._write_blocks

    def stubborn(self: LogWriter) -> tuple[int, int, tuple[int, int, int]]:
        waiting = list(self.sealed)
        try:
            return real(self)
        except DiskError:
            assert self._writing.file is not None
            self._writing.file.sync()
            return waiting[-1].end_lsn, self._extent.base_lsn, (waiting[-1].lsn, 0, waiting[-1].end_lsn)

    monkeypatch.setattr(LogWriter, "_write_blocks", stubborn)
    with pytest.raises(Broken, match=r"I1|I4"):
        test_a_failed_sync_is_never_tried_again(explorer)


def test_a_recovery_that_trusts_the_page_cache_is_found(monkeypatch: pytest.MonkeyPatch, explorer: Explorer) -> None:
    """The defect syncs the files that it finds, and neither bypasses the page cache nor copies."""

    def trusting(directory: Directory) -> LogReader:
        for name in directory.names():
            file = directory.open(name, writable=True)
            file.sync()
            file.close()
        return LogReader(directory, live=False)

    monkeypatch.setattr(opening, "forget_unproven", trusting)
    monkeypatch.setattr(opening, "copy_slots", lambda *args: None)
    with pytest.raises(Broken, match=r"I9|I10"):
        test_a_failed_sync_is_never_tried_again(explorer)
