"""Wiring: queues keep their ids for ever, and a file that is not ours, or is newer, is refused untouched."""

from __future__ import annotations

import os
import sqlite3
import stat
from collections.abc import Callable
from pathlib import Path
from uuid import uuid4

import pytest

from cairnmq.base.errors import CairnError, DiskError, ForeignStore, StoreError
from cairnmq.disk.real import RealDirectory
from cairnmq.store.wiring import QueueRow, Wiring, read_queue_names


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "wiring.sqlite")


def opened(path: str) -> Wiring:
    wiring = Wiring.open(path)
    wiring.identify(uuid4())
    return wiring


def test_a_store_keeps_its_uuid(path: str) -> None:
    first, second = uuid4(), uuid4()
    wiring = Wiring.open(path)
    assert wiring.identify(first) == (first, False)
    assert wiring.identify(second) == (first, False)
    wiring.set_formatted()
    wiring.close()
    assert Wiring.open(path).identify(second) == (first, True)


def test_a_queue_is_made_once(path: str) -> None:
    wiring = opened(path)
    made = [wiring.create_queue(name) for name in ("a", "b", "a", "ä€𝄞 \0'\";--", "b")]
    assert made[0] == made[2]
    assert made[1] == made[4]
    assert len({row.id for row in made}) == 3
    assert all(row.id > 0 for row in made)
    wiring.close()
    assert opened(path).queues() == sorted({*made}, key=lambda row: row.id)


def test_an_id_is_never_used_again(path: str) -> None:
    """The journal may still know it."""
    wiring = opened(path)
    last = [wiring.create_queue(name) for name in "abc"][-1]
    wiring.close()
    with sqlite3.connect(path) as sql:
        sql.execute("DELETE FROM queue")
    assert opened(path).create_queue("d") == QueueRow(last.id + 1, "d")


def test_a_commit_is_synced(path: str) -> None:
    wiring = opened(path)
    with wiring._engine.connect() as sql:
        assert sql.exec_driver_sql("PRAGMA synchronous").scalar() == 3
        assert sql.exec_driver_sql("PRAGMA foreign_keys").scalar() == 1


def test_sql_that_refuses_is_told(path: str) -> None:
    wiring = opened(path)
    with sqlite3.connect(path) as sql:
        sql.execute("DROP TABLE queue")
    with pytest.raises(StoreError, match="queue 'q' can't be created"):
        wiring.create_queue("q")


def garbage(path: str) -> None:
    Path(path).write_bytes(b"not a database, but long enough to look like one" * 100)


def another_program(path: str) -> None:
    with sqlite3.connect(path) as sql:
        sql.execute("CREATE TABLE invoices (id INTEGER PRIMARY KEY, amount INTEGER)")
        sql.execute("INSERT INTO invoices VALUES (1, 100)")


def newer(path: str) -> None:
    opened(path).close()
    with sqlite3.connect(path) as sql:
        sql.execute("UPDATE store SET schema_version = 2")
        sql.execute("DROP TABLE queue")
        sql.execute("CREATE TABLE queue_of_version_2 (id INTEGER PRIMARY KEY)")


def store_of_another_program(path: str) -> None:
    with sqlite3.connect(path) as sql:
        sql.execute("CREATE TABLE store (name TEXT)")


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (garbage, "not a wiring database of CairnMQ"),
        (another_program, "not a wiring database of CairnMQ"),
        (store_of_another_program, "not a wiring database of CairnMQ"),
        (newer, "schema version 2 is newer than this program's 1"),
    ],
)
def test_what_is_not_ours_is_refused_and_not_touched(path: str, make: Callable[[str], None], why: str) -> None:
    make(path)
    before = Path(path).read_bytes()
    with pytest.raises(ForeignStore, match=why):
        Wiring.open(path).identify(uuid4())
    assert Path(path).read_bytes() == before
    assert sorted(os.listdir(os.path.dirname(path))) == [os.path.basename(path)]


def test_a_crash_while_the_tables_are_made_is_harmless(path: str) -> None:
    """SQLite makes them one by one."""
    opened(path).close()
    for table in ("store", "queue"):
        with sqlite3.connect(path) as sql:
            sql.execute(f"DROP TABLE {table}")
        wiring = opened(path)
        assert wiring.create_queue("q").id > 0
        wiring.close()


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077])
def test_the_file_is_for_the_owner_only(path: str, umask: int) -> None:
    before = os.umask(umask)
    try:
        opened(path).create_queue("q")
    finally:
        os.umask(before)
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o600


def test_a_tool_reads_the_names(path: str) -> None:
    assert read_queue_names(path) == {}
    assert not os.path.exists(path)
    wiring = opened(path)
    rows = [wiring.create_queue(name) for name in ("a", "b?c#d e%20")]
    assert read_queue_names(path) == {row.id: row.name for row in rows}


def test_a_tool_finds_the_file_whatever_its_name(tmp_path: Path) -> None:
    place = tmp_path / "a store?mode=rwc&x=%41#b"
    place.mkdir()
    path = str(place / "wiring.sqlite")
    row = opened(path).create_queue("q")
    assert read_queue_names(path) == {row.id: "q"}


@pytest.mark.parametrize("make", [garbage, another_program])
def test_a_tool_refuses_what_is_not_ours(path: str, make: Callable[[str], None]) -> None:
    make(path)
    before = Path(path).read_bytes()
    with pytest.raises(CairnError, match="not a wiring database of CairnMQ"):
        read_queue_names(path)
    assert Path(path).read_bytes() == before


def test_a_tool_changes_nothing(path: str) -> None:
    opened(path).close()
    before = Path(path).read_bytes(), os.stat(path).st_mtime_ns
    read_queue_names(path)
    assert (Path(path).read_bytes(), os.stat(path).st_mtime_ns) == before


def test_a_queue_is_confirmed_only_when_its_directory_could_be_synced(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SQLite says that a commit succeeded when the disk died before it could open the directory."""
    wiring = opened(path)

    def fails(self: RealDirectory) -> None:
        raise DiskError(self.path, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(RealDirectory, "sync", fails)
        for _ in range(2):
            with pytest.raises(DiskError):
                wiring.create_queue("q")
    assert wiring.create_queue("q") == QueueRow(1, "q")
    wiring.close()
