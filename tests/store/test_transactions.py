"""Tests of transactions of the journal store, mostly one at a time."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from cairnmq.base.errors import (
    BadXid,
    MessageLocked,
    StoreError,
    TransactionEnded,
    TransactionTimedOut,
    UnknownTransaction,
)
from cairnmq.journal.format.record import HEAD_BYTES, MAX_PAYLOAD_BYTES, Flag, RecordType
from cairnmq.journal.write.journal import OWN_LSN
from cairnmq.store.contract.dequeue_reason import DequeueReason, reason_of
from cairnmq.store.contract.options import StoreOptions
from cairnmq.store.contract.transaction import MAX_HELD_BYTES, MAX_XID_BYTES, TxState
from cairnmq.store.message_map.pins import Pins
from cairnmq.store.message_map.transaction_log import TransactionLog
from tests.harness.store.stores import NOW_US, Disk, queue, shown

SMALL = 8192
OPTIONS = StoreOptions(
    container_bytes=SMALL, min_container_bytes=SMALL, max_write_buffers=0, checkpoint_bytes=5 * SMALL
)


@pytest.fixture
def disk() -> Disk:
    return Disk()


def types(disk: Disk) -> list[str]:
    return [RecordType(read.head.type).name for read in disk.records()]


def test_all_or_nothing_across_queues(disk: Disk) -> None:
    """E44: enqueues and dequeues take effect together, at the commit."""
    store, _ = disk.open()
    a, b = queue(store, "a"), queue(store, "b")
    old, _ = store.put(a, b"old", NOW_US)
    txn = store.transactions.begin(NOW_US)
    txn.put(b, b"new", NOW_US)
    txn.dequeue(old, a, NOW_US)
    assert shown(store) == {a: [old]}
    store.kick()
    assert shown(disk.open()[0]) == {a: [old]}  # a crash rolls back open transactions (E39)
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
    """E33, E34, E36, E37: the ID is the LSN of the start, every record contains it, each operation is one record."""
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
    """E45: messages that were staged because they exceeded the memory limit are removed, too."""
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
    """E46: a message that an open transaction dequeues is locked; a dequeued one is not on the queue."""
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
    """E43: a message that is dequeued from its last queue meanwhile stays until the outcome is known (E44, E45)."""
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
    """E39, E42, E64: the transaction keeps its locks through crashes until its outcome; a decision, until forgotten."""
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
    assert prepared.state is TxState.PREPARED  # only the coordinator decides its outcome
    store.dequeue(old, q, NOW_US)


def test_room_for_the_outcome_is_promised_when_it_is_prepared(disk: Disk) -> None:
    """E48: space for the records of the outcome is reserved at the prepare, and after a restart."""
    store, _ = disk.open()
    q = queue(store)
    pool = store.journal.pool
    txn = store.transactions.begin(NOW_US, xid=b"x")
    for _ in range(6000):
        txn.put(q, b"", NOW_US)
    txn.prepare(NOW_US)
    assert pool.reserved_bytes >= 6000 * HEAD_BYTES
    store.kick()
    assert disk.open()[0].journal.pool.reserved_bytes == pool.reserved_bytes
    made = pool.made
    txn.commit(NOW_US)
    store.kick()
    assert (pool.reserved_bytes, len(txn.message_ids)) == (0, 6000)
    assert pool.made == made


def test_what_was_never_prepared_is_rolled_back(disk: Disk) -> None:
    """E39, E41: a transaction whose prepare was lost in a power cut is rolled back."""
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


@pytest.mark.parametrize("by_checkpoint", [False, True])
def test_a_prepared_dequeue_keeps_its_reason(disk: Disk, by_checkpoint: bool) -> None:
    """The dequeue record contains the reason even if the commit comes after a restart."""
    store, _ = disk.open()
    name = queue(store)
    first, second = (store.put(name, b"content", NOW_US)[0] for _ in range(2))
    txn = store.transactions.begin(NOW_US, xid=b"x")
    txn.dequeue(first, name, NOW_US, DequeueReason.REJECTED)
    txn.dequeue(second, name, NOW_US)
    txn.prepare(NOW_US)
    store.kick()
    store, _ = disk.open()
    if by_checkpoint:
        outcomes = TransactionLog(SMALL, Pins(SMALL))
        outcomes.decode(store.state.outcomes.encode())
        assert [(one.intentions, one.reasons) for one in outcomes.prepared.values()] == [
            (one.intentions, one.reasons) for one in store.state.outcomes.prepared.values()
        ]
        store.state.outcomes.prepared = outcomes.prepared
    store.transactions.of(b"x").commit(NOW_US)
    store.kick()
    done = [read.head for read in disk.records() if read.head.type == RecordType.DEQUEUE]
    done = [head for head in done if not head.flags & Flag.PREPARED]
    found = [(head.message_id, reason_of(head.flags)) for head in done]
    assert found == [(first, DequeueReason.REJECTED), (second, DequeueReason(0))]
