"""Tests of a store on a disk of a few MiB: with the reserve, all messages can be dequeued, also through kills."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from cairnmq.base.testing.manual_clock import ManualClock
from cairnmq.base.testing.memory_disk import MemoryDirectory
from cairnmq.journal.format.block import ACQUISITIONS, Block
from cairnmq.journal.format.record import RecordType
from cairnmq.journal.read.scanner import LogReader
from cairnmq.journal.write.open import MIN_CONTAINER_BYTES
from cairnmq.recovery.recover import recover
from cairnmq.store.contract.options import StoreOptions
from cairnmq.store.contract.wiring_rows import QueueRow
from cairnmq.store.journaled.acquire_records import taker
from cairnmq.store.journaled.store import JournalStore
from cairnmq.store.wiring.wiring import Wiring
from tests.harness.store.small_disk import SmallDisk
from tests.harness.store.spares import make_spares

OPTIONS = StoreOptions(container_bytes=MIN_CONTAINER_BYTES)


class World:
    """A store with two queues on a small disk."""

    def __init__(self, place: Path, *, acquisitions: bool = False) -> None:
        self.disk = SmallDisk(MemoryDirectory(), 16 << 20)
        self.place = place
        self.options = replace(OPTIONS, acquisitions=acquisitions)
        self.store = self.open()
        rows: list[QueueRow | Exception] = []
        for name in ("a", "b"):
            self.store.create_queue(name, rows.append)
        self.queues = [row.id for row in rows if isinstance(row, QueueRow)]

    def open(self) -> JournalStore:
        self.disk.calls.clear()
        store, _ = recover(self.disk, Wiring.open(str(self.place)), ManualClock(), self.options)
        store.run_inline(store.became_durable)
        make_spares(store)
        store.became_durable(store.journal.writer.durable_lsn)
        return store

    def kill(self) -> None:
        self.store.journal.abandon()
        self.store = self.open()

    def kick(self) -> None:
        """Flush until no work is left."""
        for _ in range(3):
            self.store.kick()
        self.store.journal.writer.write_mark()

    def fill(self, size_bytes: int, batch: int) -> list[list[int]]:
        """Enqueue messages on both queues in turns until the store is full; return their IDs per queue."""
        there: list[list[int]] = [[], []]
        turn = 0
        while not self.store.full():
            which = turn % 2
            ids, _ = self.store.put_all(self.queues[which], [turn.to_bytes(4, "big") * (size_bytes // 4)] * batch, 1)
            there[which] += ids
            self.store.kick()
            turn += 1
        return there


@pytest.mark.parametrize("size_bytes", [40, 300, 5000])
@pytest.mark.parametrize("order", ["one after the other", "at random"])
def test_everything_can_be_taken_off(tmp_path: Path, size_bytes: int, order: str) -> None:
    """The dequeues need a sector per flush; other programs fill the rest of the disk at once."""
    world = World(tmp_path / "wiring")
    there = world.fill(size_bytes, max(1, 20_000 // size_bytes))
    assert world.disk.free_bytes() < 6 << 20
    world.disk.capacity_bytes = world.disk.used_bytes()
    rng = random.Random(size_bytes)
    work = [(queue, message) for queue, ids in zip(world.queues, there, strict=True) for message in ids]
    if order == "at random":
        rng.shuffle(work)
    kills = {rng.randrange(len(work)) for _ in range(6)}
    for number, (queue, message) in enumerate(work):
        world.store.dequeue(message, queue, 1)
        if number % 5 == 0:  # the others share a flush
            world.store.kick()
        if number in kills:
            world.kick()
            world.kill()
            left = {message for ids in world.store.messages().values() for message in ids}
            assert left == {message for _, message in work[number + 1 :]}
    world.kick()
    assert not len(world.store.state)
    world.disk.capacity_bytes = 16 << 20
    make_spares(world.store)
    assert world.store.full() == ""
    assert world.disk.used_bytes() < 8 << 20


@pytest.mark.parametrize("size_bytes", [35_000, 60_000, 65_000])
def test_what_only_fits_badly_is_not_copied(tmp_path: Path, size_bytes: int) -> None:
    """Copies of all messages of a slot would leave as much free space at its end, and would be copied again."""
    world = World(tmp_path / "wiring")
    there = world.fill(size_bytes, 1)
    store, queue = world.store, world.queues[0]
    for number, message in enumerate(there[0][20:34]):
        store.dequeue(message, queue, 1)
        for _ in range(5):
            world.kick()
            make_spares(store)
        assert store.relocation.copied_bytes <= 2 * store.journal.container_bytes, number
    assert store.relocation.emptied
    assert store.journal.pool.unclaimed > 5


@pytest.mark.parametrize(
    "end", [lambda store: store.journal.abandon(), lambda store: store.close()], ids=["kill", "close"]
)
def test_starts_that_end_after_their_first_dequeue(tmp_path: Path, end: Callable[[JournalStore], None]) -> None:
    """Every start leaves a container with a necessary record, and ends before compaction.

    A start after a close has nothing to copy or to try, so it does not detect by itself that the disk is full.
    """
    world = World(tmp_path / "wiring")
    there = world.fill(5000, 4)
    world.disk.capacity_bytes = world.disk.used_bytes()
    for message in there[0][:100]:
        end(world.store)
        world.store, _ = recover(world.disk, Wiring.open(str(world.place)), ManualClock(), OPTIONS)
        world.store.run_inline(lambda lsn: None)
        world.store.dequeue(message, world.queues[0], 1)
        world.store.kick()
    world.kill()
    left = {message for ids in world.store.messages().values() for message in ids}
    assert left == {*there[0][100:], *there[1]}


def test_what_is_refused_costs_nothing(tmp_path: Path) -> None:
    world = World(tmp_path / "wiring")
    world.fill(300, 60)
    before, calls = world.store.journal.next_lsn, len(world.disk.calls)
    assert world.store.full()
    assert (world.store.journal.next_lsn, len(world.disk.calls)) == (before, calls)


def test_what_nobody_waits_for_is_left_out_while_there_is_no_room(tmp_path: Path) -> None:
    """Delivery tracking uses none of the reserve, and the flags of blocks show that it is incomplete."""
    world = World(tmp_path / "wiring", acquisitions=True)
    store, queue = world.store, world.queues[0]
    there = world.fill(5000, 4)[0]
    world.kick()
    before = store.journal.next_lsn
    store.note_acquired(queue, taker("c", "l"), there, 1)
    assert store.journal.next_lsn == before
    store.dequeue(there[0], queue, 1)
    store.kick()
    world.disk.capacity_bytes *= 4
    make_spares(store)
    assert not store.full()
    store.note_acquired(queue, taker("c", "l"), there[1:], 1)
    store.write_notes()
    blocks = [block for block in LogReader(world.disk).scan() if isinstance(block, Block) and block.lsn >= before]
    assert blocks[0].head.flags == 0
    assert {block.head.flags for block in blocks[1:]} == {ACQUISITIONS}
    assert [head.type for head in blocks[-1].heads()] == [RecordType.ACQUIRE]
