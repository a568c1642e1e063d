"""Version 3: messages, what is on which queue, and transactions, for stores that keep all of it in SQL."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "3"
down_revision = "2"

_ID = sa.BigInteger().with_variant(sa.Integer, "sqlite")


def _of_message() -> sa.ForeignKey:
    return sa.ForeignKey("message.id", ondelete="CASCADE")


def upgrade() -> None:
    op.create_table(
        "progress",
        sa.Column("next_lsn", sa.BigInteger, nullable=False),
        sa.Column("life", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "message",
        sa.Column("id", _ID, primary_key=True, autoincrement=False),
        sa.Column("content", sa.LargeBinary, nullable=False),
        sa.Column("is_last", sa.Boolean, nullable=False),
    )
    op.create_table(
        "piece",
        sa.Column("message_id", _ID, _of_message(), primary_key=True, autoincrement=False),
        sa.Column("number", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("content", sa.LargeBinary, nullable=False),
        sa.Column("is_last", sa.Boolean, nullable=False),
    )
    op.create_table(
        "placement",
        sa.Column("message_id", _ID, _of_message(), primary_key=True, autoincrement=False),
        sa.Column("position", _ID, primary_key=True, autoincrement=False),
        sa.Column("queue_id", _ID, nullable=False, index=True),
    )
    op.create_table(
        "prepared",
        sa.Column("id", _ID, primary_key=True, autoincrement=False),
        sa.Column("xid", sa.LargeBinary, nullable=False),
    )
    op.create_table(
        "intention",
        sa.Column("prepared_id", _ID, sa.ForeignKey("prepared.id"), primary_key=True, autoincrement=False),
        sa.Column("number", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("is_dequeue", sa.Boolean, nullable=False),
        sa.Column("message_id", _ID, sa.ForeignKey("message.id"), nullable=False, index=True),
        sa.Column("queue_id", _ID, nullable=False),
    )
    op.create_table(
        "decision",
        sa.Column("id", _ID, primary_key=True, autoincrement=False),
        sa.Column("xid", sa.LargeBinary, nullable=False),
        sa.Column("committed", sa.Boolean, nullable=False),
    )
    op.execute("UPDATE store SET schema_version = 3")
