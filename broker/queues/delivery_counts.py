"""Failed deliveries, counted across restarts, of messages on a queue with `max-deliveries`. Core only.

A message that failed has a record of its ID and its count. Records are messages of a separate queue, `$failures:` and
the name, which is created with the first of them and deleted with the queue. At each failure a new record replaces the
previous one; the record is removed when the message leaves its queue. The records of one step of the core are written
together, in the next one, and nothing waits for their durability. So a crash may leave a message whose last failures
are not counted, never one with too high a count. It may also leave a count without its message, which is removed at the
next start. A message that was unsettled when the broker stopped, or was killed, has not failed: it is marked as
possibly delivered, with the count of its record.

Records contain message IDs, which are invalid in another log: a salvaged or imported store starts without counts. The
queue's argument `x-log` names the log.

Without space counts are in memory only, as they are for transient messages, and in replicated queues.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from hashlib import sha256
from struct import Struct
from typing import Any

import numpy as np

from ...base.callbacks import ignore
from ...base.errors import CairnError, StoreError
from ...store.contract.interface import MessageStore
from ...store.journaled.store import JournalStore
from ...store.wiring.row_check import MAX_NAME_BYTES
from ..contents.internal_queues import InternalQueue, InternalQueues
from ..kernel.context import CoreContext
from ..messages.entry import Entry
from .ends import SourceQueue

log = logging.getLogger(__name__)

PREFIX = "$failures:"
LOG = "x-log"
RECORD = Struct("<QI")
"""The layout of a record: the id of a message, and the number of its failed deliveries."""
_READ_BYTES = 1 << 20
RETRY_S = 10.0
"""The delay before a queue of records that could not be created is requested again.

Without it, each failed delivery would run SQL and log the result."""


class DeliveryCounts:
    """The delivery counts of one queue, which is durable and not replicated."""

    def __init__(self, core: CoreContext, queue: SourceQueue, internal_queues: InternalQueues) -> None:
        self._core = core
        self._queue = queue
        self._internal_queues = internal_queues
        self._records: dict[int, int] = {}
        """The id of the record of each message, by message id."""
        self._recalled: dict[int, int] = {}
        """The counts of messages that were on the queue when the store was opened, by message id."""
        self._failed: dict[Entry, None] = {}
        """Messages whose counts are to be recorded."""
        self._over: list[int] = []
        """Records to be dequeued."""
        self._is_due = self._is_making = False
        self._not_before_s = 0.0
        """The earliest time, by the monotonic clock, to request the queue of records again."""

    def of(self, message_id: int) -> int:
        """Return the number of failed deliveries that a message had when the store was opened."""
        return self._recalled.get(message_id, 0)

    def failed(self, entry: Entry) -> None:
        """Record another failed delivery of a message that stays on the queue."""
        if entry.message_id:
            self._failed[entry] = None
            self._write_soon()

    def count_dequeued(self, entries: Iterable[Entry]) -> None:
        """Remove the records of dequeued messages; their dequeues are recorded, or will be in this step."""
        if self._failed:
            for entry in entries:
                self._failed.pop(entry, None)
        if self._records:
            for entry in entries:
                record = self._records.pop(entry.message_id, 0)
                if record:
                    self._recalled.pop(entry.message_id, None)
                    self._over.append(record)
            if self._over:
                self._write_soon()

    def emptied(self, kept: Iterable[Entry]) -> tuple[dict[Any, Any], ...]:
        """Remove the records of all messages but *kept* from the store, by one record of the journal.

        Return the containers to dispose of, without entries that are still on the queue.
        """
        failed, before, recalled = self._failed, self._records, self._recalled
        kept = [*kept]
        self._failed = {entry: None for entry in kept if failed.pop(entry, self) is None}
        records = {entry.message_id: before[entry.message_id] for entry in kept if entry.message_id in before}
        if len(records) < len(before):
            self._recalled = {one.message_id: recalled[one.message_id] for one in kept if one.message_id in recalled}
            self._records, self._over = records, []
            if place := self._place():
                with suppress(CairnError):  # then they are removed at the next start
                    self._core.store.purge(place, self._core.clock.wall_us(), keep=records.values())
            return failed, before, recalled
        return (failed,)

    def end(self) -> None:
        """Delete the records of a queue that is deleted."""
        self._records, self._recalled, self._failed, self._over = {}, {}, {}, []
        self._internal_queues.drop_queue(place_name(self._queue.name), ignore)

    def recall(self, kept: InternalQueue) -> None:
        """Read the counts that the store had when it was opened.

        Of two records of one message, the one with the higher count is the later."""
        left = kept.contents.backlog.page(0, kept.contents.backlog.count).ids
        while left:
            found = self._core.store.load_many(left, _READ_BYTES)
            for record, content in zip(left, found, strict=False):
                self._recall(record, content)
            left = left[len(found) :]
        kept.clear()  # only the store uses the records: no consumer is affected when they are replaced
        on_queue = self._queue.contents.backlog.page(0, self._queue.contents.backlog.count).ids
        orphans = np.setdiff1d(np.fromiter(self._records, np.uint64), np.frombuffer(on_queue, np.uint64))
        for message_id in orphans.tolist():
            self._over.append(self._records.pop(message_id))
            del self._recalled[message_id]
        if self._over:
            self._write_soon()

    def _recall(self, record: int, content: bytes | CairnError | None) -> None:
        if not isinstance(content, bytes) or len(content) != RECORD.size:
            log.error(
                "queue %s: record %d of failed deliveries can't be read, and is dropped: %s",
                self._queue.name, record, content, extra={"event": "message.unreadable", "queue": self._queue.name},
            )  # fmt: skip
            self._over.append(record)
            return
        message_id, count = RECORD.unpack(content)
        if count > self._recalled.get(message_id, 0):
            record, self._records[message_id] = self._records.get(message_id, 0), record
            self._recalled[message_id] = count
        if record:
            self._over.append(record)

    def _place(self) -> int:
        """Return the wiring's id of the queue of records, or 0 if it does not exist."""
        kept = self._internal_queues.queues.get(place_name(self._queue.name))
        return 0 if kept is None or kept.is_deleting else kept.queue_id

    def _write_soon(self) -> None:
        if not self._is_due:
            self._is_due = True
            self._core.post(self._write)

    def _write(self) -> None:
        self._is_due = False
        place = self._place()
        if place:
            failed, self._failed = [*self._failed], {}
            if failed:
                self._record(place, failed)
            over, self._over = self._over, []
            self._take_off(place, over)
        elif self._core.clock.monotonic_s() < self._not_before_s:
            self._failed.clear()  # in memory only
        elif self._failed and not self._is_making:
            self._is_making = True
            self._internal_queues.create_queue(place_name(self._queue.name), _whose(self._core.store), self._made)

    def _record(self, place: int, failed: Sequence[Entry]) -> None:
        store, records = self._core.store, self._records
        contents = [RECORD.pack(entry.message_id, entry.failures) for entry in failed]
        with suppress(CairnError):  # the disk is full: they are written with their next failure
            if not store.full(RECORD.size * len(contents), len(contents)):
                ids, _ = store.put_all(place, contents, self._core.clock.wall_us())
                for entry, record in zip(failed, ids, strict=True):
                    if before := records.get(entry.message_id):
                        self._over.append(before)
                    records[entry.message_id] = record

    def _take_off(self, place: int, records: Sequence[int]) -> None:
        store, now_us = self._core.store, self._core.clock.wall_us()
        try:
            store.dequeue_all(records, place, now_us)
        except StoreError:  # some of them were purged by a client
            for record in records:
                with suppress(StoreError):
                    store.dequeue(record, place, now_us)

    def _made(self, made: InternalQueue | Exception) -> None:
        self._is_making = False
        if isinstance(made, Exception):
            log.warning(
                "queue %s: failed deliveries are counted in memory only for %g s: %s",
                self._queue.name, RETRY_S, made, extra={"event": "message.count-failed", "queue": self._queue.name},
            )  # fmt: skip
            self._failed.clear()
            self._not_before_s = self._core.clock.monotonic_s() + RETRY_S
        elif self._queue.is_deleted:
            self._internal_queues.drop_queue(made.name, ignore)
        else:
            self._write()


def recall_counts(core: CoreContext, queues: InternalQueues, counting: Mapping[str, DeliveryCounts]) -> None:
    """Read the records of each queue that counts when the broker starts, and delete all others.

    *counting*: the queues that count, by name.
    """
    ours = _whose(core.store)
    by_place = {place_name(name): counts for name, counts in counting.items()}
    for kept in [queue for name, queue in queues.queues.items() if name.startswith(PREFIX)]:
        counts = by_place.get(kept.name)
        if counts is not None and kept.arguments == ours:
            counts.recall(kept)
        else:
            core.post(queues.drop_queue, kept.name, ignore)


def place_name(name: str) -> str:
    """Return the name of the queue that holds the records of queue *name*.

    A name that is too long behind the prefix is replaced by its hash."""
    complete = PREFIX + name
    return complete if len(complete.encode()) <= MAX_NAME_BYTES else PREFIX + sha256(name.encode()).hexdigest()


def _whose(store: MessageStore) -> dict[str, Any]:
    """Return the arguments of a queue of records: the log that the ids refer to, if the store has one."""
    return {LOG: str(store.journal.pool.log_uuid)} if isinstance(store, JournalStore) else {}
