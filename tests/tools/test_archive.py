"""Tests of an archive alone and with its store: all records are shown in order, none twice, and without damage."""

from __future__ import annotations

import json
import random
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import click
import pytest

from cairnmq.base.disk.real import RealDirectory
from cairnmq.cli.main import cairnmq
from cairnmq.journal.files import archive as archive_module
from cairnmq.journal.files.archive import archived_lsn
from cairnmq.journal.write.open import open_log

if TYPE_CHECKING:
    from tests.tools.conftest import Dump, Result, Store


class Archived:
    """A store whose journal is archived."""

    def __init__(self, store: Store, path: Path) -> None:
        self.store = store
        self.path = path
        self.lsns: list[int] = []
        """The LSNs of the messages."""
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
    archived.retire(0, 1, 3)  # slots below the base, and a hole
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
    removed = archived_lsn(names[2])
    assert removed is not None
    slots = {slot_of(archived, lsn) for lsn in result.lsns}
    held_elsewhere = removed // archived.store.journal.container_bytes in slots
    assert messages(result) == [
        lsn for lsn in archived.lsns if held_elsewhere or slot_of(archived, lsn) != slot_of(archived, removed)
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


HISTORY = ["dump", "trace", "as-of", "replay", "sql", "verify", "export", "analyze"]
"""The commands that read history."""


@pytest.mark.parametrize("name", HISTORY)
def test_archive_dir_is_an_option_of_every_command_that_reads_history(name: str) -> None:
    command = cairnmq.get_command(click.Context(cairnmq), name)
    assert command is not None
    options = {option.opts[0]: option for option in command.params}
    option = options["--archive-dir"]
    assert isinstance(option, click.Option)
    assert (option.metavar, option.help is not None and option.help.startswith("Also read the log's archive")) == (
        "DIR", True
    )  # fmt: skip


def test_archive_dir_gives_every_command_the_whole_history(archived: Archived, command: Dump, tmp_path: Path) -> None:
    archived.store.name_queues("orders")
    archived.fill(4)
    archived.retire(0, 1, 2)
    store, option = archived.store.path, ("--archive-dir", archived.path)
    assert messages(command("dump", store, "--json", *option)) == archived.lsns
    assert messages(command("dump", store, archived.path, "--json")) == archived.lsns
    query = "select lsn from records where type = 'start' order by lsn"
    assert command("sql", store, query, "--json", *option).lsns == archived.lsns
    first = archived.lsns[0]
    assert first not in command("sql", store, query, "--json").lsns
    for where in (option, (archived.path,)):
        traced = command("trace", store, *where, "--json", first)
        assert (traced.status, f'"message_id":{first}' in traced.out.replace(" ", "")) == (0, True), traced
        shown = command("as-of", store, *where, "--json", archived.lsns[3])
        assert (shown.status, shown.objects[0]["as_of"]["messages"]) == (0, 3), shown
    alone, both = (command("verify", store, "--json", *given) for given in ((), option))
    assert (alone.status, both.status) == (0, 0)
    assert json.loads(both.out)["checked"] != json.loads(alone.out)["checked"]
    done = command("export", store, tmp_path / "lake", "--json", *option)
    assert (done.status, json.loads(done.out)["missing"]) == (0, []), done


@pytest.mark.parametrize("name", ["sql", "verify", "export", "analyze"])
def test_archive_dir_given_twice_is_refused_where_one_is_read(store: Store, command: Dump, name: str) -> None:
    found = command(name, "--archive-dir", "/a", "--archive-dir", "/b", store.path, "x")
    assert (found.status, found.out) == (2, "")
    assert f"--archive-dir /a, /b: cairnmq {name} reads one archive; give it once" in found.err


def test_dump_reads_an_archive_once_that_is_named_twice(archived: Archived, command: Dump) -> None:
    archived.fill(3)
    archived.retire(0, 1)
    found = command("dump", archived.store.path, archived.path, "--archive-dir", f"{archived.path}/", "--json")
    assert messages(found) == archived.lsns
    assert "left out" not in found.err


def test_an_empty_archive_is_no_error(store: Store, command: Dump, tmp_path: Path) -> None:
    archive = tmp_path / "archive"
    archive.mkdir()
    lsns = store.put_flushed(b"x")
    found = command("dump", store.path, "--archive-dir", archive, "--json")
    assert (found.status, messages(found)) == (0, lsns)
    assert f"{archive}: empty" in found.err
    alone = command("dump", "--archive-dir", archive)
    assert (alone.status, "the directory is empty" in alone.err) == (2, True)


def test_replay_reads_an_archive_without_its_store(command: Dump, tmp_path: Path) -> None:
    found = command("replay", "--archive-dir", tmp_path / "none", "--to", "amqp://127.0.0.1:1")
    assert (found.status, "none: no such directory" in found.err) == (2, True), found
    found = command("replay", "--to", "amqp://127.0.0.1:1")
    assert (found.status, "Missing argument 'STORE|ARCHIVE...'" in found.err) == (2, True), found
