"""A large exploration in shards: each runs a life of its own, and explores a fixed number of its states.

A shard depends only on the seed and its number, so the result is the same on any number of processes, and a state can
be reached again:

    python -m tests.harness.recovery.shards --seed 1 --shard 17 --path 23:5/4:1

A shard first cuts the power once at every operation of its life, then in all ways at moments with few pending changes.
Then it draws crashes, recoveries and further work, with cuts inside each of them, until it has its number of states.
Stores have different UUIDs, so shards have no states in common; only the first shards explore the creation of a store.
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Callable
from os import cpu_count

from tests.harness.recovery.cores import IDLE_ONLY, YIELDING, little_garbage, on_all_cores
from tests.harness.recovery.explorer import Explorer
from tests.harness.recovery.states import Crash
from tests.harness.recovery.tally import CUT, JUNK, Tally
from tests.harness.recovery.workload import Life
from tests.harness.recovery.world import World

STATES_PER_SHARD = 10_000
EXHAUSTIVE = 8
"""The largest number of pending changes of which every subset is explored: at most 256 states of one moment."""
MAKING_A_STORE = 8
"""The number of shards that also explore the creation of the store, which is nearly the same in each."""


def begin(seed: int, number: int, states: int = STATES_PER_SHARD) -> tuple[Explorer, World]:
    """Return the explorer of a shard, and the world that it explores."""
    rng = random.Random(f"{seed} {number}")
    life = Life.drawn(rng, number)
    world = life.live(life.begun(rng))
    name = f"python -m tests.harness.recovery.shards --seed {seed} --shard {number} --path"
    explorer = Explorer(rng.getrandbits(32), life.options, world.wiring, life.go_on, name=name, enough=states)
    return explorer, world


def explore(seed: int, number: int, states: int = STATES_PER_SHARD) -> Tally:
    begun_s = time.process_time()
    explorer, world = begin(seed, number, states)
    with little_garbage():
        _explore(explorer, world, number)
    explorer.tally.cpu_s = time.process_time() - begun_s
    return explorer.tally


def _explore(explorer: Explorer, world: World, number: int) -> None:
    states = explorer.enough
    explorer.tally.met += world.met
    moments = world.moments
    first = 0 if number < MAKING_A_STORE else next(at for at, moment in enumerate(moments) if not moment.recovering)
    order = explorer.rng.sample(range(first, len(moments)), len(moments) - first)  # a sample covers the whole life
    explorer.enough = states * 3 // 8
    for at in order:
        explorer.any_crash(Crash(moments[at]), CUT, str(at))
    explorer.enough = states // 2
    for at in order:
        explorer.crashes(Crash(moments[at]), CUT, str(at), samples=12, exhaustive=EXHAUSTIVE)
    explorer.enough = states * 5 // 8  # the rest follows crashes
    for at in range(first, len(moments)):
        if explorer.rng.random() < 0.2:
            explorer.crashes(Crash(moments[at], "junk"), JUNK, str(at), samples=4, exhaustive=4)
    explorer.enough = states * 7 // 8  # many short explorations first
    while not explorer.is_done:
        explorer.wander(moments, samples=1, exhaustive=0, first=first)
    explorer.enough = states
    while not explorer.is_done:
        explorer.wander(moments, samples=3, exhaustive=EXHAUSTIVE, first=first)


def again(seed: int, number: int, path: str) -> None:
    """Recover and check one state again, after the recoveries and the work on its path."""
    explorer, world = begin(seed, number)
    *before, last = path.split("/")
    so_far = ""
    for step in before:
        crash, choice = _crash(world, step)
        so_far += step
        world, _ = explorer.gone_on(crash, choice, so_far)
        explorer.work(world)
        so_far += "/"
    explorer.state(*_crash(world, last), "again", path)


def _crash(world: World, step: str) -> tuple[Crash, int]:
    at, choice = step.split(":")
    return Crash.parsed(world.moments[int(at)], choice)


# ---- many shards ----------------------------------------------------------------------------------------------------


def explore_all(states: int, seed: int, told: Callable[[Tally], None] = lambda so_far: None) -> Tally:
    """Explore at least this number of *states*; raise the first failure.

    If there are more shards than cores, they have the lowest priority; otherwise cores would be idle at the end.
    """
    total = Tally()
    each = min(states, STATES_PER_SHARD)
    shards = [(seed, number, each) for number in range(-(-states // STATES_PER_SHARD))]
    for tally in on_all_cores(explore, shards, IDLE_ONLY if len(shards) > (cpu_count() or 1) else YIELDING):
        total.add(tally)
        told(total)
    return total


def main() -> None:
    parser = argparse.ArgumentParser(description="Explore crash states, or come to one of them again.")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--states", type=int, default=1_000_000)
    parser.add_argument("--report", help="a file that gets the figures, too")
    parser.add_argument("--shard", type=int, help="just this one")
    parser.add_argument("--path", help="just this state of the shard, as a failure names it")
    chosen = parser.parse_args()
    if chosen.path is not None:
        again(chosen.seed, chosen.shard, chosen.path)
        print("this state is as it must be")
        return
    begun_s = time.monotonic()
    if chosen.shard is not None:
        tally = explore(chosen.seed, chosen.shard)
    else:
        tally = explore_all(chosen.states, chosen.seed, _show)
    report = [f"\rseed {chosen.seed}, {time.monotonic() - begun_s:,.0f} s on {cpu_count()} cores", *tally.lines()]
    print("\n".join(report))
    if chosen.report is not None:
        with open(chosen.report, "w") as file:
            file.write("\n".join(report).strip() + "\n")


def _show(so_far: Tally) -> None:
    print(f"\r{so_far.states:,}", end="", flush=True)


if __name__ == "__main__":
    main()
