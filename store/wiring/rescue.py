"""Recovery of data from a wiring file that may be missing, corrupt, or interrupted in a commit.

The file is read in a copy: SQLite rolls an interrupted commit back where it opens a database, and a damaged store is
never written to.
"""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import closing
from typing import Any, NamedTuple, TypeGuard
from uuid import UUID

from ...base.errors import ForeignStore
from ..contract.wiring_rows import Arguments, BindingRow, ConfigRow, ExchangeRow, QueueRow, Rows
from .row_check import MAX_NAME_BYTES
from .schema import VERSION

_JOURNAL = "-journal"


class Rescued(NamedTuple):
    """The store UUID and rows of a wiring file; `reason` names the missing parts, "" for a complete file."""

    uuid: UUID | None
    rows: Rows
    reason: str

    @property
    def queue_names(self) -> dict[int, str]:
        return {row.id: row.name for row in self.rows.queues}


def rescue(path: str) -> Rescued:
    """Return the readable data of the wiring file at *path*. Raises `ForeignStore` for one of a newer version."""
    if not os.path.lexists(path):
        return Rescued(None, Rows(), "it is missing")
    if not os.path.isfile(path):
        return Rescued(None, Rows(), "not a regular file")
    with tempfile.TemporaryDirectory(prefix="cairnmq-") as place:
        copy = os.path.join(place, "wiring.sqlite")
        try:
            shutil.copyfile(path, copy)
            if os.path.isfile(path + _JOURNAL):
                shutil.copyfile(path + _JOURNAL, copy + _JOURNAL)
        except OSError as error:
            return Rescued(None, Rows(), f"it can't be read: {error.strerror}")
        with closing(sqlite3.connect(copy)) as sql:
            sql.text_factory = lambda raw: raw.decode("utf-8", "replace")
            return _rescue(sql, path)


def _rescue(sql: sqlite3.Connection, path: str) -> Rescued:
    faults: list[str] = []
    checked = next(_rows(sql, "PRAGMA integrity_check", faults), ("ok",))
    if checked[0] != "ok":
        faults.append(str(checked[0]).partition("\n")[0])
    uuid: UUID | None = None
    for text, version in _rows(sql, "SELECT uuid, schema_version FROM store", faults):
        if isinstance(version, int) and version > VERSION and not faults:
            raise ForeignStore(
                path,
                f"schema version {version} is newer than this program's {VERSION}",
                "use the CairnMQ version that wrote it",
            )
        try:
            uuid = UUID(str(text))
        except ValueError:
            faults.append("the UUID of the store is none")
    return Rescued(uuid, _all_rows(sql, faults), "; ".join(dict.fromkeys(faults)))


def _all_rows(sql: sqlite3.Connection, faults: list[str]) -> Rows:
    is_version_1 = "arguments" not in {row[1] for row in _rows(sql, "PRAGMA table_info(queue)", faults)}
    of_queue = "'{}'" if is_version_1 else "arguments"
    queues = _named(sql, "queue", f"id, name, {of_queue}", faults)
    if is_version_1:
        return Rows([QueueRow(*row) for row in queues])
    exchanges = _named(sql, "exchange", "id, name, arguments, type", faults)
    ids = {row[0] for row in queues}, {row[0] for row in exchanges}
    bindings = [
        BindingRow(exchange_id, queue_id, key, _object(arguments, faults))
        for exchange_id, queue_id, key, arguments in _rows(
            sql, "SELECT exchange_id, queue_id, key, arguments FROM binding", faults
        )
        if exchange_id in ids[1] and queue_id in ids[0] and isinstance(key, str)
    ]
    configs = [
        ConfigRow(name, _object(settings, faults))
        for name, settings in _rows(sql, "SELECT name, settings FROM config", faults)
        if _is_name(name)
    ]
    going = _named(sql, "going_queue", "id, name, '{}'", faults)
    last_id = next(_rows(sql, "SELECT last_id FROM store", faults), (0,))[0]
    return Rows(
        [QueueRow(*row) for row in queues],
        [ExchangeRow(id, name, str(type), arguments) for id, name, arguments, type in exchanges],
        list({(row.exchange_id, row.queue_id, row.key): row for row in bindings}.values()),
        list({row.name: row for row in configs}.values()),
        [QueueRow(*row) for row in going],
        last_id if isinstance(last_id, int) else 0,
    )


def _named(sql: sqlite3.Connection, table: str, columns: str, faults: list[str]) -> list[Any]:
    """The rows of *table* in the order of their ids: id, name, arguments and whatever else is wanted."""
    found: dict[int, Any] = {}
    names: dict[str, int] = {}
    for order in ("ASC", "DESC"):  # rows behind a bad page are reached from the other end
        for row in _rows(sql, f"SELECT {columns} FROM {table} ORDER BY id {order}", faults):
            row_id, name, arguments, *more = row
            if not (isinstance(row_id, int) and _is_name(name)):
                faults.append(f"a row of {table} without a name")
            elif (row_id in found and found[row_id][1] != name) or names.setdefault(name, row_id) != row_id:
                faults.append(f"{table} {row_id} is there twice")
            elif row_id not in found:
                found[row_id] = row_id, name, _object(arguments, faults), *more
    return [found[row_id] for row_id in sorted(found)]


def _is_name(name: object) -> TypeGuard[str]:
    return isinstance(name, str) and 0 < len(name.encode()) <= MAX_NAME_BYTES


def _object(text: object, faults: list[str]) -> Arguments:
    try:
        found = json.loads(str(text))
    except ValueError:
        found = None
    if isinstance(found, dict):
        return found
    faults.append("arguments that can't be read")
    return {}


def _rows(sql: sqlite3.Connection, query: str, faults: list[str]) -> Iterator[tuple[Any, ...]]:
    """The rows up to the first that can't be read."""
    try:
        yield from sql.execute(query)
    except (sqlite3.Error, OverflowError, ValueError) as error:
        faults.append(str(error))
