"""Tests of arguments: single containers, an archive, and paths that are not those of a journal."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.harness.journal.logs import advance_base

if TYPE_CHECKING:
    from tests.tools.conftest import Dump, Store


def lsns_of_slot(store: Store, slot: int) -> list[int]:
    return [lsn for lsn in store.record_lsns() if lsn // store.journal.container_bytes == slot]


def test_one_container_shows_its_records(store: Store, dump: Dump, tmp_path: Path) -> None:
    store.fill(3)
    for slot in range(3):
        path = store.file_of(slot * store.journal.container_bytes)
        alone = Path(shutil.copy(path, tmp_path / f"evidence {slot}"))  # no mark beside it, and another name
        for given in (path, alone):
            result = dump(given, "--json")
            assert result.lsns == lsns_of_slot(store, slot)
            assert (result.damage, result.status) == ([], 0)
            assert {found["container"] for found in result.records} == {given.name}


def test_containers_in_any_order_and_with_gaps_come_by_lsn_without_damage(store: Store, dump: Dump) -> None:
    store.fill(4)
    size = store.journal.container_bytes
    paths = [store.file_of(slot * size) for slot in (4, 0, 1, 3)]
    result = dump(*paths, "--json")
    assert result.lsns == [lsn for lsn in store.record_lsns() if lsn // size != 2]
    assert (result.damage, result.status) == ([], 0)
    later = dump(*paths, "--json", "--from-lsn", 3 * size)
    assert later.lsns == [lsn for lsn in store.record_lsns() if lsn >= 3 * size]


def test_dead_records_are_shown_too_when_their_container_is_named(store: Store, dump: Dump) -> None:
    store.fill(2)
    first = store.file_of(0)
    dead = lsns_of_slot(store, 0)
    advance_base(store.journal, store.journal.container_bytes)
    store.put_flushed(b"makes the base durable", b"")
    assert dump(first, "--json").lsns == dead
    store.fill(3)  # newer containers store a base above it
    kept = [path for path in store.journal_path.glob("*.cairn") if path != first]
    assert dump(*kept, "--json").status == 0


def test_an_archive_is_shown_though_newer_containers_know_a_later_base_and_holes(
    store: Store, dump: Dump, tmp_path: Path
) -> None:
    store.fill(8)
    size = store.journal.container_bytes
    archive = tmp_path / "archive"
    archive.mkdir()
    for slot in (0, 1, 2, 5):
        shutil.copy(store.file_of(slot * size), archive / f"{slot}.cairn")
    before = store.record_lsns()
    store.journal.retire([0, 1, 5])
    store.put_flushed(b"makes it durable", b"")
    for slot in store.journal.extent.slots:
        shutil.copy(store.file_of(slot * size), archive / f"{slot}.cairn")
    result = dump(*sorted(archive.iterdir()), "--json")
    assert (result.damage, result.status) == ([], 0)
    assert set(before) <= set(result.lsns)


def test_damage_within_one_container(store: Store, dump: Dump, tmp_path: Path) -> None:
    lsns = store.put_flushed(*[b"x"] * 5)
    store.flip(lsns[2] + 64)
    alone = shutil.copy(store.file_of(lsns[0]), tmp_path / "alone.cairn")
    result = dump(alone, "--json")
    assert result.lsns == [576, *lsns[:2], *lsns[3:]]
    assert [(found["kind"], found["first_lsn"], found["file"]) for found in result.damage] == [
        ("corrupt", lsns[2] - 64, "alone.cairn")
    ]
    assert result.status == 1


def test_a_container_alone_whose_head_is_lost(store: Store, dump: Dump, tmp_path: Path) -> None:
    store.fill(2)
    second = store.journal.container_bytes
    alone = Path(shutil.copy(store.file_of(second), tmp_path / "alone.cairn"))
    alone.write_bytes(bytes(512) + alone.read_bytes()[512:])
    result = dump(alone, "--json")
    assert result.lsns == lsns_of_slot(store, 1)
    assert [(found["kind"], found["first_lsn"]) for found in result.damage] == [("corrupt", second)]
    beside = dump(alone, store.file_of(0), "--json")  # the other container identifies the log
    assert beside.lsns == [*lsns_of_slot(store, 0), *lsns_of_slot(store, 1)]


def test_an_archive_is_a_directory_of_containers(store: Store, dump: Dump, tmp_path: Path) -> None:
    store.fill(3)
    archive = tmp_path / "archive"
    archive.mkdir()
    for path in store.journal_path.glob("*.cairn"):
        shutil.copy(path, archive)
    result = dump(archive, "--json")
    assert (result.lsns, result.damage, result.status) == (store.record_lsns(), [], 0)
    shutil.copy(store.file_of(0), archive / "00000099.cairn")
    assert "00000099.cairn: left out, " in dump(archive).err


def test_a_spare_container_is_told_and_no_error(store: Store, dump: Dump) -> None:
    paths = sorted(store.journal_path.glob("*.cairn"))
    result = dump(*paths, "--json")
    assert (result.lsns, result.status) == ([576], 0)
    assert "00000002.cairn: a container that was never used" in result.err


@pytest.mark.parametrize(
    ("make", "arguments", "reason"),
    [
        ("", [], "no path given"),
        ("", ["nowhere"], "no such file or directory"),
        ("mkdir", ["empty"], "the directory is empty"),
        ("foreign", ["foreign"], "no journal in it"),
        ("hollow", ["hollow"], "no journal in it"),
        ("foreign", ["foreign/photo.jpg"], "not a container of a journal"),
        ("foreign", ["foreign/empty"], "not a container of a journal"),
        ("foreign", ["foreign/large"], "not a container of a journal"),
        ("foreign", ["foreign", "foreign/photo.jpg"], "no journal in it"),
        ("foreign", ["foreign/photo.jpg", "foreign/empty", "/dev/null"], "not a file"),
        ("foreign", ["/dev/null"], "not a file"),
    ],
)
def test_what_is_no_journal_is_refused_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dump: Dump, make: str, arguments: list[str], reason: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("empty").mkdir()
    Path("hollow/journal").mkdir(parents=True)
    Path("foreign").mkdir()
    Path("foreign/photo.jpg").write_bytes(b"\xff\xd8 no container")
    Path("foreign/empty").write_bytes(b"")
    Path("foreign/large").write_bytes(b"text\n" * 200_000)
    result = dump(*arguments)
    assert result.status != 0
    assert result.out == ""
    assert result.err.startswith("cairnmq: ")
    assert reason in result.err
    assert "; name " in result.err or "; containers have names like" in result.err
    assert result.err.count("\n") == 1


def test_two_logs_are_not_mixed(store: Store, dump: Dump, tmp_path: Path) -> None:
    other = type(store)(tmp_path / "other", log=8)
    result = dump(store.file_of(0), other.file_of(0))
    assert (result.status, result.out) == (2, "")
    assert "dump one log at a time" in result.err


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--from-lsn", "x"], "--from-lsn x: not a number; give a whole number of at least 0"),
        (["--to-lsn", "-1"], "--to-lsn -1: not a number"),
        (["--message", "²"], "--message ²: not a number"),
        (["--payload", "many"], "--payload many: not a number; give a whole number of at least 0, or 'all'"),
        (["--type", "strat"], "--type strat: no such record type; there are acquire, chunk, delete, dequeue"),
        (["--type", "type-"], "--type type-: no such record type"),
        (["--queue", "oders"], "--queue oders: no queue has this name; known are orders; or give its number"),
    ],
)
def test_wrong_arguments_are_told_in_one_line(store: Store, dump: Dump, arguments: list[str], complaint: str) -> None:
    store.name_queues("orders")
    result = dump(store.path, *arguments)
    assert (result.status, result.out) == (2, "")
    assert result.err.startswith(f"cairnmq: {complaint}")
    assert result.err.count("\n") == 1
