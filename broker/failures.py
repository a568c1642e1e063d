"""Failed deliveries, counted across restarts: what messages have of them on a queue with `max-deliveries`. Core only.

A message that failed has a record of its id and its count. Records are messages of a queue of their own, `$failures:`
and the name, which is made with the first of them and goes with the queue. At each failure a new record takes the place
of the one before; whatever takes the message off its queue takes the record along. All that one step of the core
brings is written together, in the next one, and nobody waits for it to be durable. So a crash may leave a message
whose last failures are not counted, never one with a higher count than it has; and a count without its message, which
is cleared at the next start. A message that somebody had when the broker stopped, or was killed, has not failed by
that: what was there is marked as perhaps delivered, and counts what its record says.

Records name messages by their ids, which mean nothing in another log: what a salvage or a load has made of a store
begins anew. The queue's argument `x-log` says whose they are.

Without room counts are in memory only, as they are for what is not stored, and in queues that a cluster replicates.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from contextlib import suppress
from hashlib import sha256
from struct import Struct
from typing import TYPE_CHECKING, Any

import numpy as np

from ..base.errors import CairnError, StoreError
from ..store.interface import MessageStore
from ..store.journal_store import JournalStore
from ..store.schema import MAX_NAME_BYTES
from .entry import Entry

if TYPE_CHECKING:
    from .broker import Broker
    from .queue import Queue

log = logging.getLogger(__name__)

PREFIX = "$failures:"
LOG = "x-log"
RECORD = Struct("<QI")
"""A message's id, and how many of its deliveries have failed."""
_READ_BYTES = 1 << 20
RETRY_S = 10.0
"""What could not be made is asked for again so much later: else each failure would ask SQL, and log its answer."""


class FailureCounts:
    """Those of one queue, which is durable and not replicated."""

    def __init__(self, broker: Broker, queue: Queue) -> None:
        self._broker = broker
        self._queue = queue
        self._records: dict[int, int] = {}
        """Message id to the id of its record."""
        self._recalled: dict[int, int] = {}
        """Message id to count, of those that were there when the store was opened."""
        self._failed: dict[Entry, None] = {}
        """What is to be written down."""
        self._over: list[int] = []
        """Records to be taken off."""
        self._is_due = self._is_making = False
        self._not_before_s = 0.0
        """By the monotonic clock, the place of the records is not asked for again."""

    def of(self, message_id: int) -> int:
        """How often a message had failed when the store was opened."""
        return self._recalled.get(message_id, 0)

    def failed(self, entry: Entry) -> None:
        """It has failed once more, and stays on the queue."""
        if entry.message_id:
            self._failed[entry] = None
            self._write_soon()

    def took(self, entries: Iterable[Entry]) -> None:
        """These are off the queue for good, and that is recorded, or will be in this step."""
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

    def emptied(self, kept: Iterable[Entry]) -> None:
        """All messages but these are off the queue: so are their records, by one of the journal's."""
        ids = {entry.message_id for entry in kept}
        self._failed = {entry: None for entry in self._failed if entry.message_id in ids}
        records = {message_id: record for message_id, record in self._records.items() if message_id in ids}
        if len(records) < len(self._records):
            self._recalled = {message_id: count for message_id, count in self._recalled.items() if message_id in ids}
            self._records, self._over = records, []
            if place := self._place():
                with suppress(CairnError):  # then they go at the next start
                    self._broker.store.purge(place, self._broker.clock.wall_us(), keep=records.values())

    def end(self) -> None:
        """The queue is gone."""
        self._records, self._recalled, self._failed, self._over = {}, {}, {}, []
        kept = self._broker.nodes.queues.get(place_name(self._queue.name))
        if kept is not None:
            self._broker.nodes.delete_queue(kept, _ignore)

    # ---- the start ------------------------------------------------------------------------------------------------

    def recall(self, kept: Queue) -> None:
        """What was recorded when the store was opened; of two records of one message the higher one is the later."""
        left = kept.backlog.page(0, kept.backlog.count).ids
        while left:
            found = self._broker.store.load_many(left, _READ_BYTES)
            for record, content in zip(left, found, strict=False):
                self._recall(record, content)
            left = left[len(found) :]
        kept.clear()  # records are the store's alone: nobody is given what is replaced behind the queue's back
        on_queue = self._queue.backlog.page(0, self._queue.backlog.count).ids
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
                self._queue.name, record, content, extra={"queue": self._queue.name},
            )  # fmt: skip
            self._over.append(record)
            return
        message_id, count = RECORD.unpack(content)
        if count > self._recalled.get(message_id, 0):
            record, self._records[message_id] = self._records.get(message_id, 0), record
            self._recalled[message_id] = count
        if record:
            self._over.append(record)

    # ---- writing --------------------------------------------------------------------------------------------------

    def _place(self) -> int:
        """The wiring's id of the queue of records; 0 if it is not there."""
        kept = self._broker.nodes.queues.get(place_name(self._queue.name))
        return 0 if kept is None or kept.going else kept.queue_id

    def _write_soon(self) -> None:
        if not self._is_due:
            self._is_due = True
            self._broker.later(self._write)

    def _write(self) -> None:
        self._is_due = False
        place = self._place()
        if place:
            failed, self._failed = [*self._failed], {}
            if failed:
                self._record(place, failed)
            over, self._over = self._over, []
            self._take_off(place, over)
        elif self._broker.clock.monotonic_s() < self._not_before_s:
            self._failed.clear()  # in memory only
        elif self._failed and not self._is_making:
            self._is_making = True
            self._broker.nodes.create_queue(place_name(self._queue.name), _whose(self._broker.store), self._made)

    def _record(self, place: int, failed: Sequence[Entry]) -> None:
        store, records = self._broker.store, self._records
        contents = [RECORD.pack(entry.message_id, entry.failures) for entry in failed]
        with suppress(CairnError):  # the disk is full: they are written with their next failure
            if not store.full(RECORD.size * len(contents), len(contents)):
                ids, _ = store.put_all(place, contents, self._broker.clock.wall_us())
                for entry, record in zip(failed, ids, strict=True):
                    if before := records.get(entry.message_id):
                        self._over.append(before)
                    records[entry.message_id] = record

    def _take_off(self, place: int, records: Sequence[int]) -> None:
        store, now_us = self._broker.store, self._broker.clock.wall_us()
        try:
            store.dequeue_all(records, place, now_us)
        except StoreError:  # somebody has purged some of them
            for record in records:
                with suppress(StoreError):
                    store.dequeue(record, place, now_us)

    def _made(self, made: Queue | Exception) -> None:
        self._is_making = False
        if isinstance(made, Exception):
            log.warning(
                "queue %s: failed deliveries are counted in memory only for %g s: %s",
                self._queue.name, RETRY_S, made, extra={"queue": self._queue.name},
            )  # fmt: skip
            self._failed.clear()
            self._not_before_s = self._broker.clock.monotonic_s() + RETRY_S
        elif self._queue.gone:
            self._broker.nodes.delete_queue(made, _ignore)
        else:
            self._write()


def recall_counts(broker: Broker) -> None:
    """At the start: each queue that counts knows what was recorded; what others, or none, had left goes."""
    queues, ours = broker.nodes.queues, _whose(broker.store)
    counting = {place_name(queue.name): queue.counts for queue in queues.values() if queue.counts is not None}
    for kept in [queue for name, queue in queues.items() if name.startswith(PREFIX)]:
        counts = counting.get(kept.name)
        if counts is not None and kept.arguments == ours:
            counts.recall(kept)
        else:
            broker.later(broker.nodes.delete_queue, kept, _ignore)


def place_name(name: str) -> str:
    """What the queue of the records of queue *name* is called; a long name does not fit behind the prefix."""
    whole = PREFIX + name
    return whole if len(whole.encode()) <= MAX_NAME_BYTES else PREFIX + sha256(name.encode()).hexdigest()


def _whose(store: MessageStore) -> dict[str, Any]:
    """The arguments of a queue of records: the log that their ids are of, if there is one."""
    return {LOG: str(store.journal.pool.log_uuid)} if isinstance(store, JournalStore) else {}


def _ignore(result: object) -> None:
    """Nobody waits to hear how that went; the log tells what went wrong."""
