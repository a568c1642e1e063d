"""Tests of I11: a flipped byte is detected or harmless. It changes no delivered message, and loses none silently.

Detected means that the store refuses to open and names the LSNs. The one exception is the last blocks, which neither a
later block nor the durability mark proves durable yet. Rot there looks like a torn write, and is truncated. The mark is
written when the log is idle for 0.2 s, and at the close, so there is no exception after these.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator
from os import environ

import pytest

from cairnmq.base.testing.memory_disk import MemoryDirectory
from cairnmq.journal.format import block
from cairnmq.journal.format.block import Block, BlockHead
from cairnmq.journal.read.scanner import LogReader
from tests.harness.recovery.checker import Broken
from tests.harness.recovery.cores import on_all_cores
from tests.harness.recovery.rot import CUT, ENDS, FAULTS_PER_SHARD, REFUSED, Place, Rot, Verdicts, rot
from tests.harness.recovery.workload import workload
from tests.harness.recovery.world import World
from tests.harness.thorough import amount

FAULTS = amount("CAIRN_FAULTS", 30_000, 800)
SEED = int(environ.get("CAIRN_SEED", "1"))


@pytest.mark.timeout(0)  # a make target runs it for hours
def test_no_bit_flips_silently(tell: Callable[[str], None]) -> None:
    """The rule holds in many random runs with small containers."""
    ends = list(ENDS)
    each = min(FAULTS, FAULTS_PER_SHARD)
    shards = ((SEED, number, ends[number % len(ends)], each) for number in range(-(-FAULTS // FAULTS_PER_SHARD)))
    total = Verdicts()
    for verdicts in on_all_cores(rot, shards):
        total.add(verdicts)
    tell("\n".join(total.lines()))
    assert total.found.total() >= FAULTS
    assert total.found[REFUSED] > FAULTS / 4
    if FAULTS >= 100_000:  # fewer runs may have no checkpoint
        assert len(total.found) >= 4


# ---- at the real container size, with SQLite ------------------------------------------------------------------------


@pytest.fixture(scope="module")
def totals(tell: Callable[[str], None]) -> Iterator[Verdicts]:
    totals = Verdicts()
    yield totals
    tell("at the real container size, with SQLite: " + next(totals.lines()))


def small(end: Callable[[World], None]) -> Rot:
    """Return a store with a few blocks of two incarnations, after *end*."""
    world = World(MemoryDirectory())
    world.open()
    a, b = world.queue("a"), world.queue("b")
    world.put(a, 100)
    world.kick()
    first = world.put(b, 1000)
    world.kick()
    world.close()
    world.open()
    world.put_in_pieces([a, b], 70_000, 40_000)
    world.kick()
    world.take(b, first)
    world.kick()
    for _ in range(3):
        world.put(a, 10)
        world.put(b, 20)
        world.kick()
    end(world)
    return Rot(world)


def long(world: World) -> World:
    workload(world)
    return world


def check(store: Rot, places: Iterable[Place], totals: Verdicts) -> None:
    store.all(places, random.Random(5))
    totals.add(store.verdicts)


@pytest.mark.parametrize("end", [World.close, World.idle])
def test_rot_after_a_close_or_when_idle(totals: Verdicts, end: Callable[[World], None]) -> None:
    """After a close or an idle time, no rot is taken for a torn write."""
    store = small(end)
    rng = random.Random(1)
    every = [*store.every_head(), *store.in_blocks(600, rng), *store.anywhere(100, rng)]
    check(store, rng.sample(every, len(every) // 8), totals)
    assert store.verdicts.found[REFUSED] > 50
    assert store.verdicts.found[CUT] == 0


def test_rot_after_a_kill(totals: Verdicts) -> None:
    """Only the last flush is not proven durable; rot before it is detected."""
    store = small(lambda world: None)
    rng = random.Random(2)
    every = [*store.every_head(), *store.in_blocks(600, rng)]
    check(store, rng.sample(every, len(every) // 8), totals)
    assert store.verdicts.found[REFUSED] > 50
    assert 0 < store.verdicts.found[CUT] < store.verdicts.found[REFUSED] / 4
    assert len([found for found in store.blocks if found.lsn >= store.claimed_lsn]) == 1


def test_rot_in_a_log_with_recycled_containers(totals: Verdicts) -> None:
    """Rot in dead records of recycled containers is harmless, and none is taken for a torn write."""
    store = Rot(long(World(MemoryDirectory())))
    rng = random.Random(3)
    check(store, [*store.anywhere(60, rng), *store.in_blocks(60, rng)], totals)
    assert store.verdicts.found[CUT] == 0


# ---- seeded defects -------------------------------------------------------------------------------------------------


def test_a_reader_that_ignores_checksums_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def complete(head: BlockHead, view: memoryview) -> Block:
        return Block(head, view[block.BLOCK_HEAD_BYTES : head.size_bytes])

    store = small(World.close)
    monkeypatch.setattr(block, "complete", complete)
    with pytest.raises(Broken):
        store.all(store.in_blocks(200, random.Random(4)), random.Random(5))


def test_a_reader_that_takes_all_damage_for_torn_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    real = LogReader._damage

    def torn(self: LogReader, *args: object) -> object:
        damage = real(self, *args)  # type: ignore[arg-type]
        return damage and type(damage)(damage.first_lsn, damage.end_lsn, damage.reason, True)

    store = small(World.close)
    monkeypatch.setattr(LogReader, "_damage", torn)
    with pytest.raises(Broken, match="nothing was said"):
        store.all(store.in_blocks(200, random.Random(4)), random.Random(5))
