"""The kind of a store in a directory or a catalog: with a journal, or all in SQL.

Opening a store as the wrong kind would find nothing and create a new store, so it is refused.
"""

from __future__ import annotations

import json
import os

from sqlalchemy import func, inspect, select

from ...base.errors import ForeignStore
from ..contract.layout import SQL_STORE_NAME
from ..wiring import schema
from ..wiring.database import Database, explaining
from ..wiring.location import FILE_NAME as TOLD_NAME
from ..wiring.location import has_sqlite

JOURNAL, SQL = "journal", "sql"


def kind_of(path: str) -> str:
    """Return the kind of the store in directory *path*; empty if it holds none."""
    sql_file = os.path.join(path, SQL_STORE_NAME)
    if (os.path.isfile(sql_file) and os.path.getsize(sql_file)) or _recorded_kind(path) == SQL:
        return SQL
    if os.path.exists(os.path.join(path, TOLD_NAME)) or has_sqlite(path) or _has_log(path):
        return JOURNAL
    return ""


def refuse_other_kind(path: str, wanted: str) -> None:
    """Raises `ForeignStore` if the store directory *path* holds a store, and not of kind *wanted*."""
    found = kind_of(path)
    if found not in ("", wanted):
        raise ForeignStore(path, _IS[found], f"use --store {found}, or name another --store-dir")


def need_journal(path: str) -> None:
    """Raises `ForeignStore` if the directory *path* holds a store that is all in SQL: for tools that read logs."""
    if kind_of(path) == SQL:
        raise ForeignStore(path, _IS[SQL], "use the database's own tools, see 'Stores' in the documentation")


def refuse_sql(database: Database) -> None:
    """Raise `ForeignStore` if *database* contains an all-SQL store, and the errors of SQL."""
    with explaining(database), database.engine.connect() as sql:
        has_table = inspect(sql).has_table(schema.progress.name, database.namespace)
        if has_table and sql.scalar(select(func.count()).select_from(schema.progress)):
            raise ForeignStore(database.place, _IS[SQL], f"use --store {SQL}, or name another --catalog")


_IS = {JOURNAL: "a store with a journal is there", SQL: "a store that is all in SQL is there"}


def _recorded_kind(path: str) -> str:
    try:
        with open(os.path.join(path, TOLD_NAME), encoding="utf-8") as file:
            return str(json.load(file).get("store", JOURNAL))
    except (OSError, ValueError, AttributeError):
        return ""  # the reader of the rest reports the error


def _has_log(path: str) -> bool:
    try:
        return bool(os.listdir(os.path.join(path, "journal")))
    except OSError:
        return False
