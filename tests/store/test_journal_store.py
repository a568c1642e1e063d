"""The journal store against a plain model: any calls, closings and kills, and what is there afterwards."""

from __future__ import annotations

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
from cairnmq.disk.memory import MemoryDirectory
from cairnmq.journal.record import MAX_PAYLOAD_BYTES
from cairnmq.recovery.recover import recover
from cairnmq.recovery.report import RecoveryReport
from cairnmq.store.journal_store import JournalStore

from ..recovery.checker import History, check, check_base, content_of
from ..recovery.explorer import OPTIONS, MemoryWiring, World

NOW_US = 1_000_000
LIMIT = MAX_PAYLOAD_BYTES
SIZES = st.integers(0, 900) | st.sampled_from([LIMIT - 1, LIMIT, LIMIT + 1, 200_000])


class StoreMachine(RuleBasedStateMachine):
    """The model: for each queue the messages in order, and each message's content."""

    whole = Bundle("whole")  # messages with all their content, on queues or on none
    growing = Bundle("growing")

    def __init__(self) -> None:
        super().__init__()
        self.disk = MemoryDirectory()
        self.wiring = MemoryWiring()
        self.history = History()
        self.on: dict[int, list[int]] = {}
        self.alive: dict[int, bytearray] = {}
        self.is_growing: set[int] = set()
        self.queue_ids: dict[str, int] = {}
        self.highest = 0
        self.filler = 0
        self.store: JournalStore
        self.open()

    def open(self) -> RecoveryReport:
        clock = World(MemoryDirectory()).clock
        self.store, report = recover(self.disk, self.wiring, clock, OPTIONS)
        self.store.run_inline(self.store.became_durable)
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
            self.history.queues |= {queue_id}

    @rule(target=whole, size_bytes=SIZES, queue=st.integers(0))
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

    @rule(target=whole, message_id=consumes(growing), size_bytes=SIZES)
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

    @rule(message_id=whole | growing, queue=st.integers(0))
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
        self.history.contents[message_id] = bytes(self.alive[message_id])
        self.history.did(lsn, "enqueue", message_id, queue_id)

    @rule(message_id=whole | growing, queue=st.integers(0))
    def dequeue(self, message_id: int, queue: int) -> None:
        queue_id = self.some_queue(queue)
        if message_id not in self.on[queue_id]:
            with pytest.raises(StoreError, match=f"it is not on queue {queue_id}"):
                self.store.dequeue(message_id, queue_id, NOW_US)
            return
        self.history.did(self.store.dequeue(message_id, queue_id, NOW_US), "dequeue", message_id, queue_id)
        self.on[queue_id].remove(message_id)
        if not self.is_on_a_queue(message_id):
            del self.alive[message_id]

    @rule(message_id=whole | growing)
    def destroy(self, message_id: int) -> None:
        if message_id not in self.alive or self.is_on_a_queue(message_id):
            with pytest.raises(StoreError, match="it does not exist, or is still on a queue"):
                self.store.destroy(message_id, NOW_US)
            return
        self.store.destroy(message_id, NOW_US)
        del self.alive[message_id]
        self.is_growing.discard(message_id)

    @rule()
    def kick(self) -> None:
        self.store.kick()
        assert self.store.durable_lsn == self.store.journal.durable_lsn == self.store.journal.next_lsn
        for message_id, content in self.alive.items():
            assert content_of(self.store, message_id) == content
        for ids in self.on.values():
            loaded = self.store.load_many(ids, 1 << 30)
            for message_id, found in zip(ids, loaded, strict=True):
                assert found == (bytes(self.alive[message_id]) if self.store.piece_count(message_id) == 1 else None)

    @rule()
    def close_and_open(self) -> None:
        self.store.close()
        self.opened(self.store.journal.durable_lsn)

    @rule()
    def kill_and_open(self) -> None:
        self.store.journal.abandon()
        self.opened(self.store.durable_lsn)

    def opened(self, confirmed_lsn: int) -> None:
        report = self.open()
        shown = check(self.history, confirmed_lsn, self.store, report)
        self.history = self.history.until(report.log.end_lsn)
        self.on = {queue_id: shown.get(queue_id, []) for queue_id in self.queue_ids.values()}
        kept = {message_id for ids in self.on.values() for message_id in ids}
        self.alive = {message_id: bytearray(self.history.contents[message_id]) for message_id in kept}
        self.is_growing = set()  # E29, E32: what was never put on a queue is gone
        self.highest = min(self.highest, report.log.end_lsn)  # what was never written has no id
        assert report.messages == len(kept)

    def some_queue(self, number: int) -> int:
        return sorted(self.queue_ids.values())[number % len(self.queue_ids)]

    def is_on_a_queue(self, message_id: int) -> bool:
        return any(message_id in ids for ids in self.on.values())

    @invariant()
    def same_as_the_model(self) -> None:
        if not self.queue_ids:
            return
        found = self.store.messages()
        assert {queue_id: list(ids) for queue_id, ids in found.items()} == {q: ids for q, ids in self.on.items() if ids}
        assert set(self.store.state.messages) == set(self.alive)  # E50
        assert self.store.state.growing == self.is_growing
        assert set(self.store.state.chunks) <= set(self.alive)
        assert set(self.store.state.positions) <= {(number, queue) for queue, ids in self.on.items() for number in ids}
        check_base(self.store)  # E24

    @precondition(lambda self: self.alive)
    @invariant()
    def pieces_are_small(self) -> None:
        for message_id, content in self.alive.items():
            assert self.store.piece_count(message_id) >= -(-len(content) // MAX_PAYLOAD_BYTES)

    def teardown(self) -> None:
        self.close_and_open()


StoreMachine.TestCase.settings = settings(max_examples=80, stateful_step_count=40, deadline=None)
TestStore = StoreMachine.TestCase
