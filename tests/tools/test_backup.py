"""Tests of backups: a backup is the store at one LSN, also under traffic, and damaged backups are never restored."""

from __future__ import annotations

import errno
import json
import os
import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from cairnmq.base.disk.real import RealDirectory
from cairnmq.base.errors import CairnError, CorruptJournal, DiskFull, ForeignStore, StoreInUse
from cairnmq.base.testing.faulty_disk import Fault, FaultyDirectory, ever_after, once
from cairnmq.base.testing.manual_clock import ManualClock
from cairnmq.base.testing.memory_disk import MemoryDirectory
from cairnmq.journal.read.scanner import LogReader
from cairnmq.recovery.recover import open_store
from cairnmq.store.contract.options import StoreOptions
from cairnmq.store.directory.hold import Hold
from cairnmq.store.journaled.directory import StoreDirectory
from cairnmq.store.journaled.store import JournalStore
from cairnmq.tools.backup.backup import back_up, copy_log
from cairnmq.tools.backup.restore import restore
from cairnmq.tools.inspect.journal_check import check_journal
from cairnmq.tools.repair.partial_directory import PartialDirectory

SIZE = 512 << 10


class Traffic:
    """A store with messages that are enqueued and dequeued."""

    def __init__(self, path: Path, seed: int = 1, options: StoreOptions | None = None) -> None:
        self.path = path
        self.rng = random.Random(seed)
        self.clock = ManualClock()
        self.live: dict[int, bytes] = {}
        self.store = open_store(str(path), self.clock, options or StoreOptions(SIZE))[0]
        self.queue = 0
        self.store.create_queue("orders", self._created)

    def _created(self, row: object) -> None:
        assert hasattr(row, "id")
        self.queue = row.id

    def put(self, size: int = 50_000) -> None:
        content = self.rng.randbytes(8) + bytes(size)
        message_id, self.last_lsn = self.store.put(self.queue, content, self.clock.wall_us())
        self.live[message_id] = content

    def take(self) -> None:
        if self.live:
            message_id = self.rng.choice(list(self.live))
            self.store.dequeue(message_id, self.queue, self.clock.wall_us())
            del self.live[message_id]

    def churn(self, rounds: int) -> None:
        """Enqueue and dequeue messages, about a third of a container per round."""
        for _ in range(rounds):
            for _ in range(4):
                self.put()
            for _ in range(self.rng.choice([3, 4] if len(self.live) < 60 else [4, 5])):
                self.take()
            self.store.kick()


def contents(path: Path) -> dict[int, bytes]:
    """Recover the store in *path*, and return the contents of its messages."""
    store, report = open_store(str(path), ManualClock())
    try:
        assert not report.homeless
        assert report.log.torn is None
        return {message_id: complete(store, message_id) for ids in store.messages().values() for message_id in ids}
    finally:
        store.close()


def complete(store: JournalStore, message_id: int) -> bytes:
    return b"".join(store.load_piece(message_id, number) for number in range(store.piece_count(message_id)))


def nothing(what: str, done: int, total: int) -> None:
    pass


@pytest.fixture
def traffic(tmp_path: Path) -> Iterator[Traffic]:
    made = Traffic(tmp_path / "store")
    yield made
    made.store.close()


@pytest.mark.parametrize("seed", range(6))
def test_a_backup_under_traffic_is_one_moment(tmp_path: Path, seed: int) -> None:
    """At every third step of the backup the store changes: containers are retired, and new ones are begun."""
    traffic = Traffic(tmp_path / "store", seed)
    traffic.churn(80)
    moments = [dict(traffic.live)]
    calls = 0

    def meanwhile(what: str, done: int, total: int) -> None:
        nonlocal calls
        calls += 1
        if calls % 3 == 0 and calls < 400:
            traffic.churn(1)
            moments.append(dict(traffic.live))

    made = back_up(str(traffic.path), str(tmp_path / "copy"), ManualClock(), meanwhile)
    assert len(moments) > 10
    restored = restore(str(tmp_path / "copy"), str(tmp_path / "new"), nothing)
    found = contents(tmp_path / "new")
    assert found in moments
    assert restored.messages == made.messages == len(found)
    assert (restored.queues, restored.manifest) == (1, made.manifest)
    traffic.churn(5)
    traffic.store.close()
    assert contents(traffic.path) == traffic.live


def test_without_the_hold_containers_would_go(
    tmp_path: Path, traffic: Traffic, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A backup under traffic fails without the hold, so the test above depends on it."""
    traffic.churn(20)
    traffic.store.journal.pool._limbo.holds = None
    begun = set(traffic.store.journal.extent.slots)
    journal = traffic.store.journal.pool.directory

    def meanwhile(what: str, done: int, total: int) -> None:
        while what == "copying" and begun & set(LogReader(journal).heads.by_slot):  # until all of them are reused
            for message_id in list(traffic.live):
                traffic.store.dequeue(message_id, traffic.queue, traffic.clock.wall_us())
            traffic.live.clear()
            traffic.churn(1)

    with pytest.raises(CairnError):
        back_up(str(traffic.path), str(tmp_path / "copy"), ManualClock(), meanwhile)
    assert not (tmp_path / "copy").exists()


def test_a_held_container_is_neither_used_again_nor_removed(traffic: Traffic) -> None:
    pool = traffic.store.journal.pool
    traffic.churn(50)
    hold = Hold(str(traffic.path))
    second = Hold(str(traffic.path))
    *full, _ = sorted(pool.slots().items())
    paths = [traffic.path / "journal" / f"{number:08d}.cairn" for _, number in full]
    before = [path.read_bytes() for path in paths]
    for message_id in list(traffic.live):
        traffic.store.dequeue(message_id, traffic.queue, traffic.clock.wall_us())
    traffic.live.clear()
    traffic.churn(30)
    assert pool.limbo_count >= len(full) > 3
    assert [path.read_bytes() for path in paths] == before
    second.end()
    pool.settle()
    assert pool.limbo_count
    hold.end()
    traffic.churn(10)
    assert pool.limbo_count == 0


def test_a_broker_that_starts_meanwhile_keeps_what_is_held(tmp_path: Path) -> None:
    traffic = Traffic(tmp_path / "store")
    traffic.churn(20)
    hold = Hold(str(traffic.path))
    held = set(traffic.store.journal.pool.slots().values())
    for message_id in list(traffic.live):
        traffic.store.dequeue(message_id, traffic.queue, traffic.clock.wall_us())
    traffic.live.clear()
    traffic.churn(10)
    traffic.store.close()
    again = open_store(str(traffic.path), ManualClock())[0]
    assert again.journal.pool.limbo_count
    names = set(os.listdir(traffic.path / "journal"))
    assert {f"{number:08d}.cairn" for number in held} <= names
    hold.end()
    again.close()


def test_a_store_that_was_killed_is_backed_up(tmp_path: Path) -> None:
    """The torn tail of the store was never confirmed, and is not in the backup."""
    traffic = Traffic(tmp_path / "store")
    traffic.churn(5)
    kept = dict(traffic.live)
    end_lsn = traffic.store.journal.writer.durable_lsn
    traffic.put(2000)
    traffic.store.journal.flush()
    traffic.store.journal.abandon()
    traffic.store._release()
    slots = traffic.store.journal.pool.slots()
    path = traffic.path / "journal" / f"{slots[traffic.last_lsn // SIZE]:08d}.cairn"
    data = bytearray(path.read_bytes())
    data[traffic.last_lsn % SIZE + 100] ^= 1
    path.write_bytes(data)
    made = back_up(str(traffic.path), str(tmp_path / "copy"), ManualClock(), nothing)
    assert made.manifest.end_lsn == end_lsn
    restore(str(tmp_path / "copy"), str(tmp_path / "new"), nothing)
    assert contents(tmp_path / "new") == kept


def test_a_corrupt_store_is_not_backed_up(tmp_path: Path, traffic: Traffic) -> None:
    traffic.churn(30)
    slot = list(traffic.store.journal.extent.slots)[1]
    path = traffic.path / "journal" / f"{traffic.store.journal.pool.slots()[slot]:08d}.cairn"
    data = bytearray(path.read_bytes())
    data[5000] ^= 1
    path.write_bytes(data)
    with pytest.raises(CorruptJournal, match=r"was durable and can't be read .*; no backup was made"):
        back_up(str(traffic.path), str(tmp_path / "copy"), ManualClock(), nothing)
    assert sorted(os.listdir(tmp_path)) == ["store"]


def test_an_empty_store(tmp_path: Path, traffic: Traffic) -> None:
    assert back_up(str(traffic.path), str(tmp_path / "copy"), ManualClock(), nothing).messages == 0
    restore(str(tmp_path / "copy"), str(tmp_path / "new"), nothing)
    assert contents(tmp_path / "new") == {}


def test_it_goes_with_an_archive(tmp_path: Path) -> None:
    """Held containers also keep their names in the journal until the hold ends."""
    traffic = Traffic(tmp_path / "store", options=StoreOptions(SIZE, archive_dir=str(tmp_path / "archive")))
    traffic.churn(20)
    moments = [dict(traffic.live)]

    def meanwhile(what: str, done: int, total: int) -> None:
        if len(moments) < 40:
            traffic.churn(1)
            moments.append(dict(traffic.live))

    back_up(str(traffic.path), str(tmp_path / "copy"), ManualClock(), meanwhile)
    restore(str(tmp_path / "copy"), str(tmp_path / "new"), nothing)
    assert contents(tmp_path / "new") in moments
    assert len(os.listdir(tmp_path / "archive")) > 5
    traffic.store.close()
    open_store(str(tmp_path / "new"), ManualClock(), StoreOptions(archive_dir=str(tmp_path / "archive")))[0].close()


@pytest.fixture
def copy(tmp_path: Path, traffic: Traffic) -> Path:
    traffic.churn(10)
    back_up(str(traffic.path), str(tmp_path / "copy"), ManualClock(), nothing)
    return tmp_path / "copy"


def test_all_files_have_the_modes_of_a_store(copy: Path, tmp_path: Path) -> None:
    restore(str(copy), str(tmp_path / "new"), nothing)
    for root in (copy, tmp_path / "new"):
        for path in (root, *root.rglob("*")):
            assert path.stat().st_mode & 0o777 == (0o700 if path.is_dir() else 0o600), path


def test_any_flipped_byte_is_found_and_nothing_is_restored(copy: Path, tmp_path: Path) -> None:
    rng = random.Random(3)
    for path in sorted(path for path in copy.rglob("*") if path.is_file()):
        complete = path.read_bytes()
        for at in {0, len(complete) - 2, rng.randrange(len(complete))}:
            path.write_bytes(complete[:at] + bytes([complete[at] ^ 0x10]) + complete[at + 1 :])
            with pytest.raises(ForeignStore, match=f"{path.name}: (damaged|backup format)"):
                restore(str(copy), str(tmp_path / "new"), nothing)
            assert not (tmp_path / "new").exists()
        path.write_bytes(complete)
    restore(str(copy), str(tmp_path / "new"), nothing)


@pytest.mark.parametrize("how", ["cut", "longer", "missing"])
def test_a_file_of_another_size_is_told(copy: Path, tmp_path: Path, how: str) -> None:
    path = sorted((copy / "journal").glob("*.cairn"))[0]
    complete = path.read_bytes()
    path.unlink()
    if how != "missing":
        path.write_bytes(complete[:-1] if how == "cut" else complete + b"x")
    wanted = "missing, but listed" if how == "missing" else f"it has {SIZE + (1 if how == 'longer' else -1)}"
    with pytest.raises(ForeignStore, match=wanted):
        restore(str(copy), str(tmp_path / "new"), nothing)
    assert not (tmp_path / "new").exists()


def test_a_manifest_that_names_other_places_is_refused(copy: Path, tmp_path: Path) -> None:
    from cairnmq.tools.backup import manifest

    fields = json.loads((copy / "manifest.json").read_text())
    del fields["crc32c"]
    fields["files"][0]["name"] = "../../evil"
    fields["crc32c"] = manifest._checksum(fields)
    (copy / "manifest.json").write_text(json.dumps(fields))
    with pytest.raises(ForeignStore, match="damaged"):
        restore(str(copy), str(tmp_path / "new"), nothing)


def test_a_newer_backup_is_told_from_a_damaged_one(copy: Path, tmp_path: Path) -> None:
    (copy / "manifest.json").write_text('{"format": 2, "parts": []}')
    with pytest.raises(ForeignStore, match="backup format 2 is newer than this program's 1; use the CairnMQ version"):
        restore(str(copy), str(tmp_path / "new"), nothing)


def test_a_backup_is_no_store(copy: Path) -> None:
    before = {path: path.read_bytes() for path in copy.rglob("*") if path.is_file()}
    with pytest.raises(ForeignStore, match="a backup, which must stay as it is; `cairnmq restore`"):
        StoreDirectory(str(copy))
    with pytest.raises(ForeignStore, match="a backup, not a store"):
        back_up(str(copy), str(copy) + "2", ManualClock(), nothing)
    assert {path: path.read_bytes() for path in copy.rglob("*") if path.is_file()} == before


def test_nothing_is_ever_replaced(copy: Path, tmp_path: Path, traffic: Traffic) -> None:
    before = {path: path.read_bytes() for path in traffic.path.rglob("*") if path.is_file()}
    with pytest.raises(StoreInUse, match="a broker runs on this store; restore into another directory"):
        restore(str(copy), str(traffic.path), nothing)
    with pytest.raises(CairnError, match="not empty"):
        restore(str(copy), str(copy), nothing)
    with pytest.raises(CairnError, match="not empty"):
        back_up(str(traffic.path), str(copy), ManualClock(), nothing)
    with pytest.raises(CairnError, match="within the store itself"):
        back_up(str(traffic.path), str(traffic.path / "copy"), ManualClock(), nothing)
    (tmp_path / "file").write_text("mine")
    with pytest.raises(CairnError, match="there is a file of that name"):
        restore(str(copy), str(tmp_path / "file"), nothing)
    (tmp_path / "other.partial").mkdir()
    (tmp_path / "other.partial" / "thesis.txt").write_text("mine")
    with pytest.raises(CairnError, match=r"in the way, and not a backup \(it holds 'thesis.txt'\)"):
        back_up(str(traffic.path), str(tmp_path / "other"), ManualClock(), nothing)
    assert (tmp_path / "other.partial" / "thesis.txt").exists()
    assert {path: path.read_bytes() for path in traffic.path.rglob("*") if path.is_file()} == before


def test_two_backups_to_one_place_do_not_mix(tmp_path: Path, traffic: Traffic) -> None:
    refused: list[CairnError] = []

    def meanwhile(what: str, done: int, total: int) -> None:
        if not refused:
            with pytest.raises(CairnError, match="another backup is being made there") as told:
                back_up(str(traffic.path), str(tmp_path / "copy"), ManualClock(), nothing)
            refused.append(told.value)

    back_up(str(traffic.path), str(tmp_path / "copy"), ManualClock(), meanwhile)
    assert refused
    restore(str(tmp_path / "copy"), str(tmp_path / "new"), nothing)


def test_an_existing_empty_directory_will_do(tmp_path: Path, traffic: Traffic) -> None:
    (tmp_path / "copy").mkdir()
    (tmp_path / "new").mkdir()
    back_up(str(traffic.path), str(tmp_path / "copy"), ManualClock(), nothing)
    restore(str(tmp_path / "copy"), str(tmp_path / "new"), nothing)
    assert contents(tmp_path / "new") == {}


def test_an_interrupted_restore_leaves_nothing(copy: Path, tmp_path: Path) -> None:
    def interrupt(what: str, done: int, total: int) -> None:
        if what == "copying" and done > SIZE:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        restore(str(copy), str(tmp_path / "new"), interrupt)
    assert not (tmp_path / "new").exists()
    (tmp_path / "new").mkdir()
    with pytest.raises(KeyboardInterrupt):
        restore(str(copy), str(tmp_path / "new"), interrupt)
    assert list((tmp_path / "new").iterdir()) == []


def test_a_power_cut_leaves_no_half_restored_store_that_opens(
    copy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An existing target is filled in place; a broker refuses it until the durability mark has its name."""
    (tmp_path / "new").mkdir()

    def cut(what: str, done: int, total: int) -> None:
        if what == "copying" and done > SIZE:
            raise KeyboardInterrupt

    monkeypatch.setattr("cairnmq.tools.backup.restore._remove", lambda *_: None)
    with pytest.raises(KeyboardInterrupt):
        restore(str(copy), str(tmp_path / "new"), cut)
    with pytest.raises(ForeignStore, match="the containers can't be assigned to a store"):
        open_store(str(tmp_path / "new"), ManualClock())


def test_an_error_at_any_call_makes_no_backup(traffic: Traffic) -> None:
    """The error is one of the disk that is read, or of the one that is written."""
    traffic.churn(5)
    source = RealDirectory(str(traffic.path / "journal"))
    reading, writing = FaultyDirectory(source), FaultyDirectory(MemoryDirectory())
    complete = copy_log(reading, writing, ManualClock(), nothing)
    calls_of_the_copy = len(writing.calls)
    assert check_journal(writing, "", nothing).end_lsn == complete.end_lsn
    for number in range(1, len(reading.calls) + 1):
        for faulty in (once(number, Fault(errno.EIO)), ever_after(number, Fault(errno.EIO))):
            with pytest.raises(CairnError):
                copy_log(FaultyDirectory(source, faulty), MemoryDirectory(), ManualClock(), nothing)
    for call in writing.calls[:calls_of_the_copy]:
        target = FaultyDirectory(MemoryDirectory(), once(call.number, Fault(errno.ENOSPC, 0.5)))
        with pytest.raises(DiskFull):
            copy_log(source, target, ManualClock(), nothing)


def test_the_last_step_gives_the_name(tmp_path: Path, traffic: Traffic, monkeypatch: pytest.MonkeyPatch) -> None:
    steps: list[str] = []
    finish: Callable[[PartialDirectory], None] = PartialDirectory.finish

    def watched(partial: PartialDirectory) -> None:
        steps.append(",".join(sorted(os.listdir(tmp_path))))
        finish(partial)
        steps.append(",".join(sorted(os.listdir(tmp_path))))

    monkeypatch.setattr(PartialDirectory, "finish", watched)
    back_up(str(traffic.path), str(tmp_path / "copy"), ManualClock(), nothing)
    assert steps == ["copy.partial,store", "copy,store"]
