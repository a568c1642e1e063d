"""The rows of an answer, written as they come: a table for people, JSON or CSV lines, or an Arrow stream."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable
from contextlib import suppress
from datetime import datetime
from typing import Any, BinaryIO, TextIO

from ...base.disk.real import disk_error, disk_errors
from ...base.printable import printable_json
from ...base.private_files import open_private
from ..tables.human_values import raw
from ..tables.text_table import TextTable
from .csv_rows import CsvRows, cell, plain
from .output import console, printable

SHOWN = 1000
"""The maximum number of rows of a table, which must be complete before it is drawn."""

_BYTES = 64
"""The maximum number of bytes of a binary value in a table."""


class RowWriter:
    """A writer of Arrow batches: first `open`, then `begin`, `end` only after success, `close` in any case."""

    def open(self) -> None: ...

    def begin(self, schema: Any) -> None: ...

    def rows(self, batch: Any) -> bool:
        """Return whether it wants more."""
        raise NotImplementedError

    def end(self) -> None: ...

    def close(self) -> None: ...

    def write(self, schema: Any, batches: Iterable[Any]) -> None:
        """Write an answer from `begin` to `end`, as much of it as is wanted."""
        self.begin(schema)
        for batch in batches:
            if not self.rows(batch):
                break
        self.end()


class TableWriter(RowWriter):
    """A table of the first rows."""

    def __init__(self, *, is_raw: bool = False) -> None:
        self._is_raw = is_raw
        self._table: TextTable | None = None
        self._is_cut = False

    def begin(self, schema: Any) -> None:
        self._table = TextTable(*map(printable, schema.names), raw=self._is_raw)

    def rows(self, batch: Any) -> bool:
        assert self._table is not None
        for row in _rows_of(batch):
            if self._table.row_count == SHOWN:
                self._is_cut = True
                return False
            self._table.add_row(*(raw(plain(value)) if self._is_raw else _shown(value) for value in row.values()))
        return True

    def end(self) -> None:
        self.close()
        if self._is_cut:
            print(f"the first {SHOWN} rows; --output json, --output csv and --arrow give all", file=sys.stderr)

    def close(self) -> None:
        if self._table is not None:
            console().print(self._table, soft_wrap=self._is_raw)
            self._table = None


class JsonWriter(RowWriter):
    """An object per row and line. Bytes are in base64, times in ISO 8601, numbers that JSON has not are null.

    *more* is what each object begins with.
    """

    def __init__(self, out: TextIO | None = None, more: dict[str, str] | None = None) -> None:
        self._out = out or sys.stdout
        self._more = more or {}

    def rows(self, batch: Any) -> bool:
        for row in _rows_of(batch):
            text = json.dumps(self._more | plain(row), ensure_ascii=False, separators=(",", ":"))
            self._out.write(printable_json(text) + "\n")
        return True


class CsvWriter(RowWriter):
    """A line of names, and a line per row; see `csv_rows`."""

    def __init__(self, out: TextIO | None = None, *, raw: bool = False) -> None:
        self._out, self._is_raw = out, raw

    def begin(self, schema: Any) -> None:
        self._csv = CsvRows(schema.names, self._out, raw=self._is_raw)

    def rows(self, batch: Any) -> bool:
        for row in _rows_of(batch):
            self._csv.row(row)
        return True


class ArrowWriter(RowWriter):
    """An Arrow stream in a file that gets its name only when it is complete; until then it is FILE.partial.

    An existing path that is no regular file, like a pipe, is written directly.
    """

    def __init__(self, path: str) -> None:
        import pyarrow as pa

        self._ipc = pa.ipc
        self._path = path
        self._partial = path if os.path.exists(path) and not os.path.isfile(path) else path + ".partial"
        self._file: BinaryIO | None = None
        self._stream: Any = None
        self._is_mine = False
        """True if the partial file may exist, created by this process: Ctrl-C may come between any two steps."""

    def open(self) -> None:
        """Create the file, so that errors of its path are reported before anything is read."""
        self._is_mine = self._partial != self._path
        try:
            self._file = open(self._partial, "wb", opener=open_private if self._is_mine else None)  # noqa: SIM115
        except OSError as error:
            self._is_mine = False
            raise disk_error(self._path, "create", error) from error

    def begin(self, schema: Any) -> None:
        self._stream = self._ipc.new_stream(self._file, schema)

    def rows(self, batch: Any) -> bool:
        with disk_errors(self._partial, "write"):
            self._stream.write_batch(batch)
        return True

    def end(self) -> None:
        assert self._file is not None
        with disk_errors(self._path, "write"):
            self._stream.close()
            self._file.close()
            if self._partial != self._path:
                os.replace(self._partial, self._path)

    def close(self) -> None:
        """Closes the writer. An unfinished file with content stays as FILE.partial, readable as far as it goes."""
        if self._file is not None:
            with suppress(OSError):  # the error that led here is the one to report
                self._file.close()
        if self._is_mine and self._stream is None:
            with suppress(FileNotFoundError):
                os.unlink(self._partial)


def _rows_of(batch: Any) -> list[dict[str, Any]]:
    """The rows of *batch*; a time that no calendar has is `@` and its number."""
    try:
        found: list[dict[str, Any]] = batch.to_pylist()
    except (OverflowError, ValueError):
        columns = [_values_of(column) for column in batch.columns]
        found = [dict(zip(batch.schema.names, values, strict=True)) for values in zip(*columns, strict=True)]
    return found


def _values_of(column: Any) -> list[Any]:
    try:
        found: list[Any] = column.to_pylist()
    except (OverflowError, ValueError):
        found = [None if number is None else f"@{number}" for number in column.cast("int64").to_pylist()]
    return found


def _shown(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bytes):
        return printable(value[:_BYTES].decode("latin-1")) + ("..." if len(value) > _BYTES else "")
    if isinstance(value, datetime):
        return value.isoformat(sep=" ")
    found = cell(value)
    return printable(found if isinstance(found, str) else str(found))
