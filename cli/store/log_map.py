"""The log drawn in a terminal: a cell for each container, or for a group of them, the fuller of life the darker."""

from __future__ import annotations

from collections.abc import Sequence

from rich.text import Text

from ...base.texts import counted
from ...tools.explain.stat import SlotStat

COLUMNS, ROWS = 64, 16
_SHADES = (" ", "░", "▒", "▓", "█")
_STYLES = ("dim", "red", "yellow", "green", "green")
HOLE = "·"
LEGEND = "B base, E end, {shades} live ratio from 0 to 1, · reclaimed; a cell is {group}"


def log_map(slots: Sequence[SlotStat], container_bytes: int) -> list[Text]:
    """Lines for *slots*, in the order of the log."""
    cells: list[list[SlotStat]] = []  # an empty one is a hole
    group = max(1, -(-len(slots) // (COLUMNS * ROWS)))
    last = -1
    for slot in slots:
        if last >= 0 and slot.slot > last + 1 and group == 1:
            cells.append([])
        if not cells or not cells[-1] or len(cells[-1]) >= group:
            cells.append([])
        cells[-1].append(slot)
        last = slot.slot
    lines = []
    for at in range(0, len(cells), COLUMNS):
        line = Text()
        for number, cell in enumerate(cells[at : at + COLUMNS], at):
            line.append(*_drawn(cell, container_bytes, is_first=number == 0, is_last=number == len(cells) - 1))
        lines.append(line)
    shades = "".join(_SHADES[1:])
    size = counted(group, "container")
    lines.append(Text(LEGEND.format(shades=shades, group=size), style="dim"))
    return lines


def _drawn(cell: list[SlotStat], container_bytes: int, *, is_first: bool, is_last: bool) -> tuple[str, str]:
    if not cell:
        return HOLE, "dim"
    ratio = sum(slot.live_bytes for slot in cell) / (container_bytes * len(cell))
    level = 0 if ratio <= 0 else min(len(_SHADES) - 1, 1 + int(ratio * (len(_SHADES) - 1)))
    if is_last:
        return "E", "bold"
    if is_first:
        return "B", "bold"
    return _SHADES[level] if level else ("░" if any(slot.is_needed for slot in cell) else " "), _STYLES[level]
