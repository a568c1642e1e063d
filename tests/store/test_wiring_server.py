"""Tests of SQL servers that are down, fail, refuse or have other contents: a clear error, no change, no password.

The checks cover `str()`, the traceback and the chain of causes: an operator pastes all of that into a ticket.
"""

from __future__ import annotations

import builtins
import os
import signal
import threading
import traceback
from collections.abc import Callable, Iterator
from queue import SimpleQueue
from uuid import uuid4

import pytest
from sqlalchemy.exc import DBAPIError

from cairnmq.base.errors import (
    CairnError,
    DiskFull,
    ForeignStore,
    SqlDenied,
    SqlReadOnly,
    SqlUnreachable,
    StoreError,
    StoreInUse,
    UnusableConnect,
)
from cairnmq.store.contract.wiring_rows import QueueRow
from cairnmq.store.wiring import database as sql
from cairnmq.store.wiring.calls import WiringCalls
from cairnmq.store.wiring.database import parse_address
from cairnmq.store.wiring.wiring import Wiring
from tests.harness.postgresql import DEADLINE_S, PASSWORD, Server


def connect(server: Server, catalog: str | None = None, *, alone: bool = True, **url: str) -> Wiring:
    return Wiring.connect(parse_address(server.url(**url), catalog), alone=alone)


@pytest.fixture
def wiring(server: Server, catalog: str) -> Iterator[Wiring]:
    made = connect(server, catalog)
    made.identify(uuid4())
    yield made
    made.close()


def tell(error: BaseException) -> str:
    """Return the text of an error; check that neither the text nor the traceback contains a password."""
    told = "".join(traceback.format_exception(error)) + repr(error) + str(error)
    assert PASSWORD not in told
    assert "se-cret" not in told
    return str(error)


# ---- addresses ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("se-cret", "invalid URL"),
        ("", "invalid URL"),
        ("postgresql+psycopg://u:se-cret@host:port/db", "invalid URL"),
        ("sqlite:///se-cret", "SQLite takes no URL"),
        ("mysql://u:se-cret@host/db", "mysql is not supported"),
        ("postgresql+asyncpg://u:se-cret@host/db", r"postgresql\+asyncpg is not supported"),
    ],
)
def test_a_url_that_is_none(url: str, reason: str) -> None:  # E56
    with pytest.raises(UnusableConnect, match=f"--connect: .*{reason}") as caught:
        parse_address(url)
    tell(caught.value)


@pytest.mark.parametrize("catalog", ["", "x" * 64, "€" * 22, "pg_catalog", "a\0b"])
def test_a_catalog_that_can_not_be(catalog: str) -> None:  # E57
    with pytest.raises(UnusableConnect, match=r"--catalog .*1 to 63 bytes"):
        parse_address("postgresql://u@h/d", catalog)


def test_an_address_is_shown_without_what_is_secret() -> None:
    url = "postgresql://u:se-cret@h:1/d?password=se-cret&sslpassword=se-cret&sslmode=require"
    address = parse_address(url)
    assert str(address) == "postgresql+psycopg://u:***@h:1/d?sslmode=require, catalog CairnStore"  # E57
    assert address.secrets == ["se-cret"] * 3


def test_the_driver_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    address = parse_address("postgresql://u:se-cret@h/d")
    real = builtins.__import__

    def without(name: str, *more: object) -> object:
        if name == "psycopg":
            raise ModuleNotFoundError("No module named 'psycopg'")
        return real(name, *more)  # type: ignore[arg-type]

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(UnusableConnect, match=r"psycopg is missing.*pip install '\.\[postgresql\]'") as caught:
        Wiring.connect(address)
    tell(caught.value)


# ---- refusals of the server -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "error", "reason"),
    [
        ({"password": "wrong-se-cret"}, SqlDenied, "password authentication failed"),
        ({"user": "nobody"}, SqlDenied, "password authentication failed"),
        ({"database": "nowhere"}, UnusableConnect, 'database "nowhere" does not exist.*create it'),
    ],
)
def test_who_is_not_let_in(
    server: Server, catalog: str, url: dict[str, str], error: type[CairnError], reason: str
) -> None:
    wiring = Wiring.connect(parse_address(server.url(**url), catalog))
    for _ in range(2):
        with pytest.raises(error, match=reason) as caught:
            wiring.identify(uuid4())
        assert catalog in tell(caught.value)
    wiring.close()


def test_nobody_is_there(server: Server, catalog: str) -> None:
    address = parse_address(f"postgresql://u:se-cret@127.0.0.1:1/d?host={server.path}/no", catalog)
    wiring = Wiring.connect(address)
    with pytest.raises(SqlUnreachable, match="a restart of the broker is not needed") as caught:
        wiring.identify(uuid4())
    tell(caught.value)


def test_who_has_no_rights(server: Server, catalog: str) -> None:
    server.sql("CREATE ROLE guest LOGIN PASSWORD 'se-cret'")
    try:
        wiring = connect(server, catalog, user="guest", password="se-cret")
        with pytest.raises(SqlDenied, match="permission denied for database") as caught:
            wiring.identify(uuid4())
        tell(caught.value)
        wiring.close()
    finally:
        server.sql("DROP ROLE guest")


def test_a_server_that_is_read_only(server: Server, wiring: Wiring, catalog: str) -> None:
    """Existing queues can be used; none can be created or deleted until the server permits it."""
    row = wiring.create_queue("q")
    wiring.close()
    server.sql("ALTER ROLE cairn SET default_transaction_read_only = on")
    try:
        assert wiring.identify(uuid4()) == (wiring.owner(), False)
        wiring.migrate()
        assert wiring.rows().queues == [row]
        assert wiring.create_queue("q") == row
        for call in (lambda: wiring.create_queue("r"), lambda: wiring.begin_destroy_queue(row.id)):
            with pytest.raises(SqlReadOnly) as caught:
                call()
            tell(caught.value)
        assert wiring.rows().queues == [row]
    finally:
        server.sql("ALTER ROLE cairn RESET default_transaction_read_only")
        wiring.close()
    assert wiring.create_queue("r").name == "r"


def test_a_disk_of_the_server_that_is_full(server: Server, wiring: Wiring, catalog: str) -> None:
    server.sql(
        f"""CREATE FUNCTION "{catalog.replace('"', '""')}".full() RETURNS trigger AS
        $$ BEGIN RAISE EXCEPTION 'could not extend file' USING ERRCODE = 'disk_full'; END $$ LANGUAGE plpgsql;
        CREATE TRIGGER full_disk BEFORE INSERT ON "{catalog.replace('"', '""')}".queue
        EXECUTE FUNCTION "{catalog.replace('"', '""')}".full()"""
    )
    before = wiring.rows()
    with pytest.raises(DiskFull, match=r"queue 'q' can't be created \(could not extend file.*SQL server"):
        wiring.create_queue("q")
    assert wiring.rows() == before
    server.sql(f"""DROP TRIGGER full_disk ON "{catalog.replace('"', '""')}".queue""")
    assert wiring.create_queue("q") == QueueRow(1, "q")


def test_what_no_text_can_hold(wiring: Wiring) -> None:
    before = wiring.rows()
    with pytest.raises(StoreError, match="can't be created"):
        wiring.create_queue("a\0b")
    assert wiring.rows() == before


# ---- existing contents ----------------------------------------------------------------------------------------------


def test_catalogs_share_a_database(server: Server, catalog: str) -> None:  # E57
    catalogs = [catalog, catalog + " too", catalog.lower()]
    wirings = [connect(server, name) for name in catalogs]
    uuids = [uuid4() for _ in wirings]
    assert [wiring.identify(uuid) for wiring, uuid in zip(wirings, uuids, strict=True)] == [
        (uuid, False) for uuid in uuids
    ]
    for number, wiring in enumerate(wirings):
        assert wiring.create_queue(f"queue {number}") == QueueRow(1, f"queue {number}")
    for number, wiring in enumerate(wirings):
        assert wiring.rows().queues == [QueueRow(1, f"queue {number}")]
        wiring.close()


def test_other_tables_are_not_touched(server: Server, catalog: str) -> None:
    name = '"' + catalog.replace('"', '""') + '"'
    server.sql(f"CREATE SCHEMA {name}", f"CREATE TABLE {name}.invoices (id int)")
    wiring = connect(server, catalog)
    with pytest.raises(ForeignStore, match=r"it holds other tables.*another --catalog") as caught:
        wiring.identify(uuid4())
    tell(caught.value)
    assert server.sql(f"SELECT tablename FROM pg_tables WHERE schemaname = '{catalog}'") == "invoices"
    wiring.close()


def test_a_newer_schema_is_refused(server: Server, wiring: Wiring, catalog: str) -> None:
    name = '"' + catalog.replace('"', '""') + '"'
    server.sql(f"UPDATE {name}.store SET schema_version = 4", f"ALTER TABLE {name}.queue RENAME TO queues")
    for call in (lambda: wiring.identify(uuid4()), wiring.is_identified):
        with pytest.raises(ForeignStore, match="schema version 4 is newer than this program's 3"):
            call()


def test_a_catalog_has_one_broker(
    server: Server, wiring: Wiring, catalog: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sql, "_LOCK_TIMEOUT", "100ms")
    second = connect(server, catalog)
    with pytest.raises(StoreInUse, match="another broker has this catalog") as caught:
        second.identify(uuid4())
    tell(caught.value)
    reader = connect(server, catalog, alone=False)  # a tool
    owner = wiring.owner()
    assert reader.owner() == owner
    reader.close()
    wiring.close()
    monkeypatch.undo()  # the server needs a moment to detect that the first connection is closed
    assert second.owner() == owner
    second.close()


# ---- the server dies ------------------------------------------------------------------------------------------------


def test_a_server_that_dies_comes_back(server: Server, wiring: Wiring) -> None:
    """No restart is needed: calls report that the server is unavailable, and the first one after its return works."""
    row = wiring.create_queue("q")
    server.stop()
    try:
        for _ in range(2):
            with pytest.raises(SqlUnreachable, match="queue 'r' can't be created") as caught:
                wiring.create_queue("r")
            tell(caught.value)
            with pytest.raises(SqlUnreachable):
                wiring.rows()
    finally:
        server.start()
    assert wiring.create_queue("r").id > row.id
    assert [row.name for row in wiring.rows().queues] == ["q", "r"]


def test_a_connection_that_is_cut_in_the_middle_of_a_call(
    server: Server, wiring: Wiring, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whichever statement is cut off, all of the call is done or nothing, and the repeated call succeeds."""
    old = wiring.create_queue("old")
    statement = 0
    while True:
        name = f"queue {statement}"
        before = wiring.rows()
        with monkeypatch.context() as patch:
            cut = _Cut(server, statement)
            patch.setattr(wiring.database.engine.dialect, "do_execute", cut.execute)
            patch.setattr(wiring.database.engine.dialect, "do_commit", cut.commit)
            try:
                wiring.create_queue(name)
            except SqlUnreachable as error:
                tell(error)
            finally:
                patch.undo()
        assert [row.name for row in wiring.rows().queues] in (
            [row.name for row in before.queues],
            [*(row.name for row in before.queues), name],
        )
        again = wiring.create_queue(name)
        assert again.id > max(row.id for row in before.queues)
        assert wiring.create_queue(name) == again
        statement += 1
        if not cut.was_made:
            break
    assert statement > 5
    assert old in wiring.rows().queues


def test_a_server_that_stands_still(
    server: Server, wiring: Wiring, catalog: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server does not answer, and none of its own timeouts expires."""
    wiring.create_queue("q")
    monkeypatch.setattr(sql, "_CALL_TIMEOUT_S", 0.5)
    # the newest one: the connection of an earlier test may still be open
    mine = "WHERE application_name = 'cairnmq' ORDER BY backend_start DESC LIMIT 1"
    pid = int(server.sql(f"SELECT pid FROM pg_stat_activity {mine}"))
    os.kill(pid, signal.SIGSTOP)
    try:
        with pytest.raises(SqlUnreachable) as caught:
            wiring.create_queue("r")
        tell(caught.value)
    finally:
        os.kill(pid, signal.SIGCONT)
    monkeypatch.undo()
    assert wiring.create_queue("r").name == "r"


class _Cut:
    """A fault that ends the connection at the server before the *at*th statement, commits included."""

    def __init__(self, server: Server, at: int) -> None:
        self._server = server
        self._left = at
        self.was_made = False

    def execute(self, cursor: object, statement: str, parameters: object, context: object = None) -> None:
        self._count()
        cursor.execute(statement, parameters)  # type: ignore[attr-defined]

    def commit(self, connection: object) -> None:
        self._count()
        connection.commit()  # type: ignore[attr-defined]

    def _count(self) -> None:
        self._left -= 1
        if self._left == -1:
            self.was_made = True
            self._server.sql("SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity "
                             "WHERE application_name = 'cairnmq'")  # fmt: skip


def test_calls_do_not_wait_for_a_server_that_is_away(server: Server, wiring: Wiring) -> None:  # E64
    """Without the server, calls fail with `SqlUnreachable` on another thread, and later calls work."""
    calls = WiringCalls(wiring)
    calls.start_sql()
    answers: SimpleQueue[tuple[str, object]] = SimpleQueue()

    def done(result: object) -> None:
        answers.put((threading.current_thread().name, result))

    server.stop()
    try:
        calls.create_queue("q", done)
        calls.create_exchange("x", "topic", done)
        calls.finish_destroy_queue(7, done)
        for _ in range(3):
            thread, result = answers.get(timeout=DEADLINE_S)
            assert isinstance(result, SqlUnreachable)
            assert thread != threading.current_thread().name
    finally:
        server.start()
    calls.create_queue("q", done, {"a": 1})
    assert answers.get(timeout=DEADLINE_S)[1] == QueueRow(1, "q", {"a": 1})
    calls.begin_destroy_queue(1, done)
    assert answers.get(timeout=DEADLINE_S)[1] is None
    calls.close_sql()
    assert wiring.rows().going == [QueueRow(1, "q")]


def test_an_unknown_error_is_told_as_it_is(wiring: Wiring, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> None:
        raise DBAPIError("statement", {}, Exception("the reason"))

    monkeypatch.setattr(wiring.database.engine.dialect, "do_execute", fails)
    calls: list[tuple[Callable[[], object], type[CairnError]]] = [
        (lambda: wiring.create_queue("q"), StoreError),
        (lambda: wiring.identify(uuid4()), ForeignStore),
    ]
    for call, error in calls:
        with pytest.raises(error, match="the reason"):
            call()
