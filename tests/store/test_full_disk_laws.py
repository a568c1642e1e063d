"""Tests of properties of a store on a full disk: dequeues and rollbacks never end the store, and it starts again.

The containers are small, and other programs fill the disk to the last byte as soon as the store reports that it is
full. New messages are refused then; open transactions, holds, dequeues and kills continue.
"""

from __future__ import annotations

import random

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from cairnmq.base.errors import DiskFull
from cairnmq.base.testing.manual_clock import ManualClock
from cairnmq.base.testing.memory_disk import MemoryDirectory
from cairnmq.recovery.recover import recover
from cairnmq.store.contract.options import StoreOptions
from cairnmq.store.contract.transaction import Dequeue, Enqueue, Put, StoreTransaction
from cairnmq.store.journaled.store import JournalStore
from tests.harness.recovery.world import MemoryWiring
from tests.harness.store.small_disk import Held, SmallDisk
from tests.harness.store.stores import queue
from tests.harness.thorough import amount

SIZE = 16 << 10
OPTIONS = StoreOptions(container_bytes=SIZE, min_container_bytes=4096, reserve_bytes=8 * SIZE)
BATCH_BYTES = 2 * SIZE
"""The maximum size of a batch: a quarter of the reserve."""
CAPACITY_BYTES = (4 << 20) + 80 * SIZE
"""The size of the disk, of which 4 MiB are left to other programs."""
ROOMY_BYTES = 12 << 20
"""The size of a disk with enough room for the store to accept messages again."""
NAMES = "ab"


class FullDisk(RuleBasedStateMachine):
    """A store on a small disk, and a model of its contents."""

    def __init__(self) -> None:
        super().__init__()
        self.disk = SmallDisk(MemoryDirectory(), CAPACITY_BYTES)
        self.wiring = MemoryWiring()
        self.held = Held()
        self.store = self.open()
        self.queues = [queue(self.store, name) for name in NAMES]
        self.there: dict[int, dict[int, None]] = {queue_id: {} for queue_id in self.queues}
        self.open_ones: list[StoreTransaction] = []
        self.prepared: list[bytes] = []
        self.xids = 0

    def open(self) -> JournalStore:
        self.disk.calls.clear()
        store, _ = recover(self.disk, self.wiring, ManualClock(), OPTIONS, holds=self.held)
        store.run_inline(store.became_durable)
        return store

    def teardown(self) -> None:
        """Check that all messages can be dequeued, and that the store then accepts messages on a larger disk."""
        self.disk.capacity_bytes = min(self.disk.capacity_bytes, self.disk.used_bytes())
        for transaction in [*self.open_ones, *(self.store.transactions.of(xid) for xid in self.prepared)]:
            transaction.rollback(1)
            self.rest()
        for queue_id in self.queues:
            self._take(queue_id, [*self.there[queue_id]], 10)
        self.restart()
        assert not len(self.store.state)
        self.held.is_there = False
        self.disk.capacity_bytes = ROOMY_BYTES
        self.rest()
        assert self.store.full() == ""

    def rest(self) -> None:
        """Flush until no work is left."""
        for _ in range(3):
            self.store.kick()
            self.store.became_durable(self.store.journal.writer.durable_lsn)
        self.store.journal.writer.write_mark()
        self.look_after_containers()

    def look_after_containers(self) -> None:
        """Do the work of the store's background thread; if the disk is full, other programs take the rest."""
        pool = self.store.journal.pool
        pool.settle()
        while pool.prepare():
            pass
        pool.look_at_room()
        if pool.is_full:  # other programs take the rest at once
            self.disk.capacity_bytes = min(self.disk.capacity_bytes, self.disk.used_bytes())

    # ---- puts -----------------------------------------------------------------------------------------------------

    def _contents(self, size_bytes: int, most: int) -> list[bytes]:
        return [bytes(size_bytes)] * max(1, min(most, BATCH_BYTES // (size_bytes + 64)))

    @initialize(size_bytes=st.sampled_from((40, 300, 3000)), turns=st.integers(0, 200))
    def fill(self, size_bytes: int, turns: int) -> None:
        for turn in range(turns):
            if self.store.full():
                return
            self._put(self.queues[turn % 2], self._contents(size_bytes, 100))

    @rule(which=st.integers(0, 1), size_bytes=st.integers(0, 5000), most=st.integers(1, 300))
    def put(self, which: int, size_bytes: int, most: int) -> None:
        if not self.store.full():
            self._put(self.queues[which], self._contents(size_bytes, most))

    def _put(self, queue_id: int, contents: list[bytes]) -> None:
        self.there[queue_id] |= dict.fromkeys(self.store.put_all(queue_id, contents, 1)[0])
        self.rest()

    @rule(size_bytes=st.integers(0, 300), most=st.integers(1, 400), times=st.integers(2, 30))
    def fan_out(self, size_bytes: int, most: int, times: int) -> None:
        """Enqueue messages often, as a fanout to many queues does; here on `b` alone, with dequeues in between."""
        contents = self._contents(size_bytes, most)
        if self.store.full(sum(map(len, contents)), len(contents) * times):
            return
        a, b = self.queues
        ids = self.store.put_all(a, contents, 1)[0]
        for number in range(times - 1):
            for message_id in ids:
                if number % 2:
                    self.store.dequeue(message_id, b, 1)
                else:
                    self.store.enqueue(message_id, b, 1)
        self.there[a] |= dict.fromkeys(ids)
        if times % 2 == 0:
            self.there[b] |= dict.fromkeys(ids)
        self.rest()

    # ---- transactions ---------------------------------------------------------------------------------------------

    @rule(data=st.data(), distributed=st.booleans(), batches=st.integers(1, 60), size_bytes=st.integers(0, 400))
    def begin(self, data: st.DataObject, distributed: bool, batches: int, size_bytes: int) -> None:
        """Begin a transaction that puts messages until the store is full, and dequeues some."""
        self.xids += 1
        transaction = self.store.transactions.begin(1, xid=b"%d" % self.xids if distributed else b"")
        self.open_ones.append(transaction)
        for number in range(batches):
            if self.store.full():
                break
            transaction.put_all(self.queues[number % 2], self._contents(size_bytes, 60), 1)
            self.rest()
        for queue_id in self.queues:
            for message_id in self._some(queue_id, data.draw(st.integers(0, 300))):
                transaction.dequeue(message_id, queue_id, 1)

    @precondition(lambda self: self.open_ones)
    @rule(pick=st.integers(0, 9), how=st.sampled_from(("rollback", "rollback", "commit", "prepare")))
    def end(self, pick: int, how: str) -> None:
        transaction = self.open_ones.pop(pick % len(self.open_ones))
        try:
            if how == "commit":
                transaction.commit(1)
                self._committed(transaction)
            elif how == "prepare" and transaction.xid:
                transaction.prepare(1)
                self.prepared.append(transaction.xid)
            else:
                transaction.rollback(1)
        except DiskFull:
            transaction.rollback(1)
        self.rest()

    @precondition(lambda self: self.prepared)
    @rule(pick=st.integers(0, 9), commit=st.booleans())
    def decide(self, pick: int, commit: bool) -> None:
        transaction = self.store.transactions.of(self.prepared.pop(pick % len(self.prepared)))
        if commit:
            transaction.commit(1)
            self._committed(transaction)
        else:
            transaction.rollback(1)
        self.rest()

    def _committed(self, transaction: StoreTransaction) -> None:
        made = iter(transaction.message_ids)
        staged = {*transaction.staged}
        for operation in transaction.operations:
            if isinstance(operation, Dequeue):
                del self.there[operation.queue_id][operation.message_id]
                continue
            assert isinstance(operation, Put | Enqueue)
            is_made = isinstance(operation, Put) or operation.message_id in staged
            message_id = next(made) if isinstance(operation, Put) or is_made else operation.message_id
            self.there[operation.queue_id][message_id] = None

    # ---- dequeues, and other events -------------------------------------------------------------------------------

    def _some(self, queue_id: int, count: int) -> list[int]:
        """Return the first *count* messages on the queue that no transaction has locked."""
        locked = self.store.transactions.locks.dequeued
        return [one for one in self.there[queue_id] if queue_id not in locked.get(one, ())][:count]

    @rule(which=st.integers(0, 1), share=st.floats(0, 1), seed=st.integers(0, 99), at_once=st.sampled_from((1, 3, 10)))
    def take(self, which: int, share: float, seed: int, at_once: int) -> None:
        ids = self._some(self.queues[which], 1 << 30)
        random.Random(seed).shuffle(ids)
        self._take(self.queues[which], ids[: int(share * len(ids))], at_once)  # a few at once: compaction keeps up

    def _take(self, queue_id: int, ids: list[int], at_once: int) -> None:
        for at in range(0, len(ids), at_once):
            for message_id in ids[at : at + at_once]:
                self.store.dequeue(message_id, queue_id, 1)
                del self.there[queue_id][message_id]
            self.store.kick()
            self.look_after_containers()
        self.rest()

    @rule()
    def hold(self) -> None:
        self.held.is_there = True

    @rule()
    def let_go(self) -> None:
        self.held.is_there = False

    @rule(times=st.integers(1, 4))
    def kill(self, times: int) -> None:
        for _ in range(times):
            self.restart()

    def restart(self) -> None:
        self.store.journal.abandon()
        self.store = self.open()
        self.open_ones.clear()
        self.rest()
        shown = self.store.messages()
        assert {queue_id: {*shown.get(queue_id, ())} for queue_id in self.queues} == {
            queue_id: {*ids} for queue_id, ids in self.there.items()
        }

    @rule()
    def free_some(self) -> None:
        self.disk.capacity_bytes = ROOMY_BYTES
        self.rest()

    @invariant()
    def it_lives(self) -> None:
        assert self.store.journal.writer.failure is None


TestFullDisk = FullDisk.TestCase
TestFullDisk.settings = settings(
    max_examples=amount("CAIRN_FULL_DISKS", 25, 4), stateful_step_count=25, deadline=None, print_blob=True
)
