"""Tests of brokers that store all messages in SQL or in memory: output, refused options, restarts, and kills."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from random import Random

import pytest
from proton import Message, ProtonException
from proton.utils import BlockingConnection

from cairnmq.store import open_store
from tests.harness.postgresql import Server
from tests.harness.process import CAIRNMQ, DEADLINE_S, BrokerProcess, broker

KILLS = 12
LATEST_S = 0.3
_numbers = count()


@contextmanager
def client(running: BrokerProcess) -> Iterator[BlockingConnection]:
    connection = BlockingConnection(f"127.0.0.1:{running.port}", timeout=DEADLINE_S)
    try:
        yield connection
    finally:
        connection.close()


def drain(connection: BlockingConnection, queue: str, most: int) -> list[str]:
    receiver = connection.create_receiver(queue, credit=100, name=f"drain {next(_numbers)}")
    found = []
    for _ in range(most):
        found.append(str(receiver.receive(timeout=DEADLINE_S).body))
        receiver.accept()
    receiver.close()
    return found


def test_messages_in_memory_are_gone_with_the_broker(tmp_path: Path) -> None:
    options = ("--store", "memory", "--metrics-port", "0")
    for _ in range(2):
        with broker(tmp_path / "data", *options) as running:
            running.wait_for(" storing in memory$")
            running.wait_for(" in memory: messages are lost when the broker stops$")
            with client(running) as connection:
                sender = connection.create_sender("orders")
                for number in range(200):
                    sender.send(Message(body=f"{number}", durable=True))
                assert drain(connection, "orders", 150) == [f"{number}" for number in range(150)]
                sender.send(Message(body="x" * 3_000_000, durable=True))
                assert drain(connection, "orders", 51)[-1] == "x" * 3_000_000
            assert running.stop() == 0
    assert not (tmp_path / "data").exists()


def test_memory_needs_no_directory(tmp_path: Path) -> None:
    started = subprocess.Popen(
        [CAIRNMQ, "broker", "--store", "memory", "--port", "0"], stdout=subprocess.PIPE, text=True, cwd=tmp_path
    )
    assert started.stdout is not None
    try:
        assert started.stdout.readline().partition(" listening on ")[1]
    finally:
        started.terminate()
    rest = started.stdout.read()
    started.stdout.close()
    assert (started.wait(DEADLINE_S), rest.splitlines()[-1].rpartition(" broker.stopped ")[2]) == (0, "stopped")
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("--store", "tape"), "--store tape: there is no such kind of store; there are journal, memory, sql"),
        (("--store", "sql", "--archive-dir", "a"), "the sql store has no journal to archive; leave it out"),
        (
            ("--store", "memory", "--journal-acquisitions"),
            "the memory store has no journal to write them in; leave it out",
        ),
        (("--store", "memory", "--connect", "postgresql://h/d"), "the memory store keeps nothing on a server"),
    ],
)
def test_what_can_not_be_is_refused(tmp_path: Path, arguments: tuple[str, ...], complaint: str) -> None:
    command = [CAIRNMQ, "broker", "--store-dir", "data", "--port", "0", *arguments]
    result = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S, cwd=tmp_path)
    assert (result.returncode, result.stderr.count("\n")) == (2, 1)
    assert complaint in result.stderr
    assert not any(tmp_path.iterdir())


def test_one_kind_is_told_from_the_other(tmp_path: Path) -> None:
    for kind, other in (("sql", "journal"), ("journal", "sql")):
        with broker(tmp_path / kind, "--store", kind) as running:
            assert running.stop() == 0
        command = [CAIRNMQ, "broker", "--store-dir", str(tmp_path / kind), "--port", "0", "--store", other]
        result = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S)
        assert (result.returncode, result.stderr.count("\n")) == (1, 1)
        assert f"is there; use --store {kind}, or name another --store-dir" in result.stderr


def test_all_in_sql_outlives_a_stop(tmp_path: Path) -> None:  # E4
    with broker(tmp_path / "data", "--store", "sql", "--memory-limit", "0") as running:
        with client(running) as connection:
            sender = connection.create_sender("orders")
            for number in range(50):
                sender.send(Message(body=f"{number}", durable=True))
            sender.send(Message(body="x" * 3_000_000, durable=True))
            assert drain(connection, "orders", 20) == [f"{number}" for number in range(20)]
        assert running.stop() == 0
    with broker(tmp_path / "data", "--store", "sql") as running, client(running) as connection:
        running.wait_for(" recovered 31 messages on 1 queue from SQL in")
        assert drain(connection, "orders", 31) == [*(f"{number}" for number in range(20, 50)), "x" * 3_000_000]


def test_all_on_a_server(tmp_path: Path, server: Server, catalog: str) -> None:
    """A message sent while the SQL server is stopped is confirmed after the server's restart."""
    options = ("--store", "sql", "--connect", server.url(), "--catalog", catalog)
    with broker(tmp_path / "data", *options) as running:
        running.wait_for(" everything in postgresql")
        with client(running) as connection:
            sender = connection.create_sender("orders")
            sender.send(Message(body="one", durable=True))
            server.stop()
            try:
                sending = threading.Thread(target=lambda: sender.send(Message(body="two", durable=True)))
                sending.start()
                sending.join(0.5)
                assert sending.is_alive(), "it is not confirmed before it is durable"
            finally:
                server.start()
            sending.join(DEADLINE_S)
            assert not sending.is_alive()
            assert drain(connection, "orders", 2) == ["one", "two"]
        assert running.stop() == 0
    assert sorted(path.name for path in (tmp_path / "data").iterdir()) == ["lock", "wiring.json"]


@pytest.mark.parametrize("command", [("dump", "data"), ("backup", "data", "copy"), ("salvage", "data", "--to", "new")])
def test_tools_for_journals_say_what_the_store_is(tmp_path: Path, command: tuple[str, ...]) -> None:
    with open_store(str(tmp_path / "data"), "sql") as store:
        store.queue("orders").put(b"one").result()
    done = subprocess.run([CAIRNMQ, *command], capture_output=True, text=True, timeout=DEADLINE_S, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2 if command[0] == "dump" else 1, "")
    assert "a store that is all in SQL is there" in done.stderr
    assert "'Stores' in the documentation" in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["data"]


def test_what_was_confirmed_survives_kills(tmp_path: Path) -> None:
    """After kills at random times, all confirmed messages are stored once and in order."""
    random = Random(7)
    confirmed: list[int] = []
    number = 0
    for life in range(KILLS):
        with broker(tmp_path / "data", "--store", "sql") as running:
            connection = BlockingConnection(f"127.0.0.1:{running.port}", timeout=DEADLINE_S)
            sender = connection.create_sender("orders")
            killer = threading.Timer(random.uniform(0, LATEST_S), running.process.kill)
            if life % 2:  # other runs are killed after the first confirmation
                killer.start()
            try:
                while True:
                    number += 1
                    sender.send(Message(body=f"{number}", durable=True))
                    confirmed.append(number)
                    if killer.ident is None:
                        killer.start()
            except ProtonException:
                pass
            killer.join()
            running.wait()
    assert len(confirmed) >= KILLS // 2
    with broker(tmp_path / "data", "--store", "sql") as running, client(running) as connection:
        kept = int(running.wait_for(r" recovered (\d+) messages? on 1 queue from SQL")[1])
        found = [int(body) for body in drain(connection, "orders", kept)]
        assert found == sorted(set(found))
        assert set(found) >= set(confirmed)
        assert len(found) <= len(confirmed) + KILLS  # each kill may leave one unconfirmed message
