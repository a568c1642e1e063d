"""A power cut at any moment, a crash inside the recovery, a kill before it: nothing confirmed is lost, nothing is half.

`CAIRNMQ_EXPLORE=100 pytest tests/recovery/test_power_cut.py` explores about a hundred times as much as each run does.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable, Iterator

import pytest

from cairnmq.disk.memory import MemoryDirectory

from .explorer import SCALE, Explorer, Moment, World, others_content, subsets, workload

SECTORS = pytest.mark.parametrize("sector_bytes", [512, 4096])


@pytest.fixture(scope="module")
def explorer(tell: Callable[[str], None]) -> Iterator[Explorer]:
    begun_s = time.process_time()
    explorer = Explorer()
    yield explorer
    tell(
        f"power cuts: {explorer.states} states recovered and checked, {explorer.nested} of them after a crash inside "
        f"a recovery, in {time.process_time() - begun_s:.1f} s of CPU"
    )


def moments(sector_bytes: int) -> list[Moment]:
    world = World(MemoryDirectory(sector_bytes=sector_bytes))
    workload(world)
    return world.moments


def some(of: list[Moment], share: float, seed: int) -> list[Moment]:
    """A share of the moments, others for each seed."""
    rng = random.Random(seed)
    return of if share >= 1 else [moment for moment in of if rng.random() < share]


def scaled(count: int) -> int:
    return max(1, round(count * SCALE))


def test_the_workload_does_what_the_crashes_are_to_meet() -> None:
    world = World(MemoryDirectory())
    workload(world)
    kinds = Counter(moment.after.split()[0] for moment in world.moments)
    assert set(kinds) == {"create", "write", "sync", "rename", "unlink", "commit"}
    heads = Counter(moment.after for moment in world.moments if moment.after.endswith(".cairn 0+512"))
    assert max(heads.values()) > 1  # a container was used again
    assert len(world.history.queues) == 2
    assert max(len(moment.disk.pending()) for moment in world.moments) > 500


# I1-I3, I6-I8, I10, I12, I13
@SECTORS
def test_power_cut_after_every_operation(explorer: Explorer, sector_bytes: int) -> None:
    for moment in moments(sector_bytes):
        explorer.cut(moment, samples=scaled(2))


@SECTORS
def test_power_cut_when_lost_sectors_hold_what_another_file_has_there(explorer: Explorer, sector_bytes: int) -> None:
    for moment in some(moments(sector_bytes), 0.5 * SCALE, seed=sector_bytes):
        for kept in subsets(moment.disk.pending(), explorer.rng, scaled(1), 2):
            disk = moment.disk.after_power_cut(kept, junk=others_content(moment.disk))
            explorer.recovered(disk, moment)


# I9: the second recovery finds what the first one found, wherever the first was cut
@SECTORS
def test_power_cut_inside_the_recovery_and_after_it(explorer: Explorer, sector_bytes: int) -> None:
    for moment in some(moments(sector_bytes), 0.04 * SCALE, seed=sector_bytes):
        choices = list(subsets(moment.disk.pending(), explorer.rng, scaled(1), 2))
        for kept in explorer.rng.sample(choices, min(len(choices), scaled(1))):
            explorer.cut_again(moment, kept, samples=scaled(1))


# I9: what was shown after a kill survives a later power cut
@SECTORS
def test_power_cut_after_a_kill_and_its_recovery(explorer: Explorer, sector_bytes: int) -> None:
    for moment in some(moments(sector_bytes), 0.02 * SCALE, seed=sector_bytes + 1):
        explorer.kill(moment, samples=scaled(1))
