"""One I/O error, or permanent errors, in a small life: the error that the workload receives, and three crashes."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from errno import EIO, ENOSPC
from typing import NamedTuple

from cairnmq.base.errors import CairnError, DiskError, JournalFailed
from cairnmq.base.testing.faulty_disk import Fault, FaultyDirectory, Plan, ever_after, once
from tests.harness.recovery.checker import Broken
from tests.harness.recovery.explorer import Explorer
from tests.harness.recovery.states import Crash
from tests.harness.recovery.workload import Life
from tests.harness.recovery.world import World

FAULTS = {"EIO": Fault(EIO), "ENOSPC": Fault(ENOSPC), "short write": Fault(EIO, 0.5), "short, full": Fault(ENOSPC, 0.5)}
NOTHING = "no error: it was in nobody's way"
AFTER_AN_ERROR = "crash after an I/O error"


class Case(NamedTuple):
    number: int
    fault: str
    for_ever: bool

    def plan(self) -> Plan:
        return (ever_after if self.for_ever else once)(self.number, FAULTS[self.fault])


@dataclass
class Outcomes:
    """Counts of cases by the error that the workload received."""

    calls: int = 0
    told: Counter[str] = field(default_factory=Counter)
    faults: Counter[str] = field(default_factory=Counter)
    recoveries: int = 0
    cpu_s: float = 0.0

    def add(self, other: Outcomes) -> None:
        self.calls += other.calls
        self.told += other.told
        self.faults += other.faults
        self.recoveries += other.recoveries
        self.cpu_s += other.cpu_s

    def lines(self) -> Iterator[str]:
        yield (
            f"I/O errors: {self.told.total():,} of {self.calls * 8:,} at {self.calls:,} calls, "
            f"each once and ever after; {self.recoveries:,} recoveries after them, in {self.cpu_s:.0f} s of CPU"
        )
        for fault, count in sorted(self.faults.items()):
            yield f"  {count:>13,}  {fault}"
        for told, count in sorted(self.told.items()):
            yield f"  {count:>13,}  told as {told}"


def cases(calls: int) -> Iterator[Case]:
    for number in range(1, calls + 1):
        for fault in FAULTS:
            for for_ever in (False, True):
                yield Case(number, fault, for_ever)


def run(world: World, work: Callable[[World], object], case: Case, explorer: Explorer) -> str:
    """Run *work* until the error ends it; check the state after a power cut, a kill, and both. Return the error."""
    world.disk.on_operation = None
    world.through = FaultyDirectory(world.disk, case.plan())
    told = NOTHING
    try:
        work(world)
    except CairnError as error:
        told = type(error).__name__
        if not isinstance(error, DiskError | JournalFailed):
            raise Broken("I10", f"{case}: an I/O error is taken for something else: {error}") from error
    if world.store is not None:
        world.confirmed_lsn = world.store.journal.writer.durable_lsn
    moment = world.now(str(case))
    crash = Crash(moment)
    rng = random.Random(case.number)
    for choice in {0, crash.any(rng)}:
        explorer.state(crash, choice, AFTER_AN_ERROR, f"0:{crash.named(choice)}")
    again, _ = explorer.gone_on(Crash(moment, "kill"), 0, "0:kill")
    rest = again.moments[-1]
    for kept in {0, Crash(rest).everything}:  # contents shown after the kill must remain
        explorer.state(Crash(rest), kept, AFTER_AN_ERROR, f"0:kill/{len(again.moments) - 1}:{kept:x}")
    return told


def all_errors(seed: int, number: int, part: int, parts: int) -> Outcomes:
    """Run every *parts*-th case of a small life, from case *part* on."""
    begun_s = time.process_time()
    world, life = _begun(seed, number)
    faulty = world.through = FaultyDirectory(world.disk)
    life.live(world)
    outcomes = Outcomes(len(faulty.calls) if part == 0 else 0)
    explorer = Explorer(number, life.options, world.wiring)
    for index, case in enumerate(cases(len(faulty.calls))):
        if index % parts == part:
            world, life = _begun(seed, number)
            explorer.wiring = world.wiring
            try:
                outcomes.told[run(world, life.live, case, explorer)] += 1
            except Broken as error:
                error.add_note(f"seed {seed}, life {number}, {case}")
                raise
            outcomes.faults[case.fault] += 1
    outcomes.recoveries = explorer.tally.recoveries
    outcomes.cpu_s = time.process_time() - begun_s
    return outcomes


STEPS = 8
"""The number of steps of a life, which is repeated for each of the eight errors at each of its calls."""


def _begun(seed: int, number: int) -> tuple[World, Life]:
    rng = random.Random(f"errors {seed} {number}")
    life = Life.drawn(rng, number)._replace(steps=STEPS)
    return life.begun(rng), life
