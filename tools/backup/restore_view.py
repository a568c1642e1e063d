"""A new store with the content of the queues at a point in time: another log, with its own UUID and LSNs.

It is built in a temporary directory and renamed when it is complete. Queues keep their IDs, names, arguments and order
from the current wiring, because SQL keeps no history. A queue that SQL no longer knows is named `queue-ID`. Operations
of prepared transactions are not applied.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import replace

from ...base.clock import Clock
from ...base.errors import CairnError
from ...recovery.recover import open_store
from ...store.contract.layout import recovered_name
from ...store.contract.options import StoreOptions
from ...store.contract.wiring_rows import QueueRow
from ...store.directory.refusals import RESTORING
from ...store.journaled.store import JournalStore
from ..history.as_of import QueuesView
from ..history.history_view import HistoryView
from ..inspect.journal_check import Progress
from ..repair.message_copy import put_pieces
from ..repair.partial_directory import check_new, move_complete
from ..repair.quarantine import QUARANTINE_NAME, Quarantine
from ..repair.salvage import make_wiring

_FLUSH_BYTES = 8 << 20


def restore_view(
    past: HistoryView, view: QueuesView, target: str, wanted: Callable[[int], bool], clock: Clock, progress: Progress
) -> dict[str, int]:
    """Make the store at *target*, where nothing may be yet, of the queues that are *wanted*.

    Returns the number of messages on each queue, by name. Raises `CairnError`, and then leaves nothing.
    """
    if not view.extent.pieces:
        raise CairnError(f"LSN {view.lsn}", "the log was empty then", "name a later moment")
    building = target.rstrip(os.sep) + RESTORING
    check_new(target, building, "left by a restore that was killed")
    known = {row.id for row in past.rows.queues}
    queues = [row for row in past.rows.queues if wanted(row.id)]
    taken = {row.name for row in queues}
    queues += [QueueRow(one, recovered_name(one, taken)) for one in view.on if one not in known and wanted(one)]
    names = {row.id: row.name for row in queues}
    bindings = [row for row in past.rows.bindings if row.queue_id in names]
    restored = {name: len(view.on[queue_id]) for queue_id, name in names.items() if queue_id in view.on}
    try:
        make_wiring(building, replace(past.rows, queues=queues, bindings=bindings, going=[]))
        store, _ = open_store(building, clock, StoreOptions(container_bytes=view.history.container_bytes))
        with closing(store):
            _copy(view, store, names, progress)
        _write_report(view, past.directories[0].path, building, restored)
        move_complete(building, target)
    except BaseException:
        shutil.rmtree(building, ignore_errors=True)
        raise
    return restored


def _write_report(view: QueuesView, store: str, building: str, restored: Mapping[str, int]) -> None:
    """Write the quarantine of the new store: the bytes of what can't be read, and the report."""
    quarantine = Quarantine(os.path.join(building, QUARANTINE_NAME))
    for one in view.contents.damage:
        quarantine.keep_range(one.first_lsn, one.end_lsn, one.path, view.records.raw)
    report = {
        "store": store, "as_of_lsn": view.lsn, "complete": view.is_complete, "messages": sum(restored.values()),
        "queues": restored, "faults": view.faults(), "quarantine": quarantine.files,
    }  # fmt: skip
    quarantine.close(json.dumps(report, indent=1))


def _copy(view: QueuesView, store: JournalStore, names: Mapping[int, str], progress: Progress) -> None:
    """Enqueue the messages of *view* in *store*, queue by queue, each in its order."""
    new_ids: dict[int, tuple[int, int]] = {}
    total = sum(len(view.on[queue_id]) for queue_id in names if queue_id in view.on)
    done = waiting_bytes = 0
    for queue_id in names:
        for message_id in view.on[queue_id].tolist() if queue_id in view.on else ():
            if message_id in new_ids:
                store.enqueue(new_ids[message_id][0], queue_id, new_ids[message_id][1])
            else:
                new_ids[message_id] = put_pieces(store, queue_id, view.pieces(message_id))
                waiting_bytes += view.contents.size_of(message_id)
            if waiting_bytes >= _FLUSH_BYTES:
                waiting_bytes = 0
                store.kick()
            done += 1
            progress("writing messages", done, total)
    store.kick()
