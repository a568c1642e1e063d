"""The contents of queues as of an LSN: recovery's own reading of the log as it was then (`history`).

What the log says of a message in a prepared transaction is part of its state; who had acquired it is not in the log.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from ...amqp.codec import sections
from ...amqp.codec.primitives import Malformed
from ...base.errors import CairnError, JournalError, NotWhole
from ...journal.format.block import Block
from ...journal.format.record import HEAD_BYTES, Flag, RecordType
from ...recovery.damage_survey import Survey
from ...store.contract.dequeue_reason import why_of
from ...store.message_map.placement import on_queues
from ..inspect.block_table import heads_of_block
from ..inspect.contents import Contents
from ..inspect.journal_check import Progress
from ..inspect.point_in_time import PointInTime
from .history import History, LogCut

_NOT_OWN = Flag.MOVED | Flag.PREPARED


class QueuedMessage(NamedTuple):
    """A message on a queue."""

    place: int
    """From 1, in the queue's order."""
    message_id: int
    time_us: int
    """The time of arrival; 0 if it can't be read."""
    size_bytes: int
    state: str
    """`ready`, or `taken by transaction XID`, which is prepared."""
    amqp_id: str
    """The message-id that its sender gave it, in words; empty if there is none."""


def cut_of(history: History, moment: PointInTime) -> LogCut:
    """The cut of the log for *moment*. Raises `CairnError` if the log ends before it, or begins later."""
    end = history.end_lsn()
    if moment.lsn is not None and moment.lsn > end:
        raise CairnError(f"LSN {moment.lsn}", f"the log ends at LSN {end}", "name an earlier one, or `end`")
    if moment.lsn is not None:
        return history.cut_at(moment.lsn)
    return history.cut_at(end if moment.time_us is None else history.lsn_at(moment.time_us))


class QueuesView:
    """The queues as of a cut. Close it."""

    def __init__(self, history: History, cut: LogCut, progress: Progress, *, partial: bool = False) -> None:
        """Raises `NotWhole` unless all that is needed is kept, or *partial* is asked for."""
        self.history = history
        self.cut = cut
        self.is_kept = history.is_whole_at(cut)
        if not self.is_kept and not partial:
            raise NotWhole(
                f"as of LSN {cut.lsn}", "containers that the log then had are not kept any more",
                f"{history.whole_from_words()}; --partial shows what is left of it",
            )  # fmt: skip
        self.survey: Survey | None = None
        self.on: dict[int, array[int]] = {}
        """Queue id to messages, in order."""
        self._contents: Contents | None = None
        self._takers: dict[tuple[int, int], bytes] = {}
        if not cut.block_lsn:
            return
        self.survey = Survey(history.log_at(cut), history.log_uuid)
        self.survey.run((), lambda done, total: progress(f"reading up to LSN {cut.lsn}", done, total))
        state = self.survey.state
        lost = self.survey.lost
        self.on = {
            queue_id: array("Q", [one for one in ids if one not in lost]) if lost else ids
            for queue_id, ids in on_queues(state).items()
        }
        self._contents = Contents(self.survey)
        for prepared in state.outcomes.prepared.values():
            for kind, message_id, queue_id in prepared.intentions:
                if kind == RecordType.DEQUEUE:
                    self._takers[message_id, queue_id] = prepared.xid

    @property
    def is_whole(self) -> bool:
        """Return whether this is all that was there then, as far as anything tells."""
        return self.is_kept and not self.faults()

    def faults(self) -> list[str]:
        """The faults of the log as it was then, in words."""
        if self.survey is None:
            return []
        found = [one for one in self.survey.findings if one.kind == "corrupt" and one.end_lsn > one.first_lsn]
        at_end = self.cut.end_lsn if self.cut.damage else -1
        faults = [
            f"LSN {one.first_lsn} to {one.end_lsn}: {self.cut.damage if one.first_lsn == at_end else one.why}"
            for one in found
        ]
        return faults + [f"message {one.message_id}: {one.why}" for one in self.survey.lost.values()]

    def rows(self, queue_id: int, count: int | None = None) -> Iterator[QueuedMessage]:
        """The first *count* messages of a queue, all without it."""
        for place, message_id in enumerate(self.on.get(queue_id, ())[:count], 1):
            xid = self._takers.get((message_id, queue_id))
            state = "ready" if xid is None else f"taken by transaction {xid.hex()}"
            try:
                assert self._contents is not None
                first = next(self._contents.pieces(message_id))
                time_us, amqp_id = first.head.time_us, amqp_id_of(first.payload)
            except (JournalError, KeyError) as error:
                time_us, amqp_id, state = 0, "", f"can't be read: {error}"
            yield QueuedMessage(place, message_id, time_us, self.size_of(message_id), state, amqp_id)

    def size_of(self, message_id: int) -> int:
        """Of its content, in bytes."""
        return 0 if self.survey is None else sum(self.survey.state.piece_sizes(message_id))

    def content(self, message_id: int) -> bytes:
        """Raises `JournalError` if it can't be read."""
        assert self._contents is not None
        return b"".join(piece.payload for piece in self._contents.pieces(message_id))

    def close(self) -> None:
        if self._contents is not None:
            self._contents.close()


def amqp_id_of(content: bytes) -> str:
    """The message-id of the message that *content* is, or begins; empty if there is none."""
    try:
        found = sections.properties(content, sections.find(content, sections.PROPERTIES)).message_id
    except Malformed:
        return ""
    return "" if found is None else found.hex() if isinstance(found, bytes) else str(found)


# ---- two points -----------------------------------------------------------------------------------------------------


class Departure(NamedTuple):
    """The record by which a message left a queue."""

    lsn: int
    time_us: int
    why: str


UNKNOWN = Departure(0, 0, "not recorded")


@dataclass
class QueueChange:
    """The differences of one queue between two points."""

    came: list[int] = field(default_factory=list)
    """Messages that are there at the second point only."""
    went: dict[int, Departure] = field(default_factory=dict)
    """Messages that were there at the first point only."""
    passed: int = 0
    """The number of messages that arrived and left in between."""


def difference(first: QueuesView, second: QueuesView, wanted: Callable[[int], bool]) -> dict[int, QueueChange]:
    """Queue id to what happened there from *first* to *second*, the later one; *wanted* says of which queues."""
    ends, arrivals = _between(first.history, first.cut.lsn, second.cut.lsn)
    changes: dict[int, QueueChange] = {}
    for queue_id in sorted({*first.on, *second.on, *arrivals}):
        if not wanted(queue_id):
            continue
        before, after = first.on.get(queue_id, array("Q")), second.on.get(queue_id, array("Q"))
        were, are = set(before), set(after)
        change = QueueChange([one for one in after if one not in were])
        for one in before:
            if one not in are:
                cut = ends.get((0, queue_id), UNKNOWN)
                change.went[one] = ends.get((one, queue_id)) or ends.get((one, 0)) or cut
        change.passed = len(arrivals.get(queue_id, set()) - are)
        if change.came or change.went or change.passed:
            changes[queue_id] = change
    return changes


def _between(
    history: History, first_lsn: int, end_lsn: int
) -> tuple[dict[tuple[int, int], Departure], dict[int, set[int]]]:
    """(Message, queue) to how it went, 0 for all of them; and queue to what arrived there. Of what was committed."""
    ends: dict[tuple[int, int], tuple[int, Departure]] = {}
    arrivals: list[tuple[int, int, int]] = []
    committed = {0}
    for found in history.scan(first_lsn) if first_lsn < end_lsn else ():
        if not isinstance(found, Block):
            continue
        if found.lsn >= end_lsn:
            break
        table = heads_of_block(found)
        lsns = found.record_lsn(0) + HEAD_BYTES * np.arange(len(table))
        meant = (table["flags"] & _NOT_OWN == 0) & (lsns >= first_lsn) & (lsns < end_lsn)
        for row, lsn in zip(table[meant].tolist(), lsns[meant].tolist(), strict=True):
            kind, flags, message_id, queue_id, txn_id, time_us = row[0], row[1], row[7], row[8], row[9], row[10]
            if kind == RecordType.TX_COMMIT:
                committed.add(txn_id)
            elif kind == RecordType.DEQUEUE:
                ends[message_id, queue_id] = txn_id, Departure(lsn, time_us, why_of(flags).words)
            elif kind == RecordType.DELETE:
                ends[message_id, 0] = 0, Departure(lsn, time_us, "deleted")
            elif kind == RecordType.QUEUE_DELETE:
                why = "queue deleted" if flags & Flag.DELETE else "purged"
                ends[0, queue_id] = 0, Departure(lsn, time_us, why)
            elif kind == RecordType.ENQUEUE or (kind == RecordType.START and flags & Flag.ENQUEUE):
                arrivals.append((txn_id, queue_id, message_id))
    came: dict[int, set[int]] = {}
    for txn_id, queue_id, message_id in arrivals:
        if txn_id in committed:
            came.setdefault(queue_id, set()).add(message_id)
    return {key: went for key, (txn_id, went) in ends.items() if txn_id in committed}, came
