"""Records of a slot taken in together, as tables: a hundred times faster than one by one."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ...journal.format.record import FIRST_NOTE, RecordType
from ..contract.dequeue_reason import REASON_BITS
from .message_entry import SIZE_BITS
from .purges import PurgeMark
from .state import DELETE, DEQUEUE, FLAG_DELETE, FLAG_ENQUEUE, FLAG_MOVED, QUEUE_DELETE, START, Lsns, State
from .transaction_log import TX_COMMIT, TX_START

Table = npt.NDArray[np.void]
_LOG_OPEN, _LOG_HOLES = int(RecordType.LOG_OPEN), int(RecordType.LOG_HOLES)


def apply_all(state: State, lsns: Lsns, heads: Table) -> bool:
    """Take in records of one slot, in order: the same as `State.apply` for each.

    False if they are not all of the common kinds: then nothing was done.
    """
    kind, flags = np.ascontiguousarray(heads["type"]), np.ascontiguousarray(heads["flags"])
    starts = kind == START
    put, copied = starts & (flags == FLAG_ENQUEUE), starts & (flags == FLAG_ENQUEUE | FLAG_MOVED)
    removed = ((kind == DEQUEUE) & (flags & FLAG_DELETE > 0)) | (kind == DELETE)
    cuts = (kind == QUEUE_DELETE) & (heads["size"] == 0)
    plainly = put | copied | removed | cuts | (kind == _LOG_OPEN) | (kind == _LOG_HOLES) | (kind >= FIRST_NOTE)
    if heads["txn_id"].any() and not _is_committed_here(state, heads, plainly):
        return False
    ids: list[int] = lsns[put].tolist()
    copies: list[int] = heads["message_id"][copied].tolist()
    removed_ids = heads["message_id"][removed]
    if not plainly.all() or (state.detailed and any(map(state.detailed.__contains__, (*ids, *copies)))):
        return False
    if copies and not set(removed_ids.tolist()).isdisjoint(copies):
        return False  # which came first matters
    if ids:  # nothing of a message comes before its Start record, so all of these can go first
        values = state.share_all(heads["queue_id"][put] << SIZE_BITS | heads["size"][put])
        new = dict(zip(ids, values, strict=True))
        page = state.page_of(ids[0])
        if page:
            page.update(new)
        else:
            state.pages[state.slot_of(ids[0])] = new  # a dict made at once takes half as long
    if copies:
        values = state.share_all(heads["queue_id"][copied] << SIZE_BITS | heads["size"][copied])
        state.moved_all(lsns[copied].tolist(), copies, values, heads["undo_prev"][copied])
    if len(removed_ids):
        state.pins.end_all(int(lsns[0]), heads["extra"][removed])
        state.forget_all(removed_ids)
    for at in np.flatnonzero(cuts):
        lsn, head = int(lsns[at]), heads[at]
        state.cut(PurgeMark(int(head["queue_id"]), int(head["extra"]) or lsn, frozenset(), lsn), int(head["undo_prev"]))
    return True


def _is_committed_here(state: State, heads: Table, plainly: npt.NDArray[np.bool_]) -> bool:
    """Return whether all transactions in *heads* are local and complete: their operations need no special handling.

    Records of the transactions themselves are marked in *plainly*.
    """
    txn_ids, kind = heads["txn_id"], heads["type"]
    commits = (kind == TX_COMMIT) & (heads["flags"] == 0) & (heads["extra"] == 0)
    of_theirs = commits | (kind == TX_START)
    within = txn_ids > 0
    flags = heads["flags"] & ~np.where(kind == DEQUEUE, REASON_BITS, 0).astype(np.uint8)
    if flags[within & ~of_theirs].max(initial=0) > (FLAG_ENQUEUE | FLAG_DELETE):
        return False
    committed = set(txn_ids[commits].tolist())
    if set(txn_ids[within].tolist()) != committed or state.outcomes.knows(committed):
        return False
    plainly |= of_theirs
    return True
