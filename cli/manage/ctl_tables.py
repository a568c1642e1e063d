"""The output of `cairnmq ctl`: tables for people, one JSON document for programs."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from ...base.printable import printable, printable_json
from .ctl_client import plain

TIMES = ("since",)
WIDTH_IN_PIPES = 200
"""The line width for output that is not a terminal, where lines are not folded at 80 columns."""


class Printer:
    """Prints in one of the two ways."""

    def __init__(self, *, as_json: bool) -> None:
        self.as_json = as_json
        width = None if sys.stdout.isatty() else WIDTH_IN_PIPES
        self._console = Console(width=width, highlight=False, soft_wrap=False)

    def rows(self, rows: Iterable[Mapping[str, Any]], columns: Sequence[str]) -> None:
        """A table of these columns; in JSON a list of objects with all there is."""
        if self.as_json:
            self._json([plain(row) for row in rows])
            return
        table = Table(box=None, pad_edge=False, header_style="bold")
        for column in columns:
            table.add_column(column, overflow="fold")
        for row in rows:
            table.add_row(*(Text(_shown(column, row.get(column))) for column in columns))
        self._console.print(table)

    def one(self, found: Mapping[str, Any]) -> None:
        """All there is of one thing."""
        if self.as_json:
            self._json(plain(found))
            return
        table = Table(box=None, pad_edge=False, show_header=False)
        for name, value in found.items():
            table.add_row(Text(printable(name), style="bold"), Text(_shown(name, value)))
        self._console.print(table)

    def done(self, text: str, found: Mapping[str, Any] | None = None) -> None:
        """Something was done; in JSON an object, which may have more to it."""
        if self.as_json:
            self._json({"done": text, **plain(found or {})})
        else:
            self._console.print(Text(printable(text)))

    def _json(self, value: Any) -> None:
        sys.stdout.write(printable_json(json.dumps(value, ensure_ascii=False, indent=2)) + "\n")


def _shown(name: str, value: Any) -> str:
    if value is None:
        return ""
    if name in TIMES and isinstance(value, int):
        return datetime.fromtimestamp(value / 1000, UTC).isoformat(sep=" ", timespec="seconds")
    value = plain(value)
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, dict | list):
        return printable_json(json.dumps(value, ensure_ascii=False)) if value else ""
    return printable(str(value))
