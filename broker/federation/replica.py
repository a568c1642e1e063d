"""The copy of a queue of another site, in the store: changed step by step, each in one transaction. Core only.

The copy has a second store queue, of *notes*. The transaction of each step puts one note there: the place up to which
the source is followed, the source's IDs of the step's messages, and the store's IDs of the messages of the step before.
So after a crash the copy is as of some step, and the source's ID of each message is known. It is in a note, or the
message came with the last step, whose messages are all there in order. A note is removed when it is not the last one
and none of its messages exists any more.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any

from ...base.clock import Clock
from ...base.errors import CairnError, StoreError
from ...store.contract.dequeue_reason import DequeueReason
from ...store.contract.interface import MessageStore
from .wire_format import BETWEEN, COMPLETE, BadStep, Event, Head, Keep, Line, Piece, Purge, Put, PutPieces, Take

_REMEDY = "delete the copy, and create it again"


class DownstreamReplica:
    """The local copy of an upstream queue: messages, position and notes in the store."""

    def __init__(self, store: MessageStore, clock: Clock, name: str, queue_id: int, notes_id: int) -> None:
        self.name = name
        self.queue_id = queue_id
        self.notes_id = notes_id
        self.line = ""
        """The history of the followed queue; empty before the first step."""
        self.place = 0
        """The position in that history up to which the copy has it."""
        self.after = 0
        """The position up to which the first copy has arrived; `wire_format.ALL` when it is complete."""
        self.is_complete = False
        """True if the copy equals the source's queue at `place`; False during the first copy, or a long catch-up."""
        self.as_of_us = 0
        """The source's clock at that place."""
        self.steps = 0
        """The number of steps since the broker started."""
        self.ids: dict[int, int] = {}
        """The source's IDs of the messages on the queue to the store's, in order."""
        self._staged: dict[int, int] = {}
        """Source IDs of messages that arrived in pieces and are not enqueued yet, to the store's IDs."""
        self._partial = 0, 0
        """The source ID and the store ID of the message that is arriving in pieces; 0 for none."""
        self._events: list[Event] = []
        """Events of the step that is not complete."""
        self._new: dict[int, int] = {}
        """The source's IDs of the last step's messages to the store's: no note has them yet."""
        self._notes: dict[int, int] = {}
        """IDs of notes to the number of messages in each that still exist, in order."""
        self._note_of: dict[int, int] = {}
        """Source IDs of messages to the IDs of their notes."""
        self._store = store
        self._clock = clock

    def recover(self, ids: Sequence[int], notes: Sequence[int]) -> None:
        """Restore the state: *ids* are on the queue, *notes* beside it. Raises `CairnError`."""
        source_of: dict[int, tuple[int, int]] = {}
        put: list[int] = []
        for note_id in notes:
            note = self._read(note_id)
            self.line, self.place, self.after = note["line"], note["place"], note["after"]
            self.is_complete, self.as_of_us, put = note["whole"], note["as_of"], note["put"]
            self._notes[note_id] = 0
            source_of.update({own: (source, note_id) for source, own in note["had"]})
        last = [own for own in ids if own not in source_of]
        if len(last) != len(put):
            reason = f"{len(last)} of its messages are unknown, its last progress record has {len(put)}"
            raise CairnError(f"the copy {self.name!r}", reason, _REMEDY)
        self._new = dict(zip(put, last, strict=True))
        unnoted = dict(zip(last, put, strict=True))
        for own in ids:
            source, note_id = source_of.get(own, (0, 0))
            self.ids[source or unnoted[own]] = own
            if source:
                self._notes[note_id] += 1
                self._note_of[source] = note_id

    def _read(self, note_id: int) -> dict[str, Any]:
        try:
            pieces = range(self._store.piece_count(note_id))
            note = json.loads(b"".join(self._store.load_piece(note_id, number) for number in pieces))
            if note.keys() != {"line", "place", "after", "whole", "as_of", "put", "had"}:
                raise ValueError("it has other fields")
        except (ValueError, AttributeError) as error:
            raise CairnError(f"the copy {self.name!r}", f"a progress record can't be read: {error}", _REMEDY) from error
        found: dict[str, Any] = note
        return found

    def received(self, events: Sequence[Event]) -> None:
        """Take a part of a step. Raises `CairnError`, and then the whole step must be dropped."""
        now_us = self._clock.wall_us()
        for event in events:
            if isinstance(event, Line):
                if self.line and self.line != event.text:
                    raise BadStep(f"it is of the line {event.text}, this copy of {self.line}")
                self.line = event.text
            elif isinstance(event, Piece):
                self._grow(event, now_us)
            else:
                if isinstance(event, PutPieces):
                    self._grown(event.message_id, now_us)
                self._events.append(event)

    def _grow(self, piece: Piece, now_us: int) -> None:
        source, own = self._partial
        if source == piece.message_id:
            self._store.append_content(own, piece.content, now_us, last=False)
        else:
            self._discard(own)  # nothing more of it follows
            self._partial = piece.message_id, self._store.stage(piece.content, now_us)

    def _grown(self, message_id: int, now_us: int) -> None:
        source, own = self._partial
        if source != message_id:
            raise BadStep(f"of message {message_id} nothing has come")
        self._store.append_content(own, b"", now_us, last=True)
        self._partial = 0, 0
        self._staged[source] = own

    def _discard(self, own: int) -> None:
        """Remove the stored pieces of the message *own*, which is not enqueued after all; 0 for none."""
        if own:
            with suppress(StoreError):  # it was removed by a transaction
                self._store.destroy(own, self._clock.wall_us())

    def drop(self) -> None:
        """Discard the events of the incomplete step."""
        self._events = []
        self._discard_staged()
        if not self.place:
            self.line = ""

    def _discard_staged(self) -> None:
        for own in (*self._staged.values(), self._partial[1]):
            self._discard(own)
        self._staged, self._partial = {}, (0, 0)

    def end(self, head: Head) -> int:
        """Apply a complete step; return the LSN to wait for. Raises `CairnError`, and applies nothing then."""
        events, self._events = self._events, []
        if head.place < self.place or head.after < self.after:
            raise BadStep(f"it leads to {head.place}, and this copy is at {self.place}")
        if len(events) == 1 and isinstance(events[0], Purge):
            lsn = self._purge(events[0], head)
        else:
            lsn = self._do(events, head)
        self._discard_staged()
        self.steps += 1
        return lsn

    def _do(self, events: Sequence[Event], head: Head) -> int:
        puts: dict[int, bytes | None] = {}
        takes: dict[int, DequeueReason] = {}
        for event in events:
            if isinstance(event, Put | PutPieces):
                if event.message_id not in self.ids or event.message_id in takes:
                    puts[event.message_id] = event.content if isinstance(event, Put) else None
            elif isinstance(event, Take):
                for source in event.message_ids:
                    if puts.pop(source, self) is self and source in self.ids:
                        takes[source] = event.reason
            elif isinstance(event, Purge):
                kept = set(event.kept)
                puts = {source: content for source, content in puts.items() if source in kept}
                takes |= {source: DequeueReason.NOT_RECORDED for source in self.ids if source not in kept}
            elif isinstance(event, Keep):
                takes |= dict.fromkeys(_others(self.ids, event), DequeueReason.NOT_RECORDED)
                for source in _others(puts, event):
                    del puts[source]
        return self._write(puts, takes, head)

    def _write(self, puts: dict[int, bytes | None], takes: dict[int, DequeueReason], head: Head) -> int:
        store, now_us = self._store, self._clock.wall_us()
        had = {source: own for source, own in self._new.items() if source not in takes}
        fewer = Counter([self._note_of[source] for source in takes if source in self._note_of])
        needless = [note_id for note_id, count in fewer.items() if count == self._notes[note_id]]
        if self._notes and not self._notes[last := next(reversed(self._notes))]:
            needless.append(last)
        transaction = store.transactions.begin(now_us)
        try:
            for source, reason in takes.items():
                transaction.dequeue(self.ids[source], self.queue_id, now_us, reason)
            for source, content in puts.items():
                if content is None:
                    transaction.enqueue(self._staged[source], self.queue_id, now_us)
                else:
                    transaction.put(self.queue_id, content, now_us)
            for note_id in needless:
                transaction.dequeue(note_id, self.notes_id, now_us)
            transaction.put(self.notes_id, self._note(head, [*puts], had), now_us)
            lsn = transaction.commit(now_us)
        except BaseException:
            transaction.rollback(now_us)
            raise
        *own_ids, note_id = [own for own, _ in transaction.stored()]
        for source in takes:
            del self.ids[source]
            self._note_of.pop(source, None)
        self._staged = {source: own for source, own in self._staged.items() if source not in puts}
        self._new = dict(zip(puts, own_ids, strict=True))
        self.ids |= self._new
        for one, count in fewer.items():
            self._notes[one] -= count
        for one in needless:
            del self._notes[one]
        self._notes[note_id] = len(had)
        self._note_of |= dict.fromkeys(had, note_id)
        self._is_now(head)
        return lsn

    def _purge(self, purge: Purge, head: Head) -> int:
        """Purge the queue by one record, followed by the note; after a crash between them the purge is repeated."""
        if self._new:  # whose IDs are in no note
            self._write({}, {}, Head(0, self.place, self.after, self.as_of_us))
        kept = {source: self.ids[source] for source in purge.kept if source in self.ids}
        now_us = self._clock.wall_us()
        self._store.purge(self.queue_id, now_us, keep=kept.values())
        return self._renew(head, kept, now_us)

    def _renew(self, head: Head, kept: dict[int, int], now_us: int) -> int:
        """Replace all notes by one of the messages *kept*, which are all messages of the queue."""
        note_id, _ = self._store.put(self.notes_id, self._note(head, (), kept), now_us)
        lsn = self._store.purge(self.notes_id, now_us, keep=[note_id])
        self.ids, self._new, self._notes = dict(kept), {}, {note_id: len(kept)}
        self._note_of = dict.fromkeys(kept, note_id)
        self._is_now(head)
        return lsn

    def _note(self, head: Head, put: Sequence[int], had: dict[int, int]) -> bytes:
        note = {
            "line": self.line, "place": head.place, "after": head.after, "as_of": head.as_of_us,
            "whole": self._is_complete_with(head), "put": put, "had": [*had.items()],
        }  # fmt: skip
        return json.dumps(note, separators=(",", ":")).encode()

    def _is_now(self, head: Head) -> None:
        self.place, self.after, self.as_of_us = head.place, head.after, head.as_of_us
        self.is_complete = self._is_complete_with(head)

    def _is_complete_with(self, head: Head) -> bool:
        return (self.is_complete or bool(head.flags & COMPLETE)) and not head.flags & BETWEEN

    def empty(self) -> int:
        """Drop the whole copy, to begin again; return the LSN to wait for."""
        self.drop()
        now_us = self._clock.wall_us()
        self.line, self.is_complete = "", False
        self._store.put(self.notes_id, self._note(Head(0, 0, 0, 0), (), self.ids), now_us)
        self._store.purge(self.queue_id, now_us)
        return self._renew(Head(0, 0, 0, 0), {}, now_us)


def _others(sources: Iterable[int], keep: Keep) -> list[int]:
    """Return the IDs in the range of *keep* that it does not keep."""
    begins = [begin for begin, _ in keep.ranges]
    found: list[int] = []
    for source in sources:
        if keep.first <= source <= keep.last:
            number = bisect_right(begins, source) - 1
            if number < 0 or source > keep.ranges[number][1]:
                found.append(source)
    return found


def notes_name(name: str) -> str:
    """Return the name of the queue of notes of the federated queue *name*."""
    return f"$follows:{name}"
