"""Tests of power cuts in one run of a store with real container sizes, and with SQLite for its wiring."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator
from os import environ

import pytest

from cairnmq.base.testing.memory_disk import MemoryDirectory
from tests.harness.recovery.explorer import Explorer
from tests.harness.recovery.states import Crash
from tests.harness.recovery.tally import CUT, JUNK
from tests.harness.recovery.workload import workload
from tests.harness.recovery.world import Moment, World

SEED = int(environ.get("CAIRN_SEED", "1"))
SECTORS = pytest.mark.parametrize("sector_bytes", [512, 4096])


@pytest.fixture(scope="module")
def explorer(tell: Callable[[str], None]) -> Iterator[Explorer]:
    explorer = Explorer(SEED)
    yield explorer
    tell(f"at the real container size, with SQLite: {explorer.tally.states:,} states")


def moments(sector_bytes: int) -> list[Moment]:
    world = World(MemoryDirectory(sector_bytes=sector_bytes))
    workload(world)
    return world.moments


def some(of: list[Moment], share: float, seed: int) -> list[tuple[int, Moment]]:
    rng = random.Random(seed)
    return [(at, moment) for at, moment in enumerate(of) if rng.random() < share]


def test_the_workload_does_what_the_crashes_are_to_meet() -> None:
    world = World(MemoryDirectory())
    workload(world)
    kinds = Counter(moment.after.split()[0] for moment in world.moments)
    assert set(kinds) == {"create", "write", "sync", "rename", "unlink", "commit"}
    heads = Counter(moment.after for moment in world.moments if moment.after.endswith(".cairn 0+512"))
    assert max(heads.values()) > 1  # a container is reused
    assert len(world.history.queues) == 2
    assert max(len(moment.disk.pending()) for moment in world.moments) > 500


@SECTORS
def test_power_cut_after_every_operation(explorer: Explorer, sector_bytes: int) -> None:
    for at, moment in enumerate(moments(sector_bytes)):
        explorer.crashes(Crash(moment), CUT, str(at), samples=1, singles=2)


@SECTORS
def test_power_cut_when_lost_sectors_hold_what_another_file_has_there(explorer: Explorer, sector_bytes: int) -> None:
    for at, moment in some(moments(sector_bytes), 0.2, seed=sector_bytes):
        explorer.crashes(Crash(moment, "junk"), JUNK, str(at), samples=1, singles=2)


@SECTORS
def test_crash_after_crash(explorer: Explorer, sector_bytes: int) -> None:
    """I9: power is cut during recovery, after a kill and its recovery, and during the work after it."""
    every = moments(sector_bytes)
    for _ in range(2):
        explorer.wander(every, samples=1, exhaustive=0, depth=2)
