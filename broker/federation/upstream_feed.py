"""The messages for a downstream, in order: the copy of the queue's content, then the changes since it began.

The copy is made while the queue is used: contents are loaded one batch after the other, and messages that are already
dequeued are omitted. The changes since the copy began follow it. When all changes that were recorded until the last
content was loaded have been sent, the downstream has a state of the queue: the copy is *complete*.

Used on the reader's thread, except for creation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from ...base.errors import CairnError
from ...store.journaled import queue_changes as queue_history
from ...store.journaled.queue_changes import QueueHistory, placed
from ...store.journaled.store import JournalStore
from ..messages.stored_contents import NotAMessage, defect, load_contents, load_piece
from .wire_format import ALL, COMPLETE, END, TIME, Head, Line, Piece, Purge, Put, PutPieces, Take, encode, message

STEP_BYTES = 48 << 10
"""A message has so many bytes of events, and as many more as its last event has."""
SILENT_BYTES = 1 << 20
"""The distance in the log after which a downstream gets the new place, even without changes of the queue."""
_BATCH = 256
_MOST_BYTES = 512 << 10
_MOST_BLOCKS = 64
"""The number of blocks per read; other readers of the log wait meanwhile."""


class FeedMessage(NamedTuple):
    """A message to be sent."""

    place: int
    """The position of the step that ends with the message; 0 if none does."""
    content: bytes


class Fed(NamedTuple):
    """The result of reading the feed once: messages to send, and whether it has ended for now."""

    messages: list[FeedMessage]
    is_idle: bool
    """True if the feed has nothing more until more of the log is durable."""
    error: CairnError | None = None
    """The error that ended the feed."""


class Feed:
    """The feed of one queue for one downstream."""

    def __init__(
        self, store: JournalStore, queue_id: int, line: str, place: int, after: int, now_us: Callable[[], int]
    ) -> None:
        """*place*, *after*: the position up to which the downstream has the queue; *line* is sent if it has nothing."""
        self._store = store
        self._queue_id = queue_id
        self._line = line
        self._place = place
        self._after = after
        self._now_us = now_us
        self._history = QueueHistory(store, queue_id, place)
        self._durable_lsn = self._cut_lsn = 0
        self._complete_lsn = 0
        """The place at which the copy is complete; 0 while it is not known."""
        self._as_of_us = 0
        self._is_complete = False
        """True once the downstream received that its copy is complete."""
        self._messages = self._run()

    def take(self, room: int, durable_lsn: int, cut_lsn: int) -> Fed:
        """Return at most *room* messages. *cut_lsn*: the LSN behind all records at the time of the request."""
        self._durable_lsn, self._cut_lsn = durable_lsn, cut_lsn
        found: list[FeedMessage] = []
        blocks = size_bytes = 0
        try:
            while len(found) < room and size_bytes < _MOST_BYTES and blocks < _MOST_BLOCKS:
                one = next(self._messages)
                if isinstance(one, FeedMessage):
                    found.append(one)
                    size_bytes += len(one.content)
                elif one is _IDLE:
                    return Fed(found, True)
                elif one is _PAUSE:
                    break
                else:
                    blocks += 1
        except CairnError as error:
            return Fed(found, True, error)
        return Fed(found, False)

    def tick(self) -> bytes:
        """Return the message that reports that nothing has changed."""
        return message(Head(TIME, self._place, self._after, self._now_us()), ())

    def _run(self) -> Iterator[FeedMessage | object]:
        if self._line:
            yield self._message(0, [encode(Line(self._line))])
        if self._after < ALL:
            yield from self._copy()
            yield _PAUSE  # all records of this moment are known when more is requested
        self._complete_lsn = self._cut_lsn
        while True:
            durable_lsn = self._durable_lsn
            yield from self._steps(durable_lsn)
            if self._history.is_at(durable_lsn) and self._history.is_between:
                place = max(self._history.read_lsn, durable_lsn, self._place)
                self._as_of_us = self._now_us()
                tells = not self._is_complete and durable_lsn >= self._complete_lsn
                if tells or place >= self._place + SILENT_BYTES:
                    self._place = place
                    yield self._message(END, [])
            if durable_lsn == self._durable_lsn:
                yield _IDLE

    def _copy(self) -> Iterator[FeedMessage | object]:
        """Yield the messages that were on the queue at the position of the copy and still are."""
        self._as_of_us = self._now_us()
        for there in placed(self._store, self._queue_id, self._after, self._place):
            yield from self._copy_of(there)
        self._after = ALL
        yield self._message(END, [])

    def _copy_of(self, there: Sequence[tuple[int, int]]) -> Iterator[FeedMessage | object]:
        at = 0
        while at < len(there):
            ids = [message_id for _, message_id in there[at : at + _BATCH]]
            contents = load_contents(self._store, ids, STEP_BYTES)
            events: list[bytes] = []
            for message_id, content in zip(ids, contents, strict=False):
                if content is None:
                    yield from self._flushed(events)
                    yield from self._pieces_of(message_id, self._store.piece_count(message_id), events)
                elif isinstance(content, bytes):
                    events.append(encode(Put(message_id, content)))
                elif self._store.holds(message_id) and not isinstance(content, NotAMessage):
                    raise content
            at += len(contents)
            self._after = there[at - 1][0]
            yield self._message(END, events)

    def _flushed(self, events: list[bytes]) -> Iterator[FeedMessage]:
        """Return a part of a step that continues."""
        if events:
            yield self._message(0, events)
            events.clear()

    def _pieces_of(self, message_id: int, count: int, events: list[bytes]) -> Iterator[FeedMessage]:
        """Yield a long message in pieces, and add its last event to *events*; omit it if it is dequeued meanwhile."""
        for number in range(count):
            try:
                piece = load_piece(self._store, message_id, number)
            except NotAMessage:  # a downstream would refuse it; here it is never dispatched
                return
            except (CairnError, LookupError):
                if self._store.holds(message_id):
                    raise
                return
            yield self._message(0, [encode(Piece(message_id, piece))])
        events.append(encode(PutPieces(message_id)))

    def _steps(self, durable_lsn: int) -> Iterator[FeedMessage | object]:
        """Units are put together while they are short."""
        events: list[bytes] = []
        size_bytes = 0
        for unit in self._history.units(durable_lsn):
            if unit is None:
                yield None
                continue
            alone = any(isinstance(event, queue_history.PurgeChange) for event in unit.events)
            if events and (alone or size_bytes >= STEP_BYTES):
                yield self._message(END, events)
                events, size_bytes = [], 0
            for event in unit.events:
                if isinstance(event, queue_history.EnqueueChange) and self._is_set_aside(event):
                    continue
                if isinstance(event, queue_history.EnqueueChange) and event.pieces > 1:
                    yield from self._flushed(events)
                    for number in range(event.pieces):
                        piece = self._history.piece(event.message_id, number)
                        yield self._message(0, [encode(Piece(event.message_id, piece))])
                    encoded = encode(PutPieces(event.message_id))
                else:
                    encoded = encode(_said(event))
                events.append(encoded)
                size_bytes += len(encoded)
                if size_bytes >= 2 * STEP_BYTES:  # a long transaction
                    yield from self._flushed(events)
                    size_bytes = 0
            self._place, self._as_of_us = unit.place, unit.time_us
            if alone or size_bytes >= STEP_BYTES:
                yield self._message(END, events)
                events, size_bytes = [], 0
        if events:
            yield self._message(END, events)

    def _is_set_aside(self, event: queue_history.EnqueueChange) -> bool:
        beginning = event.content if event.pieces <= 1 else self._history.piece(event.message_id, 0)
        return defect(event.message_id, beginning) is not None

    def _message(self, flags: int, events: Sequence[bytes]) -> FeedMessage:
        if flags & END and self._after == ALL and 0 < self._complete_lsn <= self._place:
            flags |= COMPLETE
            self._is_complete = True
        head = Head(flags, self._place, self._after, self._as_of_us)
        return FeedMessage(self._place if flags & END else 0, message(head, events))


_PAUSE, _IDLE = object(), object()


def _said(event: queue_history.Change) -> Put | Take | Purge:
    if isinstance(event, queue_history.EnqueueChange):
        return Put(event.message_id, event.content)
    if isinstance(event, queue_history.DequeueChange):
        return Take(event.reason, event.message_ids)
    return Purge(event.kept)
