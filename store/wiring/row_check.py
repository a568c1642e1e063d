"""Checks of stored rows: a wiring may have been edited by hand.

| defect | consequence |
|---|---|
| arguments of a queue, an exchange or a binding that are no JSON object, or that AMQP can't encode | none are used |
| another value of a wrong type, too large, or that AMQP can't encode | the row is omitted |
| a binding of a queue or an exchange that does not exist | the row is omitted |

The rows stay in the database. Each defect is one line with its place, the value and the remedy.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from sqlalchemy import JSON, BigInteger, Column, Table, type_coerce
from sqlalchemy.types import NullType

MAX_NAME_BYTES = 1024
"""The maximum size of names and keys."""
MOST_ID = (1 << 63) - 1
_MOST_DEPTH = 32
_MOST_SHOWN = 60
_REMEDY = "correct it in the database while the broker is stopped, or delete and create it again"


def raw_columns(table: Table) -> list[Any]:
    """Return the columns to select for `RowCheck.values`: JSON is decoded there."""
    return [type_coerce(column, NullType()) if isinstance(column.type, JSON) else column for column in table.c]


class RowCheck:
    """Checks the rows of one wiring, and collects their defects."""

    def __init__(self, place: str) -> None:
        self.defects: list[str] = []
        self._place = place

    def values(self, table: Table, row: Sequence[Any]) -> list[Any] | None:
        """Return the values of *row* of *table*; None if it can't be used."""
        values: list[Any] = []
        for column, value in zip(table.c, row, strict=True):
            try:
                values.append(_value(column, value))
            except (ValueError, RecursionError) as error:
                is_usable = column.name == "arguments"
                reason = str(error) if isinstance(error, ValueError) else "it is nested too deeply"
                self.add(table.name, row, f"{column.name} {_shown(value)}: {reason}", is_usable=is_usable)
                if not is_usable:
                    return None
                values.append({})
        return values

    def add(self, table: str, row: Sequence[Any], reason: str, *, is_usable: bool = False) -> None:
        consequence = "it is ignored" if is_usable else "the row is ignored"
        place = f"{self._place}, {table} {', '.join(map(_shown, row[:2]))}"
        self.defects.append(f"{place}: {reason}; {consequence}: {_REMEDY}")


def _value(column: Column[Any], value: Any) -> Any:
    """Return a value as rows have it. Raise `ValueError`."""
    if isinstance(column.type, JSON):
        found = json.loads(value) if isinstance(value, str | bytes) else value
        if not isinstance(found, dict):
            raise ValueError("not a JSON object")
        _check_encodable(found, _MOST_DEPTH)
        return found
    if isinstance(column.type, BigInteger):
        if type(value) is not int or not 0 < value <= MOST_ID:
            raise ValueError("not a number from 1 to 2^63-1")
        return value
    if not isinstance(value, str) or not (value or column.name == "key"):
        raise ValueError("not a text")
    _check_encodable(value, 0)
    if len(value.encode()) > MAX_NAME_BYTES:
        raise ValueError(f"longer than {MAX_NAME_BYTES} bytes")
    return value


def _check_encodable(value: Any, depth: int) -> None:
    """Raise `ValueError` for what AMQP can't encode."""
    if isinstance(value, dict | list):
        if depth == 0:
            raise ValueError("it is nested too deeply")
        for one in value.values() if isinstance(value, dict) else value:
            _check_encodable(one, depth - 1)
        for name in value if isinstance(value, dict) else ():
            _check_encodable(name, 0)
    elif isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError:
            raise ValueError("not UTF-8") from None
    elif isinstance(value, int) and not -MOST_ID <= value <= MOST_ID:
        raise ValueError("a number that takes more than 64 bits")


def _shown(value: Any) -> str:
    try:
        shown = repr(value)
    except RecursionError:
        return "..."
    return shown if len(shown) <= _MOST_SHOWN else shown[:_MOST_SHOWN] + "..."
