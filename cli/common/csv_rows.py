"""Rows as CSV: a line of names, and a line per row, written as the rows come.

Texts come from clients, and the lines go to terminals and spreadsheets. Unless they are raw, control and format
characters but line feeds and tabs are escaped, and texts that a spreadsheet takes for formulas get an apostrophe.
"""

from __future__ import annotations

import csv
import json
import math
import sys
from base64 import b64encode
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, TextIO
from uuid import UUID

from ...base.printable import FORMULA, printable, printable_json


class CsvRows:
    """A writer of rows that are mappings. Values that are no number or text are written as in JSON."""

    def __init__(self, columns: Sequence[str], out: TextIO | None = None, *, raw: bool = False) -> None:
        """Write the header."""
        self._csv = csv.writer(out or sys.stdout, lineterminator="\n")
        self._cell = cell if raw else safe_cell
        self._columns = columns
        self._csv.writerow(columns)

    def row(self, values: Mapping[str, Any]) -> None:
        """Write the values of the columns; a missing one is empty."""
        self._csv.writerow([self._cell(values.get(name)) for name in self._columns])


def print_csv(
    columns: Sequence[str], rows: Iterable[Mapping[str, Any]], shown: Callable[[str, Any], Any] | None = None
) -> None:
    """Print the rows. *shown* converts the value of a column before it is written."""
    writer = CsvRows(columns)
    for row in rows:
        writer.row({name: shown(name, row.get(name)) for name in columns} if shown else row)


def print_object(found: Mapping[str, Any]) -> None:
    """Print one object: its keys, and a row."""
    print_csv(tuple(found), [found])


def without_lists(found: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values that fit into one row: without lists, and with the values of objects as OBJECT_NAME."""
    row: dict[str, Any] = {}
    for name, value in found.items():
        row |= {f"{name}_{key}": one for key, one in value.items()} if isinstance(value, dict) else {name: value}
    return {name: value for name, value in row.items() if not isinstance(value, list)}


def columns_of(rows: Sequence[Mapping[str, Any]], first: Sequence[str]) -> tuple[str, ...]:
    """Return *first* and the other keys of *rows*, in the order in which they occur."""
    return tuple(dict.fromkeys((*first, *(name for row in rows for name in row))))


def plain(value: Any) -> Any:
    """Return a value that JSON can represent."""
    if isinstance(value, dict):
        return {str(name): plain(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [plain(one) for one in value]
    if isinstance(value, bytes):
        return b64encode(value).decode()
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, datetime | date | time):
        return value.isoformat()
    if isinstance(value, timedelta | UUID | Decimal):
        return str(value)
    return value


def cell(value: Any) -> Any:
    """Return the value as a cell."""
    value = plain(value)
    if isinstance(value, dict | list | bool):
        return printable_json(json.dumps(value, ensure_ascii=False))
    return value


def safe_cell(value: Any) -> Any:
    """Return the cell for terminals and spreadsheets."""
    if not isinstance(value, str):
        return cell(value)
    text = value if value.isprintable() else "".join(char if char in "\n\t" else printable(char) for char in value)
    return "'" + text if text.startswith(FORMULA) else text
