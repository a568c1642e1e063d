"""A store on a disk in memory, with a record of every moment at which the power may fail.

After each operation on the disk a `Moment` is recorded: the disk with its pending changes, SQL, the history so far and
the confirmed part of it. `workload` defines the operations in a world, `states` the states that a crash may leave.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from typing import Literal, NamedTuple, cast
from uuid import UUID

from sqlalchemy import Dialect

from cairnmq.base.disk.seam import Directory
from cairnmq.base.testing.manual_clock import ManualClock
from cairnmq.base.testing.memory_disk import MemoryDirectory
from cairnmq.journal.format.block import BLOCK_HEAD_BYTES
from cairnmq.journal.format.container import DATA_OFFSET
from cairnmq.journal.format.holes import HOLE_BYTES
from cairnmq.journal.format.record import HEAD_BYTES, MAX_PAYLOAD_BYTES
from cairnmq.journal.write.open import MIN_CONTAINER_BYTES
from cairnmq.recovery import simulated_store
from cairnmq.recovery.recover import recover
from cairnmq.recovery.report import RecoveryReport
from cairnmq.store.contract.options import StoreOptions
from cairnmq.store.contract.transaction import Dequeue, Put, StoreTransaction
from cairnmq.store.contract.wiring_rows import Arguments, QueueRow, Rows
from cairnmq.store.journaled.store import JournalStore
from cairnmq.store.wiring import schema
from cairnmq.store.wiring.wiring import Wiring
from tests.harness.recovery.checker import IN_DOUBT, Expectation, History, check_base, intentions, number_of, xid_of
from tests.harness.recovery.kept_checkpoint import NOTHING, Kept, WatchedCheckpoint

OPTIONS = StoreOptions(container_bytes=MIN_CONTAINER_BYTES, initial_containers=2, max_write_buffers=3)
MOST_HOLES = 8
"""The number of reclaimed ranges for which small containers reserve space."""


class _EmptyWiring(NamedTuple):
    """The common parts of thousands of wirings. For each, the tables would take 30 ms of CPU, the statements 10 ms."""

    tables: bytes
    """An SQLite database with the tables of this version."""
    dialect: Dialect
    """The compiler of the statements."""
    compiled: dict[object, object]
    """Compiled statements by *dialect*, as SQLAlchemy caches them."""


@cache
def _empty_wiring() -> _EmptyWiring:
    wiring = simulated_store.MemoryWiring()
    with wiring.database.engine.begin() as sql:
        schema.upgrade(sql, None)
    return _EmptyWiring(wiring.sqlite.serialize(), wiring.database.engine.dialect, {})


class MemoryWiring(simulated_store.MemoryWiring):
    """A wiring that starts with its tables, refuses writes or is full on demand, and reports its commits."""

    def __init__(self) -> None:
        super().__init__()
        empty, engine = _empty_wiring(), self.database.engine
        self.sqlite.deserialize(empty.tables)
        engine.dialect = empty.dialect
        engine.update_execution_options(compiled_cache=empty.compiled)
        self.on_commit: Callable[[str], None] = lambda what: None

    def identify(self, new_uuid: UUID) -> tuple[UUID, bool]:
        found = super().identify(new_uuid)
        if found[0] == new_uuid:
            self.on_commit("commit of the identity")
        return found

    def set_formatted(self) -> None:
        super().set_formatted()
        self.on_commit("commit that there is a journal")

    def refuse_writing(self, refuse: bool = True) -> None:
        self.sqlite.execute(f"PRAGMA query_only = {int(refuse)}")

    def fill(self, fill: bool = True) -> None:
        """Limit the database so that no write fits, or remove the limit."""
        self.sqlite.execute(f"PRAGMA max_page_count = {1 if fill else 1 << 30}")

    def hold(self) -> object:
        return self.sqlite.serialize()

    def put_back(self, held: object) -> None:
        assert isinstance(held, bytes)
        self.sqlite.deserialize(held)


class WiringAnswers(Wiring):
    """The answers of `MemoryWiring` without SQL, which would take longer than the rest of a recovery.

    The UUID of the store is an argument, so that an exploration can be repeated exactly.
    """

    def __init__(self, uuid: UUID) -> None:
        self._uuid = uuid
        self.on_commit: Callable[[str], None] = lambda what: None
        self._known: tuple[bool, bool, tuple[QueueRow, ...]] = (False, False, ())

    def identify(self, new_uuid: UUID) -> tuple[UUID, bool]:
        identified, formatted, rows = self._known
        if not identified:
            self._known = True, False, rows
            self.on_commit("commit of the identity")
        return self._uuid, formatted

    def is_identified(self) -> bool:
        return self._known[0]

    def set_formatted(self) -> None:
        self._known = True, True, self._known[2]
        self.on_commit("commit that there is a journal")

    def migrate(self) -> None:
        pass

    def queue_names(self) -> dict[int, str]:
        return {row.id: row.name for row in self._known[2]}

    def rows(self) -> Rows:
        return Rows([*self._known[2]], last_id=len(self._known[2]))

    def create_queues(self, asked: Sequence[tuple[str, Arguments | None]]) -> list[QueueRow]:
        return [self._row(name) for name, _ in asked]

    def _row(self, name: str) -> QueueRow:
        rows = self._known[2]
        for row in rows:
            if row.name == name:
                return row
        made = QueueRow(len(rows) + 1, name)
        self._known = (*self._known[:2], (*rows, made))
        return made

    def hold(self) -> object:
        return self._known

    def put_back(self, held: object) -> None:
        self._known = cast(tuple[bool, bool, tuple[QueueRow, ...]], held)

    def close(self) -> None:
        pass


@dataclass
class Moment:
    """The complete state just after an operation on the disk."""

    after: str
    disk: MemoryDirectory
    sql: object
    history: History
    operations: int
    queues: frozenset[int]
    confirmed_lsn: int
    recovering: bool
    """True if a recovery is in progress that has returned no messages yet."""
    kept: Kept
    """The checkpoints that a crash may leave."""
    news: bool
    """True if this is more than another change on the disk: a sync, a new confirmation, or a change in SQL."""
    decided: tuple[History, ...] = ()
    """Inside a recovery: the histories that it, and interrupted recoveries before it, would have shown.

    The next recovery may still find what these did not, such as a block whose container had lost its head, or data
    that only the page cache had, but only until the opening record of this recovery is durable.
    """

    @cached_property
    def past(self) -> History:
        return self.history.as_of(self.operations, self.queues)

    @cached_property
    def expected(self) -> Expectation:
        return Expectation(self.past, self.confirmed_lsn)


@dataclass
class World:
    """A store on a disk in memory, each of whose disk operations is recorded as a `Moment`."""

    disk: MemoryDirectory
    wiring: MemoryWiring | WiringAnswers = field(default_factory=MemoryWiring)
    history: History = field(default_factory=History)
    confirmed_lsn: int = 0
    options: StoreOptions = OPTIONS
    moments: list[Moment] = field(default_factory=list)
    store: JournalStore | None = None
    report: RecoveryReport | None = None
    clock: ManualClock = field(default_factory=ManualClock)
    file: WatchedCheckpoint | None = None
    """The checkpoint file, if the store has one."""
    through: Directory | None = None
    """The disk that the store uses instead of *disk*: a wrapper with faults."""
    random: random.Random = field(default_factory=lambda: random.Random(1))
    staged: set[int] = field(default_factory=set)
    """Messages that are on no queue yet."""
    is_late: bool = False
    """True if durability is reported only after further blocks are sealed, as may happen with threads."""
    met: Counter[str] = field(default_factory=Counter)
    """Figures of relocation and reclaimed ranges, over all stores of the world."""

    def __post_init__(self) -> None:
        self._notice = 0
        self.disk.on_operation = self.wiring.on_commit = self.hold
        if self.file is not None:
            self.file.on_commit = self.hold

    def hold(self, operation: str) -> None:
        if self.store is not None:
            self.confirmed_lsn = self.store.journal.writer.durable_lsn
            assert len(self.store.journal.extent.holes) <= MOST_HOLES
            self.met["moments with holes"] += bool(self.store.journal.extent.holes)
            self.met["moments in a relocation"] += self.store.relocation.is_at_work
            check_base(self.store, self.staged)
        self.moments.append(self.now(operation))

    def now(self, after: str) -> Moment:
        history, sql, before = self.history, self.wiring.hold(), self.moments[-1] if self.moments else None
        news = before is None or before.confirmed_lsn != self.confirmed_lsn or before.sql != sql
        news = news or not after.startswith(("write", "create", "rename", "unlink"))
        return Moment(
            after, self.disk.after_kill(), sql, history, len(history.operations), history.queues, self.confirmed_lsn,
            self.store is None, NOTHING if self.file is None else self.file.kept(), news,
        )  # fmt: skip

    @property
    def room(self) -> int:
        """The largest payload that fits into a container, even if relocated to one that begins with reclaimed ranges.

        A container of the real size always has space for both.
        """
        heads = BLOCK_HEAD_BYTES + HEAD_BYTES * 2 + HOLE_BYTES * MOST_HOLES
        return min(self.options.container_bytes - DATA_OFFSET - heads, MAX_PAYLOAD_BYTES)

    # ---- operations of a workload ---------------------------------------------------------------------------------

    def open(self) -> JournalStore:
        before = len(self.moments)
        store, self.report = recover(
            self.through or self.disk, self.wiring, self.clock, self.options, checkpoint=self.file
        )
        store.run_inline(self._told_durable)
        store.places.settles_at_once = 1  # so that settling places takes several steps here, too
        self.store = store
        self._notice = 0
        self.staged = set()
        self.history = self.history.until(self.report.log.end_lsn)
        self.confirmed_lsn = store.journal.writer.durable_lsn
        self._decide(before, ())
        return store

    def decide(self, history: History, before: Iterable[History]) -> None:
        """Set the *history* that the recovery has shown; *before*: histories of interrupted recoveries."""
        self.history = history
        self._decide(0, before)

    def _decide(self, first: int, before: Iterable[History]) -> None:
        history = self.history
        decided = (*before, history.as_of(len(history.operations), history.queues))  # a copy of the current state
        for moment in self.moments[first:]:
            moment.decided = decided

    def queue(self, name: str) -> int:
        assert self.store is not None
        made: list[int] = []
        self.store.create_queue(name, lambda row: made.append(row.id))  # type: ignore[union-attr]
        self.history.queues |= {made[0]}
        self.hold("commit of a queue")
        return made[0]

    def content(self, size_bytes: int) -> bytes:
        return self.random.randbytes(size_bytes)

    def on(self, queue_id: int) -> list[int]:
        """Return the messages on a queue, except those that a prepared transaction is to enqueue or dequeue."""
        shown = self.history.shown(1 << 63)
        busy = {message_id for number in shown.get(IN_DOUBT, ()) for _, message_id, _ in self.history.intended[number]}
        return [message_id for message_id in shown.get(queue_id, []) if message_id not in busy]

    def in_doubt(self) -> list[int]:
        """Return the numbers of the transactions in doubt."""
        return self.history.shown(1 << 63).get(IN_DOUBT, [])

    def put(self, queue_id: int, size_bytes: int) -> int:
        assert self.store is not None
        content = self.content(size_bytes)
        message_id, lsn = self.store.put(queue_id, content, self.clock.wall_us())
        self.history.contents[message_id] = content
        self.history.did(lsn, "enqueue", message_id, queue_id)
        return message_id

    def put_in_pieces(
        self, queue_ids: Iterable[int], size_bytes: int, piece_bytes: int, between: Callable[[], object] = int
    ) -> int:
        """Stage a message, append to it, and enqueue it on the queues; call *between* before each further step."""
        assert self.store is not None
        content = self.content(size_bytes)
        now = self.clock.wall_us()
        pieces = [content[at : at + piece_bytes] for at in range(0, size_bytes, piece_bytes)]
        message_id = self.store.stage(pieces[0], now)
        self.staged.add(message_id)
        self.history.contents[message_id] = content
        for piece in pieces[1:]:
            between()
            self.store.append_content(message_id, piece, now, last=piece is pieces[-1])
        for queue_id in queue_ids:
            between()
            lsn = self.store.enqueue(message_id, queue_id, now)
            self.staged.discard(message_id)
            self.history.did(lsn, "enqueue", message_id, queue_id)
        return message_id

    def enqueue(self, queue_id: int, message_id: int) -> None:
        assert self.store is not None
        lsn = self.store.enqueue(message_id, queue_id, self.clock.wall_us())
        self.history.did(lsn, "enqueue", message_id, queue_id)

    def take(self, queue_id: int, message_id: int) -> None:
        assert self.store is not None
        lsn = self.store.dequeue(message_id, queue_id, self.clock.wall_us())
        self.history.did(lsn, "dequeue", message_id, queue_id)

    def purge(self, queue_id: int, keep: Collection[int] = ()) -> None:
        assert self.store is not None
        stays = {*keep, *self.store.transactions.locks.dequeued_from(queue_id)}
        lsn = self.store.purge(queue_id, self.clock.wall_us(), keep=keep)
        for message_id in self.history.shown(1 << 63).get(queue_id, ()):
            if message_id not in stays:
                self.history.did(lsn, "dequeue", message_id, queue_id)

    def begin(self, *, distributed: bool = False) -> StoreTransaction:
        assert self.store is not None
        xid = xid_of(len(self.history.intended) + 1) if distributed else b""
        return self.store.transactions.begin(self.clock.wall_us(), xid=xid)

    def commit(self, transaction: StoreTransaction, contents: Iterable[bytes]) -> None:
        """Commit a transaction: all operations have one LSN. *contents*: of the messages that it puts."""
        lsn = transaction.commit(self.clock.wall_us())
        made = iter(transaction.message_ids)
        self.history.contents |= dict(zip(transaction.message_ids, contents, strict=True))
        for operation in transaction.operations:
            is_new = isinstance(operation, Put) or operation.message_id in transaction.staged
            message_id = next(made) if isinstance(operation, Put) or is_new else operation.message_id
            kind: Literal["enqueue", "dequeue"] = "dequeue" if isinstance(operation, Dequeue) else "enqueue"
            self.history.did(lsn, kind, message_id, operation.queue_id)

    def prepare(self, transaction: StoreTransaction, contents: Iterable[bytes]) -> None:
        number = number_of(transaction.xid)
        self.history.contents |= dict(zip(transaction.staged, contents, strict=True))
        self.history.intended[number] = intentions(transaction)
        self.history.did(transaction.prepare(self.clock.wall_us()), "enqueue", number, IN_DOUBT)

    def end(self, number: int, *, commit: bool, decide: bool) -> None:
        """Commit, roll back or decide a prepared transaction; a decided one stays in doubt."""
        assert self.store is not None
        transaction, now = self.store.transactions.of(xid_of(number)), self.clock.wall_us()
        operations = transaction.operations
        if decide:
            lsn = transaction.decide(now, commit=commit)
        else:
            lsn = transaction.commit(now) if commit else transaction.rollback(now)
        if commit:
            for operation in operations:
                assert not isinstance(operation, Put)
                kind: Literal["enqueue", "dequeue"] = "dequeue" if isinstance(operation, Dequeue) else "enqueue"
                self.history.did(lsn, kind, operation.message_id, operation.queue_id)
        if not decide:
            self.history.did(lsn, "dequeue", number, IN_DOUBT)

    def forget(self, number: int) -> None:
        assert self.store is not None
        lsn = self.store.transactions.of(xid_of(number)).forget(self.clock.wall_us())
        self.history.did(lsn, "dequeue", number, IN_DOUBT)

    def seal(self) -> None:
        """End the block: the next record begins another one, in the same flush unless `kick` is called before."""
        assert self.store is not None
        self.store.journal.seal()

    def kick(self) -> None:
        assert self.store is not None
        if self._notice:
            self.store.journal.seal()
            self._notice, notice = 0, self._notice
            self.store.became_durable(notice)
        self.store.kick()
        check_base(self.store, self.staged)

    def _told_durable(self, lsn: int) -> None:
        assert self.store is not None
        if self.is_late:
            self._notice = lsn
        else:
            self.store.became_durable(lsn)

    def idle(self) -> None:
        assert self.store is not None
        self.store.journal.writer.write_mark()

    def close(self) -> None:
        assert self.store is not None
        self.store.close()
        self._removed(self.store)

    def _removed(self, store: JournalStore) -> None:
        self.confirmed_lsn = store.journal.writer.durable_lsn
        self.met["relocated bytes"] += store.relocation.copied_bytes
        self.met["relocated slots"] += store.relocation.emptied
        if store.checkpointing is not None:
            self.met["checkpoints"] += store.checkpointing.taken
        self.store = None

    def kill(self) -> None:
        """Kill the process; everything written is in the page cache."""
        assert self.store is not None
        self.store.journal.abandon()
        self._removed(self.store)
        self.history = self.history.until(self.confirmed_lsn)  # without threads, all written data is durable
