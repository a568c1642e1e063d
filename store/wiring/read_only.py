"""Read-only access to a wiring that a broker may be using: the file of a store, or a server."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import closing, contextmanager
from urllib.parse import quote

from sqlalchemy import create_engine
from sqlalchemy.engine import URL

from ...base.disk.real import not_a_file
from .database import Database, DatabaseAddress
from .wiring import Wiring


@contextmanager
def server_wiring(address: DatabaseAddress) -> Iterator[Wiring]:
    """The wiring on a server, closed at the end of the context. Raises `UnusableConnect`, and the errors of SQL."""
    with closing(Wiring.connect(address, alone=False)) as wiring:
        yield wiring


@contextmanager
def file_wiring(path: str, mode: str = "ro") -> Iterator[Wiring]:
    """The wiring in the SQLite file at *path*, closed at the end of the context.

    *mode* "rw": an incomplete transaction is rolled back in reading. Raises `CairnError` if *path* is not a file.
    """
    if not os.path.isfile(path):
        raise not_a_file(path)
    url = URL.create("sqlite", database=f"file:{quote(path)}", query={"mode": mode, "uri": "true"})
    with closing(Wiring(Database(create_engine(url), path))) as wiring:
        yield wiring
