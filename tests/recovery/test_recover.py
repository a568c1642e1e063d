"""Tests of opening a store: consistent files are opened and reported, others are refused and not changed."""

from __future__ import annotations

import shutil
import struct
from collections.abc import Callable
from errno import EIO
from pathlib import Path

import pytest

from cairnmq.base.errors import CairnError, CorruptJournal, DiskError, DiskFull, ForeignStore
from cairnmq.base.testing.faulty_disk import DiskCall, Fault, FaultyDirectory
from cairnmq.base.testing.manual_clock import ManualClock
from cairnmq.base.testing.memory_disk import MemoryDirectory
from cairnmq.journal.format import container
from cairnmq.journal.format import log_mark as mark
from cairnmq.journal.format.container import file_name
from cairnmq.journal.read.scanner import LogReader
from cairnmq.journal.write.open import open_log
from cairnmq.recovery.recover import open_store, recover
from cairnmq.store.contract.options import StoreOptions
from cairnmq.store.contract.wiring_rows import QueueRow
from cairnmq.store.journaled.store import JournalStore
from tests.harness.journal.logs import with_crc
from tests.harness.recovery.checker import content_of
from tests.harness.recovery.world import OPTIONS, MemoryWiring

SMALL = StoreOptions(container_bytes=1)


def queue(store: JournalStore, name: str) -> int:
    made: list[QueueRow | Exception] = []
    store.create_queue(name, made.append)
    assert isinstance(made[0], QueueRow)
    return made[0].id


def make(path: Path, messages: int = 3) -> None:
    """Create a store without a checkpoint, so that its log is read from its base."""
    store, _ = open_store(str(path), ManualClock(), SMALL)
    q = queue(store, "q")
    for number in range(messages):
        store.put(q, b"message %d" % number, 1)
        store.kick()
    store.close()
    shutil.rmtree(path / "checkpoint")


def tree(path: Path) -> dict[str, bytes | None]:
    """Return the bytes of every file but the lock, which contains the ID of the last process that tried."""
    return {
        str(found.relative_to(path)): None if found.is_dir() else found.read_bytes()
        for found in path.rglob("*")
        if found.name != "lock"
    }


def overwrite(path: Path, at: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        file.write(data)


def newer_mark(path: Path) -> None:
    file = path / "journal" / mark.NAME
    for place in mark.PLACES:
        data = file.read_bytes()[place : place + 512]
        overwrite(file, place, with_crc(data[:8] + struct.pack("<H", 2) + data[10:], mark.HEAD.size))


def newer_container(path: Path) -> None:
    file = path / "journal" / "00000001.cairn"
    data = file.read_bytes()[:512]
    overwrite(file, 0, with_crc(data[:8] + struct.pack("<H", 2) + data[10:], container.HEAD.size))


def foreign_journal(path: Path) -> None:
    make(path.parent / "other")
    shutil.rmtree(path / "journal")
    shutil.copytree(path.parent / "other" / "journal", path / "journal")


def foreign_wiring(path: Path) -> None:
    make(path.parent / "other")
    shutil.copy(path.parent / "other" / "wiring.sqlite", path / "wiring.sqlite")


def lost_journal(path: Path) -> None:
    shutil.rmtree(path / "journal")
    (path / "journal").mkdir(mode=0o700)


def lost_mark(path: Path) -> None:
    (path / "journal" / mark.NAME).unlink()


def rotten_mark(path: Path) -> None:
    for place in mark.PLACES:
        overwrite(path / "journal" / mark.NAME, place + 40, b"rot")


def rotten_block(path: Path) -> None:
    overwrite(path / "journal" / "00000001.cairn", 1100, b"rot")


def lost_container(path: Path) -> None:
    (path / "journal" / "00000001.cairn").unlink()


@pytest.mark.parametrize(
    ("damage", "error", "reason"),
    [
        (newer_mark, ForeignStore, "store format 2 is newer than this program's format 1"),
        (newer_container, ForeignStore, "container format 2"),
        (foreign_journal, ForeignStore, "the journal is of store .* of store"),
        (foreign_wiring, ForeignStore, "the journal is of store .* of store"),
        (lost_journal, ForeignStore, "the journal is missing, but the wiring belongs to one"),
        (lost_mark, ForeignStore, "log.mark: missing"),
        (rotten_mark, ForeignStore, "it has no intact copy"),
        (rotten_block, CorruptJournal, "LSN 1024 to 1536 was durable and can't be read"),
        (lost_container, CorruptJournal, "LSN 512 to 2560 was durable and can't be read"),
    ],
)
def test_what_is_refused_is_not_changed(
    tmp_path: Path, damage: Callable[[Path], None], error: type[CairnError], reason: str
) -> None:
    path = tmp_path / "store"
    make(path)
    damage(path)
    before = tree(path)
    for _ in range(2):
        with pytest.raises(error, match=reason):
            open_store(str(path), ManualClock())
        assert tree(path) == before


def test_a_journal_without_its_wiring_is_refused(tmp_path: Path) -> None:
    make(tmp_path / "store")
    (tmp_path / "store" / "wiring.sqlite").unlink()
    before = tree(tmp_path / "store")
    with pytest.raises(ForeignStore, match="the wiring is missing"):
        open_store(str(tmp_path / "store"), ManualClock())
    assert tree(tmp_path / "store") == before


def test_containers_without_mark_and_wiring_are_no_new_store(tmp_path: Path) -> None:
    make(tmp_path / "store")
    (tmp_path / "store" / "wiring.sqlite").unlink()
    (tmp_path / "store" / "journal" / "log.mark").unlink()
    with pytest.raises(ForeignStore, match=r"log\.mark: missing"):
        open_store(str(tmp_path / "store"), ManualClock())


def test_lost_containers_are_noticed_without_a_clean_close(tmp_path: Path) -> None:
    """The mark is written when the log continues in another container, so the loss of all containers is detected."""
    store, _ = open_store(str(tmp_path / "store"), ManualClock())
    store.create_queue("q", lambda made: None)
    while len(store.journal.pool.slots()) < 4:
        store.put(1, bytes(60_000), 0)
        store.kick()
    store.journal.abandon()
    store._release()
    for path in (tmp_path / "store" / "journal").glob("*.cairn"):
        path.unlink()
    with pytest.raises(CorruptJournal, match="no container holds it"):
        open_store(str(tmp_path / "store"), ManualClock())


def test_a_kill_while_the_store_is_made_and_then_a_power_cut() -> None:
    """SQL must not refer to a journal before the name of its mark is durable, or the store would never open again."""
    disk, wiring = MemoryDirectory(), MemoryWiring()
    killed = FaultyDirectory(disk, lambda call: Fault(EIO) if call.kind == "sync_names" else None)
    with pytest.raises(DiskError):
        recover(killed, wiring, ManualClock(), OPTIONS)
    assert mark.NAME in disk.names()
    held: list[MemoryDirectory] = []
    wiring.on_commit = lambda what: held.append(disk.after_power_cut([]))
    recover(disk, wiring, ManualClock(), OPTIONS)
    assert len(held) == 1
    recover(held[0], wiring, ManualClock(), OPTIONS)


def test_a_corrupt_journal_opens_again_when_it_is_mended(tmp_path: Path) -> None:
    make(tmp_path)
    file = tmp_path / "journal" / "00000001.cairn"
    complete = file.read_bytes()
    rotten_block(tmp_path)
    with pytest.raises(CorruptJournal) as raised:
        open_store(str(tmp_path), ManualClock())
    assert (raised.value.first_lsn, raised.value.end_lsn) == (1024, 1536)
    file.write_bytes(complete)
    store, report = open_store(str(tmp_path), ManualClock())
    assert report.messages == 3
    store.close()


def test_an_existing_store_keeps_its_container_size(tmp_path: Path) -> None:
    """E59: the option does not change the container size of an existing store."""
    make(tmp_path)
    store, report = open_store(str(tmp_path), ManualClock(), StoreOptions(container_bytes=4 << 20))
    assert report.log.container_bytes == store.journal.container_bytes == 512 << 10
    store.close()
    assert {file.stat().st_size for file in (tmp_path / "journal").glob("*.cairn")} == {512 << 10}


# ---- in memory ------------------------------------------------------------------------------------------------------


def test_the_report_tells_what_was_found() -> None:
    disk, wiring, clock = MemoryDirectory(), MemoryWiring(), ManualClock()
    store, report = recover(disk, wiring, clock, OPTIONS)
    assert report.created
    assert report.lines() == ["new store"]
    q = queue(store, "q")
    for number in range(3):
        store.put(q, b"%d" % number, 1)
    store.close()
    store, report = recover(disk, wiring, clock, OPTIONS)
    assert not report.created
    assert (report.messages, report.queues, report.discarded, report.homeless) == (3, 1, 0, {})
    assert report.log.closed_cleanly
    assert "recovered 3 messages on 1 queue from 4 records" in report.lines()[0]
    store.put(q, b"kicked, not claimed", 1)
    store.kick()
    store.journal.abandon()
    store, report = recover(disk, wiring, clock, OPTIONS)
    assert not report.log.closed_cleanly
    assert report.log.rewritten_bytes > 0
    assert "not closed cleanly" in report.lines()[0]
    assert "not known to be durable" in report.lines()[1]
    assert report.messages == 4


def test_messages_of_a_queue_that_sql_does_not_know_are_kept_and_reported() -> None:
    """If SQL and journal disagree, messages are never dropped silently, which differs from E3."""
    disk, wiring, clock = MemoryDirectory(), MemoryWiring(), ManualClock()
    store, _ = recover(disk, wiring, clock, OPTIONS)
    q = queue(store, "q")
    known = wiring.hold()
    lost, other = queue(store, "lost"), queue(store, "lost, too")
    homeless = [store.put(lost, b"homeless", 1)[0] for _ in range(2)]
    both, _ = store.put(q, b"both", 1)
    store.enqueue(both, other, 1)
    store.close()
    wiring.put_back(known)  # SQL is restored from an older copy
    for _ in range(2):
        store, report = recover(disk, wiring, clock, OPTIONS)
        assert report.homeless == {lost: 2, other: 1}
        assert any(f"kept 2 messages of queue id {lost}" in line for line in report.lines())
        on_queue = store.messages()
        assert list(on_queue[lost]) == homeless
        assert list(on_queue[q]) == [both]
        assert content_of(store, homeless[0]) == b"homeless"
        store.close()


def test_a_record_of_an_unknown_type_is_refused() -> None:
    """E73: records of newer versions or of unknown kinds of transactions are refused, and nothing is changed."""
    disk, wiring, clock = MemoryDirectory(), MemoryWiring(), ManualClock()
    recover(disk, wiring, clock, OPTIONS)[0].close()
    journal, _ = open_log(disk, clock, visit=lambda block: None)
    lsn = journal.append(200, time_us=1)
    journal.close()
    before = {name: disk.open(name).read_at(0, 1 << 20) for name in disk.names()}
    with pytest.raises(ForeignStore, match=f"LSN {lsn}: a record of type 200, which this program does not know"):
        recover(disk, wiring, clock, OPTIONS)
    assert {name: disk.open(name).read_at(0, 1 << 20) for name in disk.names()} == before


def test_progress_is_told() -> None:
    disk, wiring, clock = MemoryDirectory(), MemoryWiring(), ManualClock()
    store, _ = recover(disk, wiring, clock, OPTIONS)
    q = queue(store, "q")
    for _ in range(30):
        store.put(q, bytes(60_000), 1)
        store.kick()
    store.close()
    seen: list[tuple[int, int]] = []
    recover(disk, wiring, clock, OPTIONS, progress=lambda done, total: seen.append((done, total)))
    assert seen == sorted(seen)
    assert len(seen) >= 30
    assert seen[-1][0] <= seen[-1][1]


def test_a_full_disk_at_the_start_is_told_as_that() -> None:
    """The error is `DiskFull`, and the store opens when there is space again."""
    disk, wiring, clock = MemoryDirectory(), MemoryWiring(), ManualClock()
    store, _ = recover(disk, wiring, clock, OPTIONS)
    q = queue(store, "q")
    for _ in range(10):
        store.put(q, bytes(60_000), 1)
        store.kick()
    store.close()
    for number in LogReader(disk).heads.free:
        disk.unlink(file_name(number))
    files = disk.names()

    def full(call: DiskCall) -> Fault | None:
        return Fault(28) if call.kind == "write" and call.name.endswith(".new") else None

    with pytest.raises(DiskFull, match="no space left"):
        recover(FaultyDirectory(disk, full), wiring, clock, OPTIONS)
    assert disk.names() == files
    store, report = recover(disk, wiring, clock, OPTIONS)
    assert report.messages == len(store.messages()[q]) > 5


def test_a_full_disk_with_a_free_container_stops_nothing() -> None:
    disk, wiring, clock = MemoryDirectory(), MemoryWiring(), ManualClock()
    store, _ = recover(disk, wiring, clock, OPTIONS)
    q = queue(store, "q")
    message_id, _ = store.put(q, b"x", 1)
    store.close()

    def full(call: DiskCall) -> Fault | None:
        return Fault(28) if call.kind in ("create",) or call.name.endswith(".new") else None

    store, report = recover(FaultyDirectory(disk, full), wiring, clock, OPTIONS)
    assert report.messages == 1
    store.dequeue(message_id, q, 1)
    store.kick()
    assert len(store.state) == 0
