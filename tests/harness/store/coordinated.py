"""Two stores, a PostgreSQL database and the processes of a coordinator, with views of their contents from outside."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from threading import Timer
from typing import Any, LiteralString

import psycopg

from cairnmq.base.clock import SystemClock
from cairnmq.recovery.recover import open_store
from cairnmq.store.journaled.store import JournalStore
from tests.harness.postgresql import Server
from tests.harness.store.coordinator import DecisionLog, Standing
from tests.harness.store.coordinator_process import FIRST, IN, OUT, SECOND, Orders
from tests.harness.store.participants import DEADLINE_S, OPTIONS, now_us, standings
from tests.harness.store.stores import queue

ROOT = Path(__file__).parents[3]
DATABASE = "moves"
MEMORY = "/dev/shm" if os.path.isdir("/dev/shm") else None
"""A directory whose files survive a SIGKILL as on a disk, but whose syncs are free."""
CHECKPOINTS = 17
"""Only one in this number of processes keeps the checkpoints of the stores, which take longer than all other steps."""


@dataclass(frozen=True)
class Ended:
    """The result of a process: its exit status and the steps that it reported."""

    status: int
    """The exit status; -9 if the process was killed."""
    steps: list[str]
    result: bool | None = None


@dataclass(frozen=True)
class View:
    """The contents of all stores and of the database, and the transactions in doubt there."""

    queues: dict[tuple[str, str], list[bytes]]
    """Store and queue to the contents on it."""
    rows: list[bytes]
    in_doubt: dict[str, dict[bytes, Standing]]
    """Store to its transactions in doubt."""
    rows_in_doubt: list[str]


class World:
    """Two stores, a database and a helper process that runs coordinators."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.address = server.url(database=DATABASE).replace("+psycopg", "")
        self.path = tempfile.mkdtemp(prefix="cairn-xa-", dir=MEMORY)
        self.processes = 0
        self._numbers = count()
        self._connection: psycopg.Connection[tuple[Any, ...]] | None = None
        for name in (FIRST, SECOND):
            with self.store(name) as store:
                queue(store, OUT)
                queue(store, IN)
        server.sql(f"DROP DATABASE IF EXISTS {DATABASE}", f"CREATE DATABASE {DATABASE}", database="postgres")
        server.sql(
            "CREATE TABLE moved (xid text UNIQUE DEFERRABLE INITIALLY DEFERRED, content bytea)", database=DATABASE
        )
        self._helper = subprocess.Popen(
            [sys.executable, "-m", "tests.harness.store.coordinator_process"],
            cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1,
        )  # fmt: skip

    def orders(self, **fields: object) -> Orders:
        return replace(Orders(self.path, self.address), **fields)  # type: ignore[arg-type]

    def live(self, orders: Orders, *, server_stays_down: bool = False) -> Ended:
        """Run one process. When it pauses, stop the server, and start it again unless *server_stays_down*."""
        self.processes += 1
        if self.processes % CHECKPOINTS:
            self._drop_checkpoint(FIRST)
            self._drop_checkpoint(SECOND)
        self._say(orders.line())
        steps, result = [], None
        patience = Timer(DEADLINE_S, self._helper.kill)
        patience.start()
        assert self._helper.stdout is not None
        try:
            for line in self._helper.stdout:
                what, _, more = line.rstrip("\n").partition(" ")
                if what == "step":
                    steps.append(more)
                elif what == "result":
                    result = json.loads(more)
                elif what == "paused":
                    self._disconnect()
                    self.server.stop()
                    if not server_stays_down:
                        self.server.start()
                    self._say("")
                else:
                    assert what == "ended"
                    return Ended(int(more), steps, result)
        finally:
            patience.cancel()
        raise AssertionError(f"the process ended or hangs after {steps}")

    def xid(self, what: str) -> str:
        """Return a new xid."""
        return f"{what} {next(self._numbers)}"

    def clear(self) -> None:
        """Remove all messages and rows."""
        for name in (FIRST, SECOND):
            with self.store(name) as store:
                for queue_id, message_ids in store.messages().items():
                    for message_id in message_ids:
                        store.dequeue(message_id, queue_id, now_us())
                store.kick()
        self.sql("TRUNCATE moved")

    def look(self) -> View:
        """Return the contents of copies of the stores, and of the database: the stores do not change."""
        queues: dict[tuple[str, str], list[bytes]] = {}
        in_doubt: dict[str, dict[bytes, Standing]] = {}
        for name in (FIRST, SECOND):
            with self.copy(name) as store:
                on = store.messages()
                for row in store.queues():
                    queues[name, row.name] = [
                        store.load_content(message_id, 0, 1 << 20) for message_id in on.get(row.id, ())
                    ]
                in_doubt[name] = standings(store)
        rows = [bytes(content) for (content,) in self.sql("SELECT content FROM moved")]
        return View(queues, rows, in_doubt, self.rows_in_doubt())

    def rows_in_doubt(self) -> list[str]:
        """Return the xids of the transactions in doubt on the server."""
        return [bytes.fromhex(gid).decode() for (gid,) in self.sql("SELECT gid FROM pg_prepared_xacts")]

    def sql(self, statement: LiteralString, *values: str) -> list[tuple[Any, ...]]:
        """Run a statement on a separate connection to the server, and return the rows."""
        if self._connection is None:
            self._connection = psycopg.connect(self.address, autocommit=True)
        cursor = self._connection.execute(statement, values)
        return cursor.fetchall() if cursor.description is not None else []

    def in_doubt(self, name: str) -> dict[bytes, Standing]:
        with self.copy(name) as store:
            return standings(store)

    def conflicts(self) -> dict[bytes, dict[str, Standing]]:
        """Return the conflicts in the coordinator's log: decisions of operators against the outcome."""
        with closing(DecisionLog(os.path.join(self.path, "decisions"))) as log:
            assert not log.committing
            return log.conflicts

    @contextmanager
    def store(self, name: str) -> Iterator[JournalStore]:
        """Open the store itself, as an operator does."""
        self._drop_checkpoint(name)
        with _opened(os.path.join(self.path, name)) as store:
            yield store

    @contextmanager
    def copy(self, name: str) -> Iterator[JournalStore]:
        """Open a copy of the current store without its checkpoint, so that the complete log is read."""
        with tempfile.TemporaryDirectory(dir=self.path) as place:
            copied = os.path.join(place, name)
            shutil.copytree(os.path.join(self.path, name), copied, ignore=shutil.ignore_patterns("checkpoint"))
            with _opened(copied) as store:
                yield store

    def remove(self) -> None:
        self._disconnect()
        assert self._helper.stdin is not None
        assert self._helper.stdout is not None
        self._helper.stdin.close()
        self._helper.wait(DEADLINE_S)
        self._helper.stdout.close()
        shutil.rmtree(self.path)

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _drop_checkpoint(self, name: str) -> None:
        shutil.rmtree(os.path.join(self.path, name, "checkpoint"), ignore_errors=True)

    def _say(self, line: str) -> None:
        assert self._helper.stdin is not None
        self._helper.stdin.write(f"{line}\n")
        self._helper.stdin.flush()


@contextmanager
def _opened(path: str) -> Iterator[JournalStore]:
    store, _ = open_store(path, SystemClock(), OPTIONS)
    try:
        store.run_inline(store.became_durable)
        yield store
    finally:
        store.close()
