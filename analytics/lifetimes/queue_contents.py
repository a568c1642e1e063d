"""The contents of queues at a point in time, derived from the log as it was then (`extent`).

The log as of LSN X is what a crash at X would have left: the containers that it had then, with the records below X. So
these are the messages that recovery would find in it. Messages that are locked by a prepared transaction are still on
their queues; the log does not record acquisitions as a part of its state.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from ...journal.format.record import Flag, RecordType
from ..scan.files import Log, LogPiece
from ..scan.log_scan import ScanOptions
from ..scan.number_sets import Longs, is_in, unique
from ..scan.scanner import Damaged
from .lifetimes import NEVER, Places, lifetimes_of
from .outcomes import prepared_transactions
from .record_tables import RecordTables, content_records, gather

_HOW = ScanOptions(verify=True, permissive=True)
Progress = Callable[[str, int, int], None]


class QueueContents:
    """The messages on queues as of an LSN. All block checksums are checked."""

    def __init__(self, log: Log, pieces: Sequence[LogPiece], lsn: int, progress: Progress) -> None:
        """*pieces*: those that *log* had as of *lsn*, or those that are left of them."""
        facts = records_before(log, pieces, lsn, progress)
        self.damage: tuple[Damaged, ...] = facts.damage
        """The unreadable ranges of the log up to the LSN."""
        self._messages, places, _ = lifetimes_of(facts)
        live = np.flatnonzero(places.end_lsn == NEVER)
        is_complete = self._messages.complete[np.searchsorted(self._messages.id, places.message_id[live])]
        self.incomplete: list[int] = unique(places.message_id[live[~is_complete]]).tolist()
        """Messages that are on queues, and whose content can't be read completely."""
        live = live[is_complete]
        live = live[np.lexsort((places.position[live], places.queue_id[live]))]
        queue_ids, firsts = np.unique(places.queue_id[live], return_index=True)
        parts = np.split(places.message_id[live], firsts[1:])
        self.queues: dict[int, Longs] = dict(zip(queue_ids.tolist(), parts, strict=False))
        """Queue ID to the IDs of its messages, in order."""
        self._records = content_records(facts.where(is_in(facts.message_id, places.message_id[live])))
        self._locks = _locks(facts)

    def records_of(self, message_id: int) -> list[int]:
        """The LSNs of the records with the content of a message, in order."""
        begin, end = np.searchsorted(self._records.message_id, (message_id, message_id + 1)).tolist()
        found: list[int] = self._records.lsn[begin:end].tolist()
        return found

    def size_of(self, message_id: int) -> int:
        """The length of the content of a message, in bytes."""
        return int(self._messages.size[np.searchsorted(self._messages.id, message_id)])

    def time_of(self, message_id: int) -> int:
        """The time of arrival of a message, in microseconds since 1970."""
        return int(self._messages.time_us[np.searchsorted(self._messages.id, message_id)])

    def lock_of(self, message_id: int, queue_id: int) -> bytes | None:
        """Return the XID of the prepared transaction that will dequeue a message; None without one."""
        return self._locks.get((message_id, queue_id))


def records_before(log: Log, pieces: Sequence[LogPiece], lsn: int, progress: Progress) -> RecordTables:
    """The records of *pieces* below *lsn*, and the damage that begins there; what can't be read is left out."""

    def counted() -> Iterator[LogPiece]:
        for number, piece in enumerate(pieces):
            progress(f"reading up to LSN {lsn}", number * log.container_bytes, len(pieces) * log.container_bytes)
            yield piece

    facts = gather(log, counted(), _HOW)
    damage = tuple(one for one in facts.damage if one.first_lsn < lsn)
    return facts.where(facts.lsn < lsn)._replace(damage=damage)


def places_between(log: Log, first_lsn: int, end_lsn: int, progress: Progress) -> Places:
    """The stays of messages on queues, as of *end_lsn*, from the records of the range."""
    return lifetimes_of(records_before(log, log.between(first_lsn, end_lsn), end_lsn, progress)).places


def _locks(facts: RecordTables) -> dict[tuple[int, int], bytes]:
    """Message and queue to the XID of the prepared transaction that will dequeue it."""
    locked = facts.of_type(RecordType.DEQUEUE)
    locked = locked.where(locked.has(Flag.PREPARED) & is_in(locked.txn_id, prepared_transactions(facts)))
    starts = facts.of_type(RecordType.DTX_START)
    xids = {txn: facts.payloads[lsn] for txn, lsn in zip(starts.txn_id.tolist(), starts.lsn.tolist(), strict=True)}
    rows = zip(locked.message_id.tolist(), locked.queue_id.tolist(), locked.txn_id.tolist(), strict=True)
    return {(message_id, queue_id): xids.get(txn_id, b"") for message_id, queue_id, txn_id in rows}
