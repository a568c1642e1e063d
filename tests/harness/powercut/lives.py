"""A store under repeated power cuts: opened, checked, put under load, and cut off.

Each run ends with a power cut or a kill: at a chosen call to the disk, between two operations, in the middle of a
close, or inside the recovery itself. Every recovery must show the same state as earlier ones, whether the process in
between was stopped cleanly, killed, or cut off before it wrote anything more.
"""

from __future__ import annotations

import os
from collections import Counter
from contextlib import suppress
from pathlib import Path
from random import Random

from cairnmq.base.clock import SystemClock
from cairnmq.base.errors import CairnError
from cairnmq.journal.write.open import MIN_CONTAINER_BYTES
from cairnmq.recovery.recover import open_store
from cairnmq.recovery.report import RecoveryReport
from cairnmq.store.contract.options import StoreOptions
from cairnmq.store.journaled.store import JournalStore
from cairnmq.tools.lab.disks import KINDS, CachedDisk, FileSystem
from cairnmq.tools.lab.kernel import in_private_mounts
from tests.harness.powercut.history import DEFECTS, History, Wrong
from tests.harness.powercut.wire import End, Wire, wired
from tests.harness.powercut.work import Work, content_of

CUTS_PER_DISK = 25
OPTIONS = StoreOptions(container_bytes=MIN_CONTAINER_BYTES, initial_containers=2, max_write_buffers=3)
_RECOVERY_CALLS = 24
"""The upper limit of the disk call at which a recovery is interrupted.

A recovery makes about as many calls, and more when it has to rewrite a long tail.
"""


class Tally:
    """Results on one kind of file system."""

    def __init__(self, kind: str, seed: str) -> None:
        self.kind = kind
        self.seed = seed
        self.counts = Counter[str]()
        self.found: list[Wrong] = []

    @property
    def cuts(self) -> int:
        return self.counts["cuts"]

    def line(self, seconds: float) -> str:
        counts, found = self.counts, Counter(wrong.defect for wrong in self.found)
        return (
            f"{self.cuts} cuts on {self.kind} ({counts['recovering']} in a recovery, {counts['closing']} in a close, "
            f"{counts['idle']} at rest; {counts['kills']} kills besides): {counts['confirmed']} operations confirmed, "
            f"{counts['unconfirmed']} not, of which {counts['kept']} were kept; {counts['torn']} torn tails, "
            f"{counts['contents']} contents compared; {', '.join(f'{found[defect]} {defect}' for defect in DEFECTS)}; "
            f"{seconds:.0f} s, {self.cuts / seconds:.0f} cuts/s, seed {self.seed}"
        )


@in_private_mounts
def live(kind: str, cuts: int, seed: str, *, cached: bool = False, until_found: bool = False) -> Tally:
    """Make *cuts* power cuts, and check the store after each. Defects are added to the tally, not raised."""
    tally = Tally(f"{kind} on a disk with a cache" if cached else kind, seed)
    disks = 0
    while tally.cuts < cuts and not (until_found and tally.found):
        random = Random(f"{seed}/{tally.kind}/{disks}")
        disks += 1
        system = FileSystem(kind, CachedDisk(KINDS[kind].size_bytes) if cached else None)
        store = Store(system, random, tally)
        try:
            store.live(min(cuts, tally.cuts + CUTS_PER_DISK))
        except Wrong as wrong:
            wrong.add_note(f"seed {seed}, disk {disks - 1} of {tally.kind}, after {tally.cuts} cuts")
            tally.found.append(wrong)
        finally:
            store.drop()
            system.close()
    return tally


class Store:
    """A store on one disk, and its history."""

    def __init__(self, system: FileSystem, random: Random, tally: Tally) -> None:
        self._system = system
        self._random = random
        self._tally = tally
        self._options = random.choice(KINDS[system.kind].options)
        self._path = system.place / "store"
        self._history = History()
        self._wire = Wire(random, system)
        self._open: JournalStore | None = None

    def live(self, until_cuts: int) -> None:
        self._system.mount(self._options)
        with wired(self._wire):
            while self._tally.cuts < until_cuts:
                store = self._opened()
                if self._random.random() < 0.1:  # before it writes more
                    self._wire.trip()
                    self._went("idle")
                    continue
                threads = self._random.random() < 0.5
                self._work(Work(store, self._history, self._random, self._has_power, threads=threads))
            self._opened().close()

    def drop(self) -> None:
        """Close all files and write nothing, as a killed process does."""
        store, self._open = self._open, None
        if store is not None:
            store.journal.writer.fail(RuntimeError("killed"))
            with suppress(CairnError):
                store.close()

    def _has_power(self) -> bool:
        return not self._wire.tripped

    # ---- power on and recovery --------------------------------------------------------------------------------------

    def _opened(self) -> JournalStore:
        """Recover, perhaps with interruptions, until a recovery completes; return the store after checking it."""
        while True:
            interrupted = self._random.random() < 0.3
            end: End = "cut" if self._random.random() < 0.8 else "kill"
            self._wire.arm(self._random.randrange(1, _RECOVERY_CALLS) if interrupted else 0, end)
            try:
                self._open, report = open_store(str(self._path), SystemClock(), OPTIONS)
            except CairnError as error:
                if not self._wire.tripped:
                    raise Wrong("alarm", str(error)) from error
                self._went("recovering")
                continue
            if self._wire.tripped:
                self._went("recovering")
                continue
            self._wire.arm(0, "cut")
            try:
                self._check(self._open, report)
            except Wrong as wrong:
                wrong.add_note(f"LSN {self._history.confirmed_lsn} was confirmed; {report.log}")
                raise
            return self._open

    def _check(self, store: JournalStore, report: RecoveryReport) -> None:
        history, tally = self._history, self._tally
        shown = {queue_id: list(on) for queue_id, on in store.messages().items()}
        tally.counts["confirmed"] += history.confirmed
        tally.counts["unconfirmed"] += history.unconfirmed
        tally.counts["kept"] += history.check(shown)
        tally.counts["torn"] += report.log.torn is not None
        for message_id in {message_id for ids in shown.values() for message_id in ids}:
            tally.counts["contents"] += 1
            try:
                content = content_of(store, message_id)
            except CairnError as error:
                raise Wrong("corrupt", f"message {message_id} can't be read: {error}") from error
            history.check_content(message_id, content)
        queues = {row.id: row.name for row in store.queues()}
        history.check_queues(queues)
        if report.homeless:
            raise Wrong("queue", f"messages without a queue: {report.homeless}")
        if store.durable_lsn < history.confirmed_lsn:
            raise Wrong("lost", f"LSNs go on at {store.durable_lsn}, {history.confirmed_lsn} was confirmed")
        halves = [path.name for path in (self._path / "journal").iterdir() if path.name.endswith(".new")]
        if halves:
            raise Wrong("phantom", f"half-made files are left: {halves}")
        history.queues.update(queues)
        history.confirm(store.durable_lsn)
        history.decide(shown)

    # ---- work and end of power --------------------------------------------------------------------------------------

    def _work(self, work: Work) -> None:
        random, wire = self._random, self._wire
        at_call = random.random() < 0.8
        end: End = "cut" if random.random() < 0.9 else "kill"
        wire.arm(random.randrange(1, 40) if at_call else 0, end, in_block=random.random() < 0.6)
        when = "running"
        try:
            for _ in range(random.randrange(1, 80)):
                work.step()
                if wire.tripped or work.failure:
                    break
            else:
                if random.random() < 0.3:
                    when = "closing"
                    work.store.close()
                    self._open = None
        except CairnError as error:
            if not wire.tripped:
                raise Wrong("alarm", f"with the power on: {error}") from error
        if work.failure and not wire.tripped:
            raise Wrong("alarm", f"with the power on: {work.failure}") from work.failure
        wire.trip()
        if when == "running":
            work.check_it_says_no()
        self._went(when)

    def _went(self, when: str) -> None:
        """Count the cut or kill in the tally, drop the store, and turn the power on again after a cut."""
        self.drop()
        if self._wire.is_kill:
            self._tally.counts["kills"] += 1
            return
        self._tally.counts["cuts"] += 1
        self._tally.counts[when] += 1
        try:
            self._system.power_on(self._options)
        except OSError as error:
            raise AssertionError(f"{error}; open: {_open_below(self._system.place)}") from error


def _open_below(place: Path) -> list[str]:
    """Return the files below *place* that this process has open."""
    names = []
    for fd in os.listdir("/proc/self/fd"):
        with suppress(OSError):
            names.append(os.readlink(f"/proc/self/fd/{fd}"))
    return [name for name in names if name.startswith(str(place))]
