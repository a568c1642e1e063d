"""Records the changes of a replicated queue from some position on, for a downstream at another site.

A member records, in the order of events, the messages that were added to the queue and removed from it: positions, and
for added ones the IDs in its own store. Contents are read when they are sent. This happens only for queues that are
followed on this member. *Safe* changes are known to a majority and durable there: no others may leave the site, since
events that the others never received do not count. Core only.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial

from ...base.clock import Clock
from ...broker.messages.entry import ARRIVAL_MASK, Entry
from ...store.contract.dequeue_reason import DequeueReason
from ..kernel.commit_tracker import CommitTracker

MOST_NOTED = 1 << 17
"""The limit of recorded messages; beyond it the downstream is compared with the queue again."""

Ranges = list[tuple[int, int]]


@dataclass
class WatchedChange:
    """The effect of one event on a queue."""

    place: int
    """The position behind the event."""
    time_us: int
    puts: list[tuple[int, int]] = field(default_factory=list)
    """Positions and IDs in order, of durable messages only, as in the other fields."""
    takes: list[tuple[DequeueReason, list[int]]] = field(default_factory=list)
    purged: int = 0
    """The position up to which a purge removed all messages; 0 if none did,"""
    kept: Ranges = field(default_factory=list)
    """and the ranges of positions that it kept."""


class ChangeWatch:
    """The changes of one queue, for one downstream."""

    def __init__(self, completion: CommitTracker, clock: Clock, on_safe: Callable[[], None]) -> None:
        self.units: deque[WatchedChange] = deque()
        self.safe = 0
        """The position below which changes are safe."""
        self.noted = 0
        """The number of messages in the units."""
        self.is_full = False
        """True after an overflow: no more changes are recorded."""
        self.is_over = False
        self._completion = completion
        self._clock = clock
        self._on_safe = on_safe

    def note_enqueued(self, entries: Sequence[Entry]) -> None:
        found = [(entry.position & ARRIVAL_MASK, entry.message_id) for entry in entries if entry.message_id]
        if found and (unit := self._unit(len(found))) is not None:
            unit.puts += found

    def note_dequeued(self, entries: Iterable[Entry], reason: DequeueReason) -> None:
        found = [entry.position & ARRIVAL_MASK for entry in entries if entry.message_id]
        if found and (unit := self._unit(len(found))) is not None:
            unit.takes.append((reason, found))

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
    """Returns positions, in order, as ranges of consecutive ones."""
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
