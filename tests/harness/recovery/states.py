"""Which disks a crash may leave of a moment: what is pending on it, and which of that survives.

A choice is an integer whose bit n says that the n-th pending change survives. Where few changes are pending every
choice is made; where many are, none, all, all but one, just one, prefixes, and samples of every size.
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
    """What a crash at *moment* may leave.

    cut   the power fails, and a sector that is lost holds what was synced there
    junk  likewise, but it holds what another file has there, if nothing but zeros was ever synced
    kill  the process ends: everything written is there, and what is pending still is; there is no choice
    """

    def __init__(self, moment: Moment, kind: Kind = "cut") -> None:
        self.moment = moment
        self.kind = kind
        self.checkpoint = NEWEST
        """The name of the checkpoint that is left, see `kept_checkpoint`."""
        self._junk = others_content(moment.disk) if kind == "junk" else None

    @cached_property
    def _cut(self) -> PowerCut:
        """With junk a write of what is there already can be lost, too: of zeros into a new container."""
        return self.moment.disk.power_cut(changing=self._junk is None, junk=self._junk)

    @property
    def pending(self) -> list[Pending]:
        return self._cut.pending

    def disk(self, choice: int) -> MemoryDirectory:
        return self.moment.disk.after_kill() if self.kind == "kill" else self._cut.leaves(choice)

    def fingerprint(self, choice: int) -> int:
        """Of the disk that *choice* leaves, which need not be made for that."""
        return self.moment.disk.fingerprint() if self.kind == "kill" else self._cut.fingerprint(choice)

    def kept(self) -> Kept:
        return self.moment.kept.named(self.checkpoint)

    def named(self, choice: int) -> str:
        """The choice, as paths name it; `parsed` reads it."""
        name = "kill" if self.kind == "kill" else f"{choice:x}" + ("~" if self.kind == "junk" else "")
        return f"{name}.{self.checkpoint}" if self.checkpoint else name

    @classmethod
    def parsed(cls, moment: Moment, name: str) -> tuple[Crash, int]:
        name, _, checkpoint = name.partition(".")
        crash = cls(moment, "kill" if name == "kill" else "junk" if name.endswith("~") else "cut")
        crash.checkpoint = checkpoint
        return crash, 0 if name == "kill" else int(name.rstrip("~"), 16)

    def any(self, rng: random.Random) -> int:
        """A choice: often nothing or everything, as it is after a long time without a write."""
        count = len(self.pending)
        return rng.choice((0, self.everything, rng.getrandbits(count) if count else 0))

    def lost(self, choice: int) -> list[Pending]:
        return [item for n, item in enumerate(self.pending) if not choice >> n & 1]

    @property
    def everything(self) -> int:
        """The choice that loses nothing."""
        return (1 << len(self.pending)) - 1

    @property
    def _latest(self) -> int:
        """The changes of the last operation."""
        last = max((item.operation for item in self.pending), default=0)
        return sum([1 << n for n, item in enumerate(self.pending) if item.operation == last])

    def choices(self, rng: random.Random, samples: int, singles: int = 6, exhaustive: int = 0) -> Iterator[int]:
        """Choices, each once: every one if at most *exhaustive* changes are pending.

        Then those in which the last operation left nothing are passed over, for they were choices at the moment before;
        unless there is news since, which asks more of the same states.
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
    """Lost sectors hold what another file has at the same place, if nothing but zeros was ever synced there."""
    disk = disk.after_kill()  # one that has no lock held
    names = disk.names()

    def junk(name: str, sector: int, synced: bytes) -> bytes:
        if any(synced):
            return synced
        other = names[(names.index(name) + 1) % len(names)] if name in names else names[0]
        return disk.open(other).read_at(sector * len(synced), len(synced))

    return junk
