"""SQL against the journal: whose store it is, and whether each queue with messages has a name."""

from __future__ import annotations

import os
import sqlite3
import tempfile
from contextlib import closing
from urllib.parse import quote
from uuid import UUID

from ...base.texts import counted
from ...store.message_map.placement import totals_by_queue
from ...store.message_map.state import State
from ...store.wiring.rescue import Rescued, rescue
from ...store.wiring.wiring import FILE_NAME
from .verdicts import SALVAGE, Verdict


def read_wiring(path: str) -> Rescued:
    """The contents of the wiring file at *path*, which may be in use. Raises `ForeignStore` for a newer one."""
    if not os.path.isfile(path):
        return rescue(path)
    with tempfile.TemporaryDirectory(prefix="cairnmq-", ignore_cleanup_errors=True) as place:
        copy = os.path.join(place, FILE_NAME)
        try:
            with (
                closing(sqlite3.connect(f"file:{quote(path)}?mode=ro", uri=True)) as live,
                closing(sqlite3.connect(copy)) as taken,
            ):
                live.backup(taken)
        except sqlite3.Error:
            return rescue(path)  # a commit was interrupted, or it is damaged
        return rescue(copy)


def judge_sql(before: Rescued, after: Rescued, log_uuid: UUID, state: State) -> list[Verdict]:
    """Compares SQL *before* and *after* the log was read with the *state* of the log."""
    if after.reason:
        return [Verdict("corrupt", FILE_NAME, after.reason, remedy=SALVAGE)]
    found = []
    if after.uuid != log_uuid:
        what = f"it is of store {after.uuid}, the journal of store {log_uuid}"
        return [Verdict("corrupt", FILE_NAME, what, remedy="restore the files that belong together")]
    known = {row.id: row.name for rows in (before.rows, after.rows) for row in (*rows.queues, *rows.going)}
    counts, _ = totals_by_queue(state)
    for queue_id, count in sorted(counts.items()):
        if queue_id in known or before.rows.used_id < queue_id <= after.rows.used_id:
            continue
        what = f"the queue with id {queue_id} has {counted(count, 'message')}, and SQL does not know it"
        if queue_id > after.rows.used_id:
            what += f", nor has it given any id above {after.rows.used_id}: an older copy was restored"
        lost = f"{counted(count, 'message')} not delivered, but kept by the broker"
        remedy = "restore the wiring of the journal; or `cairnmq salvage` puts them on a queue of their own"
        found.append(Verdict("corrupt", FILE_NAME, what, lost, remedy))
    for row in after.rows.going:
        what = f"queue {row.name!r} is being deleted, with {counted(counts.get(row.id, 0), 'message')}"
        found.append(Verdict("note", FILE_NAME, f"{what}; the next start ends that if the broker does not"))
    return found
