"""Version 1: whose store it is, and its queues.

Files of this version were made without Alembic, table by table: a crash may have left some of them.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "1"
down_revision = None


def upgrade() -> None:
    op.create_table(
        "store",
        sa.Column("uuid", sa.String(36), primary_key=True),
        sa.Column("schema_version", sa.Integer, nullable=False),
        sa.Column("formatted", sa.Boolean, nullable=False),
        if_not_exists=True,
    )
    op.create_table(
        "queue",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer, "sqlite"), primary_key=True, autoincrement=False),
        sa.Column("name", sa.String(1024), nullable=False, unique=True),
        if_not_exists=True,
    )
