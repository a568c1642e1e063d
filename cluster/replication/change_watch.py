"""Records the changes of a replicated queue from some place on, for a follower at another site.

A member notes down, in the order of events, which messages came to the queue and which went: positions, and of those
that came the ids under which its own store has them. Contents are read when they are sent. It is done for queues that
are followed here only. What is *safe* is known to a majority, and on its disks: nothing else may leave the site, for
what the others never heard of is not. Core only.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial

from ...base.clock import Clock
from ...broker.messages.entry import ARRIVAL_MASK, Entry
from ...store.contract.dequeue_reason import Why
from ..kernel.commit_tracker import CommitTracker

MOST_NOTED = 1 << 17
"""Messages that came or went; beyond that the follower is compared with what stands on the queue by then."""

Ranges = list[tuple[int, int]]


@dataclass
class WatchedChange:
    """The effect of one event on a queue."""

    place: int
    """In the order of events, behind it."""
    time_us: int
    puts: list[tuple[int, int]] = field(default_factory=list)
    """Positions and ids, in order; of durable messages only, as all of this."""
    takes: list[tuple[Why, list[int]]] = field(default_factory=list)
    purged: int = 0
    """If not 0, all up to that position went,"""
    kept: Ranges = field(default_factory=list)
    """but these."""


class ChangeWatch:
    """The changes of one queue, for one follower."""

    def __init__(self, completion: CommitTracker, clock: Clock, on_safe: Callable[[], None]) -> None:
        self.units: deque[WatchedChange] = deque()
        self.safe = 0
        """What was done below that place is safe."""
        self.noted = 0
        """Messages in the units."""
        self.is_full = False
        """There were too many: nothing is noted any more."""
        self.is_over = False
        self._completion = completion
        self._clock = clock
        self._on_safe = on_safe

    def note_enqueued(self, entries: Sequence[Entry]) -> None:
        found = [(entry.position & ARRIVAL_MASK, entry.message_id) for entry in entries if entry.message_id]
        if found and (unit := self._unit(len(found))) is not None:
            unit.puts += found

    def note_dequeued(self, entries: Iterable[Entry], why: Why) -> None:
        found = [entry.position & ARRIVAL_MASK for entry in entries if entry.message_id]
        if found and (unit := self._unit(len(found))) is not None:
            unit.takes.append((why, found))

    def purged(self, last: int, kept: Iterable[int]) -> None:
        if (unit := self._unit(1)) is not None:
            unit.purged, unit.kept = last, ranges(kept)

    def next(self) -> WatchedChange:
        unit = self.units.popleft()
        self.noted -= _size(unit)
        return unit

    def _unit(self, size: int) -> WatchedChange | None:
        """Returns the change of the event that is being applied."""
        if self.noted + size > MOST_NOTED:
            self.is_full = True
            self.units.clear()
            self.noted = 0
        if self.is_full:
            return None
        self.noted += size
        at = self._completion.at
        if not self.units or self.units[-1].place != at + 1:
            self.units.append(WatchedChange(at + 1, self._clock.wall_us()))
            self._completion.when_safe(at, partial(self._is_safe, at + 1))
        return self.units[-1]

    def _is_safe(self, place: int) -> None:
        if not self.is_over:
            self.safe = place
            self._on_safe()


def _size(unit: WatchedChange) -> int:
    return len(unit.puts) + sum([len(positions) for _, positions in unit.takes]) + bool(unit.purged)


def ranges(positions: Iterable[int]) -> Ranges:
    """In order; those that follow each other together."""
    found: Ranges = []
    begin = end = 0
    for position in sorted(positions):
        if found and position <= end + 1:
            end = max(end, position)
            found[-1] = begin, end
        else:
            begin = end = position
            found.append((begin, end))
    return found
