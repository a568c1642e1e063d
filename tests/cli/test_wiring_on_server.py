"""Tests of a broker whose wiring is stored on a PostgreSQL server, and of its tools."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path

import pytest
from proton import Message
from proton.utils import BlockingConnection, LinkDetached

from tests.harness.postgresql import Server
from tests.harness.process import CAIRNMQ, DEADLINE_S, BrokerProcess, broker


def run(*arguments: object, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run `cairnmq` until it ends, check that its output has no secret, and return its result."""
    result = subprocess.run(
        [CAIRNMQ, *map(str, arguments)],
        capture_output=True, text=True, timeout=DEADLINE_S, env={**os.environ, **environment},
    )  # fmt: skip
    assert "se-cret" not in result.stdout + result.stderr
    return result


def refused(*arguments: object, status: int = 1) -> str:
    """Run a command that must fail with *status*, and return its one-line error."""
    result = run(*arguments)
    assert result.returncode == status, result
    assert result.stderr.count("\n") == 1, result.stderr
    return result.stderr


def done(*arguments: object) -> str:
    result = run(*arguments)
    assert result.returncode == 0, result.stderr
    return result.stdout


def every_byte(directory: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(directory)): path.read_bytes()
        for path in sorted(directory.rglob("*"))
        if path.is_file() and path.name != "lock"
    }


def send(running: BrokerProcess, queue: str, *bodies: str) -> None:
    connection = BlockingConnection(f"127.0.0.1:{running.port}", timeout=DEADLINE_S)
    sender = connection.create_sender(queue)
    for body in bodies:
        sender.send(Message(body=body, durable=True))
    connection.close()


def receive(running: BrokerProcess, queue: str) -> str:
    connection = BlockingConnection(f"127.0.0.1:{running.port}", timeout=DEADLINE_S)
    receiver = connection.create_receiver(queue)
    body = receiver.receive(timeout=DEADLINE_S).body
    receiver.accept()
    connection.close()
    return str(body)


@pytest.fixture
def where(server: Server, catalog: str) -> tuple[str, ...]:
    return "--connect", server.url(), "--catalog", catalog


@pytest.fixture
def store(tmp_path: Path, where: tuple[str, ...]) -> Path:
    """Return the directory of a closed store with a message on each of two queues."""
    with broker(tmp_path / "data", *where) as running:
        send(running, "orders", "one")
        send(running, "bills", "two")
        assert running.stop() == 0
    return tmp_path / "data"


def test_a_kill_and_a_start_right_after_it(
    tmp_path: Path, server: Server, catalog: str, where: tuple[str, ...]
) -> None:  # E56, E57
    with broker(tmp_path / "data", *where) as running:
        running.wait_for(r" wiring in postgresql\+psycopg://cairn:\*\*\*@/wiring\?host=.*, catalog Catalog")
        send(running, "orders", "one", "two")
        running.stop(signal.SIGKILL)
    with broker(tmp_path / "data", *where) as running:
        running.wait_for(" recovered 2 messages on 1 queue")
        assert receive(running, "orders") == "one"
        send(running, "bills", "three")
        assert running.stop() == 0
        assert "se-cret" not in "".join(running.lines)
    assert not (tmp_path / "data" / "wiring.sqlite").exists()
    told = (tmp_path / "data" / "wiring.json").read_text()
    assert json.loads(told)["catalog"] == catalog
    assert "se-cret" not in told
    name = '"' + catalog.replace('"', '""') + '"'
    assert server.sql(f"SELECT name FROM {name}.queue ORDER BY id") == "orders\nbills"


def test_a_server_that_dies_does_not_end_message_service(server: Server, store: Path, where: tuple[str, ...]) -> None:
    with broker(store, *where) as running:
        server.stop()
        try:
            send(running, "orders", "more")
            assert receive(running, "orders") == "one"
            assert receive(running, "orders") == "more"
            connection = BlockingConnection(f"127.0.0.1:{running.port}", timeout=DEADLINE_S)
            with pytest.raises(LinkDetached, match="a queue can't be created now; see the broker's log"):
                connection.create_sender("new")
            connection.close()
            running.wait_for("WARNING wiring.failed wiring: .*sql.*'new' can't be created.*a restart .* is not needed")
        finally:
            server.start()
        send(running, "new", "there")
        assert receive(running, "new") == "there"
        server.stop()
        try:
            assert running.stop() == 0  # the stop does not need SQL
        finally:
            server.start()
        assert "se-cret" not in "".join(running.lines)
    with broker(store, *where) as running:
        running.wait_for(" recovered 1 message on 3 queues")


def test_what_is_refused_changes_nothing(
    tmp_path: Path, server: Server, store: Path, where: tuple[str, ...], catalog: str
) -> None:
    before = every_byte(store)
    start = "broker", "--port", 0, "--store-dir", store
    assert "its wiring is in postgresql+psycopg://cairn:***@/wiring" in refused(*start)
    assert "--catalog 'x': SQLite has no catalogs" in refused(*start, "--catalog", "x", status=2)
    assert "it has no store ID" in refused(*start, *where[:3], catalog + " empty")
    assert "--connect: invalid URL" in refused(*start, "--connect", "se-cret", status=2)
    assert "password authentication failed" in refused(*start, "--connect", server.url(password="no-se-cret"))
    server.stop()
    try:
        assert "check that the server runs" in refused(*start, *where)
    finally:
        server.start()
    other = (*where[:3], catalog + " other")
    with broker(tmp_path / "other", *other):
        assert "another broker has this catalog" in refused(*start, *other)
    line = refused(*start, *other)
    assert "the journal is of store" in line
    assert "catalog " + catalog + " other" in line
    line = refused("broker", "--port", 0, "--store-dir", tmp_path / "new", *where)
    assert "the journal is missing" in line
    assert "or another --catalog to start with an empty store" in line
    with broker(tmp_path / "sqlite") as running:
        assert running.stop() == 0
    line = refused("broker", "--port", 0, "--store-dir", tmp_path / "sqlite", *where)
    assert "the wiring of this store is in this file, not on a server" in line
    assert every_byte(store) == before
    with broker(store, *where) as running:
        running.wait_for(" recovered 2 messages on 2 queues")


def test_the_url_may_stand_in_the_environment(store: Path, where: tuple[str, ...]) -> None:
    result = run("dump", store, "--catalog", where[3], CAIRNMQ_CONNECT=where[1])
    assert "orders" in result.stdout


def test_dump_shows_names_if_it_is_told_where_they_are(store: Path, where: tuple[str, ...]) -> None:
    result = run("dump", store)
    assert result.returncode == 0
    assert "orders" not in result.stdout
    assert "without --connect queues are shown by number" in result.stderr
    result = run("dump", store, *where, "--queue", "bills")
    assert result.returncode == 0
    assert "queue 2 bills" in result.stdout
    assert result.stderr == ""
    assert "the wiring is of store None" in refused("dump", store, *where[:3], "none", status=2)


def test_a_backup_becomes_a_store_with_sqlite_or_on_a_server(
    tmp_path: Path, store: Path, where: tuple[str, ...], catalog: str
) -> None:
    assert "its wiring is in postgresql+psycopg://cairn:***@" in refused("backup", store, tmp_path / "copy")
    with broker(store, *where):
        assert ": 2 messages, " in done("backup", store, tmp_path / "copy", *where)
    assert "queue 2 bills" in done("dump", tmp_path / "copy")
    done("restore", tmp_path / "copy", tmp_path / "embedded")
    with broker(tmp_path / "embedded") as running:
        running.wait_for(" recovered 2 messages on 2 queues")
        assert receive(running, "bills") == "two"
    assert "a store's wiring already exists there" in refused(
        "restore", tmp_path / "copy", tmp_path / "elsewhere", *where
    )
    elsewhere = (*where[:3], catalog + " elsewhere")
    assert "2 messages on 2 queues" in done("restore", tmp_path / "copy", tmp_path / "elsewhere", *elsewhere)
    assert not (tmp_path / "elsewhere" / "wiring.sqlite").exists()
    with broker(tmp_path / "elsewhere", *elsewhere) as running:
        running.wait_for(" recovered 2 messages on 2 queues")
        send(running, "third", "three")
    with broker(store, *where) as running:
        running.wait_for(" recovered 2 messages on 2 queues")


def test_a_store_moves_from_sqlite_to_a_server(tmp_path: Path, where: tuple[str, ...]) -> None:
    with broker(tmp_path / "data") as running:
        send(running, "orders", "one")
        assert running.stop() == 0
    assert "leave --connect out" in refused("backup", tmp_path / "data", tmp_path / "copy", *where)
    done("backup", tmp_path / "data", tmp_path / "copy")
    done("restore", tmp_path / "copy", tmp_path / "moved", *where)
    with broker(tmp_path / "moved", *where) as running:
        assert receive(running, "orders") == "one"


def test_salvage_asks_the_server_for_the_names(tmp_path: Path, store: Path, where: tuple[str, ...]) -> None:
    assert "its wiring is in postgresql" in refused("salvage", store, "--to", tmp_path / "new")
    assert "its wiring is in postgresql" in refused("salvage", store, "--in-place", "--yes")
    assert "give --to NEW_STORE" in refused("salvage", store, "--in-place", *where, status=2)
    result = run("salvage", store, "--to", tmp_path / "new", *where)
    assert result.returncode == 0, result.stderr
    with broker(tmp_path / "new") as running:
        running.wait_for(" recovered 2 messages on 2 queues")
        assert receive(running, "bills") == "two"
