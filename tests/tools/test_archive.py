"""An archive alone, and together with its store: all records in order, none twice, and no damage."""

from __future__ import annotations

import random
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from cairnmq.disk.real import RealDirectory
from cairnmq.journal import archive as archive_module
from cairnmq.journal.archive import archived_lsn
from cairnmq.journal.opening import open_log

if TYPE_CHECKING:
    from tests.tools.conftest import Dump, Result, Store


class Archived:
    """A store whose journal is archived."""

    def __init__(self, store: Store, path: Path) -> None:
        self.store = store
        self.path = path
        self.lsns: list[int] = []
        """Of the messages that were put."""
        store.journal.close()
        archive = RealDirectory(str(path), create=True)
        store.journal = open_log(store.directory, store.clock, visit=lambda _: None, archive=archive)[0]

    def fill(self, slots: int) -> None:
        last = next(reversed(self.store.journal.extent.slots)) + slots
        while next(reversed(self.store.journal.extent.slots)) < last:
            self.lsns += self.store.put_flushed(b"x" * 60_000)

    def retire(self, *slots: int) -> None:
        self.store.journal.retire(slots)
        self.lsns += self.store.put_flushed(b"makes it durable")


@pytest.fixture(params=["one disk", "two disks"])
def archived(request: pytest.FixtureRequest, store: Store, monkeypatch: pytest.MonkeyPatch) -> Archived:
    if request.param == "two disks":
        monkeypatch.setattr(archive_module.Archive, "_is_on_one_disk", lambda self: False)
    return Archived(store, store.path.parent / "archive")


def slot_of(archived: Archived, lsn: int) -> int:
    return lsn // archived.store.journal.container_bytes


def messages(result: Result) -> list[int]:
    return [found["lsn"] for found in result.records if found["type"] == "start"]


def test_an_archive_shows_what_left_the_journal(archived: Archived, dump: Dump) -> None:
    archived.fill(5)
    archived.retire(0, 1, 3)  # a base, and a hole
    result = dump(archived.path, "--json")
    assert messages(result) == [lsn for lsn in archived.lsns if slot_of(archived, lsn) in (0, 1, 3)]
    assert (result.damage, result.status, result.err) == ([], 0, "")
    names = sorted(path.name for path in archived.path.iterdir())
    assert [archived_lsn(name) for name in names] == [
        slot * archived.store.journal.container_bytes for slot in (0, 1, 3)
    ]
    alone = dump(archived.path / names[1], "--json")
    assert messages(alone) == [lsn for lsn in archived.lsns if slot_of(archived, lsn) == 1]
    assert {found["container"] for found in alone.records} == {names[1]}


@pytest.mark.parametrize("seed", range(3))
def test_archive_and_store_show_all_there_ever_was(archived: Archived, dump: Dump, seed: int) -> None:
    rng = random.Random(seed)
    archived.store.name_queues("orders")
    for _ in range(6):
        archived.fill(rng.randint(1, 3))
        slots = list(archived.store.journal.extent.slots)[:-1]
        archived.retire(*rng.sample(slots, rng.randint(1, len(slots))))
        for paths in ((archived.path, archived.store.path), (archived.store.path / "journal", archived.path)):
            result = dump(*paths, "--json")
            assert messages(result) == archived.lsns
            assert (result.damage, result.status) == ([], 0)
            assert "left out" not in result.err
        assert {record["queue"] for record in result.records if record["type"] == "start"} == {"orders"}


def test_a_gap_in_the_archive_is_no_damage(archived: Archived, dump: Dump) -> None:
    archived.fill(5)
    archived.retire(0, 1, 2, 3, 4)
    names = sorted(path.name for path in archived.path.iterdir())
    (archived.path / names[2]).unlink()
    result = dump(archived.path, archived.store.path, "--json")
    gone = archived_lsn(names[2])
    assert gone is not None
    held_elsewhere = gone // archived.store.journal.container_bytes in {slot_of(archived, lsn) for lsn in result.lsns}
    assert messages(result) == [
        lsn for lsn in archived.lsns if held_elsewhere or slot_of(archived, lsn) != slot_of(archived, gone)
    ]
    assert (result.damage, result.status) == ([], 0)


def test_damage_in_the_archive_is_told(archived: Archived, dump: Dump) -> None:
    archived.fill(3)
    archived.retire(0, 1, 2)
    victim = sorted(archived.path.iterdir())[1]
    data = bytearray(victim.read_bytes())
    data[100_000] ^= 1
    victim.write_bytes(data)
    result = dump(archived.path, "--json")
    assert [found["file"] for found in result.damage] == [victim.name]
    assert result.status == 1


def test_archives_of_two_logs_are_not_mixed(archived: Archived, dump: Dump, tmp_path: Path) -> None:
    archived.fill(1)
    archived.retire(0)
    other = type(archived.store)(tmp_path / "other", log=8)
    shutil.copy(other.file_of(0), archived.path / "00000000000000524288-00000000.cairn")
    result = dump(archived.path)
    assert (result.status, result.out) == (2, "")
    assert "dump one log at a time" in result.err
