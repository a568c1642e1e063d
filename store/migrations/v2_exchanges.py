"""Version 2: exchanges, bindings, configurations, arguments, notes of queues that are going, and one counter of ids."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "2"
down_revision = "1"

_ID = sa.BigInteger().with_variant(sa.Integer, "sqlite")


def upgrade() -> None:
    op.add_column("store", sa.Column("last_id", sa.BigInteger, nullable=False, server_default="0"))
    op.add_column("queue", sa.Column("arguments", sa.JSON, nullable=False, server_default=sa.text("'{}'")))
    op.create_table(
        "going_queue",
        sa.Column("id", _ID, primary_key=True, autoincrement=False),
        sa.Column("name", sa.String(1024), nullable=False),
    )
    op.create_table(
        "exchange",
        sa.Column("id", _ID, primary_key=True, autoincrement=False),
        sa.Column("name", sa.String(1024), nullable=False, unique=True),
        sa.Column("type", sa.String(255), nullable=False),
        sa.Column("arguments", sa.JSON, nullable=False),
    )
    op.create_table(
        "binding",
        sa.Column("exchange_id", _ID, sa.ForeignKey("exchange.id"), primary_key=True, autoincrement=False),
        sa.Column("queue_id", _ID, sa.ForeignKey("queue.id"), primary_key=True, autoincrement=False, index=True),
        sa.Column("key", sa.String(1024), primary_key=True),
        sa.Column("arguments", sa.JSON, nullable=False),
    )
    op.create_table(
        "config",
        sa.Column("name", sa.String(1024), primary_key=True),
        sa.Column("settings", sa.JSON, nullable=False),
    )
    _count_on()


def _count_on() -> None:
    """Continue after the highest ID ever assigned: the counter of SQLite also counts deleted rows."""
    sql = op.get_bind()
    last_id = sql.scalar(sa.text("SELECT coalesce(max(id), 0) FROM queue"))
    if sql.dialect.name == "sqlite" and sql.scalar(
        sa.text("SELECT count(*) FROM sqlite_master WHERE name = 'sqlite_sequence'")
    ):
        given = sql.scalar(sa.text("SELECT max(seq) FROM sqlite_sequence WHERE name = 'queue'"))
        last_id = max(last_id, given or 0)
    sql.execute(sa.text("UPDATE store SET schema_version = 2, last_id = :last_id"), {"last_id": last_id})
