"""The disks that a crash at a moment may leave: the pending changes, and choices of those that survive.

A choice is an integer whose bit n is set if the n-th pending change survives. If few changes are pending, every choice
is tried; otherwise none, all, all but one, just one, prefixes, and samples of every size.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import Literal

from cairnmq.base.testing.memory_disk import MemoryDirectory, PowerCut
from cairnmq.base.testing.sectors import Junk, Pending
from tests.harness.recovery.kept_checkpoint import NEWEST, Kept
from tests.harness.recovery.world import Moment

Kind = Literal["cut", "junk", "kill"]


class Crash:
    """The states that a crash at *moment* may leave.

    cut   the power fails, and a lost sector keeps its last synced content
    junk  likewise, but a sector to which only zeros were ever synced has the content of another file there
    kill  the process ends: everything written survives, and pending changes stay pending; the only choice is 0
    """

    def __init__(self, moment: Moment, kind: Kind = "cut") -> None:
        self.moment = moment
        self.kind = kind
        self.checkpoint = NEWEST
        """The name of the checkpoint that is left, see `kept_checkpoint`."""
        self._junk = others_content(moment.disk) if kind == "junk" else None

    @cached_property
    def _cut(self) -> PowerCut:
        """Return the power cut. With junk, writes that change nothing can be lost, too: zeros in a new container."""
        return self.moment.disk.power_cut(changing=self._junk is None, junk=self._junk)

    @property
    def pending(self) -> list[Pending]:
        return self._cut.pending

    def disk(self, choice: int) -> MemoryDirectory:
        return self.moment.disk.after_kill() if self.kind == "kill" else self._cut.leaves(choice)

    def fingerprint(self, choice: int) -> int:
        """Return the fingerprint of the disk that *choice* leaves, without creating that disk."""
        return self.moment.disk.fingerprint() if self.kind == "kill" else self._cut.fingerprint(choice)

    def kept(self) -> Kept:
        return self.moment.kept.named(self.checkpoint)

    def named(self, choice: int) -> str:
        """Return the name of *choice* in paths; `parsed` reads it."""
        name = "kill" if self.kind == "kill" else f"{choice:x}" + ("~" if self.kind == "junk" else "")
        return f"{name}.{self.checkpoint}" if self.checkpoint else name

    @classmethod
    def parsed(cls, moment: Moment, name: str) -> tuple[Crash, int]:
        name, _, checkpoint = name.partition(".")
        crash = cls(moment, "kill" if name == "kill" else "junk" if name.endswith("~") else "cut")
        crash.checkpoint = checkpoint
        return crash, 0 if name == "kill" else int(name.rstrip("~"), 16)

    def any(self, rng: random.Random) -> int:
        """Return a random choice: often nothing or everything, as after a long time without a write."""
        count = len(self.pending)
        return rng.choice((0, self.everything, rng.getrandbits(count) if count else 0))

    def lost(self, choice: int) -> list[Pending]:
        return [item for n, item in enumerate(self.pending) if not choice >> n & 1]

    @property
    def everything(self) -> int:
        """Return the choice that loses nothing."""
        return (1 << len(self.pending)) - 1

    @property
    def _latest(self) -> int:
        """Return the choice of the changes of the last operation."""
        last = max((item.operation for item in self.pending), default=0)
        return sum([1 << n for n, item in enumerate(self.pending) if item.operation == last])

    def choices(self, rng: random.Random, samples: int, singles: int = 6, exhaustive: int = 0) -> Iterator[int]:
        """Yield distinct choices: all of them if at most *exhaustive* changes are pending.

        In that case, choices in which nothing of the last operation survives are skipped, because they were tried at
        the moment before, unless the moment has `news`, which requires more of the same states.
        """
        if len(self.pending) <= exhaustive:
            latest = self.everything if self.moment.news else self._latest
            yield from (choice for choice in range(self.everything + 1) if choice & latest or not choice)
            return
        seen: set[int] = set()
        for choice in self._some(rng, samples, singles):
            if choice not in seen:
                seen.add(choice)
                yield choice

    def _some(self, rng: random.Random, samples: int, singles: int) -> Iterator[int]:
        count, everything = len(self.pending), self.everything
        yield 0
        yield everything
        few: Iterable[int] = range(count)
        if count > singles:
            few = [0, 1, count - 2, count - 1, *rng.sample(range(count), singles // 2)]
        for n in few:
            yield everything ^ 1 << n
            yield 1 << n
        for _ in range(samples if count else 0):
            share = rng.choice((0.1, 0.5, 0.5, 0.9, 0.98))
            yield sum([1 << n for n in range(count) if rng.random() < share])
            yield (1 << rng.randrange(count + 1)) - 1


def others_content(disk: MemoryDirectory) -> Junk:
    """Return the content of lost sectors: another file's at the same offset, if only zeros were ever synced there."""
    disk = disk.after_kill()  # a copy without held locks
    names = disk.names()

    def junk(name: str, sector: int, synced: bytes) -> bytes:
        if any(synced):
            return synced
        other = names[(names.index(name) + 1) % len(names)] if name in names else names[0]
        return disk.open(other).read_at(sector * len(synced), len(synced))

    return junk
