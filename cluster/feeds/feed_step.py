"""A part of a step to a downstream: made on the core; its contents are read and encoded on the reader's thread."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from ...base.errors import CairnError
from ...broker.federation.upstream_feed import STEP_BYTES, FeedMessage
from ...broker.federation.wire_format import END, Head, Piece, Put, PutPieces, encode, message
from ...broker.messages.stored_contents import NotAMessage, load_contents, load_piece
from ...store.contract.interface import MessageStore

_MOST_BYTES = 512 << 10
"""The limit of bytes per read, so that other readers get their turn."""


class LoadedPart(NamedTuple):
    messages: list[FeedMessage]
    is_over: bool
    error: CairnError | None = None


class FeedPart:
    """A part of one step: messages that are put, and other changes. Made on the core, then the reader's."""

    def __init__(
        self, store: MessageStore, puts: Sequence[tuple[int, int]], others: Sequence[bytes], head: Head
    ) -> None:
        """*puts*: positions and IDs; *others*: encoded events. The flags of *head* state whether the step ends here."""
        self.removed: list[int] = []
        """Positions of messages that were dequeued before they could be read: with any, the step does not end here."""
        self.sent_bytes = 0
        self._store = store
        self._puts = puts
        self._others = others
        self.head = head
        self._messages = self._run()

    def take(self, room: int) -> LoadedPart:
        """Read at most *room* messages."""
        found: list[FeedMessage] = []
        size_bytes = 0
        try:
            while len(found) < room and size_bytes < _MOST_BYTES:
                one = next(self._messages, None)
                if one is None:
                    return LoadedPart(found, True)
                found.append(one)
                size_bytes += len(one.content)
                self.sent_bytes += len(one.content)
        except CairnError as error:
            return LoadedPart(found, True, error)
        return LoadedPart(found, False)

    def _run(self) -> Iterator[FeedMessage]:
        events: list[bytes] = []
        size_bytes = at = 0
        while at < len(self._puts):
            contents = load_contents(self._store, [one for _, one in self._puts[at:]], STEP_BYTES)
            for (position, message_id), content in zip(self._puts[at:], contents, strict=False):
                if size_bytes >= STEP_BYTES or (content is None and events):
                    yield self._message(events)
                    events, size_bytes = [], 0
                if content is None:
                    yield from self._pieces(position, message_id, events)
                elif isinstance(content, bytes):
                    events.append(encode(Put(position, content)))
                    size_bytes += len(content)
                elif isinstance(content, NotAMessage):  # it is never dispatched, and a downstream would refuse it
                    continue
                elif self._store.holds(message_id):
                    raise content
                else:
                    self.removed.append(position)
            at += len(contents)
        for event in self._others:
            if size_bytes >= STEP_BYTES:
                yield self._message(events)
                events, size_bytes = [], 0
            events.append(event)
            size_bytes += len(event)
        if self.head.flags & END and not self.removed:
            yield FeedMessage(self.head.place, message(self.head, events))
        elif events:
            yield self._message(events)

    def _message(self, events: Sequence[bytes]) -> FeedMessage:
        """Returns a message of events, as a part of a step that continues."""
        return FeedMessage(0, message(self.head._replace(flags=0), events))

    def _pieces(self, position: int, message_id: int, events: list[bytes]) -> Iterator[FeedMessage]:
        """Yields a long message in pieces, and adds its last event to *events*."""
        try:
            for number in range(self._store.piece_count(message_id)):
                yield self._message([encode(Piece(position, load_piece(self._store, message_id, number)))])
        except NotAMessage:
            return
        except (CairnError, LookupError) as error:
            if not self._store.holds(message_id):
                self.removed.append(position)
                return
            raise error if isinstance(error, CairnError) else CairnError(f"message {message_id}", str(error)) from error
        events.append(encode(PutPieces(position)))
