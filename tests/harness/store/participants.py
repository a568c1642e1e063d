"""Participants in distributed transactions: a journal store with its threads, and a PostgreSQL server."""

from __future__ import annotations

import time
from queue import SimpleQueue

import psycopg
from psycopg import sql

from cairnmq.base.clock import SystemClock
from cairnmq.base.errors import JournalError, UnknownTransaction
from cairnmq.recovery.recover import open_store
from cairnmq.store.contract.options import StoreOptions
from cairnmq.store.contract.transaction import TxState
from cairnmq.store.journaled.store import JournalStore
from tests.harness.store.coordinator import LostError, RefusedError, Standing

OPTIONS = StoreOptions(container_bytes=256 << 10, min_container_bytes=256 << 10, checkpoint_bytes=1 << 20)
DEADLINE_S = 180
_STANDINGS = {
    TxState.PREPARED: Standing.PREPARED,
    TxState.DECIDED_COMMIT: Standing.COMMITTED,
    TxState.DECIDED_ROLLBACK: Standing.ROLLED_BACK,
}


class StoreParticipant:
    """The store in *path*, with running threads."""

    def __init__(self, name: str, path: str) -> None:
        self.name = name
        self.store, _ = open_store(path, SystemClock(), OPTIONS)
        self.queues = {row.name: row.id for row in self.store.queues()}
        self._notices: SimpleQueue[int | JournalError] = SimpleQueue()
        self._lsn = 0
        self.store.start(self._notices.put, self._notices.put)

    def begin(self, xid: bytes) -> None:
        self.store.transactions.begin(now_us(), xid=xid)

    def put(self, queue: str, content: bytes) -> int:
        """Put a message outside of any transaction; return its ID."""
        message_id, lsn = self.store.put(self.queues[queue], content, now_us())
        self._recorded(lsn)
        return message_id

    def move_in(self, xid: bytes, queue: str, content: bytes) -> None:
        self.store.transactions.of(xid).put(self.queues[queue], content, now_us())

    def move_out(self, xid: bytes, queue: str, message_id: int) -> None:
        self.store.transactions.of(xid).dequeue(message_id, self.queues[queue], now_us())

    def prepare(self, xid: bytes) -> None:
        self._recorded(self.store.transactions.of(xid).prepare(now_us()))

    def end(self, xid: bytes, *, commit: bool) -> None:
        try:
            transaction = self.store.transactions.of(xid)
        except UnknownTransaction:
            return
        self._recorded(transaction.commit(now_us()) if commit else transaction.rollback(now_us()))

    def decide(self, xid: bytes, *, commit: bool) -> None:
        """Decide a transaction in doubt, as an operator does."""
        self._recorded(self.store.transactions.of(xid).decide(now_us(), commit=commit))
        self.wait()

    def forget(self, xid: bytes) -> None:
        self._recorded(self.store.transactions.of(xid).forget(now_us()))

    def wait(self) -> None:
        while self.store.durable_lsn <= self._lsn:
            notice = self._notices.get(timeout=DEADLINE_S)
            if isinstance(notice, JournalError):
                raise notice
            self.store.became_durable(notice)
            self.store.kick()

    def in_doubt(self) -> dict[bytes, Standing]:
        return standings(self.store)

    def close(self) -> None:
        self.store.close()

    def _recorded(self, lsn: int) -> None:
        if lsn:  # 0 if nothing was written
            self._lsn = lsn
            self.store.kick()


class SqlParticipant:
    """A PostgreSQL server, on one connection at a time; each request is durable when it returns.

    Each connection takes an advisory lock, which the server holds until the work of a killed process has ended there:
    transactions in doubt are listed only when no more can be added.
    """

    def __init__(self, name: str, address: str) -> None:
        self.name = name
        self._address = address
        self._connection: psycopg.Connection[tuple[str]] | None = None

    def begin(self, xid: bytes) -> None:
        self._connect()
        self._do(sql.SQL("BEGIN"))

    def record(self, xid: bytes, content: bytes) -> None:
        row = sql.SQL("({}, {})").format(sql.Literal(xid.decode()), sql.Literal(content))
        self._do(sql.SQL("INSERT INTO moved VALUES {}").format(row))

    def prepare(self, xid: bytes) -> None:
        self._do(sql.SQL("PREPARE TRANSACTION {}").format(sql.Literal(xid.hex())))

    def end(self, xid: bytes, *, commit: bool) -> None:
        how = "COMMIT" if commit else "ROLLBACK"
        if xid in self.in_doubt():
            self._do(sql.SQL(how + " PREPARED {}").format(sql.Literal(xid.hex())))
        else:
            self._do(sql.SQL(how))

    def forget(self, xid: bytes) -> None:
        raise AssertionError("PostgreSQL remembers no decision of an operator")

    def wait(self) -> None:
        pass

    def in_doubt(self) -> dict[bytes, Standing]:
        self._connect()
        listed = self._do(sql.SQL("SELECT gid FROM pg_prepared_xacts WHERE database = current_database()"))
        return {bytes.fromhex(gid): Standing.PREPARED for (gid,) in listed}

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()

    def _connect(self) -> None:
        """Connect unless connected. Call only where no transaction is open: else its work would be outside of any."""
        if self._connection is not None and not self._connection.closed:
            return
        try:
            self._connection = psycopg.connect(self._address, autocommit=True)
        except psycopg.OperationalError as error:
            raise LostError(self.name) from error
        self._do(sql.SQL("SET statement_timeout = {}").format(sql.Literal(DEADLINE_S * 1000)))
        self._do(sql.SQL("SELECT pg_advisory_lock(1)::text"))

    def _do(self, statement: sql.Composable) -> list[tuple[str]]:
        if self._connection is None or self._connection.closed:
            raise LostError(self.name)
        try:
            cursor = self._connection.execute(sql.Composed([statement]))
            return cursor.fetchall() if cursor.description is not None else []
        except psycopg.IntegrityError as error:
            raise RefusedError(self.name) from error
        except psycopg.OperationalError as error:
            if not self._connection.broken:
                raise
            raise LostError(self.name) from error


def standings(store: JournalStore) -> dict[bytes, Standing]:
    """Return the transactions in doubt in *store*, by xid."""
    return {one.xid: _STANDINGS[one.state] for one in store.transactions.in_doubt()}


def now_us() -> int:
    return time.time_ns() // 1000
