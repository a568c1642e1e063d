"""The schema of the wiring, and of messages in SQL, the same on SQLite and PostgreSQL.

store        uuid, schema_version, formatted, last_id    one row; `last_id` is the highest ID ever assigned
queue        id, name, arguments
going_queue  id, name                                    deleted for clients, but perhaps not in the journal yet
exchange     id, name, type, arguments
binding      exchange_id, queue_id, key, arguments       refers to both (checklist E2)
config       name, settings

Only a store that has no journal has anything in the rest, and it has one row of `progress`:

progress     next_lsn, life                              the end of the last batch, and the number of openings
message      id, content, is_last                        with the first piece of its content
piece        message_id, number, content, is_last        the others, from 1; `is_last` is on the last of them
placement    message_id, position, queue_id              in order of positions
prepared     id, xid                                     a prepared transaction,
intention    prepared_id, number, is_dequeue, message_id, queue_id    and its operations
decision     id, xid, committed                          an outcome that must be remembered

Ids of messages and transactions, and positions, are LSNs: each is given once. A queue may be deleted before its
messages, so placements have no reference to it.

Ids of queues and exchanges come from `last_id`, in the transaction that makes the row: so they are never reused,
independently of the counters of the database, and also in a copy. Arguments and settings are JSON objects.

An empty database gets this schema at once, as the revisions in `migrations`, one per version, would upgrade it.
"""

from __future__ import annotations

import os
import threading
from functools import cache
from typing import TYPE_CHECKING

from sqlalchemy import (
    JSON,
    BigInteger,
    Boolean,
    Column,
    Connection,
    ForeignKey,
    Integer,
    LargeBinary,
    MetaData,
    PrimaryKeyConstraint,
    String,
    Table,
    insert,
    inspect,
    select,
)

from ..migrations import __file__ as MIGRATIONS
from .row_check import MAX_NAME_BYTES

if TYPE_CHECKING:
    from alembic.runtime.migration import RevisionStep
    from alembic.script import ScriptDirectory

VERSION = 3
VERSION_TABLE = "alembic_version"

_one_at_a_time = threading.Lock()
"""Alembic's operations go through one variable of its module."""

metadata = MetaData()
_ID = BigInteger().with_variant(Integer, "sqlite")

store = Table(
    "store",
    metadata,
    Column("uuid", String(36), primary_key=True),
    Column("schema_version", Integer, nullable=False),
    Column("formatted", Boolean, nullable=False),
    Column("last_id", BigInteger, nullable=False, server_default="0"),
)
queue = Table(
    "queue",
    metadata,
    Column("id", _ID, primary_key=True, autoincrement=False),
    Column("name", String(MAX_NAME_BYTES), nullable=False, unique=True),
    Column("arguments", JSON, nullable=False, server_default="{}"),
)
going_queue = Table(
    "going_queue",
    metadata,
    Column("id", _ID, primary_key=True, autoincrement=False),
    Column("name", String(MAX_NAME_BYTES), nullable=False),
)
exchange = Table(
    "exchange",
    metadata,
    Column("id", _ID, primary_key=True, autoincrement=False),
    Column("name", String(MAX_NAME_BYTES), nullable=False, unique=True),
    Column("type", String(255), nullable=False),
    Column("arguments", JSON, nullable=False),
)
binding = Table(
    "binding",
    metadata,
    Column("exchange_id", _ID, ForeignKey("exchange.id"), primary_key=True, autoincrement=False),
    Column("queue_id", _ID, ForeignKey("queue.id"), primary_key=True, autoincrement=False, index=True),
    Column("key", String(MAX_NAME_BYTES), primary_key=True),
    Column("arguments", JSON, nullable=False),
)
config = Table(
    "config",
    metadata,
    Column("name", String(MAX_NAME_BYTES), primary_key=True),
    Column("settings", JSON, nullable=False),
)
progress = Table(
    "progress",
    metadata,
    Column("next_lsn", BigInteger, nullable=False),
    Column("life", BigInteger, nullable=False),
)
message = Table(
    "message",
    metadata,
    Column("id", _ID, primary_key=True, autoincrement=False),
    Column("content", LargeBinary, nullable=False),
    Column("is_last", Boolean, nullable=False),
)
piece = Table(
    "piece",
    metadata,
    Column("message_id", _ID, ForeignKey("message.id", ondelete="CASCADE"), primary_key=True, autoincrement=False),
    Column("number", Integer, primary_key=True, autoincrement=False),
    Column("content", LargeBinary, nullable=False),
    Column("is_last", Boolean, nullable=False),
)
placement = Table(
    "placement",
    metadata,
    Column("message_id", _ID, ForeignKey("message.id", ondelete="CASCADE"), primary_key=True, autoincrement=False),
    Column("position", _ID, primary_key=True, autoincrement=False),
    Column("queue_id", _ID, nullable=False, index=True),
)
prepared = Table(
    "prepared",
    metadata,
    Column("id", _ID, primary_key=True, autoincrement=False),
    Column("xid", LargeBinary, nullable=False),
)
intention = Table(
    "intention",
    metadata,
    Column("prepared_id", _ID, ForeignKey("prepared.id"), primary_key=True, autoincrement=False),
    Column("number", Integer, primary_key=True, autoincrement=False),
    Column("is_dequeue", Boolean, nullable=False),
    Column("message_id", _ID, ForeignKey("message.id"), nullable=False, index=True),
    Column("queue_id", _ID, nullable=False),
)
decision = Table(
    "decision",
    metadata,
    Column("id", _ID, primary_key=True, autoincrement=False),
    Column("xid", LargeBinary, nullable=False),
    Column("committed", Boolean, nullable=False),
)


_version = Table(
    VERSION_TABLE,
    MetaData(),
    Column("version_num", String(32), nullable=False),
    PrimaryKeyConstraint("version_num", name="alembic_version_pkc"),
)
"""Alembic's table of the revision, as Alembic creates it."""


def upgrade(sql: Connection, namespace: str | None) -> None:
    """Upgrade the schema, or create it, to `VERSION`, within the transaction of *sql*.

    *namespace*: PostgreSQL's schema that the tables are in. Raises what SQLAlchemy does.
    """
    if not {*inspect(sql).get_table_names(namespace)} & {*metadata.tables, VERSION_TABLE}:
        metadata.create_all(sql, checkfirst=False)
        _version.create(sql, checkfirst=False)
        sql.execute(insert(_version).values(version_num=str(VERSION)))
    else:
        _migrate(sql, namespace)


def _migrate(sql: Connection, namespace: str | None) -> None:
    # here and not above: no other start needs any of it, and it takes as long as all the rest
    from alembic.config import Config
    from alembic.runtime.environment import EnvironmentContext

    with _one_at_a_time:
        revisions = _revisions()
        is_version_1 = _is_version_1(sql, namespace)

        def steps(found: str, _: object) -> list[RevisionStep]:
            return revisions._upgrade_revs("head", found)

        with EnvironmentContext(Config(), revisions, fn=steps, destination_rev="head") as environment:
            environment.configure(
                connection=sql, target_metadata=metadata, version_table_schema=namespace, transactional_ddl=True
            )
            if is_version_1:
                environment.get_context().stamp(revisions, "1")
            environment.run_migrations()


def _is_version_1(sql: Connection, namespace: str | None) -> bool:
    """Return whether the schema is complete, and was made without Alembic."""
    tables = inspect(sql).get_table_names(namespace)
    return VERSION_TABLE not in tables and "store" in tables and sql.scalar(select(store.c.uuid)) is not None


@cache
def _revisions() -> ScriptDirectory:
    from alembic.script import ScriptDirectory

    place = os.path.dirname(MIGRATIONS)
    return ScriptDirectory(place, version_locations=[place])
