"""Lists as CSV files."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from starlette.responses import Response

MOST_CSV_ROWS = 10_000
_FORMULA = ("=", "+", "-", "@", "\t", "\r")
"""Beginnings of texts that spreadsheets would run as formulas."""


def csv_response(rows: Sequence[Mapping[str, Any]]) -> Response:
    """Return a file with a column for each field of *rows*."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    file = io.StringIO()
    writer = csv.writer(file)
    writer.writerow(names)
    writer.writerows([[_cell(row.get(name)) for name in names] for row in rows])
    headers = {"cache-control": "no-store", "content-disposition": 'attachment; filename="list.csv"'}
    return Response(file.getvalue(), 200, headers, "text/csv; charset=utf-8")


def _cell(value: Any) -> Any:
    if isinstance(value, Mapping | list):
        value = msgspec.json.encode(value).decode()
    if isinstance(value, str) and value.startswith(_FORMULA):
        return "'" + value
    return value
