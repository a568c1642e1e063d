"""Access to SQL databases, and the meaning of their errors.

A wiring is in an SQLite file in the store directory, or in a namespace (`--catalog`: what PostgreSQL calls a schema) of
a PostgreSQL database (`--connect`). A server may become unavailable at any time: a connection is tested before it is
used, every wait is bounded, and no call is retried automatically.

While a broker has a catalog, it holds an advisory lock there, as it holds a lock on its store directory.

No output contains a password: places are rendered without it, and messages of the server are searched for it.
"""

from __future__ import annotations

import os
import re
import socket
import threading
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

from sqlalchemy import Connection, Engine, StaticPool, create_engine, event
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, NoSuchModuleError, SQLAlchemyError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from ...base.disk.real import disk_errors, not_a_file
from ...base.errors import (
    CairnError,
    DiskError,
    DiskFull,
    ForeignStore,
    SqlDenied,
    SqlReadOnly,
    SqlUnreachable,
    StoreError,
    StoreInUse,
    UnusableConnect,
)
from ...base.extras import install_hint
from ...base.private_files import open_private

RESTORE_OR_SALVAGE = "restore it from a backup, or have `cairnmq salvage` recover complete messages"
DEFAULT_CATALOG = "CairnStore"
_DRIVER = "postgresql+psycopg"
_SECRETS = {"password", "sslpassword"}
_MAX_CATALOG_BYTES = 63
"""PostgreSQL cuts longer names."""
_PATIENCE = {"connect_timeout": 5, "keepalives_idle": 10, "keepalives_interval": 5, "keepalives_count": 3,
             "tcp_user_timeout": 20_000}  # fmt: skip
"""The parameters of libpq unless the URL overrides them: in seconds, except the last one, which is in ms."""
_STATEMENT_TIMEOUT = "30s"
_LOCK_TIMEOUT = "5s"
"""The server may need some time to detect that a broker was killed."""
_CALL_TIMEOUT_S = 40.0
"""The timeout of a complete call. The timeouts of the server do not apply when the server itself hangs."""
_LOCK_CLASS = 0x436E4D51
_HEADER = b"SQLite format 3\0"


@dataclass(frozen=True)
class Database:
    """The location of a wiring and the means to access it."""

    engine: Engine
    place: str
    """The location for logs and errors."""
    namespace: str | None = None
    """PostgreSQL's schema; None for SQLite."""
    cut: Callable[[], None] | None = None
    """Ends the connection, and so whatever waits for an answer on it. Any thread. None for SQLite."""

    @property
    def remedy(self) -> str:
        """Return the remedy for a location without a wiring, or with that of another store."""
        return RESTORE_OR_SALVAGE if self.namespace is None else "name the store's own --connect and --catalog"


# ---- SQLite -------------------------------------------------------------------------------------------------------


def open_sqlite(path: str) -> Database:
    """The SQLite file at *path*, made if it does not exist. Raises `ForeignStore` or `DiskError`."""
    check_sqlite(path)
    return Database(explicit_transactions(create_engine(URL.create("sqlite", database=path))), path)


def open_memory() -> Database:
    """An SQLite database in memory, with one connection."""
    engine = create_engine("sqlite://", poolclass=StaticPool, connect_args={"check_same_thread": False})
    return Database(explicit_transactions(engine), "memory")


def check_sqlite(path: str) -> None:
    """Create the SQLite file at *path* if it does not exist. Raises `ForeignStore` or `DiskError` for other files."""
    if not os.path.exists(path):
        with disk_errors(path, "create"):
            os.close(open_private(path, os.O_CREAT | os.O_WRONLY))
    if not os.path.isfile(path) or os.path.islink(path):  # SQLite would follow it
        raise not_a_file(path)
    _check_header(path)


def explicit_transactions(engine: Engine, *pragmas: str) -> Engine:
    """*engine*, of SQLite, with commits that last, foreign keys, and transactions that hold changes of tables too.

    *pragmas* are said in addition, to each connection.
    """

    @event.listens_for(engine, "connect")
    def connected(connection: Any, _: object) -> None:
        connection.text_factory = partial(str, encoding="utf-8", errors="surrogateescape")  # `row_check` finds them
        connection.isolation_level = None  # else Python begins transactions, and not before changes of tables
        cursor = connection.cursor()
        cursor.execute("PRAGMA synchronous=EXTRA")  # EXTRA also syncs the directory after a commit
        cursor.execute("PRAGMA foreign_keys=ON")
        for pragma in pragmas:
            cursor.execute(f"PRAGMA {pragma}")
        cursor.close()

    @event.listens_for(engine, "begin")
    def begun(sql: Connection) -> None:
        sql.exec_driver_sql("BEGIN")

    return engine


def _check_header(path: str) -> None:
    """SQLite takes a file of a few bytes for an empty database, and would write over it."""
    with disk_errors(path, "open"), open(path, "rb") as file:
        start = file.read(len(_HEADER))
    if start not in (b"", _HEADER) and not os.path.exists(path + "-journal"):  # else a commit is to be rolled back
        raise ForeignStore(path, "not a wiring database of CairnMQ (no SQLite header)", RESTORE_OR_SALVAGE)


# ---- PostgreSQL ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class DatabaseAddress:
    """A catalog on a server. Its `str()` has no password."""

    url: URL
    catalog: str

    def __str__(self) -> str:
        return f"{self.shown_url}, catalog {self.catalog}"

    @property
    def shown_url(self) -> str:
        """The URL without secrets."""
        query = {name: value for name, value in self.url.query.items() if name not in _SECRETS}
        return self.url.set(query=query).render_as_string(hide_password=True)

    @property
    def secrets(self) -> list[str]:
        found = [self.url.password, *(self.url.query.get(name) for name in _SECRETS)]
        return [str(secret) for secret in found if secret]


def parse_address(connect: str, catalog: str | None = None) -> DatabaseAddress:
    """The address that *connect* and *catalog* name. Raises `UnusableConnect`."""
    catalog = DEFAULT_CATALOG if catalog is None else catalog
    try:
        url = make_url(connect)
    except (ArgumentError, ValueError):
        url = None
    if url is None:  # outside of the handler: what is raised in it would carry the URL along
        raise UnusableConnect("--connect", "invalid URL", f"use a URL such as {_DRIVER}://user@host/database")
    if url.drivername == "postgresql":
        url = url.set(drivername=_DRIVER)
    if url.get_backend_name() == "sqlite":
        remedy = "leave --connect out: SQLite is the default, and its file lies in the store directory"
        raise UnusableConnect("--connect", "SQLite takes no URL", remedy)
    if url.drivername != _DRIVER:
        raise UnusableConnect("--connect", f"{url.drivername} is not supported", f"name a {_DRIVER}:// URL")
    if not catalog or len(catalog.encode()) > _MAX_CATALOG_BYTES or "\0" in catalog or catalog.startswith("pg_"):
        reason = f"a catalog's name has 1 to {_MAX_CATALOG_BYTES} bytes and does not begin with pg_"
        raise UnusableConnect(f"--catalog {catalog!r}", reason, "choose another one")
    return DatabaseAddress(url, catalog)


def open_postgresql(address: DatabaseAddress, *, alone: bool) -> Database:
    """The catalog at *address*; nothing is asked of the server yet. Raises `UnusableConnect` if the driver is missing.

    *alone*: keep others out that want to be alone, from the first use on. They get `StoreInUse`.
    """
    place = str(address)
    patience = {name: value for name, value in _PATIENCE.items() if name not in address.url.query}
    try:
        engine = create_engine(
            address.url, pool_pre_ping=True, pool_size=1, max_overflow=0, isolation_level="REPEATABLE READ",
            connect_args={**patience, "application_name": "cairnmq"}, hide_parameters=True,
        )  # fmt: skip
        import psycopg
    except (ImportError, NoSuchModuleError) as error:
        remedy = install_hint("postgresql")
        raise UnusableConnect(place, f"the driver psycopg is missing ({error})", remedy) from error

    last: list[Any] = []

    @event.listens_for(engine, "connect")
    def connected(connection: Any, _: object) -> None:
        last[:] = [connection]
        try:
            _prepare(connection, address.catalog, alone)
        except BaseException:
            connection.close()
            raise

    def cut() -> None:
        for connection in last:
            with suppress(OSError, psycopg.Error), socket.socket(fileno=os.dup(connection.fileno())) as wire:
                wire.shutdown(socket.SHUT_RDWR)

    return Database(engine, place, address.catalog, cut)


def _prepare(connection: Any, catalog: str, alone: bool) -> None:
    settings: dict[str, str] = {
        "search_path": '"' + catalog.replace('"', '""') + '"',
        "synchronous_commit": "on",  # confirmed changes last, regardless of the setting of the server
        "statement_timeout": _STATEMENT_TIMEOUT,
        "lock_timeout": _LOCK_TIMEOUT,
    }
    connection.autocommit = True
    for setting in settings.items():
        connection.execute("SELECT set_config(%s, %s, false)", setting)
    if alone:
        lock = zlib.crc32(catalog.encode()) - (1 << 31)
        connection.execute("SELECT pg_advisory_lock(%s::int, %s::int)", (_LOCK_CLASS, lock))
    connection.autocommit = False


# ---- errors -------------------------------------------------------------------------------------------------------

_Meaning = tuple[Callable[[str, str, str], CairnError], str]
_AGAIN = "check that the server runs and is reachable, and try again; a restart of the broker is not needed"
_UNREACHABLE: _Meaning = SqlUnreachable, _AGAIN
_DENIED: _Meaning = SqlDenied, "check the user, its password (also in ~/.pgpass) and its rights on the database"
_NO_DATABASE: _Meaning = UnusableConnect, "create it, or name another one in --connect"
_READ_ONLY: _Meaning = SqlReadOnly, "let the server write, or name the one that does"

_BY_STATE: dict[str, _Meaning] = {
    "08": _UNREACHABLE,
    "25006": _READ_ONLY,
    "28": _DENIED,
    "3D": _NO_DATABASE,
    "42501": _DENIED,
    "53100": (DiskFull, "free some space on the SQL server"),
    "53": _UNREACHABLE,
    "55P03": (StoreInUse, "stop the other broker, or name another --catalog"),
    "57": _UNREACHABLE,
    "58": _UNREACHABLE,
}
"""The errors by SQLSTATE, or its class."""
_BY_TEXT: dict[str, _Meaning] = {
    r"authentication failed|no password supplied|no pg_hba.conf entry|role \".*\" (does not exist|is not)": _DENIED,
    r"database \".*\" does not exist": _NO_DATABASE,
}
"""A connection that is refused comes without a state."""
_SQLITE: dict[str, _Meaning] = {
    "is full": (DiskFull, "free some space or raise the quota"),
    "readonly": (SqlReadOnly, "check the disk, the owner and the permissions"),
    "disk I/O": (DiskError, "check the disk, the owner and the permissions"),
    "unable to open": (DiskError, "check the disk, the owner and the permissions"),
    "is locked": (SqlUnreachable, "stop the program that has locked the file; a restart of the broker is not needed"),
}


@contextmanager
def explaining(database: Database, what: str = "") -> Iterator[None]:
    """Translate errors of SQL, and of the rows of a damaged file, to errors of CairnMQ.

    *what* describes the failed action on a wiring in use; without it, a wiring is being opened, and may be none.
    """
    timer = None
    if database.cut is not None:
        timer = threading.Timer(_CALL_TIMEOUT_S, database.cut)
        timer.daemon = True
        timer.start()
    try:
        yield
    except DBAPIError as error:
        raise _explained(database, error, what) from (error.orig if database.namespace else error)
    except PoolTimeout as error:
        raise SqlUnreachable(database.place, f"{what}: no free connection" if what else str(error), _AGAIN) from error
    except (SQLAlchemyError, TypeError, ValueError) as error:
        raise _stranger(database, str(error), what) from error
    finally:
        if timer is not None:
            timer.cancel()


def _explained(database: Database, error: DBAPIError, what: str) -> CairnError:
    said = " ".join(str(error.orig).split())
    for secret in DatabaseAddress(database.engine.url, "").secrets:
        said = said.replace(secret, "***")
    meaning = explain_sqlite(said) if database.namespace is None else _explain_postgresql(error, said)
    if meaning is None:
        return _stranger(database, said, what)
    make, remedy = meaning
    if make is StoreInUse and what:
        make, remedy = _UNREACHABLE
        said = "the server has not missed yet that an earlier connection was cut"
    elif make is StoreInUse:
        said = "another broker has this catalog"
    return make(database.place, f"{what} ({said})" if what else said, remedy)


def explain_sqlite(said: str) -> _Meaning | None:
    """Return the meaning of an SQLite error on opening or writing; None if the file is not a wiring."""
    return next((meaning for text, meaning in _SQLITE.items() if text in said), None)


def _explain_postgresql(error: DBAPIError, said: str) -> _Meaning | None:
    state = getattr(error.orig, "sqlstate", None) or ""
    found = _BY_STATE.get(state) or _BY_STATE.get(state[:2])
    if found is not None or not (error.connection_invalidated or type(error.orig).__name__ == "OperationalError"):
        return found
    return next((meaning for pattern, meaning in _BY_TEXT.items() if re.search(pattern, said)), _UNREACHABLE)


def _stranger(database: Database, reason: str, what: str) -> CairnError:
    if what:
        return StoreError(database.place, f"{what} ({reason})")
    return ForeignStore(database.place, f"not a wiring database of CairnMQ ({reason})", database.remedy)
