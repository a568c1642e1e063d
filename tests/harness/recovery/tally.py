"""Counts of explored states, as a readable report."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

CUT = "power cut at an operation"
JUNK = "likewise, lost sectors hold another file's content"
INSIDE = "power cut inside a recovery"
KILLED = "kill, recovery, work, then power cut"
EPOCHS = "power cut, recovery, work, then power cut again"
KINDS = (CUT, JUNK, INSIDE, KILLED, EPOCHS)


@dataclass
class Tally:
    """Counts of states by kind. A state, the contents of disk and SQL, counts once, however often it is reached."""

    kinds: Counter[str] = field(default_factory=Counter)
    sectors: Counter[int] = field(default_factory=Counter)
    crashes: Counter[int] = field(default_factory=Counter)
    """The number of states by the number of crashes that led to them."""
    met: Counter[str] = field(default_factory=Counter)
    """Figures of the explored lives, see `World.met`."""
    recoveries: int = 0
    again: int = 0
    """Times that a known state was reached again: it is checked against later confirmations, but not recovered."""
    cpu_s: float = 0.0

    @property
    def states(self) -> int:
        return self.kinds.total()

    def count(self, kind: str, sector_bytes: int, path: str) -> None:
        self.kinds[kind] += 1
        self.sectors[sector_bytes] += 1
        self.crashes[path.count("/") + 1] += 1

    def add(self, other: Tally) -> None:
        self.kinds += other.kinds
        self.sectors += other.sectors
        self.crashes += other.crashes
        self.met += other.met
        self.recoveries += other.recoveries
        self.again += other.again
        self.cpu_s += other.cpu_s

    def lines(self) -> Iterator[str]:
        yield (
            f"crash states: {self.states:,} distinct ones recovered and checked in {self.recoveries:,} recoveries "
            f"and {self.cpu_s:.0f} s of CPU ({self.states / max(self.cpu_s, 0.001):,.0f} states/s)"
        )
        for kind in (*KINDS, *sorted(set(self.kinds) - set(KINDS))):
            if self.kinds[kind]:
                yield f"  {self.kinds[kind]:>13,}  {kind}"
        for sector_bytes, count in sorted(self.sectors.items()):
            yield f"  {count:>13,}  with sectors of {sector_bytes} bytes"
        for crashes, count in sorted(self.crashes.items()):
            yield f"  {count:>13,}  after {crashes} crash{'es' if crashes > 1 else ''}"
        for what, count in sorted(self.met.items()):
            yield f"  {count:>13,}  {what}"
        yield f"  {self.again:>13,}  times a state was met again, not counted"
