"""The output of `cairnmq ctl`: tables for people, one JSON document or CSV for programs."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ...amqp.client.plain_values import plain
from ...base.printable import printable, printable_json
from ..tables.human_values import human, style_of


class Printer:
    """Prints in one of the formats."""

    def __init__(self, output: str) -> None:
        """*output*: one of `options.common_options.OUTPUTS`."""
        self.as_json = output == "json"
        self._output = output

    def rows(self, rows: Iterable[Mapping[str, Any]], columns: Sequence[str]) -> None:
        """A table of these columns; in JSON a list of objects with all there is."""
        values = map(plain, rows)
        if self.as_json:
            self._json([*values])
        elif not _print_values(values, columns, self._output):
            _print_table(([_cell(column, row.get(column)) for column in columns] for row in values), columns)

    def one(self, found: Mapping[str, Any]) -> None:
        """All there is of one thing."""
        if self.as_json:
            self._json(plain(found))
            return
        rows = ({"attribute": name, "value": value} for name, value in plain(found).items())
        if not _print_values(rows, ("attribute", "value"), self._output):
            _print_table([(printable(name), "bold"), _cell(name, value)] for name, value in plain(found).items())

    def done(self, text: str, found: Mapping[str, Any] | None = None) -> None:
        """Something was done; in JSON an object, which may have more to it."""
        if self.as_json:
            self._json({"done": text, **plain(found or {})})
        else:
            sys.stdout.write(f"{printable(text)}\n")

    def _json(self, value: Any) -> None:
        sys.stdout.write(printable_json(json.dumps(value, ensure_ascii=False, indent=2)) + "\n")


def _cell(name: str, value: Any) -> tuple[str, str]:
    return human(name, value), style_of(name, value)


def _print_values(rows: Iterable[Mapping[str, Any]], columns: Sequence[str], output: str) -> bool:
    from ..common.output import print_values  # with rich: help and completion do without

    return print_values(rows, columns, output)


def _print_table(rows: Iterable[Iterable[tuple[str, str]]], columns: Sequence[str] = ()) -> None:
    from ..common.output import print_table

    print_table(rows, columns)
