"""Choice of the slot of the log to empty next: the one with the least bytes to copy, when the log is too large.

An emptied slot leaves the log. With the maximum number of holes that is true only of some slots, see `gaps`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from heapq import heappop, heappush

from ...journal.files.space_reserve import FOR_OPENINGS
from ...journal.write.journal import Journal
from ..message_map.pins import Pins
from . import hole_policy as gaps

SLACK_CONTAINERS = 3
"""The number of containers that the log may take in addition to twice the live bytes before compaction begins."""
_LEVELS = 16
"""Slots are compared by the sixteenths of them that would have to be copied;"""
WORTH_LEVEL = 15
"""from so many on it is not worth it, nor if that is nearly all that was written there: records that do not fit behind
others leave room at the end, and their copies would leave as much."""


def allowed_bytes(live_bytes: int, container_bytes: int) -> int:
    """Return the log size in bytes up to which nothing is compacted, with *live_bytes* of live records."""
    return 2 * live_bytes + SLACK_CONTAINERS * container_bytes


def level(cost_bytes: int, container_bytes: int) -> int:
    """Return the cost level of emptying a slot by copying *cost_bytes*; the lowest level is emptied first."""
    return cost_bytes * _LEVELS // container_bytes


class RelocationPolicy:
    """Slots to be emptied, one after another. The thread that makes the store's calls."""

    def __init__(self, pins: Pins, journal: Journal) -> None:
        self.unreadable: dict[int, str] = {}
        """Slots that can't be emptied because they can't be read, and why."""
        self.is_undecided = False
        """True if `choose` returned None and may return a slot the next time, although nothing has changed."""
        self._pins = pins
        self._journal = journal
        self._cheapest: list[tuple[int, int]] = []  # a heap of levels and slots
        self._listed: dict[int, int] = {}  # slot to its level there
        self._beside_holes: deque[int] = deque()  # slots to be emptied, in that order
        self._fruitless: tuple[int, int, int] | None = None  # how things stood when nothing was found to be emptied

    def look_at(self, slots: Iterable[int]) -> None:
        """Update the costs of *slots*, and list those that are now cheaper to empty than before."""
        for slot in slots:
            found = self._level(slot)
            if found < self._listed.get(slot, WORTH_LEVEL) and not self._is_dense(slot):
                self._listed[slot] = found
                heappush(self._cheapest, (found, slot))
        if len(self._cheapest) > 2 * len(self._journal.extent.slots) + 100:  # mostly of slots that left the log
            self._cheapest, self._listed = [], {}
            self.look_at(self._journal.extent.slots)

    def _level(self, slot: int) -> int:
        return level(self._pins.cost(slot), self._journal.container_bytes)

    def _is_dense(self, slot: int) -> bool:
        filled = self._journal.extent.filled.get(slot)
        return filled is not None and level(self._pins.cost(slot), filled) >= WORTH_LEVEL

    def choose(self) -> int | None:
        """The slot to be emptied next; None if there is nothing to gain."""
        self.is_undecided = False
        journal = self._journal
        size = journal.container_bytes
        in_need = journal.pool.in_need
        has_most_holes = len(journal.extent.holes) >= journal.extent.most_holes
        if not has_most_holes:
            self._beside_holes.clear()
        is_allowed = len(journal.extent.slots) * size <= allowed_bytes(self._pins.live_bytes, size)
        # continue next to holes: copies that are together need not be copied again
        if is_allowed and not in_need and not self._beside_holes:
            return None
        if has_most_holes:
            return self._choose_beside_holes()
        waiting: list[int] = []
        chosen = None
        while self._cheapest and chosen is None:
            listed, slot = heappop(self._cheapest)
            if self._listed.get(slot) != listed:
                continue  # listed again since, as cheaper
            del self._listed[slot]
            if slot not in journal.extent.slots or slot in self.unreadable or not self._pins.is_needed(slot):
                continue
            is_current = self._level(slot) == listed
            if is_current and self._may_go(slot):
                chosen = slot
            else:
                waiting.append(slot)
                self.is_undecided = self.is_undecided or not is_current  # it is listed anew
        self.look_at(waiting)
        return chosen

    def _choose_beside_holes(self) -> int | None:
        """The next slot while others would stay in the log, for there are as many holes as there may be."""
        extent, pins = self._journal.extent, self._pins
        if not self._beside_holes:
            size = extent.container_bytes
            now = extent.current_slot, len(extent.slots), pins.live_bytes // size
            if now == self._fruitless:
                return None
            end = min(self._journal.writer.durable_lsn // size, extent.current_slot)
            self._beside_holes.extend(gaps.choose(extent, pins, end, WORTH_LEVEL / _LEVELS, self._may_go))
            self._fruitless = None if self._beside_holes else now
            if self._fruitless is not None:
                return None
        self.is_undecided = True  # unless a slot is returned: the list begins anew
        while self._beside_holes and not pins.is_needed(self._beside_holes[0]):
            self._beside_holes.popleft()  # it died and left the log
        if not self._beside_holes:
            return None
        slot = self._beside_holes.popleft()
        if self._may_go(slot):
            return slot
        self._beside_holes.clear()  # the following slots are behind it
        return None

    def _may_go(self, slot: int) -> bool:
        return self.is_settled(slot) and self._has_room_for(slot)

    def _has_room_for(self, slot: int) -> bool:
        """Return whether the copies can be written: on a full disk, without using the containers for openings."""
        journal = self._journal
        left = -journal.next_lsn % journal.container_bytes
        pool = journal.pool
        return pool.full is None or pool.unclaimed > FOR_OPENINGS or 2 * self._pins.cost(slot) < left

    def is_settled(self, slot: int) -> bool:
        """A slot with copies waits for the originals to leave, or it would be forgotten that they are superseded."""
        journal = self._journal
        return (
            slot < min(journal.writer.durable_lsn // journal.container_bytes, journal.extent.current_slot)
            and slot not in self.unreadable
            and not any(source in journal.extent.slots for source in self._pins.superseded.get(slot, ()))
        )
