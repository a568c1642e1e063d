"""Tests of power cuts at any time, crashes during recovery, and kills: no confirmed change is lost, none is partial.

Each run explores 4,000 states in small containers, on all cores, and 200,000 in CI; see
`test_power_cut_at_real_size.py` for others.
`make explore STATES=100000000 SEED=7` explores another number of states.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from os import environ

import pytest

from tests.harness.recovery.checker import Broken
from tests.harness.recovery.cores import on_all_cores
from tests.harness.recovery.shards import again, begin, explore, explore_all
from tests.harness.recovery.states import Crash
from tests.harness.recovery.tally import Tally
from tests.harness.recovery.world import World
from tests.harness.thorough import amount

STATES = amount("CAIRN_STATES", 200_000, 2_000)
SEED = int(environ.get("CAIRN_SEED", "1"))


@pytest.mark.timeout(0)  # a make target runs it for hours
def test_every_state_that_crashes_may_leave(tell: Callable[[str], None]) -> None:
    """I1 to I10, I12 and I13, in small containers: see `shards`."""
    tally = explore_all(STATES, SEED)
    tell("\n".join(tally.lines()))
    assert tally.states >= STATES
    if STATES >= 200_000:  # fewer shards may not draw all kinds
        assert len(tally.kinds) == 5
        assert set(tally.sectors) == {512, 4096}
        assert len(+tally.met) == len(tally.met) >= 4


# ---- the exploration itself -----------------------------------------------------------------------------------------


def test_an_exploration_is_the_same_on_any_number_of_processes() -> None:
    here = Tally()
    for number in range(2):
        here.add(explore(3, number, 800))
    there = Tally()
    for tally in on_all_cores(explore, [(3, 0, 800), (3, 1, 800)]):
        there.add(tally)
    here.cpu_s = there.cpu_s = 0.0
    assert here == there


def test_a_failure_tells_how_to_come_to_it_again(monkeypatch: pytest.MonkeyPatch) -> None:
    def kick(self: World) -> None:  # a harness that expects too much to be durable
        assert self.store is not None
        self.store.kick()
        self.confirmed_lsn += 1 << 20
        self.moments.append(self.now("confirmed too early"))

    monkeypatch.setattr(World, "kick", kick)
    with pytest.raises(Broken) as first:
        explore(3, 9)
    path = first.value.__notes__[-1].split()[-1]
    command = f"python -m tests.harness.recovery.shards --seed 3 --shard 9 --path {path}"
    assert first.value.__notes__[-1] == f"again: {command}"
    with pytest.raises(Broken) as second:
        again(3, 9, path)
    assert str(first.value) == str(second.value)


def test_small_lives_meet_everything() -> None:
    """Small runs have all sector and container sizes, reuse and remove containers, and have many pending writes."""
    found = Counter[str]()
    for number in range(40):
        _, world = begin(1, number)
        found[f"sectors of {world.disk.sector_bytes}"] += 1
        found[f"containers of {world.options.container_bytes}"] += 1
        found.update({moment.after.split()[0] for moment in world.moments})
        heads = Counter(moment.after for moment in world.moments if moment.after.endswith(".cairn 0+512"))
        found["used again"] += max(heads.values()) > 2
        found["many pending"] += max(len(Crash(moment).pending) for moment in world.moments) >= 8
    assert min(found.values()) > 1, found
    assert {"sectors of 4096", "containers of 4096", "containers of 8192", "containers of 16384"} <= set(found)
    assert {"create", "write", "sync", "rename", "unlink", "commit", "used again", "many pending"} <= set(found)
