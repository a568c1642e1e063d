"""The options of `cairnmq ctl ... list`: columns, order, filters and repetition."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from operator import eq, ge, gt, le, lt, ne
from typing import Any, NamedTuple

import click

from ..common.units import SIZE_OR_NONE, Duration
from ..options.subjects import OUTPUT, SELECTION, option, several

_OPERATORS: dict[str, Callable[[Any, Any], bool]] = {">=": ge, "<=": le, "!=": ne, "=": eq, ">": gt, "<": lt}
_FILTER = re.compile(r"([a-z][a-z0-9-]*)\s*(>=|<=|!=|=|>|<)\s*(.*)", re.S)
_CLEAR = "\x1b[H\x1b[2J\x1b[3J"


class RowFilter(NamedTuple):
    """A condition on one attribute of a row."""

    attribute: str
    operator: str
    value: str

    def holds(self, row: Mapping[str, Any]) -> bool:
        """Compare numbers as numbers, sizes included, and all else as texts; an absent value fulfills only `!=`."""
        found = row.get(self.attribute)
        if found is None:
            return self.operator == "!=" or (self.operator == "=" and not self.value)
        compare = _OPERATORS[self.operator]
        if isinstance(found, bool):
            return compare("yes" if found else "no", {"true": "yes", "false": "no"}.get(self.value, self.value))
        if isinstance(found, int | float):
            return compare(found, _number(self.value))
        return compare(str(found), self.value)


class ListView(NamedTuple):
    """The rows and columns that a list shows."""

    columns: tuple[str, ...] = ()
    """The columns that were named; the usual ones if empty."""
    sort: str = ""
    """The attribute that determines the order, behind `-` for a descending one; that of the broker if empty."""
    filters: tuple[RowFilter, ...] = ()

    def rows(self, found: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
        """Return the selected rows in their order. Raises `UsageError` for an attribute that the rows do not have."""
        rows = list(found)
        if rows:
            self._check(rows[0])
        rows = [row for row in rows if all(one.holds(row) for one in self.filters)]
        if self.sort:
            rows.sort(key=lambda row: _order(row.get(self.sort.lstrip("-"))), reverse=self.sort.startswith("-"))
        return rows

    def _check(self, row: Mapping[str, Any]) -> None:
        wanted = (*self.columns, *(one.attribute for one in self.filters), *filter(None, [self.sort.lstrip("-")]))
        for name in wanted:
            if name not in row:
                raise click.UsageError(f"{name}: no such attribute (attributes: {', '.join(row)})")


def _order(value: Any) -> tuple[int, Any]:
    """Return a sort key: absent values first, then numbers, then texts."""
    if value is None:
        return 0, 0
    return (1, value) if isinstance(value, int | float) else (2, str(value))


def _number(text: str) -> float:
    try:
        return float(text.replace(",", ""))
    except ValueError:
        return SIZE_OR_NONE.convert(text, None, None)


def _filters(ctx: click.Context, param: click.Parameter, texts: tuple[str, ...]) -> tuple[RowFilter, ...]:
    found = []
    for text in texts:
        parts = _FILTER.fullmatch(text.strip())
        if parts is None:
            operators = ", ".join(_OPERATORS)
            raise click.UsageError(f"--filter {text}: not ATTRIBUTE, operator ({operators}), VALUE: messages>1000")
        found.append(RowFilter(*parts.groups()))
    return tuple(found)


def _names(ctx: click.Context, param: click.Parameter, text: str | None) -> tuple[str, ...]:
    return tuple(filter(None, map(str.strip, (text or "").split(","))))


list_options = several(
    option(OUTPUT, "--columns", metavar="NAME,...", callback=_names, help="Attributes to show; `show` lists all."),
    option(OUTPUT, "--sort", metavar="NAME", default="", help="Sort by this attribute; -NAME: in descending order."),
    option(
        SELECTION, "--filter", "filters", multiple=True, metavar="CONDITION", callback=_filters,
        help="List only rows that fulfill it, like 'messages>1000' or state=paused. Repeatable.",
    ),
    option(
        OUTPUT, "--watch", "watch_s", type=Duration(0.5, 3600), is_flag=False, flag_value="2s", metavar="[TIME]",
        help="Repeat it, by default every 2 s, until Ctrl-C.",
    ),
)  # fmt: skip


def repeat(show: Callable[[], None], watch_s: float | None) -> None:
    """Call *show* once; with *watch_s* again and again, on a terminal on an empty screen."""
    while True:
        if watch_s is not None and sys.stdout.isatty():
            sys.stdout.write(_CLEAR)
        show()
        sys.stdout.flush()
        if watch_s is None:
            return
        time.sleep(watch_s)
