"""Choice of the slots to empty when the maximum number of holes is reached (`journal/format/holes.py`).

An emptied slot then leaves the log only if it is next to a hole, or is the first of the log; dead slots elsewhere stay.
The unit of choice is therefore a *stretch*: consecutive slots with a hole or the beginning of the log at one end. A
stretch is worth emptying if it has many dead slots. It is also worth emptying if it is all that separates two holes;
the longest run of dead slots then becomes a hole in their place.

The policy is used when the log takes more than twice the size of its live records. Stretches of which less than half
has to be copied therefore exist, and the share of the best ones is far less: 0.2 bytes are copied for each stored byte
in the worst known workload.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import groupby
from typing import NamedTuple

from ...journal.write.log_slots import LogSlots
from ..message_map.pins import Pins

_PORTION = 32
"""A look at all slots, 0.5 us each, chooses stretches of at least one part of so many."""


class Stretch(NamedTuple):
    """Slots to be emptied one after another, beginning at a hole."""

    share: float
    """The share of the reclaimed bytes that has to be copied."""
    slots: list[int]


def choose(extent: LogSlots, pins: Pins, end_slot: int, worth: float, may_go: Callable[[int], bool]) -> list[int]:
    """The slots below *end_slot* to be emptied next, in that order; of stretches with less than *worth* to be copied.

    *may_go*: whether a slot that is needed can be emptied now.
    """
    gaps = list(_gaps(extent, pins, end_slot, may_go))
    longest = max((_longest_dead(costs) for _, costs in gaps), default=0)
    found: list[Stretch] = []
    for number, (slots, costs) in enumerate(gaps):
        is_last = number == len(gaps) - 1
        both = [_best(slots, costs, 0 if is_last else longest, extent.container_bytes)]
        if not is_last:  # a hole is behind it, too
            both.append(_best(slots[::-1], costs[::-1], longest, extent.container_bytes))
        found.append(min(both))
    found.sort()
    chosen: list[int] = []
    for stretch in found:
        if stretch.share >= worth or len(chosen) * _PORTION > len(extent.slots):
            break
        chosen += [slot for slot in stretch.slots if pins.is_needed(slot)]
    return chosen


def _gaps(
    extent: LogSlots, pins: Pins, end_slot: int, may_go: Callable[[int], bool]
) -> Iterator[tuple[list[int], list[int]]]:
    """Yield the slots between the log's beginning, its holes and its end, with the cost of each in bytes.

    The cost is -1 for a slot that can't be emptied.
    """
    slots: list[int] = []
    costs: list[int] = []
    before = -1
    for slot, prev_lsn in extent.slots.items():
        if slots and prev_lsn // extent.container_bytes != before:
            yield slots, costs
            slots, costs = [], []
        before = slot
        is_needed = pins.is_needed(slot)
        slots.append(slot)
        costs.append(
            -1 if slot >= end_slot or (is_needed and not may_go(slot)) else pins.cost(slot) if is_needed else 0
        )
    yield slots, costs


def _best(slots: list[int], costs: list[int], freed: int, container_bytes: int) -> Stretch:
    """The stretch from the first of *slots* on of which the least share has to be copied.

    Without all of them so many others leave the log, *freed*.
    """
    best, length, copied = 1.0, 0, 0
    for at, cost in enumerate(costs, 1):
        if cost < 0:
            break
        copied += cost
        leaves = at + freed if at == len(costs) else at
        share = copied / (leaves * container_bytes)
        if share <= best:
            best, length = share, at
    return Stretch(best, slots[:length])


def _longest_dead(costs: list[int]) -> int:
    return max((sum(1 for _ in run) for is_dead, run in groupby(costs, lambda cost: not cost) if is_dead), default=0)
