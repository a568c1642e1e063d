"""Tests of flushes that go through several containers."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from cairnmq.base.disk.real import RealDirectory
from cairnmq.base.disk.seam import Directory
from cairnmq.base.errors import JournalFailed
from cairnmq.base.testing.faulty_disk import DiskCall, Fault, FaultyDirectory
from cairnmq.base.testing.manual_clock import ManualClock
from cairnmq.base.testing.memory_disk import MemoryDirectory
from cairnmq.journal.format.container import file_name
from cairnmq.journal.write.journal import Journal
from cairnmq.journal.write.open import MIN_CONTAINER_BYTES, format_log, open_log
from tests.harness.journal.logs import LOG_UUID, put, read_all

DEADLINE_S = 180.0
CONTAINERS = 4
PIECE = bytes(60_000)
PIECES = CONTAINERS * (MIN_CONTAINER_BYTES // len(PIECE))
either = pytest.mark.parametrize("syncers", [0, 2], ids=["by the writer", "beside it"])


def new_journal(directory: Directory, syncers: int) -> Journal:
    format_log(directory, MIN_CONTAINER_BYTES, LOG_UUID, 1)
    return open_log(
        directory, ManualClock(), visit=lambda block: None, initial_containers=CONTAINERS + 1, max_write_buffers=0,
        syncers=syncers,
    )[0]  # fmt: skip


def append_through_all(journal: Journal) -> None:
    """Append records that fill about `CONTAINERS` containers."""
    for _ in range(PIECES):
        put(journal, PIECE)


def syncs(calls: list[DiskCall]) -> list[str]:
    return [call.name for call in calls if call.kind == "sync"]


@either
def test_each_container_is_synced_once(tmp_path: Path, syncers: int) -> None:
    directory = FaultyDirectory(RealDirectory(str(tmp_path)))
    journal = new_journal(directory, syncers)
    directory.calls.clear()
    append_through_all(journal)
    assert journal.flush() == journal.next_lsn
    written = {call.name for call in directory.calls if call.kind == "write" and call.name.endswith(".cairn")}
    assert len(written) == CONTAINERS
    assert sorted(name for name in syncs(directory.calls) if name in written) == sorted(written)
    journal.close()
    assert [read.payload for read in read_all(directory)].count(PIECE) == PIECES


def test_nothing_is_durable_before_all_is() -> None:
    """The sync of one container is slow, and all others are done."""
    go_on, done = threading.Event(), threading.Event()
    in_sync = threading.Event()
    slow: list[str] = []

    def plan(call: DiskCall) -> Fault | None:
        if slow and call.kind == "sync" and call.name == slow[0]:
            in_sync.set()
            assert go_on.wait(DEADLINE_S)
        return None

    directory = FaultyDirectory(MemoryDirectory(), plan)
    journal = new_journal(directory, 2)
    before = journal.writer.durable_lsn
    append_through_all(journal)
    slow.append(container_written_first(journal))

    def flush() -> None:
        journal.flush()
        done.set()

    thread = threading.Thread(target=flush)
    thread.start()
    assert in_sync.wait(DEADLINE_S)
    assert journal.writer.durable_lsn == before
    assert not done.is_set()
    go_on.set()
    thread.join(DEADLINE_S)
    assert done.is_set()
    assert journal.writer.durable_lsn == journal.next_lsn
    journal.abandon()


@either
@pytest.mark.parametrize("which", range(CONTAINERS))
def test_one_failed_sync_fails_them_all(syncers: int, which: int) -> None:
    names: list[str] = []

    def plan(call: DiskCall) -> Fault | None:
        if not names or call.kind != "sync" or not call.name.endswith(".cairn"):
            return None
        names.append(call.name)
        return Fault() if len(names) == which + 2 else None

    directory = FaultyDirectory(MemoryDirectory(), plan)
    journal = new_journal(directory, syncers)
    before = journal.writer.durable_lsn
    append_through_all(journal)
    names.append("armed")
    with pytest.raises(JournalFailed, match="Input/output error"):
        journal.flush()
    assert journal.writer.durable_lsn == before
    put(journal, b"later")
    with pytest.raises(JournalFailed):
        journal.flush()
    journal.abandon()


def container_written_first(journal: Journal) -> str:
    """Return the file name of the log's first container, which a flush leaves first."""
    return file_name(journal.pool.slots()[min(journal.pool.slots())])
