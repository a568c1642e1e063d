"""Tests of the journal store against a plain model: any calls, closes, kills and power cuts, and the final state."""

from __future__ import annotations

import random

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    initialize,
    invariant,
    precondition,
    rule,
)

from cairnmq.base.errors import StoreError
from cairnmq.base.testing.memory_disk import MemoryDirectory
from cairnmq.journal.format.record import MAX_PAYLOAD_BYTES
from cairnmq.recovery.report import RecoveryReport
from cairnmq.store.journaled.store import JournalStore
from tests.harness.recovery.checker import content_of
from tests.harness.store.stores import BIG, NOW_US, SIZE, Disk, come_to_rest, live_records, shown
from tests.harness.thorough import amount

LIMIT = MAX_PAYLOAD_BYTES
SIZES = st.integers(0, 900) | st.sampled_from([LIMIT - 1, LIMIT, LIMIT + 1, 200_000])
Change = tuple[int, bool, int, int]
"""A change that a record makes: its LSN, whether it is an enqueue, the message, the queue."""


class StoreMachine(RuleBasedStateMachine):
    """A store, and its model: for each queue the messages in order, and the content of each message."""

    completed = Bundle("whole")  # messages with all their content, on queues or on none
    growing = Bundle("growing")

    def __init__(self) -> None:
        super().__init__()
        self.disk = Disk()
        self.changes: list[Change] = []
        self.contents: dict[int, bytes] = {}
        self.on: dict[int, list[int]] = {}
        self.alive: dict[int, bytearray] = {}
        self.is_growing: set[int] = set()
        self.queue_ids: dict[str, int] = {}
        self.highest = 0
        self.filler = 0
        self.store: JournalStore
        self.open()

    def open(self) -> RecoveryReport:
        self.store, report = self.disk.open()
        return report

    @initialize()
    def two_queues(self) -> None:
        self.create_queue("a")
        self.create_queue("b")

    def content(self, size_bytes: int) -> bytes:
        self.filler += 1
        return (b"%d," % self.filler * (size_bytes // 2 + 1))[:size_bytes]

    def new(self, message_id: int, content: bytes) -> None:
        assert message_id > self.highest  # E15: never 0, never used again
        self.highest = message_id
        self.alive[message_id] = bytearray(content)

    @rule(name=st.sampled_from(["a", "b", "c", "a queue with a long name " * 30]))
    def create_queue(self, name: str) -> None:
        made: list[object] = []
        self.store.create_queue(name, made.append)
        queue_id: int = made[0].id  # type: ignore[attr-defined]
        if name in self.queue_ids:
            assert self.queue_ids[name] == queue_id
        else:
            assert queue_id not in self.queue_ids.values()
            self.queue_ids[name] = queue_id
            self.on[queue_id] = []

    @rule(target=completed, size_bytes=SIZES, queue=st.integers(0))
    def put(self, size_bytes: int, queue: int) -> int:
        content, queue_id = self.content(size_bytes), self.some_queue(queue)
        message_id, lsn = self.store.put(queue_id, content, NOW_US)
        self.new(message_id, content)
        self.enqueued(lsn, message_id, queue_id)
        return message_id

    @rule(target=growing, size_bytes=SIZES)
    def stage(self, size_bytes: int) -> int:
        content = self.content(size_bytes)
        message_id = self.store.stage(content, NOW_US)
        self.new(message_id, content)
        self.is_growing.add(message_id)
        return message_id

    @rule(message_id=growing, size_bytes=SIZES)
    def append(self, message_id: int, size_bytes: int) -> None:
        self.append_content(message_id, size_bytes, last=False)

    @rule(target=completed, message_id=consumes(growing), size_bytes=SIZES)
    def complete(self, message_id: int, size_bytes: int) -> int:
        self.append_content(message_id, size_bytes, last=True)
        return message_id

    def append_content(self, message_id: int, size_bytes: int, last: bool) -> None:
        content = self.content(size_bytes)
        if message_id not in self.is_growing:  # destroyed, or discarded by a recovery
            with pytest.raises(StoreError, match="its content is complete, or it does not exist"):
                self.store.append_content(message_id, content, NOW_US, last=last)
            return
        self.store.append_content(message_id, content, NOW_US, last=last)
        self.alive[message_id] += content
        if last:
            self.is_growing.remove(message_id)

    @rule(message_id=completed | growing, queue=st.integers(0))
    def enqueue(self, message_id: int, queue: int) -> None:
        queue_id = self.some_queue(queue)
        if message_id not in self.alive or message_id in self.is_growing:
            with pytest.raises(StoreError, match="it does not exist, or its content is not complete"):
                self.store.enqueue(message_id, queue_id, NOW_US)
        elif message_id in self.on[queue_id]:
            with pytest.raises(StoreError, match=f"it is on queue {queue_id} already"):
                self.store.enqueue(message_id, queue_id, NOW_US)
        else:
            self.enqueued(self.store.enqueue(message_id, queue_id, NOW_US), message_id, queue_id)

    def enqueued(self, lsn: int, message_id: int, queue_id: int) -> None:
        self.on[queue_id].append(message_id)
        self.contents[message_id] = bytes(self.alive[message_id])
        self.changes.append((lsn, True, message_id, queue_id))

    @rule(message_id=completed | growing, queue=st.integers(0))
    def dequeue(self, message_id: int, queue: int) -> None:
        queue_id = self.some_queue(queue)
        if message_id not in self.on[queue_id]:
            with pytest.raises(StoreError, match=f"it is not on queue {queue_id}"):
                self.store.dequeue(message_id, queue_id, NOW_US)
        else:
            self.dequeue_from(message_id, queue_id)

    def dequeue_from(self, message_id: int, queue_id: int) -> None:
        self.changes.append((self.store.dequeue(message_id, queue_id, NOW_US), False, message_id, queue_id))
        self.on[queue_id].remove(message_id)
        if not self.is_on_a_queue(message_id):
            del self.alive[message_id]

    @rule(data=st.data(), queue=st.integers(0))
    def dequeue_some(self, data: st.DataObject, queue: int) -> None:
        """Dequeue messages at once, in any order; some are also on other queues, or were moved."""
        queue_id = self.some_queue(queue)
        if not self.on[queue_id]:
            return
        some = data.draw(st.lists(st.sampled_from(self.on[queue_id]), unique=True, min_size=1))
        lsns = self.store.dequeue_all(some, queue_id, NOW_US)
        for lsn, message_id in zip(lsns, some, strict=True):
            self.changes.append((lsn, False, message_id, queue_id))
            self.on[queue_id].remove(message_id)
            if not self.is_on_a_queue(message_id):
                del self.alive[message_id]

    @rule(message_id=completed | growing)
    def destroy(self, message_id: int) -> None:
        if message_id not in self.alive or self.is_on_a_queue(message_id):
            with pytest.raises(StoreError, match="it does not exist, or is still on a queue"):
                self.store.destroy(message_id, NOW_US)
            return
        self.store.destroy(message_id, NOW_US)
        del self.alive[message_id]
        self.is_growing.discard(message_id)

    @rule(containers=st.integers(1, 3))
    def fill(self, containers: int) -> None:
        """Enqueue and dequeue messages, so that older ones are in sparse containers."""
        queue_id = self.some_queue(0)
        end_lsn = self.store.journal.next_lsn + containers * SIZE
        while self.store.journal.next_lsn < end_lsn:
            message_id, lsn = self.store.put(queue_id, BIG, NOW_US)
            self.new(message_id, BIG)
            self.enqueued(lsn, message_id, queue_id)
            self.dequeue_from(message_id, queue_id)
            self.store.kick()

    @rule()
    def kick(self) -> None:
        recorded_lsn = self.store.journal.next_lsn
        self.store.kick()
        assert self.store.durable_lsn == self.store.journal.writer.durable_lsn >= recorded_lsn
        for message_id, content in self.alive.items():
            assert content_of(self.store, message_id) == content
        for ids in self.on.values():
            loaded = self.store.load_many(ids, 1 << 30)
            for message_id, found in zip(ids, loaded, strict=True):
                assert found == (bytes(self.alive[message_id]) if self.store.piece_count(message_id) == 1 else None)

    @rule()
    def rest(self) -> None:
        self.kick()
        come_to_rest(self.store)
        pins, journal = self.store.state.pins, self.store.journal
        assert pins.live == live_records(self.store)
        assert set(pins.live) <= set(journal.extent.slots)
        assert len(journal.extent.slots) * SIZE <= 2 * pins.live_bytes + 4 * SIZE

    @rule()
    def close_and_open(self) -> None:
        self.store.close()
        self.opened(self.store.journal.writer.durable_lsn)

    @rule()
    def kill_and_open(self) -> None:
        self.store.journal.abandon()
        self.opened(self.store.durable_lsn)

    @rule(seed=st.integers(0, 2**32))
    def cut_power_and_open(self, seed: int) -> None:
        self.store.journal.abandon()
        self.disk.files = self.disk.files.after_power_cut(random.Random(seed))
        self.opened(self.store.durable_lsn)

    @rule(seed=st.integers(0, 2**32), share=st.floats(0, 1))
    def cut_power_in_a_flush(self, seed: int, share: float) -> None:
        """Cut the power at any operation of two flushes, compaction included."""
        moments: list[tuple[MemoryDirectory, int]] = []
        files = self.disk.files
        files.on_operation = lambda _: moments.append((files.after_kill(), self.store.journal.writer.durable_lsn))
        self.store.kick()
        self.store.kick()
        files.on_operation = None
        if moments:
            self.store.journal.abandon()
            disk, confirmed_lsn = moments[int(share * (len(moments) - 1))]
            self.disk.files = disk.after_power_cut(random.Random(seed))
            self.opened(confirmed_lsn)

    def opened(self, confirmed_lsn: int) -> None:
        """Check that all confirmed changes are recovered, the others up to the end of the log, and nothing else."""
        report = self.open()
        end_lsn = report.log.end_lsn
        assert not [change for change in self.changes if end_lsn <= change[0] < confirmed_lsn]
        self.changes = [change for change in self.changes if change[0] < end_lsn]
        self.on = {queue_id: [] for queue_id in self.queue_ids.values()}
        for _, puts, message_id, queue_id in self.changes:
            if puts:
                self.on[queue_id].append(message_id)
            else:
                self.on[queue_id].remove(message_id)
        kept = {message_id for ids in self.on.values() for message_id in ids}
        self.alive = {message_id: bytearray(self.contents[message_id]) for message_id in kept}
        for message_id, content in self.alive.items():
            assert content_of(self.store, message_id) == content
        self.is_growing = set()  # E29, E32: messages that were never enqueued are discarded
        self.highest = min(self.highest, end_lsn)  # messages that were never written have no ID
        assert report.messages == len(kept)

    def some_queue(self, number: int) -> int:
        return sorted(self.queue_ids.values())[number % len(self.queue_ids)]

    def is_on_a_queue(self, message_id: int) -> bool:
        return any(message_id in ids for ids in self.on.values())

    @invariant()
    def same_as_the_model(self) -> None:
        if not self.queue_ids:
            return
        assert shown(self.store) == {queue_id: ids for queue_id, ids in self.on.items() if ids}
        state, journal = self.store.state, self.store.journal
        assert len(state) == len(self.alive)  # E50
        assert all(message_id in state for message_id in self.alive)
        assert set(state.unfinished()) == {
            message_id for message_id in self.alive if not self.is_on_a_queue(message_id)
        }
        held = set(journal.extent.slots)
        assert held <= set(journal.pool.slots()) | set(range(journal.writer.durable_lsn // SIZE, max(held) + 1))
        for slot in live_records(self.store):
            assert slot in held  # E24
        assert journal.extent.base_lsn == min(held) * SIZE

    @precondition(lambda self: self.alive)
    @invariant()
    def pieces_are_small(self) -> None:
        for message_id, content in self.alive.items():
            assert self.store.piece_count(message_id) >= -(-len(content) // MAX_PAYLOAD_BYTES)

    def teardown(self) -> None:
        self.close_and_open()


StoreMachine.TestCase.settings = settings(max_examples=amount("CAIRN_STORE_RUNS", 30, 10), stateful_step_count=40)
TestStore = StoreMachine.TestCase
