"""The next commit of an all-SQL store: rows by kind, for one `executemany` each.

Every row has a unique name: the LSN of the change. The order of rows of different kinds therefore does not matter, as
long as rows are inserted before rows are deleted, and a reference is inserted after and deleted before its target. Only
a purge, which names a queue and no rows, must stay between earlier and later changes: it ends a *part*.

Threads: the one that makes the calls of the store, until the batch is passed to the writer.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, Executable, bindparam, delete, insert, select

from ..contract.transaction import Dequeue, Enqueue
from ..mapped.write_log import WriteLog
from ..wiring import schema

_Rows = list[dict[str, Any]]

_m, _q = schema.message.c, schema.placement.c
_STATEMENTS: dict[str, Executable] = {
    "message": insert(schema.message),
    "piece": insert(schema.piece),
    "placement": insert(schema.placement),
    "prepared": insert(schema.prepared),
    "intention": insert(schema.intention),
    "decision": insert(schema.decision),
    "no intention": delete(schema.intention).where(schema.intention.c.prepared_id == bindparam("gone")),
    "no prepared": delete(schema.prepared).where(schema.prepared.c.id == bindparam("gone")),
    "no placement": delete(schema.placement).where(
        _q.message_id == bindparam("gone"), _q.position == bindparam("gone_from")
    ),
    "no message": delete(schema.message).where(_m.id == bindparam("gone")),
    "no decision": delete(schema.decision).where(schema.decision.c.id == bindparam("gone")),
}
"""The statements in the order of execution. Deleting a message also deletes its pieces and places."""


class Batch(WriteLog):
    """Everything from one LSN up to another."""

    def __init__(self, begin_lsn: int) -> None:
        self.begin_lsn = begin_lsn
        self.end_lsn = begin_lsn
        """The end of the batch, set when it is passed to the writer."""
        self.size_bytes = 0
        """The size of the contents."""
        self._parts: list[tuple[dict[str, _Rows], int]] = []
        self._begin_part()

    def _begin_part(self) -> None:
        rows: dict[str, _Rows] = {kind: [] for kind in _STATEMENTS}
        self._rows = rows
        self._messages, self._placements = rows["message"], rows["placement"]

    def started(self, message_id: int, content: bytes, *, is_last: bool) -> None:
        self.size_bytes += len(content)
        self._messages.append({"id": message_id, "content": content, "is_last": is_last})

    def continued(self, message_id: int, number: int, content: bytes, *, is_last: bool) -> None:
        self.size_bytes += len(content)
        row = {"message_id": message_id, "number": number, "content": content, "is_last": is_last}
        self._rows["piece"].append(row)

    def placed(self, message_id: int, queue_id: int, position: int) -> None:
        self._placements.append({"message_id": message_id, "position": position, "queue_id": queue_id})

    def taken(self, message_id: int, position: int) -> None:
        self._rows["no placement"].append({"gone": message_id, "gone_from": position})

    def deleted(self, message_id: int) -> None:
        self._rows["no message"].append({"gone": message_id})

    def purged(self, queue_id: int) -> None:
        self._parts.append((self._rows, queue_id))
        self._begin_part()

    def dropped(self, message_ids: Sequence[int]) -> None:
        """`purged` has deleted them."""

    def prepared(self, txn_id: int, xid: bytes, operations: Sequence[Enqueue | Dequeue]) -> None:
        self._rows["prepared"].append({"id": txn_id, "xid": xid})
        self._rows["intention"] += [
            {
                "prepared_id": txn_id,
                "number": number,
                "is_dequeue": isinstance(operation, Dequeue),
                "message_id": operation.message_id,
                "queue_id": operation.queue_id,
            }
            for number, operation in enumerate(operations)
        ]

    def ended(self, txn_id: int) -> None:
        self._rows["no intention"].append({"gone": txn_id})
        self._rows["no prepared"].append({"gone": txn_id})

    def decided(self, txn_id: int, xid: bytes, *, committed: bool) -> None:
        self._rows["decision"].append({"id": txn_id, "xid": xid, "committed": committed})

    def forgotten(self, txn_id: int) -> None:
        self._rows["no decision"].append({"gone": txn_id})

    def execute(self, sql: Connection) -> None:
        """Write all of it, in the transaction of *sql*."""
        for rows, queue_id in self._parts:
            _write(sql, rows)
            _purge(sql, queue_id)
        _write(sql, self._rows)


def _write(sql: Connection, rows: dict[str, _Rows]) -> None:
    for kind, statement in _STATEMENTS.items():
        if rows[kind]:
            sql.execute(statement, rows[kind])


def _purge(sql: Connection, queue_id: int) -> None:
    """Delete the messages that are on that queue; they are on no other one."""
    on_queue = select(_q.message_id).where(_q.queue_id == queue_id)
    sql.execute(delete(schema.message).where(_m.id.in_(on_queue)))
