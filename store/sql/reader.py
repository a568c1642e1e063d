"""Contents read back from SQL, on connections of their own, so that no reader waits for a commit.

A server that is away is waited for, until `end`: who reads has nothing else to do, and a message that could not be read
would stay on its queue until the next start.

Threads: any.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import TypeVar

from sqlalchemy import Connection, select

from ...base.errors import StoreError
from ..wiring import schema
from ..wiring.database import Database, explaining
from .writer import PASSING, RETRY_S

_Found = TypeVar("_Found")


class SqlReader:
    """Reads durable content."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._ended = threading.Event()

    def piece(self, message_id: int, number: int) -> bytes:
        """Raises `StoreError` if there is no such piece, any more or yet."""
        m, p = schema.message.c, schema.piece.c
        wanted = select(p.content).where(p.message_id == message_id, p.number == number)
        if number == 0:
            wanted = select(m.content).where(m.id == message_id)
        content = self._read(lambda sql: sql.scalar(wanted))
        if content is None:
            raise StoreError(f"message {message_id}", f"its piece {number} is not there")
        return bytes(content)

    def first_pieces(self, message_ids: Iterable[int]) -> dict[int, bytes]:
        """Message id to its first piece, of those that are there."""
        wanted = select(schema.message.c.id, schema.message.c.content).where(schema.message.c.id.in_(list(message_ids)))
        return self._read(lambda sql: {row.id: bytes(row.content) for row in sql.execute(wanted)})

    def end(self) -> None:
        """Wait for no server any more."""
        self._ended.set()

    def close(self) -> None:
        self.end()
        self._database.engine.dispose()

    def _read(self, read: Callable[[Connection], _Found]) -> _Found:
        while True:
            try:
                with explaining(self._database, "messages can't be read"), self._database.engine.connect() as sql:
                    return read(sql)
            except PASSING:
                if self._ended.wait(RETRY_S):
                    raise
