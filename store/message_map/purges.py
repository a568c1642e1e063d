"""Queues that were deleted or purged, each by one record, however many messages were on it.

A Queue-Delete record *cuts* its queue: what was put there before the record is off the queue, but for the messages that
it lists. That is true with the record, and no reader uses the messages then; `sweeping` does it afterwards, and
recovery when it has read the log. A place counts by its *position*, the LSN of the record that gave it first, so it
does not matter where relocation has carried either of them meanwhile (checklist E53, E54).

The record is live until the sweep is through; then it ends the records that gave the places, as a Dequeue does.
"""

from __future__ import annotations

import json
from typing import NamedTuple

from ...journal.format.record import HEAD_BYTES, MAX_PAYLOAD_BYTES

MAX_KEPT = MAX_PAYLOAD_BYTES // 8
"""The maximum number of messages that one purge may keep."""


class PurgeMark(NamedTuple):
    """A purge of all messages with a lower position on the queue."""

    queue_id: int
    position: int
    """The LSN of the record when it was written first."""
    kept: frozenset[int]
    """But for these messages."""
    lsn: int
    """The record, or its newest copy."""
    before: tuple[PurgeMark, ...] = ()
    """Older ones, where they matter: a message that this one keeps may have been there twice, and they took it."""

    @property
    def size_bytes(self) -> int:
        return HEAD_BYTES + 8 * len(self.kept)

    def takes(self, message_id: int, position: int) -> bool:
        return self.taker(message_id, position) is not None

    def taker(self, message_id: int, position: int) -> PurgeMark | None:
        """Return the purge, this or an older one, that removed the message from that position."""
        if position >= self.position:
            return None
        if message_id not in self.kept:
            return self
        return next((cut for cut in self.before if cut.takes(message_id, position)), None)


class PurgeMarks:
    """The newest cut of each queue, as long as something may depend on it. The thread that makes the store's calls."""

    def __init__(self) -> None:
        self.unswept: dict[int, PurgeMark] = {}
        """Purges by queue that are not applied to all messages yet."""
        self.changed = False
        """True if the purges changed since the last checkpoint."""
        self._swept: dict[int, PurgeMark] = {}  # a checkpoint that is being taken may have pages from before the sweep
        self._held: set[int] = set()  # LSNs of records that the log must keep until the sweep is through

    def add(self, cut: PurgeMark) -> list[PurgeMark]:
        """A record, or a copy of one, at whatever position; those whose records need not be kept any more.

        Older ones matter as long as the newest one keeps something.
        """
        queue_id = cut.queue_id
        known = self.unswept.get(queue_id) or self._swept.pop(queue_id, None)
        chain = {} if known is None else {one.position: one for one in (known, *known.before)}
        needless = [chain[cut.position]] if cut.position in chain else []
        chain[cut.position] = cut
        self._held.add(cut.lsn)
        matters: list[PurgeMark] = []
        for position in sorted(chain, reverse=True):
            if matters and not matters[-1].kept:
                needless.append(chain[position])
            else:
                matters.append(chain[position]._replace(before=()))
        self.unswept[queue_id] = matters[0]._replace(before=tuple(matters[1:]))
        self.changed = True
        return self._let_go(needless)

    def is_kept(self, queue_id: int, lsn: int) -> bool:
        """Return whether the purge record at *lsn* still determines which messages exist."""
        cut = self.unswept.get(queue_id)
        return cut is not None and lsn in (cut.lsn, *(one.lsn for one in cut.before))

    def swept(self, queue_id: int) -> list[PurgeMark]:
        """Record that all messages of the newest purge are processed; return purges whose records are not needed."""
        cut = self._swept[queue_id] = self.unswept.pop(queue_id)
        return self._let_go([cut, *cut.before])

    def _let_go(self, cuts: list[PurgeMark]) -> list[PurgeMark]:
        held = [cut for cut in cuts if cut.lsn in self._held]
        self._held.difference_update(cut.lsn for cut in held)
        return held

    def all_swept(self) -> list[PurgeMark]:
        """Return the swept cuts, which a checkpoint that begins now no longer needs once it is complete."""
        return [*self._swept.values()]

    def forget(self, cuts: list[PurgeMark]) -> None:
        """Forget purges on which nothing depends any more."""
        for cut in cuts:
            if self._swept.get(cut.queue_id) == cut:
                del self._swept[cut.queue_id]
                self.changed = True

    def encode(self) -> bytes:
        """Encode all purges for a checkpoint; empty without purges."""
        known = [*self._swept.values(), *self.unswept.values()]
        rows = [
            [cut.queue_id, *([one.position, one.lsn, sorted(one.kept)] for one in (cut, *cut.before))] for cut in known
        ]
        return json.dumps(rows).encode() if rows else b""

    def decode(self, body: bytes) -> None:
        """Restore the purges that `encode` returned; all of them must be swept again."""
        for queue_id, *rows in json.loads(body):
            cut, *before = (PurgeMark(queue_id, position, frozenset(kept), lsn) for position, lsn, kept in rows)
            self.unswept[queue_id] = cut._replace(before=tuple(before))
