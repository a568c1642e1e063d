"""Tests of message and transaction records in one log, which the paper keeps in two, and of their recovery."""

from __future__ import annotations

from contextlib import suppress

import pytest

from cairnmq.base.errors import BadXid, CairnError, JournalFailed
from cairnmq.base.testing.faulty_disk import Fault, FaultyDirectory, ever_after
from cairnmq.base.testing.manual_clock import ManualClock
from cairnmq.journal.format.record import RecordType
from cairnmq.recovery.recover import recover
from cairnmq.store.contract.transaction import MAX_XID_BYTES, TxState
from cairnmq.store.journaled.store import JournalStore
from tests.harness.recovery.world import OPTIONS
from tests.harness.store.stores import NOW_US, SIZE, Disk, put, queue, shown


def test_two_streams_in_one_log(disk: Disk) -> None:
    """E12: types separate the records of the transaction log; one sync makes both kinds durable, in order."""
    store, _ = disk.open()
    q = queue(store)
    syncs = store.journal.writer.meters.fsync_s.value().count
    txn = store.transactions.begin(NOW_US, xid=b"x")
    txn.put(q, b"content", NOW_US)
    txn.prepare(NOW_US)
    txn.commit(NOW_US)
    store.kick()
    assert store.journal.writer.meters.fsync_s.value().count == syncs + 1
    kinds = [RecordType(read.head.type) for read in disk.records()]
    of_messages = [kind.name for kind in kinds if kind < RecordType.DTX_START]
    of_transactions = [kind.name for kind in kinds if kind >= RecordType.DTX_START]
    assert of_messages == ["START", "ENQUEUE", "ENQUEUE"]
    assert of_transactions == ["DTX_START", "TX_PREPARE", "TX_COMMIT"]


def test_room_for_an_xid(disk: Disk) -> None:
    """E35: an xid may have up to 1,024 bytes, and is found again after a restart."""
    store, _ = disk.open()
    q = queue(store)
    xid = bytes(range(256)) * (MAX_XID_BYTES // 256)
    assert len(xid) == 1024
    with pytest.raises(BadXid):
        store.transactions.begin(NOW_US, xid=xid + b"x")
    txn = store.transactions.begin(NOW_US, xid=xid)
    txn.put(q, b"", NOW_US)
    txn.prepare(NOW_US)
    store.kick()
    [found] = disk.open()[0].transactions.in_doubt()
    assert found.xid == xid


def test_transactions_are_true_before_messages_are(disk: Disk) -> None:
    """E38: after recovery, messages in doubt are locked, and enqueues in doubt are not visible."""
    store, _ = disk.open()
    q = queue(store)
    old = put(store, q)
    txn = store.transactions.begin(NOW_US, xid=b"x")
    txn.dequeue(old, q, NOW_US)
    txn.put(q, b"new", NOW_US)
    txn.prepare(NOW_US)
    store.kick()
    again, report = disk.open()
    assert (shown(again), report.messages) == ({q: [old]}, 2)
    with pytest.raises(CairnError, match="takes it off"):
        again.dequeue(old, q, NOW_US)


def test_a_write_that_fails_changes_nothing_that_anybody_is_told(disk: Disk) -> None:
    """E47: memory may be ahead of the disk, but no change after the error is reported or found by the next start."""
    store, _ = disk.open()
    q = queue(store)
    kept = put(store, q)
    store.close()
    before = disk.files.after_kill()
    for call in range(1, 30):
        disk.files = before.after_kill()
        faulty = FaultyDirectory(disk.files)
        store, _ = recover(faulty, disk.wiring, ManualClock(), OPTIONS)
        told: list[int] = []
        store.run_inline(told.append)
        store.kick()
        told.clear()
        faulty.plan = ever_after(len(faulty.calls) + call, Fault())
        txn = store.transactions.begin(NOW_US)
        txn.dequeue(kept, q, NOW_US)
        for _ in range(9):
            txn.put(q, bytes(60_000), NOW_US)
        with suppress(JournalFailed):
            txn.commit(NOW_US)
            store.kick()
        if store.journal.writer.failure is None:
            break
        assert not told
        with pytest.raises(JournalFailed):
            _put_and_kick(store, q)
        store.journal.abandon()
        assert shown(disk.open()[0]) == {q: [kept]}
    assert call > 3


def _put_and_kick(store: JournalStore, queue_id: int) -> None:
    put(store, queue_id)
    store.kick()


def test_what_holds_of_messages_holds_of_transactions(disk: Disk) -> None:
    """E49: the base stops at the oldest open transaction, and advances when its end is durable."""
    store, _ = disk.open()
    q = queue(store)
    txn = store.transactions.begin(NOW_US, xid=b"x")
    txn.put(q, b"", NOW_US)
    txn.prepare(NOW_US)
    store.kick()
    first = store.journal.extent.base_lsn
    for _ in range(12):
        store.dequeue(store.put(q, bytes(SIZE // 8), NOW_US)[0], q, NOW_US)
        store.kick()
    assert store.journal.extent.base_lsn == first
    txn.rollback(NOW_US)
    store.kick()
    store.became_durable(store.durable_lsn)
    assert store.journal.extent.base_lsn > first
    assert txn.state is TxState.ROLLED_BACK


def test_records_of_other_queues_stand_between(disk: Disk) -> None:
    """E72: recovery continues past records of any queue, also of deleted ones."""
    store, _ = disk.open()
    queues = [queue(store, name) for name in "abc"]
    on: dict[int, list[int]] = {number: [] for number in queues}
    for number in range(60):
        on[queues[number % 3]].append(put(store, queues[number % 3]))
    for number in range(0, 60, 2):
        q = queues[number % 3]
        store.dequeue(on[q].pop(0), q, NOW_US)
    store.purge(queues[1], NOW_US, is_final=True)
    store.kick()
    again, _ = disk.open()
    assert shown(again) == {queues[0]: on[queues[0]], queues[2]: on[queues[2]]}


@pytest.fixture
def disk() -> Disk:
    return Disk()
