"""Tests of tools with a wiring: they keep all of it, bring no deleted queue back, and accept files of version 1."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from cairnmq.base.errors import ForeignStore
from cairnmq.base.testing.manual_clock import ManualClock
from cairnmq.recovery.recover import open_store
from cairnmq.store.contract.wiring_rows import BindingRow, ConfigRow, QueueRow, Rows
from cairnmq.store.journaled.store import JournalStore
from cairnmq.store.wiring.copy import read_queue_names
from cairnmq.store.wiring.rescue import rescue
from cairnmq.store.wiring.wiring import Wiring
from cairnmq.tools.backup.backup import back_up
from cairnmq.tools.backup.restore import restore
from cairnmq.tools.repair.salvage import salvage
from cairnmq.tools.repair.salvage_in_place import salvage_in_place


def quiet(what: str, done: int, total: int) -> None:
    pass


def ignore(answer: object) -> None:
    assert not isinstance(answer, Exception)


def open_(path: Path) -> JournalStore:
    return open_store(str(path), ManualClock())[0]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Create a store with all kinds of definitions, and with two messages on each of two queues."""
    store = open_(tmp_path / "store")
    for name in ("keep", "going", "bare"):
        store.create_queue(name, ignore, {"of": name})
    store.create_exchange("x", "topic", ignore, {"a": [1]})
    for queue_id in (1, 2):
        store.bind(BindingRow(4, queue_id, "key", {"b": {}}), ignore)
    store.create_config("c", {"s": "t"}, ignore)
    for queue_id in (1, 2, 1, 2):
        store.put(queue_id, b"content", 1)
    store.close()
    return tmp_path / "store"


def all_of(path: Path) -> Rows:
    wiring = Wiring.open(str(path / "wiring.sqlite"))
    try:
        return wiring.rows()
    finally:
        wiring.close()


def begin_destroying(path: Path, queue_id: int) -> None:
    wiring = Wiring.open(str(path / "wiring.sqlite"))
    wiring.begin_destroy_queue(queue_id)
    wiring.close()


def make_version_1(path: Path) -> None:
    """Replace the wiring of *path* with one of version 1."""
    file = path / "wiring.sqlite"
    with closing(sqlite3.connect(file)) as sql:
        [[uuid]] = sql.execute("SELECT uuid FROM store")
        names = sql.execute("SELECT id, name FROM queue").fetchall()
    file.unlink()
    with closing(sqlite3.connect(file)) as sql:
        sql.execute("CREATE TABLE store (uuid VARCHAR(36) NOT NULL, schema_version INTEGER NOT NULL, "
                    "formatted BOOLEAN NOT NULL, PRIMARY KEY (uuid))")  # fmt: skip
        sql.execute("CREATE TABLE queue (id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, name VARCHAR(1024) NOT NULL, "
                    "UNIQUE (name))")  # fmt: skip
        sql.execute("INSERT INTO store VALUES (?, 1, 1)", (uuid,))
        sql.executemany("INSERT INTO queue VALUES (?, ?)", names)
        sql.commit()


def test_a_backup_holds_all_of_the_wiring(path: Path, tmp_path: Path) -> None:
    before = all_of(path)
    assert (before.configs, len(before.bindings)) == ([ConfigRow("c", {"s": "t"})], 2)
    back_up(str(path), str(tmp_path / "copy"), ManualClock(), quiet)
    restore(str(tmp_path / "copy"), str(tmp_path / "new"), quiet)
    assert all_of(tmp_path / "new") == before


def test_a_salvage_keeps_all_of_the_wiring(path: Path, tmp_path: Path) -> None:
    before = all_of(path)
    report = salvage(str(path), str(tmp_path / "new"), ManualClock(), quiet)
    assert report.is_complete
    assert report.queues == {"keep": 2, "going": 2}
    assert all_of(tmp_path / "new") == before


def test_a_salvage_brings_no_queue_back_whose_deletion_is_final(path: Path, tmp_path: Path) -> None:
    begin_destroying(path, 2)
    report = salvage(str(path), str(tmp_path / "new"), ManualClock(), quiet)
    assert report.queues == {"keep": 2}
    assert report.unnamed == []
    rows = all_of(tmp_path / "new")
    assert [row.name for row in rows.queues] == ["keep", "bare"]
    assert (rows.going, len(rows.bindings), rows.last_id) == ([], 1, 4)
    assert salvage_in_place(str(path), ManualClock(), quiet)  # nothing is wrong with it
    store = open_(path)
    assert {queue: len(ids) for queue, ids in store.messages().items()} == {1: 2}
    store.close()


def test_a_queue_that_is_destroyed_while_a_backup_is_made(path: Path, tmp_path: Path) -> None:
    """Messages of the queue are in the copy of the log, but the queue is not in the later copy of SQL."""
    store = open_(path)
    removed = False

    def destroy(what: str, done: int, total: int) -> None:
        nonlocal removed
        if what == "copying" and not removed:
            removed = True
            store.begin_destroy_queue(2, ignore)
            for message_id in store.messages()[2]:
                store.dequeue(message_id, 2, 1)
            store.kick()
            store.finish_destroy_queue(2, ignore)
            store.create_queue("going", ignore)

    back_up(str(path), str(tmp_path / "copy"), ManualClock(), destroy)
    store.close()
    assert removed
    restore(str(tmp_path / "copy"), str(tmp_path / "new"), quiet)
    again, report = open_store(str(tmp_path / "new"), ManualClock())
    assert (report.homeless, report.expunged) == ({}, {"going": 2})
    assert {queue: len(ids) for queue, ids in again.messages().items()} == {1: 2}
    assert [row.id for row in again.queues()] == [1, 3, 5]
    again.close()


def test_a_store_of_version_1_opens_and_serves_the_tools(path: Path, tmp_path: Path) -> None:
    before = all_of(path)
    make_version_1(path)
    back_up(str(path), str(tmp_path / "copy"), ManualClock(), quiet)
    assert restore(str(tmp_path / "copy"), str(tmp_path / "new"), quiet).queues == 3
    assert salvage(str(path), str(tmp_path / "salvaged"), ManualClock(), quiet).is_complete
    assert read_queue_names(str(path / "wiring.sqlite")) == {1: "keep", 2: "going", 3: "bare"}
    for place in (path, tmp_path / "new", tmp_path / "salvaged"):
        store, report = open_store(str(place), ManualClock())
        assert (report.messages, report.queues) == (4, 3)
        store.close()
        assert all_of(place) == Rows([QueueRow(row.id, row.name) for row in before.queues], last_id=3)


def test_a_store_that_is_refused_stays_of_version_1(path: Path) -> None:
    make_version_1(path)
    for file in (path / "journal").glob("*.cairn"):
        data = bytearray(file.read_bytes())
        data[600:8000] = bytes(7400)
        file.write_bytes(data)
    before = (path / "wiring.sqlite").read_bytes()
    with pytest.raises(Exception, match="was durable and can't be read"):
        open_(path)
    assert (path / "wiring.sqlite").read_bytes() == before


@pytest.mark.parametrize(
    ("damage", "fault"),
    [
        ("UPDATE queue SET arguments = '[1]' WHERE id = 1", "arguments that can't be read"),
        ("UPDATE exchange SET arguments = 'x' WHERE id = 4", "arguments that can't be read"),
        ("UPDATE exchange SET name = '' WHERE id = 4", "a row of exchange without a name"),
        ("DROP TABLE config", "no such table: config"),
        ("DROP TABLE binding", "no such table: binding"),
        ("DROP TABLE going_queue", "no such table: going_queue"),
    ],
)
def test_what_is_left_of_a_rotten_wiring(path: Path, damage: str, fault: str) -> None:
    with closing(sqlite3.connect(path / "wiring.sqlite")) as sql:
        sql.execute(damage)
        sql.commit()
    found = rescue(str(path / "wiring.sqlite"))
    assert found.reason == fault
    assert found.queue_names == {1: "keep", 2: "going", 3: "bare"}
    assert {row.exchange_id for row in found.rows.bindings} <= {row.id for row in found.rows.exchanges}


def test_a_newer_wiring_is_not_rescued(path: Path) -> None:
    with closing(sqlite3.connect(path / "wiring.sqlite")) as sql:
        sql.execute("UPDATE store SET schema_version = 4")
        sql.commit()
    with pytest.raises(ForeignStore, match="schema version 4 is newer than this program's 3"):
        rescue(str(path / "wiring.sqlite"))
