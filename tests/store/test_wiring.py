"""Tests of wiring in SQLite: a foreign or newer file is refused and not changed, an older one is migrated."""

from __future__ import annotations

import os
import sqlite3
import stat
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from uuid import UUID, uuid4

import pytest
from sqlalchemy import event

from cairnmq.base.disk.real import RealDirectory
from cairnmq.base.errors import CairnError, DiskError, DiskFull, ForeignStore, StoreError
from cairnmq.store.contract.wiring_rows import BindingRow, QueueRow
from cairnmq.store.wiring.copy import read_queue_names
from cairnmq.store.wiring.wiring import Wiring


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


def test_a_commit_is_synced(path: str) -> None:
    wiring = opened(path)
    with wiring.database.engine.connect() as sql:
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
        sql.execute("UPDATE store SET schema_version = 4")
        sql.execute("UPDATE alembic_version SET version_num = '4'")
        sql.execute("ALTER TABLE queue RENAME TO queue_of_version_4")


def store_of_another_program(path: str) -> None:
    with sqlite3.connect(path) as sql:
        sql.execute("CREATE TABLE store (name TEXT)")


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (garbage, "not a wiring database of CairnMQ"),
        (another_program, "not a wiring database of CairnMQ"),
        (store_of_another_program, "not a wiring database of CairnMQ"),
        (newer, "schema version 4 is newer than this program's 3"),
    ],
)
def test_what_is_not_ours_is_refused_and_not_touched(path: str, make: Callable[[str], None], reason: str) -> None:
    make(path)
    before = Path(path).read_bytes()
    with pytest.raises(ForeignStore, match=reason):
        Wiring.open(path).identify(uuid4())
    assert Path(path).read_bytes() == before
    assert sorted(os.listdir(os.path.dirname(path))) == [os.path.basename(path)]


VERSION_1 = """
CREATE TABLE store (uuid VARCHAR(36) NOT NULL, schema_version INTEGER NOT NULL, formatted BOOLEAN NOT NULL,
    PRIMARY KEY (uuid));
CREATE TABLE queue (id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, name VARCHAR(1024) NOT NULL, UNIQUE (name));
"""
"""The tables of version 1, which SQLAlchemy created one at a time."""
OLD_UUID = UUID(int=1)


def version_1(path: str) -> None:
    with sqlite3.connect(path) as sql:
        sql.executescript(VERSION_1)
        sql.execute("INSERT INTO store VALUES (?, 1, 1)", (str(OLD_UUID),))
        sql.executemany("INSERT INTO queue (name) VALUES (?)", [("a",), ("b",), ("gone",)])
        sql.execute("DELETE FROM queue WHERE name = 'gone'")


def test_a_file_of_version_1_is_brought_forward_when_it_is_wanted(path: str) -> None:
    version_1(path)
    before = Path(path).read_bytes()
    wiring = Wiring.open(path)
    assert wiring.identify(uuid4()) == (OLD_UUID, True)
    assert wiring.queue_names() == read_queue_names(path) == {1: "a", 2: "b"}
    assert Path(path).read_bytes() == before
    wiring.migrate()
    assert wiring.rows().queues == [QueueRow(1, "a", {}), QueueRow(2, "b", {})]
    assert wiring.create_queue("c").id == 4  # SQLite gave 3 to a queue that was deleted
    exchange = wiring.create_exchange("x", "topic")
    wiring.bind(BindingRow(exchange.id, 1, "key"))
    wiring.migrate()
    wiring.close()
    assert version_of(path) == (3, "3")
    again = Wiring.open(path)
    assert again.identify(uuid4()) == (OLD_UUID, True)
    assert [row.name for row in again.rows().queues] == ["a", "b", "c"]


def version_of(path: str) -> tuple[int, str]:
    with sqlite3.connect(path) as sql:
        [[number]] = sql.execute("SELECT schema_version FROM store")
        [[revision]] = sql.execute("SELECT version_num FROM alembic_version")
    return number, revision


@pytest.mark.parametrize("tables", [0, 1, 2])
def test_a_file_of_version_1_of_which_a_crash_left_some_tables(path: str, tables: int) -> None:
    with sqlite3.connect(path) as sql:
        for statement in VERSION_1.split(";")[:tables]:
            sql.execute(statement)
    wiring = opened(path)
    assert wiring.create_queue("q") == QueueRow(1, "q")
    wiring.close()
    assert version_of(path) == (3, "3")


@pytest.mark.parametrize("make", [version_1, lambda path: None])
def test_a_crash_in_any_change_of_tables_leaves_all_or_nothing(
    path: str, make: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The whole change is one transaction."""
    done = 0
    while True:
        make(path)
        before = logical(path)
        wiring = Wiring.open(path)
        left = done

        def count(*_: object) -> None:
            nonlocal left
            left -= 1
            if left < 0:
                raise sqlite3.OperationalError("database or disk is full")

        event.listen(wiring.database.engine, "before_cursor_execute", count)
        try:
            wiring.identify(OLD_UUID)
            wiring.migrate()
            break
        except DiskFull:
            done += 1
            assert logical(path) == before or version_of(path) == (3, "3")
        finally:
            wiring.close()
            os.unlink(path)
    assert done > 20  # the number of statements that failed in turn


def logical(path: str) -> list[str]:
    with closing(sqlite3.connect(path)) as sql:
        return list(sql.iterdump())


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
    """SQLite reports a successful commit if the disk fails before SQLite can open the directory."""
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
