"""The location of the wiring of a store: STORE/wiring.sqlite, or the server that STORE/wiring.json names.

wiring.json is a JSON object with `connect`, a URL without secrets, and `catalog`; for an all-SQL store also with
`store`, "sql". It is for people: if the broker is started without --connect, the error names the location. The
authoritative identity is the UUID of the store, in SQL and in the journal.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from contextlib import closing

from ...base.disk.real import RealDirectory, disk_error
from ...base.errors import ForeignStore, UnusableConnect
from .database import DatabaseAddress, parse_address
from .wiring import FILE_NAME as SQLITE_NAME
from .wiring import Wiring

FILE_NAME = "wiring.json"
_NEW = FILE_NAME + ".new"
FILE_NAMES = frozenset({SQLITE_NAME, SQLITE_NAME + "-journal", FILE_NAME, _NEW})
"""The names of wiring files that may occur in a store directory."""


def open_wiring(store: str, connect: str | None, catalog: str | None) -> Wiring:
    """The wiring of the store in directory *store*; of SQLite if *connect* is None.

    Raises `UnusableConnect`, `ForeignStore` if it is elsewhere, and whatever SQL means.
    """
    if connect is None:
        if catalog is not None:
            remedy = "leave it out, or name the server with --connect"
            raise UnusableConnect(f"--catalog {catalog!r}", "SQLite has no catalogs", remedy)
        refuse_elsewhere(store)
        return Wiring.open(os.path.join(store, SQLITE_NAME))
    address = parse_address(connect, catalog)
    if has_sqlite(store):
        raise ForeignStore(
            os.path.join(store, SQLITE_NAME), "the wiring of this store is in this file, not on a server",
            "leave --connect out; to move it, make a backup and `cairnmq restore --connect` that",
        )  # fmt: skip
    return Wiring.connect(address)


def refuse_elsewhere(store: str) -> None:
    """Raises `ForeignStore` if the wiring is on a server."""
    where = recorded_place(store)
    if where:
        raise ForeignStore(store, f"its wiring is in {where}", "name that with --connect and --catalog")


def has_sqlite(store: str) -> bool:
    """Return whether a wiring file with content exists."""
    path = os.path.join(store, SQLITE_NAME)
    return os.path.exists(path) and os.path.getsize(path) > 0


def recorded_place(store: str) -> str:
    """Return the server and catalog in wiring.json; empty without that file."""
    path = os.path.join(store, FILE_NAME)
    try:
        with open(path, encoding="utf-8") as file:
            found = json.load(file)
        return f"{found['connect']}, catalog {found['catalog']}"
    except FileNotFoundError:
        return ""
    except OSError as error:
        raise disk_error(path, "open", error) from error
    except (ValueError, KeyError, TypeError):
        return "a database on a server (a damaged wiring.json does not name it)"


def tell_place(store: str, address: DatabaseAddress, more: Mapping[str, str] | None = None) -> None:
    """Write wiring.json durably, with the fields of *more*, if it does not contain that location already."""
    if recorded_place(store) == str(address):
        return
    reported = {"connect": address.shown_url, "catalog": address.catalog, **(more or {})}
    directory = RealDirectory(store)
    if _NEW in directory.names():
        directory.unlink(_NEW)
    with closing(directory.create(_NEW)) as file:
        file.write_at(0, json.dumps(reported).encode() + b"\n")
        file.sync()
    directory.rename(_NEW, FILE_NAME)
    directory.sync()
