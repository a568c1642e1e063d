"""The output of `cairnmq ctl`: tables for people, one JSON document or CSV for programs."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ...amqp.client.plain_values import plain
from ...base.printable import printable, printable_json
from ...base.times import time_text
from ..common.csv_rows import print_csv

TIMES = ("since", "due")


class Printer:
    """Prints in one of the formats."""

    def __init__(self, output: str) -> None:
        """*output*: one of `options.common_options.OUTPUTS`."""
        self.as_json = output == "json"
        self._as_csv = output == "csv"

    def rows(self, rows: Iterable[Mapping[str, Any]], columns: Sequence[str]) -> None:
        """A table of these columns; in JSON a list of objects with all there is."""
        if self.as_json:
            self._json([plain(row) for row in rows])
        elif self._as_csv:
            print_csv(columns, rows, _value)
        else:
            _print_table(([(_shown(column, row.get(column)), "") for column in columns] for row in rows), columns)

    def one(self, found: Mapping[str, Any]) -> None:
        """All there is of one thing."""
        if self.as_json:
            self._json(plain(found))
        elif self._as_csv:
            rows = ({"attribute": name, "value": _value(name, value)} for name, value in found.items())
            print_csv(("attribute", "value"), rows)
        else:
            _print_table([(printable(name), "bold"), (_shown(name, value), "")] for name, value in found.items())

    def done(self, text: str, found: Mapping[str, Any] | None = None) -> None:
        """Something was done; in JSON an object, which may have more to it."""
        if self.as_json:
            self._json({"done": text, **plain(found or {})})
        else:
            sys.stdout.write(f"{printable(text)}\n")

    def _json(self, value: Any) -> None:
        sys.stdout.write(printable_json(json.dumps(value, ensure_ascii=False, indent=2)) + "\n")


def _print_table(rows: Iterable[Iterable[tuple[str, str]]], columns: Sequence[str] = ()) -> None:
    from ..common.output import print_table  # with rich: help and completion do without

    print_table(rows, columns)


def _value(name: str, value: Any) -> str:
    """Return a value as text, which may still contain control characters."""
    if value is None:
        return ""
    if name in TIMES and isinstance(value, int):
        return time_text(value * 1000, timespec="seconds")
    value = plain(value)
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, dict | list):
        return printable_json(json.dumps(value, ensure_ascii=False)) if value else ""
    return str(value)


def _shown(name: str, value: Any) -> str:
    return printable(_value(name, value))
