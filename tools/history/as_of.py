"""The queues at a point in time, and the differences between two (`analytics.lifetimes.queue_contents`)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from ...analytics.lifetimes.extent import extent_as_of
from ...analytics.lifetimes.lifetimes import DELETED, PURGED, QUEUE_DELETED, UNKNOWN, Places
from ...analytics.lifetimes.queue_contents import QueueContents, places_between
from ...analytics.scan.number_sets import Flags, Longs, is_in, unique
from ...base.errors import CairnError, IncompleteResult, JournalError
from ...journal.files.record_lookup import FoundRecord
from ...store.contract.dequeue_reason import DequeueReason, reason_of
from ..inspect.journal_check import Progress
from ..inspect.properties import amqp_id_of
from .arrivals import RecordReader
from .history import History


class QueuedMessage(NamedTuple):
    """A message on a queue."""

    place: int
    """The position in the queue, from 1 on."""
    message_id: int
    time_us: int
    """The time of arrival; 0 if it can't be read."""
    size_bytes: int
    state: str
    """`ready`, or `taken by transaction XID`, which is prepared."""
    amqp_id: str
    """The message-id of the sender, as text; empty for a message without one."""


class QueuesView:
    """The queues as of an LSN. Close it."""

    def __init__(self, history: History, lsn: int, progress: Progress, *, partial: bool = False) -> None:
        """Raises `CairnError` if the log ends before *lsn*, and `IncompleteResult` if not all containers of that time
        are kept and *partial* is not set."""
        if lsn > history.end_lsn:
            raise CairnError(f"LSN {lsn}", f"the log ends at LSN {history.end_lsn}", "name an earlier one, or `end`")
        self.history = history
        self.lsn = lsn
        self.extent = extent_as_of(history.log, lsn)
        self.is_kept = self.extent.missing is None
        if not self.is_kept and not partial:
            raise IncompleteResult(
                f"as of LSN {lsn}", "containers of the log at that time are not kept any more",
                f"{history.complete_from_words()}; --partial shows the rest",
            )  # fmt: skip
        self.contents = QueueContents(history.log, self.extent.pieces, lsn, progress)
        self.on = self.contents.queues
        """Queue ID to messages, in order."""
        self.records = RecordReader(history)

    @property
    def is_complete(self) -> bool:
        """Return whether this is, as far as can be determined, the complete content at that point."""
        return self.is_kept and not self.faults()

    def faults(self) -> list[str]:
        """The faults of the log as it was then, as text."""
        found = self.contents
        return [
            *(f"LSN {one.first_lsn} to {one.end_lsn}: {one.reason}" for one in found.damage),
            *(f"message {message_id}: not all of its records can be read" for message_id in found.incomplete),
        ]

    def rows(self, queue_id: int, count: int | None = None) -> Iterator[QueuedMessage]:
        """The first *count* messages of a queue, all without it."""
        found = self.contents
        for place, message_id in enumerate(self.on.get(queue_id, np.empty(0, np.int64))[:count].tolist(), 1):
            xid = found.lock_of(message_id, queue_id)
            state = "ready" if xid is None else f"acquired by transaction {xid.hex()}"
            time_us, amqp_id = found.time_of(message_id), ""
            try:
                amqp_id = self.amqp_id_of(message_id)
            except JournalError as error:
                time_us, state = 0, f"can't be read: {error}"
            yield QueuedMessage(place, message_id, time_us, found.size_of(message_id), state, amqp_id)

    def amqp_id_of(self, message_id: int) -> str:
        """Return the message-id of the sender as text; empty for a message without one.

        Raises `JournalError` if it can't be read.
        """
        piece = next(self.pieces(message_id), None)
        return "" if piece is None else amqp_id_of(piece.payload)

    def pieces(self, message_id: int) -> Iterator[FoundRecord]:
        """The records with the content of a message, in order. Raises `JournalError` if one can't be read."""
        return map(self.records.record, self.contents.records_of(message_id))

    def content(self, message_id: int) -> bytes:
        """The content of a message. Raises `JournalError` if it can't be read."""
        return b"".join(piece.payload for piece in self.pieces(message_id))

    def close(self) -> None:
        self.records.close()


class Transition(NamedTuple):
    """The record by which a message arrived on a queue, or left it."""

    lsn: int
    time_us: int
    reason: str


_UNKNOWN = Transition(0, 0, DequeueReason.NOT_RECORDED.words)
_WORDS = {DELETED: "deleted", QUEUE_DELETED: "queue deleted", PURGED: "purged"}


@dataclass
class QueueChange:
    """The differences of one queue between two points."""

    came: dict[int, Transition] = field(default_factory=dict)
    """Messages that are there at the second point only."""
    went: dict[int, Transition] = field(default_factory=dict)
    """Messages that were there at the first point only."""
    passed: int = 0
    """The number of messages that arrived and left in between."""


def difference(
    first: QueuesView, second: QueuesView, wanted: Callable[[int], bool], progress: Progress
) -> dict[int, QueueChange]:
    """Queue ID to its changes from *first* to *second*, the later one, for the queues that are *wanted*."""
    begin = min((piece.slot_lsn for piece in first.extent.pieces), default=0)
    places = places_between(second.history.log, begin, second.lsn, progress)
    arrived = places.position >= first.lsn
    changes: dict[int, QueueChange] = {}
    for queue_id in sorted({*first.on, *second.on, *places.queue_id[arrived].tolist()}):
        if not wanted(queue_id):
            continue
        before, after = (view.on.get(queue_id, np.empty(0, np.int64)) for view in (first, second))
        here = places.queue_id == queue_id
        ends = here & (places.how != 0) & (places.how != UNKNOWN)
        came, went = after[~is_in(after, before)], before[~is_in(before, after)]
        change = QueueChange(
            _transitions(came, places, here, places.position, places.time_us, lambda how, flags: "arrived"),
            _transitions(went, places, ends, places.end_lsn, places.end_us,
                         lambda how, flags: _WORDS.get(how) or reason_of(flags).words),
        )  # fmt: skip
        new = unique(np.sort(places.message_id[here & arrived]))
        change.passed = int(np.count_nonzero(~is_in(new, after)))
        if change.came or change.went or change.passed:
            changes[queue_id] = change
    return changes


def _transitions(
    ids: Longs, places: Places, chosen: Flags, lsns: Longs, times: Longs, reason: Callable[[int, int], str]
) -> dict[int, Transition]:
    """The last transition of each message of *ids*, in order, by the LSNs and times of the *chosen* places."""
    found = dict.fromkeys(ids.tolist(), _UNKNOWN)
    rows = np.flatnonzero(chosen & is_in(places.message_id, ids))
    columns = (places.message_id, lsns, times, places.how, places.flags)
    for message_id, lsn, time_us, how, flags in zip(*(column[rows].tolist() for column in columns), strict=True):
        if lsn > found[message_id].lsn:
            found[message_id] = Transition(lsn, time_us, reason(how, flags))
    return found
