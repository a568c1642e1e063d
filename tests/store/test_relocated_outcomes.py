"""Tests of compaction of commits with operations in other containers; unreadable operations fail no store."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from cairnmq.base.errors import JournalError
from cairnmq.base.testing.manual_clock import ManualClock
from cairnmq.base.testing.memory_disk import MemoryDirectory
from cairnmq.journal.files import record_lookup as lookup
from cairnmq.journal.format.container import file_name
from cairnmq.journal.format.record import HEAD_BYTES
from cairnmq.recovery.recover import recover
from cairnmq.store.contract.options import StoreOptions
from cairnmq.store.journaled.store import JournalStore
from tests.harness.recovery.world import MemoryWiring
from tests.harness.store.stores import NOW_US, come_to_rest, queue, shown

SIZE = 8192
OPTIONS = StoreOptions(container_bytes=SIZE, min_container_bytes=SIZE, checkpoint_bytes=0)
STEPS = 200


class Home:
    """A store with a commit in a container without other live records, and its operations in full containers."""

    def __init__(self, operations: int = STEPS) -> None:
        self.files, self.wiring = MemoryDirectory(), MemoryWiring()
        self.store = self.open()
        self.q = queue(self.store)
        first, _ = self.store.put(self.q, bytes(900), NOW_US)
        txn = self.store.transactions.begin(NOW_US)
        for _ in range(operations):
            txn.put(self.q, bytes(100), NOW_US)
        txn.commit(NOW_US)
        self.store.kick()
        steps = txn.message_ids
        self.slot = max(self.store.state.outcomes.needed)
        """The slot of the commit."""
        self.kept = [first]
        for message_id in steps:
            if message_id // SIZE == self.slot:
                self.store.dequeue(message_id, self.q, NOW_US)
            else:
                self.kept.append(message_id)
        self.store.kick()

    def open(self) -> JournalStore:
        store, _ = recover(self.files, self.wiring, ManualClock(), OPTIONS)
        store.run_inline(store.became_durable)
        return store

    def traffic(self) -> None:
        """Enqueue and dequeue until slots are compacted, and that of the commit is reclaimed or found unreadable."""
        store = self.store
        for _ in range(1000):
            for _ in range(6):
                store.dequeue(store.put(self.q, bytes(3000), NOW_US)[0], self.q, NOW_US)
                store.kick()
            self.kept.append(store.put(self.q, bytes(10), NOW_US)[0])
            come_to_rest(store)
            if self.slot not in store.journal.extent.slots or self.slot in store.relocation.victims.unreadable:
                return

    def rot(self, lsn: int, data: bytes) -> None:
        number = self.store.journal.pool.slots()[lsn // SIZE]
        file = self.files.open(file_name(number), writable=True)
        file.write_at(lsn % SIZE, data)
        file.close()


@pytest.fixture
def home() -> Iterator[Home]:
    home = Home()
    yield home
    assert shown(home.store) == {home.q: home.kept}


def test_the_commit_moves(home: Home) -> None:
    home.traffic()
    assert home.slot not in home.store.journal.extent.slots
    home.store.journal.abandon()
    home.store = home.open()


def test_a_commit_of_more_than_a_container_lists() -> None:
    """A long commit is copied in several records, none of which passes the end of its container."""
    home = Home(operations=2 * SIZE // 8)
    home.traffic()
    assert home.slot not in home.store.journal.extent.slots
    home.store.journal.abandon()
    home.store = home.open()
    assert shown(home.store) == {home.q: home.kept}


@pytest.mark.parametrize(
    ("offset", "data"),
    [(8, b"\xff\xff\xff\x7f"), (24, b"\x01"), (-64 - HEAD_BYTES, bytes(64)), (4, b"\xff\xff")],
    ids=["its place", "its message", "the block's head", "its number"],
)
def test_rot_in_an_operation_leaves_the_commit_where_it_is(home: Home, offset: int, data: bytes) -> None:
    """The container of the commit stays, as do its operations; it is listed as unreadable, and others are compacted."""
    home.rot(home.kept[1] + offset, data)
    home.traffic()
    assert home.slot in home.store.journal.extent.slots
    assert home.slot in home.store.relocation.victims.unreadable
    assert home.store.relocation.emptied > 0
    assert home.slot in home.store.state.outcomes.needed


def test_operations_are_read_in_bulk(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every block is read once; reading record by record would block the thread that makes the store's calls."""
    blocks: list[int] = []
    alone: list[int] = []
    around, record = lookup._heads_around, lookup.read_record

    def one_block(*args: Any) -> Any:
        blocks.append(args[1])
        return around(*args)

    def one_record(*args: Any) -> Any:
        alone.append(args[1])
        return record(*args)

    monkeypatch.setattr(lookup, "_heads_around", one_block)
    monkeypatch.setattr("cairnmq.journal.files.durable_reads.read_record", one_record)
    steps = [step for one in home.store.state.outcomes.needed[home.slot].values() for step in one.steps]
    home.traffic()
    assert home.slot not in home.store.journal.extent.slots
    assert set(blocks) <= set(steps)
    assert 0 < len(blocks) < len(steps) / 10
    assert not alone


def test_heads_are_those_that_were_written(home: Home) -> None:
    """Records may be in several blocks and containers; an LSN outside of the log is left out, a wrong one raises."""
    read = home.store.journal.stored
    lsns = [kept for kept in home.kept if kept // SIZE in home.store.journal.extent.slots]
    heads = read.read_heads(lsns[::-1])
    assert sorted(heads) == lsns
    assert heads == {lsn: read.read_record(lsn).head for lsn in lsns}
    assert read.read_heads([lsns[0], 10_000 * SIZE + 576]) == {lsns[0]: heads[lsns[0]]}
    with pytest.raises(JournalError, match="no"):
        read.read_heads([lsns[0] + 8])
