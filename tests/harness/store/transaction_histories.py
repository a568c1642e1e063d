"""Random histories of transactions on a store, with a model of their outcome."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import pytest

from cairnmq.base.errors import MessageLocked
from cairnmq.base.testing.manual_clock import ManualClock
from cairnmq.base.testing.memory_disk import MemoryDirectory
from cairnmq.recovery.recover import recover
from cairnmq.store.contract.options import StoreOptions
from cairnmq.store.contract.transaction import StoreTransaction
from cairnmq.store.journaled.store import JournalStore
from tests.harness.checkpoints import MemoryCheckpoint
from tests.harness.recovery.world import MemoryWiring
from tests.harness.store.stores import NOW_US, come_to_rest, queue, shown

SMALL = 8192
OPTIONS = StoreOptions(
    container_bytes=SMALL, min_container_bytes=SMALL, max_write_buffers=0, checkpoint_bytes=5 * SMALL
)


@dataclass
class Model:
    """The expected queues and messages, and the prepared transactions with their operations."""

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
        """Delete the messages that are on no queue and that no prepared transaction will enqueue."""
        there = {message_id for ids in self.on.values() for message_id in ids}
        there |= {message_id for work in self.prepared.values() for what, message_id, _ in work if what == "put"}
        self.contents = {message_id: content for message_id, content in self.contents.items() if message_id in there}


class Life:
    """A store in small containers, with checkpoints, and its model; kills keep all flushed data."""

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
            pairs = pairs[:4] if self.rng.random() < 0.7 else pairs  # most are dequeued in order
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

    def did(self, txn: StoreTransaction, work: list[tuple[str, int, int]], contents: list[bytes]) -> None:
        ids = txn.message_ids
        self.model.contents |= dict(zip(ids, contents, strict=True))
        self.model.do([("put", ids[which], q) if what == "new" else (what, which, q) for what, which, q in work])

    def prepare(self, txn: StoreTransaction, work: list[tuple[str, int, int]], contents: list[bytes]) -> None:
        txn.prepare(NOW_US)
        self.model.contents |= dict(zip(txn.staged, contents, strict=True))
        self.model.prepared[txn.xid] = [
            ("put", txn.staged[which], q) if what == "new" else (what, which, q) for what, which, q in work
        ]

    def outcome(self) -> None:
        """Perhaps forget a decided transaction; if at least three are prepared, end or decide a random one."""
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

    def purge(self) -> None:
        """Purge a queue, except for the messages that transactions have locked."""
        queue_id = self.rng.choice((1, 2))
        free = [message_id for message_id, on in self.free_to_take() if on == queue_id]
        kept = [message_id for message_id in self.model.on[queue_id] if message_id not in free]
        self.store.purge(queue_id, NOW_US, keep=kept)
        self.model.do([("take", message_id, queue_id) for message_id in free])

    def kick(self) -> None:
        self.store.kick()
        self.durable = self.model.copy()

    def kill(self) -> None:
        """Lose unflushed data, and sometimes the checkpoint or its newest commit; then recover and check."""
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

    def shown_without_checkpoint(self) -> dict[int, list[int]]:
        """Return the queues that a recovery of everything written, which reads the whole log, finds."""
        store, _ = recover(self.files.after_kill(), self.wiring, ManualClock(), OPTIONS, checkpoint=MemoryCheckpoint())
        return shown(store)

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
        live_bytes = store.state.pins.live_bytes  # prepared and decided transactions are live, too
        assert len(store.journal.extent.slots) * SMALL <= 2 * live_bytes + 4 * SMALL
        for message_id, content in model.contents.items():
            assert b"".join(store.load_piece(message_id, n) for n in range(store.piece_count(message_id))) == content
