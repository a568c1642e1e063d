"""Tests of the all-SQL store beyond those of every store: commits, unavailable servers, and exclusive access."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import pytest
from sqlalchemy import Connection, event

from cairnmq.base.errors import CairnError, ForeignStore, JournalError, JournalFailed, SqlUnreachable, StoreInUse
from cairnmq.base.testing.manual_clock import ManualClock
from cairnmq.recovery.open_memory import open_memory_store
from cairnmq.recovery.open_sql import open_sql_store
from cairnmq.recovery.recover import open_store
from cairnmq.store.conformance.model import observe
from cairnmq.store.contract.options import StoreOptions
from cairnmq.store.contract.registry import find_kind
from cairnmq.store.contract.wiring_rows import QueueRow
from cairnmq.store.sql.batch import Batch
from cairnmq.store.sql.store import SqlStore
from cairnmq.store.wiring import database as sql
from tests.harness.postgresql import DEADLINE_S, Server
from tests.harness.store.makers import SqlMaker

NOW_US = 7


@pytest.fixture(params=["sqlite", "postgresql"])
def maker(request: pytest.FixtureRequest, catalog: str) -> Iterator[SqlMaker]:
    made = SqlMaker() if request.param == "sqlite" else SqlMaker(request.getfixturevalue("server"), catalog)
    yield made
    made.remove()


@pytest.fixture
def on_server(server: Server, catalog: str) -> Iterator[SqlMaker]:
    made = SqlMaker(server, catalog)
    yield made
    made.remove()


def queue(store: SqlStore, name: str = "q") -> int:
    made: SimpleQueue[QueueRow | Exception] = SimpleQueue()
    store.create_queue(name, made.put)
    row = made.get(timeout=DEADLINE_S)
    assert isinstance(row, QueueRow)
    return row.id


def statements(store: SqlStore) -> list[str]:
    """Return a list that collects the first words of the writer's statements from now on; an `executemany` is one."""
    said: list[str] = []

    @event.listens_for(store._writer._database.engine, "before_cursor_execute")
    def saying(_: Any, __: Any, statement: str, *more: Any) -> None:
        said.append(" ".join(statement.replace("BEGIN", "begin").split()[:3]))

    return said


# ---- commits --------------------------------------------------------------------------------------------------------


def test_nothing_is_said_per_message(maker: SqlMaker) -> None:  # E4
    store = maker.open()
    q = queue(store)
    said = statements(store)
    ids, _ = store.put_all(q, [b"%d" % number for number in range(500)], NOW_US)
    for message_id in store.put_all(q, [b""] * 100, NOW_US)[0]:
        store.enqueue(store.changes.stage(b"other", NOW_US, is_last=True), q, NOW_US)
        store.dequeue(message_id, q, NOW_US)
    store.kick()
    assert [words for words in said if words != "begin"] == [
        "UPDATE progress SET", "INSERT INTO message", "INSERT INTO placement", "DELETE FROM message",
    ]  # fmt: skip
    said.clear()
    store.purge(q, NOW_US)
    store.kick()
    assert [words for words in said if words != "begin"] == ["UPDATE progress SET", "DELETE FROM message"]
    assert store.messages() == {}
    assert not store.holds(ids[0])
    store.close()


def test_a_commit_of_sqlite_is_synced() -> None:
    maker = SqlMaker()
    store = maker.open()
    with store._writer._database.engine.connect() as sql_:
        assert sql_.exec_driver_sql("PRAGMA journal_mode").scalar() == "wal"
        assert sql_.exec_driver_sql("PRAGMA synchronous").scalar() == 2
        assert sql_.exec_driver_sql("PRAGMA foreign_keys").scalar() == 1
    store.close()
    maker.remove()


def test_with_threads_whatever_gathers_is_the_next_commit(maker: SqlMaker) -> None:  # E66
    store = maker.open()
    told: SimpleQueue[int] = SimpleQueue()
    store.start(told.put, raising, lambda: None)
    q = queue(store)
    _, first = store.put(q, b"first", NOW_US)
    store.kick()
    _, lsn = store.put(q, b"second", NOW_US)
    while store.durable_lsn <= lsn:
        store.kick()
        store.became_durable(told.get(timeout=DEADLINE_S))
    assert store.durable_lsn > lsn > first
    store.put(q, b"third", NOW_US)
    store.close()
    store = maker.open()
    assert list(observe(store).contents.values()) == [b"first", b"second", b"third"]
    store.close()


def raising(error: JournalError) -> None:
    raise error


# ---- unavailable server ---------------------------------------------------------------------------------------------


def test_a_server_that_goes_away_comes_back(server: Server, on_server: SqlMaker) -> None:
    """No message is lost or duplicated, without a restart; meanwhile the store reports why it is full."""
    store = on_server.open()
    told: SimpleQueue[int] = SimpleQueue()
    room = threading.Event()
    store.start(told.put, raising, room.set)
    q = queue(store)
    store.put(q, b"before", NOW_US)
    store.kick()
    store.became_durable(told.get(timeout=DEADLINE_S))
    server.stop()
    try:
        message_id, lsn = store.put(q, b"while it is away", NOW_US)
        store.kick()
        deadline_s = time.monotonic() + DEADLINE_S
        while not store.full():
            assert time.monotonic() < deadline_s
        assert store.durable_lsn <= lsn
        found: SimpleQueue[object] = SimpleQueue()
        reader = threading.Thread(target=lambda: found.put(store.load_piece(message_id - 2, 0)))
        reader.start()
    finally:
        server.start()
    store.became_durable(told.get(timeout=DEADLINE_S))
    assert store.durable_lsn > lsn
    assert room.wait(DEADLINE_S)
    assert store.full() == ""
    assert found.get(timeout=DEADLINE_S) == b"before", "who reads waits for it"
    reader.join()
    store.close()
    store = on_server.open()
    assert list(observe(store).contents.values()) == [b"before", b"while it is away"]
    store.close()


@pytest.mark.parametrize("when", ["before the commit", "behind the commit"])
def test_a_connection_that_is_cut_while_it_commits(
    server: Server, on_server: SqlMaker, when: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The store cannot tell whether the commit was done; the message is stored once."""
    store = on_server.open()
    q = queue(store)
    cut: list[bool] = []

    def commit(connection: Any) -> None:
        if when == "behind the commit":
            connection.commit()
        cut.append(True)
        server.sql("SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE application_name = 'cairnmq'")
        connection.commit()
        connection.execute("SELECT 1")

    store.put(q, b"once", NOW_US)
    with monkeypatch.context() as patch:
        patch.setattr(store._writer._database.engine.dialect, "do_commit", commit)
        with pytest.raises(SqlUnreachable, match="messages can't be written"):
            store.kick()
    assert cut
    assert store.full()
    store.kick()
    assert store.full() == ""
    store.close()
    store = on_server.open()
    assert list(observe(store).contents.values()) == [b"once"]
    store.close()


def test_who_was_overtaken_writes_nothing(server: Server, on_server: SqlMaker, tmp_path: Path) -> None:
    """Another broker opened the catalog while the server was unavailable: the first one must not continue."""
    store = on_server.open()
    q = queue(store)
    store.put(q, b"first", NOW_US)
    store.kick()
    server.sql("SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE application_name = 'cairnmq'")
    second, _ = open_sql_store(str(tmp_path / "second"), ManualClock(), on_server.options)
    second.purge(q, NOW_US)
    second.close()
    store.put(q, b"too late", NOW_US)
    for _ in range(2):
        with pytest.raises(JournalFailed, match="another process has opened this store meanwhile"):
            store.kick()
    store.abandon()
    store = on_server.open()
    assert observe(store).on == {}
    store.close()


def test_an_error_that_does_not_pass_ends_the_store(maker: SqlMaker, monkeypatch: pytest.MonkeyPatch) -> None:
    store = maker.open()
    failed: SimpleQueue[JournalError] = SimpleQueue()
    store.start(lambda _: None, failed.put, lambda: None)
    q = queue(store)

    def execute(self: Batch, connection: Connection) -> None:
        connection.exec_driver_sql("INSERT INTO nowhere VALUES (1)")

    with monkeypatch.context() as patch:
        patch.setattr(Batch, "execute", execute)
        store.put(q, b"", NOW_US)
        store.kick()
        error = failed.get(timeout=DEADLINE_S)
    assert isinstance(error, JournalFailed)
    assert "nowhere" in str(error)
    with pytest.raises(JournalFailed):
        store.close()
    store = maker.open()
    assert observe(store).on == {}
    store.close()


# ---- exclusive access -----------------------------------------------------------------------------------------------


def test_a_store_has_one_process(maker: SqlMaker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = maker.open()
    with pytest.raises(StoreInUse, match="another program has it open"):
        maker.open()
    if maker.options.connect is not None:
        monkeypatch.setattr(sql, "_LOCK_TIMEOUT", "100ms")
        with pytest.raises(StoreInUse, match="another broker has this catalog"):
            open_sql_store(str(tmp_path / "other"), ManualClock(), maker.options)
    store.close()
    maker.open().close()


def test_one_kind_is_not_opened_as_the_other(maker: SqlMaker, tmp_path: Path) -> None:
    options, path = maker.options, maker.path
    maker.open().close()
    for opened in (open_store, open_memory_store):
        with pytest.raises(ForeignStore, match="a store that is all in SQL is there; use --store sql"):
            opened(path, ManualClock(), options if opened is open_store else None)
    if options.connect is not None:
        with pytest.raises(ForeignStore, match=r"catalog .*all in SQL is there; .*another --catalog"):
            open_store(str(tmp_path / "other"), ManualClock(), options)
        with pytest.raises(ForeignStore, match=r"this store is in .*, catalog"):
            open_sql_store(path, ManualClock())
    journal = str(tmp_path / "journal")
    store, _ = open_store(journal, ManualClock())
    store.close()
    with pytest.raises(ForeignStore, match="a store with a journal is there; use --store journal"):
        open_sql_store(journal, ManualClock(), options)
    maker.open().close()


def test_a_journal_s_catalog_is_not_taken(server: Server, catalog: str, tmp_path: Path) -> None:
    options = StoreOptions(connect=server.url(), catalog=catalog)
    open_store(str(tmp_path / "a"), ManualClock(), options)[0].close()
    with pytest.raises(ForeignStore, match="the wiring of a store that has a journal; use --store journal"):
        open_sql_store(str(tmp_path / "b"), ManualClock(), options)
    open_store(str(tmp_path / "a"), ManualClock(), options)[0].close()


def test_what_would_promise_something_else_is_refused(tmp_path: Path) -> None:
    archived = StoreOptions(archive_dir=str(tmp_path / "archive"))
    for kind in ("sql", "memory"):
        with pytest.raises(CairnError, match="has no journal to archive; leave it out"):
            find_kind(kind)(str(tmp_path / kind), ManualClock(), archived, None)
    with pytest.raises(CairnError, match="keeps nothing on a server"):
        open_memory_store("", ManualClock(), StoreOptions(connect="postgresql://h/d"))
    with pytest.raises(CairnError, match="--store x: there is no such kind of store; there are journal, memory, sql"):
        find_kind("x")
    assert not (tmp_path / "sql").exists()
