"""The slots that make up a log: those from the base on, without the holes (checklist E8, E9, E25).

Threads. `begin`, `retire` and what they change are the appender's, `released` is the writer's. A retired slot moves
from the appender to the writer: it is `passed` by the base, or becomes a hole that a record lists. Its container is
free when that record is durable.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator

from ..format import holes
from ..format.holes import Hole


class LogSlots:
    """The slots of one log that is open for writing."""

    def __init__(self, container_bytes: int, slots: dict[int, int], log_holes: list[Hole], current_slot: int) -> None:
        """*slots*: see `slots`. *current_slot*: the one that is begun next, and where a log without slots begins."""
        self.slots = slots
        """The slots of the log in ascending order, each with the LSN of the last block before it."""
        self.holes = log_holes
        self.current_slot = current_slot
        """The last slot that was begun."""
        self.most_holes = holes.most(container_bytes)
        """The number of holes at which a dead slot stays until it joins a hole or the base passes it."""
        self.most_of_openings = holes.most_of_openings(container_bytes)
        """The number of holes at which a slot that holds only openings stays."""
        self.filled: dict[int, int] = {}
        """The number of bytes written to each slot that this incarnation left for the next one."""
        self.base_lsn = next(iter(slots), current_slot) * container_bytes
        """The LSN below which every record is dead. It never decreases."""
        self.container_bytes = container_bytes
        self.passed: deque[int] = deque()
        """Slots that the base has passed, and that were not released yet."""
        self.punched: deque[tuple[int, list[int]]] = deque()
        """Slots that became holes and were not released yet, each time with the LSN of the record of the holes."""
        self._dead: set[int] = set()  # slots that can't become a hole yet

    def begin(self, slot: int, prev_lsn: int, end_lsn: int) -> None:
        """Continue the log in *slot*, behind the block at *prev_lsn*, that ended at *end_lsn*; 0 at the start."""
        assert slot >= self.current_slot
        if end_lsn:
            self.filled[self.current_slot] = end_lsn - self.current_slot * self.container_bytes
        self.slots[slot] = prev_lsn
        self.current_slot = slot

    def retire(self, slots: Iterable[int], *, are_openings: bool = False) -> tuple[list[int], list[int]]:
        """Retire *slots*; return those that the base has passed now, and those that became holes.

        The holes must be recorded, and added to `punched`. The last slot and unknown slots are skipped. With the most
        holes, slots that join no other hole stay; a later call retires them. *are_openings*: the slots hold only
        openings, and some more holes are allowed.
        """
        removed: list[int] = []
        new = sorted(slot for slot in slots if slot in self.slots and slot < self.current_slot)
        self._dead.update(new)
        while (first := next(iter(self.slots))) in self._dead:
            self._leave(first)
            self.passed.append(first)
            removed.append(first)
        if first * self.container_bytes > self.base_lsn:
            self.base_lsn = first * self.container_bytes
            self.holes = holes.from_slot(self.holes, first)
        return removed, self._punch(new, self.most_of_openings if are_openings else self.most_holes)

    def waits(self, slot: int) -> bool:
        """Return whether *slot* is dead, but stays because the log has too many holes. Any thread."""
        return slot in self._dead

    def _punch(self, new: Iterable[int], most: int) -> list[int]:
        """Make holes of dead slots, the longest ones first, at most *most*; *new* are those that died now."""
        punched: list[int] = []
        waiting = list(new)
        while waiting:  # a slot that joins a hole needs no new one, and others may join it
            slot = waiting.pop()
            if slot in self._dead and self._becomes_hole(slot, len(self.holes)):
                punched.append(slot)
                waiting += self._beside(slot)
        if self._dead and len(self.holes) < most:
            for run in sorted(self._runs(), key=len, reverse=True):
                punched += [slot for slot in run if self._becomes_hole(slot, most)]
                if len(self.holes) >= most:
                    break
        return sorted(punched)

    def _becomes_hole(self, slot: int, most: int) -> bool:
        """Make *slot* a hole if the log then has at most *most* holes; return whether it became one."""
        joined = holes.add(self.holes, slot, self.slots[slot], self.container_bytes)
        if len(joined) > most:
            return False
        self.holes = joined
        self._leave(slot)
        return True

    def _beside(self, slot: int) -> list[int]:
        """Return the slots of the log before and behind the hole that *slot* is in."""
        hole = holes.hole_with(self.holes, slot)
        assert hole is not None
        behind = hole.end
        while behind not in self.slots:  # never started
            behind += 1
        return [behind, hole.prev_lsn // self.container_bytes]

    def _runs(self) -> Iterator[list[int]]:
        """Yield the dead slots that are not holes yet, in groups that would each form one hole."""
        run: list[int] = []
        for slot in sorted(self._dead):
            if run and self.slots[slot] // self.container_bytes != run[-1]:
                yield run
                run = []
            run.append(slot)
        yield run

    def _leave(self, slot: int) -> None:
        assert slot != self.current_slot
        self._dead.discard(slot)
        self.filled.pop(slot, None)
        del self.slots[slot]

    def last_block_of(self, slot: int) -> int:
        """Return the LSN of the last block in *slot*, which is no longer written to."""
        hole = next((hole for hole in self.holes if hole.prev_lsn // self.container_bytes == slot), None)
        if hole is not None:
            return hole.prev_lsn
        following = slot + 1
        while following not in self.slots:
            following += 1
        return self.slots[following]

    def released(self, end_lsn: int, base_lsn: int) -> list[int]:
        """Return the slots that have permanently left the log, given the durable *end_lsn* and *base_lsn*."""
        removed: list[int] = []
        while self.passed and (self.passed[0] + 1) * self.container_bytes <= base_lsn:
            removed.append(self.passed.popleft())
        while self.punched and self.punched[0][0] < end_lsn:
            removed += self.punched.popleft()[1]
        return removed
