"""Tables for people: columns that fit the terminal, and values that are cut with an ellipsis, never inside a line."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from typing import Literal

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions
from rich.text import Text

_GAP = 2
"""Spaces between columns."""
_LEAST = 10
"""The width to which a column of texts may shrink before columns are left out."""
_LEAST_OF_FIRST = 20
_LEAST_OF_PROSE = 20
_NUMBER = re.compile(r"[+-]?\d[\d,.]*( ?([KMGT]i)?B| ?%| ?[num]?s| min| h| d)?(/s)?(( \d+ (h|min|s)))?")
_TIME = re.compile(r"@?-?\d+|\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d+)?Z?")


class TextTable:
    """A table that is as wide as its console permits.

    Columns of numbers and times are never cut. Texts shrink first; then columns are left out from the right, and named
    below the table. A column of prose continues on further lines, between words.
    """

    def __init__(
        self, *columns: str, title: str = "", prose: Collection[str] = (), has_header: bool = True, raw: bool = False
    ) -> None:
        """*raw*: neither cut nor leave out anything."""
        self._columns = [Text(column, style="bold") for column in columns]
        self._title = title
        self._prose = frozenset(prose)
        self._has_header = has_header
        self._is_raw = raw
        self._rows: list[list[Text]] = []

    @property
    def row_count(self) -> int:
        return len(self._rows)

    def add_row(self, *cells: str | Text) -> None:
        """Add one cell for each column; control characters must be escaped before."""
        self._rows.append([cell if isinstance(cell, Text) else Text(cell) for cell in cells])

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Text]:
        count = len(self._columns) or max(map(len, self._rows), default=0)
        names = self._columns or [Text("")] * count
        columns = [_Column(names[at], [row[at] for row in self._rows], self._prose) for at in range(count)]
        shown = columns if self._is_raw else _fit(columns, options.max_width)
        if self._title:
            yield Text(self._title, style="bold")
        if self._columns and self._has_header:
            yield from _lines([(column, column.name) for column in shown], console)
        for at in range(len(self._rows)):
            yield from _lines([(column, column.cells[at]) for column in shown], console)
        if len(shown) < count:
            left = [column.name.plain for column in columns if column not in shown]
            yield Text(f"not shown: {', '.join(left)}", style="dim", overflow="fold")


class _Column:
    def __init__(self, name: Text, cells: Sequence[Text], prose: Collection[str]) -> None:
        texts = [cell.plain for cell in cells if cell.plain]
        self.name, self.cells = name, cells
        self.is_prose = name.plain in prose
        self.is_number = bool(texts) and all(map(_NUMBER.fullmatch, texts))
        self.natural = max(map(cell_len, (name.plain, *texts)), default=0)
        self.width = self.natural
        is_fixed = self.is_number or (bool(texts) and all(map(_TIME.fullmatch, texts)))
        least = _LEAST_OF_PROSE if self.is_prose else _LEAST
        self.least = self.natural if is_fixed else min(self.natural, max(least, cell_len(name.plain)))

    def lines(self, cell: Text, console: Console) -> list[Text]:
        if self.is_prose:
            return list(cell.wrap(console, self.width, overflow="ellipsis")) or [cell]
        cell = cell.copy()
        cell.truncate(self.width, overflow="ellipsis")
        return [cell]


def _fit(columns: list[_Column], width: int) -> list[_Column]:
    """Return the columns that fit, with their widths set."""
    if columns:
        first = columns[0]
        first.least = min(max(first.least, _LEAST_OF_FIRST), first.natural, width)
    kept = list(columns)
    while len(kept) > 1 and _total([column.least for column in kept]) > width:
        kept.pop()
    level = max((column.natural for column in kept), default=0)
    while _total([column.width for column in kept]) > width and level > 1:
        level -= 1
        for column in kept:
            column.width = max(column.least, min(column.width, level))
    return kept


def _total(widths: Sequence[int]) -> int:
    return sum(widths) + _GAP * (len(widths) - 1)


def _lines(cells: Sequence[tuple[_Column, Text]], console: Console) -> Iterator[Text]:
    """Yield the lines of one row, without spaces at their ends."""
    parts = [(column, column.lines(cell, console)) for column, cell in cells]
    for at in range(max((len(lines) for _, lines in parts), default=0)):
        line = Text(no_wrap=True, overflow="ignore")
        for number, (column, lines) in enumerate(parts):
            part = (lines[at] if at < len(lines) else Text("")).copy()
            side: Literal["left", "right"] = "right" if column.is_number else "left"
            part.align(side, max(column.width, cell_len(part.plain)))
            line.append(part).append("" if number + 1 == len(parts) else " " * _GAP)
        line.rstrip()
        yield line
