"""An I/O error at any call, once or ever after: it is told, nothing more is confirmed, and the next start finds what is
true. What the kernel shows after a failed sync may not be on the disk, though a later sync succeeds
(`MemoryFile.sync_failed`): so each state is recovered from what a kill leaves, and then the power is cut.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable, Iterator
from errno import EIO, ENOSPC
from typing import NamedTuple

import pytest

from cairnmq.base.errors import CairnError, DiskError, JournalFailed
from cairnmq.disk.faulty import Fault, FaultyDirectory, Plan, ever_after, once
from cairnmq.disk.memory import MemoryDirectory
from cairnmq.journal import opening
from cairnmq.journal.log import Journal
from cairnmq.journal.reader import LogReader

from .checker import Broken
from .explorer import SCALE, Explorer, World, workload

FAULTS = {"EIO": Fault(EIO), "ENOSPC": Fault(ENOSPC), "short write": Fault(EIO, 0.5), "short, full": Fault(ENOSPC, 0.5)}


class Case(NamedTuple):
    number: int
    fault: str
    for_ever: bool

    def plan(self) -> Plan:
        return (ever_after if self.for_ever else once)(self.number, FAULTS[self.fault])


def calls() -> int:
    world = World(MemoryDirectory())
    faulty = world.through = FaultyDirectory(world.disk)
    workload(world)
    return len(faulty.calls)


def cases() -> list[Case]:
    return [
        Case(number, fault, for_ever)
        for number in range(1, calls() + 1)
        for fault in FAULTS
        for for_ever in (False, True)
    ]


def run(case: Case, explorer: Explorer) -> str:
    """The workload until the error ends it; what is there after a kill, after a power cut, and after both."""
    world = World(MemoryDirectory())
    world.disk.on_operation = None
    world.through = FaultyDirectory(world.disk, case.plan())
    outcome = "nothing was to be told"
    try:
        workload(world)
    except CairnError as error:
        outcome = type(error).__name__
        if not isinstance(error, DiskError | JournalFailed):
            raise Broken("I10", f"{case}: an I/O error is taken for something else: {error}") from error
    if world.store is not None:
        world.confirmed_lsn = world.store.journal.durable_lsn
    moment = world.now(str(case))
    rng = random.Random(case.number)
    try:
        explorer.recovered(moment.disk.after_power_cut([]), moment)
        explorer.recovered(moment.disk.after_power_cut(rng), moment)
        again, shown = explorer.recovered(moment.disk.after_kill(), moment)
        rest = again.now("recovery")
        for kept in ([], rest.disk.pending()):
            found = explorer.one(rest, frozenset(kept))[1]
            if found != shown:
                raise Broken("I9", f"{found} after the power cut, {shown} was shown")
    except Broken as error:
        error.add_note(f"{case}: {outcome}")
        raise
    return outcome


@pytest.fixture(scope="module")
def explorer(tell: Callable[[str], None]) -> Iterator[Explorer]:
    begun_s = time.process_time()
    explorer = Explorer()
    yield explorer
    tell(f"I/O errors: {explorer.states} states recovered and checked, {time.process_time() - begun_s:.1f} s of CPU")


def test_an_error_at_any_call(explorer: Explorer) -> None:
    every = cases()
    rng = random.Random(1)
    chosen = every if SCALE >= 25 else rng.sample(every, min(len(every), round(len(every) * SCALE / 25)))
    outcomes = Counter(run(case, explorer) for case in chosen)
    assert outcomes["JournalFailed"] > 10
    assert outcomes["DiskError"] > 10
    assert outcomes["DiskFull"] > 10


def test_a_failed_sync_is_never_tried_again(explorer: Explorer) -> None:
    """Each sync of the workload fails once; whatever the process does then, it confirms nothing."""
    world = World(MemoryDirectory())
    faulty = world.through = FaultyDirectory(world.disk)
    workload(world)
    syncs = [call.number for call in faulty.calls if call.kind == "sync"]
    for number in syncs[:: max(1, round(4 / SCALE))]:
        run(Case(number, "EIO", False), explorer)


# ---- it can fail ----------------------------------------------------------------------------------------------------


def test_a_journal_that_tries_again_is_found(monkeypatch: pytest.MonkeyPatch, explorer: Explorer) -> None:
    real = Journal._write_blocks

    def stubborn(self: Journal) -> tuple[int, int]:
        waiting = list(self._sealed)
        try:
            return real(self)
        except DiskError:
            if self._writing_file is None:
                raise
            self._writing_file.sync()
            return waiting[-1].end_lsn, self.base_lsn

    monkeypatch.setattr(Journal, "_write_blocks", stubborn)
    with pytest.raises(Broken, match=r"I1|I4"):
        test_a_failed_sync_is_never_tried_again(explorer)


def test_a_recovery_that_trusts_the_page_cache_is_found(monkeypatch: pytest.MonkeyPatch, explorer: Explorer) -> None:
    """It syncs what it found, and does not write it again."""
    real = opening._rewrite

    def trusting(reader: LogReader, unproven: object) -> None:
        for name in reader.directory.names():
            file = reader.directory.open(name, writable=True)
            file.sync()
            file.close()
        real(reader, [])

    monkeypatch.setattr(opening, "_rewrite", trusting)
    with pytest.raises(Broken, match=r"I9|I10"):
        test_a_failed_sync_is_never_tried_again(explorer)
