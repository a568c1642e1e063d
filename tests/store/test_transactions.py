"""Transactions of the journal store, one by one and against a plain model in long random histories."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from cairnmq.base.clock import ManualClock
from cairnmq.base.errors import (
    BadXid,
    MessageLocked,
    StoreError,
    TransactionEnded,
    TransactionTimedOut,
    UnknownTransaction,
)
from cairnmq.disk.memory import MemoryDirectory
from cairnmq.journal.log import OWN_LSN
from cairnmq.journal.record import HEAD_BYTES, MAX_PAYLOAD_BYTES, Flag, RecordType
from cairnmq.recovery.recover import recover
from cairnmq.store.journal_store import JournalStore
from cairnmq.store.options import StoreOptions
from cairnmq.store.transaction import MAX_HELD_BYTES, MAX_XID_BYTES, Transaction, TxState

from ..checkpoints import MemoryCheckpoint
from ..recovery.world import MemoryWiring
from .stores import NOW_US, Disk, come_to_rest, queue, shown

SMALL = 8192
OPTIONS = StoreOptions(
    container_bytes=SMALL, min_container_bytes=SMALL, max_write_buffers=0, checkpoint_bytes=5 * SMALL
)


@pytest.fixture
def disk() -> Disk:
    return Disk()


def types(disk: Disk) -> list[str]:
    return [RecordType(read.head.type).name for read in disk.records()]


# ---- one by one -----------------------------------------------------------------------------------------------------


def test_all_or_nothing_across_queues(disk: Disk) -> None:
    """E44: enqueues and dequeues become true together, at the commit."""
    store, _ = disk.open()
    a, b = queue(store, "a"), queue(store, "b")
    old, _ = store.put(a, b"old", NOW_US)
    txn = store.transactions.begin(NOW_US)
    txn.put(b, b"new", NOW_US)
    txn.dequeue(old, a, NOW_US)
    assert shown(store) == {a: [old]}
    store.kick()
    assert shown(disk.open()[0]) == {a: [old]}  # a crash rolls back what is open (E39)
    store, _ = disk.open()
    txn = store.transactions.begin(NOW_US)
    txn.put(b, b"new", NOW_US)
    txn.dequeue(old, a, NOW_US)
    lsn = txn.commit(NOW_US)
    assert store.durable_lsn <= lsn
    store.kick()
    assert store.durable_lsn > lsn
    [new] = txn.message_ids
    assert shown(store) == {b: [new]}
    again, _ = disk.open()
    assert shown(again) == {b: [new]}
    assert again.load_piece(new, 0) == b"new"


def test_the_records_of_a_local_transaction(disk: Disk) -> None:
    """E33, E34, E36, E37: its id is the LSN of its start, every record names it, each operation is one record."""
    store, _ = disk.open()
    q = queue(store)
    txn = store.transactions.begin(NOW_US)
    for number in range(3):
        txn.put(q, b"%d" % number, NOW_US)
    txn.commit(NOW_US)
    store.kick()
    assert types(disk) == ["TX_START", "START", "START", "START", "TX_COMMIT"]
    records = disk.records()
    assert {read.head.txn_id for read in records} == {records[0].lsn}
    assert records[-1].head.undo_prev == records[0].lsn


def test_a_transaction_of_one_operation_is_one_record(disk: Disk) -> None:
    store, _ = disk.open()
    q = queue(store)
    txn = store.transactions.begin(NOW_US)
    txn.put(q, b"alone", NOW_US)
    txn.commit(NOW_US)
    store.kick()
    [record] = disk.records()
    assert (record.head.type, record.head.txn_id) == (RecordType.START, 0)


def test_an_empty_transaction_writes_nothing(disk: Disk) -> None:
    store, _ = disk.open()
    before = store.journal.next_lsn
    txn = store.transactions.begin(NOW_US)
    assert txn.commit(NOW_US) == 0
    assert store.journal.next_lsn == before


def test_rolling_back_restores_everything(disk: Disk) -> None:
    """E45: also what it staged because it was too much for the memory."""
    store, _ = disk.open()
    q = queue(store)
    old, _ = store.put(q, b"old", NOW_US)
    txn = store.transactions.begin(NOW_US)
    txn.dequeue(old, q, NOW_US)
    for _ in range(MAX_HELD_BYTES // 500_000 + 2):
        txn.put(q, bytes(500_000), NOW_US)
    assert len(store.state) > 1
    txn.rollback(NOW_US)
    store.kick()
    assert (len(store.state), shown(store)) == (1, {q: [old]})
    store.dequeue(old, q, NOW_US)


def test_visible_in_the_order_of_commits(disk: Disk) -> None:
    store, _ = disk.open()
    q = queue(store)
    first, second = store.transactions.begin(NOW_US), store.transactions.begin(NOW_US, xid=b"x")
    first.put(q, b"1", NOW_US)
    second.put(q, b"2", NOW_US)
    first.put(q, bytes(MAX_PAYLOAD_BYTES + 1), NOW_US)
    second.put(q, b"2", NOW_US)
    second.prepare(NOW_US)
    between, _ = store.put(q, b"between", NOW_US)
    first.commit(NOW_US)
    second.commit(NOW_US)
    expected = [between, *first.message_ids, *second.message_ids]
    assert shown(store) == {q: expected}
    store.kick()
    assert shown(disk.open()[0]) == {q: expected}


def test_what_is_locked(disk: Disk) -> None:
    """E46: nobody else takes off what a transaction takes off; what is gone is not on the queue."""
    store, _ = disk.open()
    q = queue(store)
    old, _ = store.put(q, b"old", NOW_US)
    txn, other = store.transactions.begin(NOW_US), store.transactions.begin(NOW_US)
    txn.dequeue(old, q, NOW_US)
    for taking in (store.dequeue, txn.dequeue, other.dequeue):
        with pytest.raises(MessageLocked, match=f"message {old}: transaction takes it off queue {q}"):
            taking(old, q, NOW_US)
    txn.rollback(NOW_US)
    other.dequeue(old, q, NOW_US)
    other.commit(NOW_US)
    with pytest.raises(StoreError, match="not on queue"):
        store.transactions.begin(NOW_US).dequeue(old, q, NOW_US)
    with pytest.raises(StoreError, match="not on queue"):
        store.dequeue(old, q, NOW_US)


def test_a_message_is_kept_for_a_transaction_that_puts_it_on_a_queue(disk: Disk) -> None:
    """E43: taken off its last queue meanwhile, it stays until the outcome is known (E44, E45)."""
    for commits in (True, False):
        store, _ = disk.open()
        a, b = queue(store, "a"), queue(store, "b")
        message, _ = store.put(a, b"both", NOW_US)
        txn = store.transactions.begin(NOW_US, xid=b"x")
        txn.enqueue(message, b, NOW_US)
        with pytest.raises(StoreError, match="already"):
            txn.enqueue(message, b, NOW_US)
        txn.prepare(NOW_US)
        store.dequeue(message, a, NOW_US)
        with pytest.raises(MessageLocked):
            store.destroy(message, NOW_US)
        store.kick()
        store, _ = disk.open()
        assert message in store.state
        txn = store.transactions.of(b"x")
        if commits:
            txn.commit(NOW_US)
            assert shown(store) == {b: [message]}
            store.dequeue(message, b, NOW_US)
        else:
            txn.rollback(NOW_US)
        store.kick()
        assert len(store.state) == len(disk.open()[0].state) == 0


@pytest.mark.parametrize("how", ["commit", "rollback", "decide to commit", "decide to roll back"])
def test_a_prepared_transaction_survives_crashes(disk: Disk, how: str) -> None:
    """E39, E42, E64: with its locks, any number of times, until its outcome is told; a decision until forgotten."""
    store, _ = disk.open()
    a, b = queue(store, "a"), queue(store, "b")
    old, _ = store.put(a, b"old", NOW_US)
    txn = store.transactions.begin(NOW_US, xid=b"some xid")
    txn.dequeue(old, a, NOW_US)
    txn.put(b, b"new", NOW_US)
    txn.prepare(NOW_US)
    store.kick()
    for _ in range(3):
        store, report = disk.open()
        assert report.discarded == 0
        [txn] = store.transactions.in_doubt()
        assert (txn.xid, txn.state) == (b"some xid", TxState.PREPARED)
        assert store.transactions.of(b"some xid") is txn
        assert shown(store) == {a: [old]}
        with pytest.raises(MessageLocked):
            store.dequeue(old, a, NOW_US)
    commits = "commit" in how
    if how.startswith("decide"):
        txn.decide(NOW_US, commit=commits)
    elif commits:
        txn.commit(NOW_US)
    else:
        txn.rollback(NOW_US)
    for _ in range(2):
        store.kick()
        assert sorted(shown(store)) == ([b] if commits else [a])
        assert len(store.state) == 1
        store, _ = disk.open()
    if how.startswith("decide"):
        [txn] = store.transactions.in_doubt()
        assert txn.state is (TxState.DECIDED_COMMIT if commits else TxState.DECIDED_ROLLBACK)
        with pytest.raises(TransactionEnded, match="without its coordinator"):
            txn.commit(NOW_US)
        with pytest.raises(BadXid):
            store.transactions.begin(NOW_US, xid=b"some xid")
        txn.forget(NOW_US)
        store.kick()
        store, _ = disk.open()
    assert store.transactions.in_doubt() == []
    with pytest.raises(UnknownTransaction):
        store.transactions.of(b"some xid")


def test_wrong_calls_are_refused_and_change_nothing(disk: Disk) -> None:
    store, _ = disk.open()
    q = queue(store)
    transactions = store.transactions
    txn = transactions.begin(NOW_US, xid=b"x")
    before = store.journal.next_lsn

    def refused(error: type[StoreError], call: Callable[[], object]) -> None:
        with pytest.raises(error):
            call()
        assert (store.journal.next_lsn, txn.operations) == (before, [])

    refused(StoreError, lambda: txn.put(99, b"", NOW_US))
    refused(StoreError, lambda: txn.enqueue(12345, q, NOW_US))
    refused(StoreError, lambda: txn.dequeue(12345, q, NOW_US))
    refused(BadXid, lambda: transactions.begin(NOW_US, xid=b"x"))
    refused(BadXid, lambda: transactions.begin(NOW_US, xid=bytes(MAX_XID_BYTES + 1)))
    refused(UnknownTransaction, lambda: transactions.of(b"y"))
    refused(TransactionEnded, lambda: transactions.begin(NOW_US).prepare(NOW_US))
    refused(TransactionEnded, lambda: txn.decide(NOW_US, commit=True))
    refused(TransactionEnded, lambda: txn.forget(NOW_US))
    txn.rollback(NOW_US)
    for call in (txn.commit, txn.rollback, txn.prepare):
        refused(TransactionEnded, lambda call=call: call(NOW_US))  # type: ignore[misc]
    refused(TransactionEnded, lambda: txn.put(q, b"", NOW_US))


def test_what_takes_too_long_is_rolled_back(disk: Disk) -> None:
    store, _ = disk.open()
    q = queue(store)
    old, _ = store.put(q, b"old", NOW_US)
    first, second = (store.transactions.begin(NOW_US, timeout_us=100) for _ in range(2))
    prepared = store.transactions.begin(NOW_US, xid=b"p", timeout_us=100)
    prepared.prepare(NOW_US + 99)
    first.dequeue(old, q, NOW_US + 99)
    assert store.transactions.expire(NOW_US + 99) == []
    with pytest.raises(TransactionTimedOut, match="took too long"):
        first.commit(NOW_US + 100)
    assert store.transactions.expire(NOW_US + 100) == [second]
    with pytest.raises(TransactionTimedOut):
        second.put(q, b"", NOW_US + 101)
    assert prepared.state is TxState.PREPARED  # its outcome is the coordinator's
    store.dequeue(old, q, NOW_US)


def test_room_for_the_outcome_is_promised_when_it_is_prepared(disk: Disk) -> None:
    """E48."""
    store, _ = disk.open()
    q = queue(store)
    pool = store.journal.pool
    spare = pool.spare
    txn = store.transactions.begin(NOW_US, xid=b"x")
    for _ in range(6000):
        txn.put(q, b"", NOW_US)
    txn.prepare(NOW_US)
    assert pool.reserved_bytes >= 6000 * HEAD_BYTES
    store.kick()
    assert disk.open()[0].journal.pool.reserved_bytes == pool.reserved_bytes
    txn.commit(NOW_US)
    assert (pool.reserved_bytes, len(txn.message_ids)) == (0, 6000)
    assert spare >= pool.spare


def test_what_was_never_prepared_is_rolled_back(disk: Disk) -> None:
    """A power cut took the end of what was written: E39, E41."""
    store, _ = disk.open()
    q = queue(store)
    old, _ = store.put(q, b"old", NOW_US)
    txn_id = store.journal.append(RecordType.DTX_START, b"x", time_us=NOW_US, txn_id=OWN_LSN)
    store.journal.append(
        RecordType.DEQUEUE, time_us=NOW_US, flags=Flag.PREPARED, message_id=old, queue_id=q, txn_id=txn_id
    )
    store.kick()
    store, _ = disk.open()
    assert store.transactions.in_doubt() == []
    store.dequeue(old, q, NOW_US)


def test_what_was_never_committed_is_not_relocated_as_if_it_were() -> None:
    """A dequeue whose commit a power cut took stays in the log; its container is emptied."""
    life = Life(0)
    store = life.store
    old, _ = store.put(1, bytes(2500), NOW_US)
    store.put(1, bytes(3500), NOW_US)
    while store.journal.next_lsn < SMALL:
        store.dequeue(store.put(1, bytes(300), NOW_US)[0], 1, NOW_US)
        store.kick()
    store.put(1, b"holds the container", NOW_US)
    slot = store.journal.current_slot
    store.journal.append(
        RecordType.DEQUEUE, time_us=NOW_US, flags=Flag.DELETE, message_id=old, queue_id=1, txn_id=old + 64, extra=old
    )
    for number in range(60):
        store.dequeue(store.put(1, bytes(1500), NOW_US)[0], 1, NOW_US)
        if number % 5 == 0:
            store.put(1, b"holds another one", NOW_US)
        store.kick()
    come_to_rest(store)
    assert 0 in store.journal.slots
    assert slot not in store.journal.slots
    store.kick()
    store.journal.abandon()
    life.checkpoint.entries = None
    assert old in shown(life.open())[1]


# ---- long histories -------------------------------------------------------------------------------------------------


@dataclass
class Model:
    """Queues and messages as they should be; what is prepared, with its operations."""

    on: dict[int, list[int]] = field(default_factory=lambda: {1: [], 2: []})
    contents: dict[int, bytes] = field(default_factory=dict)
    prepared: dict[bytes, list[tuple[str, int, int]]] = field(default_factory=dict)
    decided: dict[bytes, bool] = field(default_factory=dict)

    def copy(self) -> Model:
        on = {queue_id: list(ids) for queue_id, ids in self.on.items()}
        return Model(on, dict(self.contents), {k: list(v) for k, v in self.prepared.items()}, dict(self.decided))

    def do(self, operations: list[tuple[str, int, int]]) -> None:
        for what, message_id, queue_id in operations:
            if what == "take":
                self.on[queue_id].remove(message_id)
            else:
                self.on[queue_id].append(message_id)
        self.sweep()

    def sweep(self) -> None:
        """What is on no queue, and will not be, is gone."""
        there = {message_id for ids in self.on.values() for message_id in ids}
        there |= {message_id for work in self.prepared.values() for what, message_id, _ in work if what == "put"}
        self.contents = {message_id: content for message_id, content in self.contents.items() if message_id in there}


class Life:
    """A store in small containers, with checkpoints, and its model; kills keep what was flushed."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.files, self.wiring, self.checkpoint = MemoryDirectory(), MemoryWiring(), MemoryCheckpoint()
        self.model = Model()
        self.durable = Model()
        self.store = self.open()
        assert [queue(self.store, name) for name in "ab"] == [1, 2]
        self.xids = 0

    def open(self) -> JournalStore:
        store, _ = recover(self.files, self.wiring, ManualClock(), OPTIONS, checkpoint=self.checkpoint)
        store.run_inline(store.became_durable)
        return store

    def content(self) -> bytes:
        return self.rng.randbytes(self.rng.choice((10, 200, 1500)))

    def free_to_take(self) -> list[tuple[int, int]]:
        locked = {(m, q) for work in self.model.prepared.values() for what, m, q in work if what == "take"}
        pairs = [(message, queue_id) for queue_id, ids in self.model.on.items() for message in ids]
        return [pair for pair in pairs if pair not in locked]

    def put(self) -> None:
        queue_id, content = self.rng.choice((1, 2)), self.content()
        message_id, _ = self.store.put(queue_id, content, NOW_US)
        self.model.contents[message_id] = content
        self.model.on[queue_id].append(message_id)

    def take(self) -> None:
        if pairs := self.free_to_take():
            pairs = pairs[:4] if self.rng.random() < 0.7 else pairs  # most leave in order
            message_id, queue_id = self.rng.choice(pairs)
            self.store.dequeue(message_id, queue_id, NOW_US)
            self.model.do([("take", message_id, queue_id)])

    def transaction(self) -> None:
        rng, model = self.rng, self.model
        self.xids += 1
        xid = b"%d" % self.xids if rng.random() < 0.5 else b""
        txn = self.store.transactions.begin(NOW_US, xid=xid)
        work: list[tuple[str, int, int]] = []
        contents: list[bytes] = []
        pairs = self.free_to_take()
        adding = {(m, q) for others in model.prepared.values() for what, m, q in others if what == "put"}
        for _ in range(rng.choice((1, 2, 5, 30))):
            what = rng.random()
            if what < 0.5:
                queue_id = rng.choice((1, 2))
                contents.append(self.content())
                txn.put(queue_id, contents[-1], NOW_US)
                work.append(("new", len(contents) - 1, queue_id))
            elif what < 0.8 and pairs:
                message_id, queue_id = pairs.pop(rng.randrange(min(4, len(pairs))))
                txn.dequeue(message_id, queue_id, NOW_US)
                work.append(("take", message_id, queue_id))
            elif model.contents:
                message_id, queue_id = rng.choice(list(model.contents)), rng.choice((1, 2))
                used = message_id in model.on[queue_id] or (message_id, queue_id) in adding
                if not used and ("put", message_id, queue_id) not in work:
                    txn.enqueue(message_id, queue_id, NOW_US)
                    work.append(("put", message_id, queue_id))
        outcome = rng.random()
        if xid and outcome < 0.6:
            self.prepare(txn, work, contents)
        elif outcome < 0.9:
            txn.commit(NOW_US)
            self.did(txn, work, contents)
        else:
            txn.rollback(NOW_US)

    def did(self, txn: Transaction, work: list[tuple[str, int, int]], contents: list[bytes]) -> None:
        ids = txn.message_ids
        self.model.contents |= dict(zip(ids, contents, strict=True))
        self.model.do([("put", ids[which], q) if what == "new" else (what, which, q) for what, which, q in work])

    def prepare(self, txn: Transaction, work: list[tuple[str, int, int]], contents: list[bytes]) -> None:
        txn.prepare(NOW_US)
        self.model.contents |= dict(zip(txn.staged, contents, strict=True))
        self.model.prepared[txn.xid] = [
            ("put", txn.staged[which], q) if what == "new" else (what, which, q) for what, which, q in work
        ]

    def outcome(self) -> None:
        """Of the oldest one, or of any, so that some stay for long."""
        rng, model = self.rng, self.model
        if model.decided and rng.random() < 0.3:
            xid = rng.choice(list(model.decided))
            self.store.transactions.of(xid).forget(NOW_US)
            del model.decided[xid]
        if len(model.prepared) < 3:
            return
        xid = rng.choice(list(model.prepared))
        txn = self.store.transactions.of(xid)
        commit = rng.random() < 0.7
        if rng.random() < 0.2:
            txn.decide(NOW_US, commit=commit)
            model.decided[xid] = commit
        elif commit:
            txn.commit(NOW_US)
        else:
            txn.rollback(NOW_US)
        work = model.prepared.pop(xid)
        if commit:
            model.do(work)
        model.sweep()

    def kick(self) -> None:
        self.store.kick()
        self.durable = self.model.copy()

    def kill(self) -> None:
        """What was not flushed is lost; now and then the checkpoint is, too, or is an old one."""
        self.store.journal.abandon()
        what = self.rng.random()
        if what < 0.3:
            self.checkpoint.entries = None
        elif what < 0.5 and self.checkpoint.commits:
            self.checkpoint.entries = self.checkpoint.commits[-min(2, len(self.checkpoint.commits))]
        self.store = self.open()
        self.model = self.durable.copy()
        self.kick()
        self.check()

    def check(self) -> None:
        store, model = self.store, self.model
        assert shown(store) == {queue_id: ids for queue_id, ids in model.on.items() if ids}
        assert len(store.state) == len(model.contents)
        in_doubt = {txn.xid: txn for txn in store.transactions.in_doubt()}
        assert set(in_doubt) == {*model.prepared, *model.decided}
        for xid, work in model.prepared.items():
            assert len(in_doubt[xid].operations) == len(work)
            for what, message_id, queue_id in work:
                if what == "take":
                    with pytest.raises(MessageLocked):
                        store.dequeue(message_id, queue_id, NOW_US)
        come_to_rest(store)
        for message_id, content in model.contents.items():
            assert b"".join(store.load_piece(message_id, n) for n in range(store.piece_count(message_id))) == content


@pytest.mark.parametrize("seed", range(8))
def test_any_history(seed: int) -> None:
    """E40 to E45, E71: in any order, with relocation and checkpoints in small containers, through any kills."""
    life = Life(seed)
    steps = [life.put] * 4 + [life.take] * 5 + [life.transaction] * 2 + [life.outcome, life.kick, life.kick]
    for number in range(1500):
        life.rng.choice(steps)()
        if number % 150 == 149:
            life.kick()
            life.check()
        if life.rng.random() < 0.02:
            life.kill()
    assert life.store.relocation.emptied or life.store.journal.incarnation > 5
