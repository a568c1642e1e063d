"""The crash-state explorer: it recovers the states in which crashes may leave a world, and checks each of them.

A *crash* is a choice of the pending changes that survive at a moment. The recovery and the work after it have moments,
too, so a *path* of crashes leads to each state, and is sufficient to reach it again:

    17:3f      a power cut at moment 17, of whose pending changes bits 0 to 5 survive
    17:3f~     likewise, and lost sectors hold the content of another file there
    17:kill    a kill of the process at moment 17
    17:3f.s2   a power cut, and the checkpoint is an older one, see `kept_checkpoint`
    17:kill/4:1  a kill, and a power cut at moment 4 of the recovery that follows
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from cairnmq.base.testing.manual_clock import ManualClock
from cairnmq.recovery.recover import recover
from cairnmq.recovery.report import RecoveryReport
from cairnmq.store.contract.options import StoreOptions
from cairnmq.store.journaled.store import JournalStore
from tests.harness.recovery.checker import Broken, Expectation, History, Shown, shown_by
from tests.harness.recovery.kept_checkpoint import NOTHING, WatchedCheckpoint
from tests.harness.recovery.states import Crash
from tests.harness.recovery.tally import EPOCHS, INSIDE, KILLED, Tally
from tests.harness.recovery.workload import a_little_work
from tests.harness.recovery.world import OPTIONS, MemoryWiring, Moment, WiringAnswers, World


@dataclass
class Explorer:
    """An explorer that recovers and checks states, and counts the distinct ones by the contents of disk and SQL."""

    seed: int = 1
    options: StoreOptions = OPTIONS
    wiring: MemoryWiring | WiringAnswers = field(default_factory=MemoryWiring)
    work: Callable[[World], None] = a_little_work
    """The work after a recovery."""
    name: str = ""
    """The command that reaches a failing state again, when its path is appended."""
    enough: int = 1 << 60
    """The number of states after which exploration stops."""
    tally: Tally = field(default_factory=Tally)

    def __post_init__(self) -> None:
        self.rng = random.Random(self.seed)
        self._clock = ManualClock()
        self._outcomes: dict[int, tuple[Shown, int, int]] = {}  # the result of recovery by state, see `permits`
        self._of_disks: dict[int, tuple[Shown, int]] = {}  # likewise, for any checkpoint

    @property
    def states(self) -> int:
        return self.tally.states

    @property
    def is_done(self) -> bool:
        return self.tally.states >= self.enough

    # ---- one state ------------------------------------------------------------------------------------------------

    def state(self, crash: Crash, choice: int, kind: str, path: str) -> None:
        """Recover the state that *choice* leaves, and check it; for a known state, check only its earlier result."""
        moment = crash.moment
        kept = crash.kept()
        on_disk = hash((crash.fingerprint(choice), moment.sql))
        state = hash((on_disk, kept.fingerprint()))
        outcome = self._outcomes.get(state)
        if outcome is None:
            self.tally.count(kind, moment.disk.sector_bytes, path)
        elif moment.expected.permits(*outcome):
            self.tally.again += 1
            return
        self.wiring.put_back(moment.sql)
        self.wiring.on_commit = _ignore
        with self._told(crash, choice, path):
            store, report = recover(crash.disk(choice), self.wiring, self._clock, self.options, checkpoint=_file(crash))
            judge(moment, store, report)
            found = shown_by(store), report.log.end_lsn
            if self._of_disks.setdefault(on_disk, found) != found:
                raise Broken("I9", f"with another checkpoint {self._of_disks[on_disk]} is shown as {found}")
            self.tally.met["states read from a checkpoint"] += report.log.resumed_lsn > 0
            self._outcomes[state] = *found, store.journal.next_lsn

    def gone_on(self, crash: Crash, choice: int, path: str) -> tuple[World, int]:
        """Return a world that has recovered from *choice*, and the number of its moments inside that recovery."""
        disk, moment = crash.disk(choice), crash.moment
        self.wiring.put_back(moment.sql)
        rng = random.Random(f"{self.seed} {path}")
        world = World(disk, self.wiring, moment.past, moment.confirmed_lsn, self.options, random=rng, file=_file(crash))
        with self._told(crash, choice, path):
            store = world.open()
            assert world.report is not None
            world.decide(judge(moment, store, world.report).until(world.report.log.end_lsn), moment.decided)
            inside = len(world.moments)
            world.hold("recovery")
        return world, inside

    @contextmanager
    def _told(self, crash: Crash, choice: int, path: str) -> Iterator[None]:
        """Add the path of the state to errors; convert all but `Broken` to it: no legal crash may prevent a start."""
        self.tally.recoveries += 1
        try:
            yield
        except Exception as error:
            broken = error if isinstance(error, Broken) else Broken("I10", f"{type(error).__name__}: {error}")
            lost = crash.lost(choice)
            broken.add_note(f"after {crash.moment.after!r}, lost {len(lost)}: {lost[:5]}")
            broken.add_note(f"again: {self.name} {path}" if self.name else f"path {path}")
            if broken is error:
                raise
            raise broken from error

    # ---- many states ----------------------------------------------------------------------------------------------

    def crashes(self, crash: Crash, kind: str, at: str, samples: int, *, singles: int = 6, exhaustive: int = 0) -> None:
        """Explore several choices at a power cut. *at*: the path to the moment, with its number."""
        for choice in crash.choices(self.rng, samples, singles, exhaustive):
            if self.is_done:
                return
            crash.checkpoint = crash.moment.kept.drawn(self.rng)
            self.state(crash, choice, kind, f"{at}:{crash.named(choice)}")

    def any_crash(self, crash: Crash, kind: str, at: str) -> None:
        """Explore one random choice at a power cut."""
        if not self.is_done:
            choice = crash.any(self.rng)
            crash.checkpoint = crash.moment.kept.drawn(self.rng)
            self.state(crash, choice, kind, f"{at}:{crash.named(choice)}")

    def afterwards(
        self, crash: Crash, choice: int, path: str, samples: int, *, singles: int = 2, exhaustive: int = 0
    ) -> World:
        """Recover, continue working, and cut the power at every moment since the crash; return the world."""
        world, inside = self.gone_on(crash, choice, path)
        self.work(world)
        after = KILLED if crash.kind == "kill" else EPOCHS
        for number, moment in enumerate(world.moments):
            kind = INSIDE if number < inside else after
            self.crashes(Crash(moment), kind, f"{path}/{number}", samples, singles=singles, exhaustive=exhaustive)
        return world

    def wander(
        self, moments: list[Moment], at: str = "", *, samples: int, exhaustive: int, first: int = 0, depth: int = 4
    ) -> None:
        """Crash at one of *moments* from *first* on, explore `afterwards`, and by chance repeat this from there."""
        number = self.rng.randrange(first, len(moments))
        crash = Crash(moments[number], kind=self.rng.choice(("cut", "cut", "cut", "kill", "kill", "junk")))
        choice = crash.any(self.rng)
        crash.checkpoint = crash.moment.kept.drawn(self.rng)
        path = f"{at}{number}:{crash.named(choice)}"
        world = self.afterwards(crash, choice, path, samples, exhaustive=exhaustive)
        if depth > 1 and not self.is_done and self.rng.random() < 0.5:
            self.wander(world.moments, path + "/", samples=samples, exhaustive=exhaustive, depth=depth - 1)


def judge(moment: Moment, store: JournalStore, report: RecoveryReport) -> History:
    """Return the history before the crash at *moment*; raise `Broken` if the recovered *store* violates it."""
    try:
        moment.expected.check(store, report)
        return moment.past
    except Broken as error:
        for decided in reversed(moment.decided):
            try:
                Expectation(decided, moment.confirmed_lsn).check(store, report)
                return decided
            except Broken:
                continue
        raise error


def _file(crash: Crash) -> WatchedCheckpoint | None:
    kept = crash.kept()
    return None if kept is NOTHING else WatchedCheckpoint(kept)


def _ignore(what: str) -> None:
    pass
