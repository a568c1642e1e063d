"""A message's place on a queue."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from ...amqp.codec import header
from ...amqp.ports import Content, ContentRemoved
from ...base.errors import CairnError
from ...store.contract.interface import MessageStore
from .stored_contents import load_piece

ARRIVAL_BITS = 56
ARRIVAL_MASK = (1 << ARRIVAL_BITS) - 1
"""The part of a position that is the order of arrival; the bits above it may hold a priority."""


class Entry:
    """A message on one queue. `message_id` is 0 if it is not stored; `content` is None if only the store holds it."""

    __slots__ = (
        "annotations",
        "content",
        "error",
        "excluded",
        "failures",
        "first_bytes",
        "held_bytes",
        "is_dequeued",
        "message_id",
        "min_delivery_count",
        "position",
        "previously_delivered",
    )

    annotations: bytes
    """The annotations, as an encoded map, of the client's last outcome; none if the attribute is not set."""
    error: tuple[str, str]
    """The condition and description with which a client rejected the message; none if the attribute is not set."""
    first_bytes: bytes
    """The beginning of a long message for a queue that needs it; else the attribute is not set."""
    min_delivery_count: int
    """The minimum number of failures that the sent header shows; none if the attribute is not set."""

    def __init__(self, message_id: int, position: int, content: bytes | Content | None, held_bytes: int) -> None:
        self.message_id = message_id
        self.held_bytes = held_bytes
        """The bytes of the entry in the memory budget while it is held."""
        self.position = position
        """The order of the message on the queue; kept when it is requeued."""
        self.content = content
        self.failures = 0
        """Deliveries that did not succeed, on top of what the header said on arrival."""
        self.previously_delivered = False
        """The message may have been delivered before."""
        self.is_dequeued = False
        """The message has permanently left its queue; browsers that hold it skip it."""
        self.excluded: set[object] | None = None
        """Consumers to which the message is undeliverable, by their outcome."""

    def __lt__(self, other: Entry) -> bool:
        return self.position < other.position

    def drop_content(self, held_bytes: int) -> int:
        """Drop a content that the store has, so that the message holds *held_bytes*; return the bytes released."""
        if not self.message_id or self.content is None:
            return 0
        released_bytes, self.held_bytes, self.content = self.held_bytes - held_bytes, held_bytes, None
        return released_bytes

    def complete(self) -> bytes:
        """Return the complete content, which must be in memory."""
        content = self.content
        assert content is not None
        return content if isinstance(content, bytes) else b"".join(map(content.piece, range(content.pieces)))

    def outgoing(self, store: MessageStore, now_us: int) -> bytes | Content:
        """Return the content to send, whose header shows redelivery, and the rest of its time to live."""
        content = self.content
        return self.marked(StoredContent(store, self.message_id) if content is None else content, now_us)

    def marked(self, content: bytes | Content, now_us: int) -> bytes | Content:
        """Return *content*, which belongs to this message, with a header that shows a redelivery."""
        if not self.previously_delivered:
            return content
        return rewritten(content, partial(header.redelivered, failed_attempts=self._shown_failures))

    @property
    def _shown_failures(self) -> int:
        return max(self.failures, getattr(self, "min_delivery_count", 0))


class StoredContent:
    """Content that is read back from the store piece by piece as it is sent."""

    __slots__ = ("_message_id", "_store", "pieces")

    def __init__(self, store: MessageStore, message_id: int) -> None:
        self._store = store
        self._message_id = message_id
        self.pieces = store.piece_count(message_id)

    def piece(self, number: int) -> bytes:
        return load_piece(self._store, self._message_id, number)


class HeldContent:
    """Long content in memory, as the fragments that arrived, for messages that are not stored."""

    __slots__ = ("_fragments", "pieces")

    def __init__(self, fragments: list[bytes]) -> None:
        self._fragments = fragments
        self.pieces = len(fragments)

    def piece(self, number: int) -> bytes:
        return self._fragments[number]

    def beginning(self, size_bytes: int) -> bytes:
        """Return the first *size_bytes* of the content, or a little more."""
        begin = b""
        for fragment in self._fragments:
            begin += fragment
            if len(begin) >= size_bytes:
                break
        return begin


def rewritten(content: bytes | Content, rewrite: Callable[[bytes], bytes]) -> bytes | Content:
    """Return *content* with a header that *rewrite* changes."""
    return rewrite(content) if isinstance(content, bytes) else RewrittenContent(content, rewrite)


class RewrittenContent:
    """Long content whose header, at the start of its first piece, is rewritten."""

    __slots__ = ("_content", "_rewrite", "pieces")

    def __init__(self, content: Content, rewrite: Callable[[bytes], bytes]) -> None:
        self._content = content
        self._rewrite = rewrite
        self.pieces = content.pieces

    def piece(self, number: int) -> bytes:
        piece = self._content.piece(number)
        return piece if number else self._rewrite(piece)


class LookedAtContent:
    """Long content for a browser: the message may leave the queue, and the store, while the copy is sent."""

    __slots__ = ("_content", "_message_id", "_store", "pieces")

    def __init__(self, store: MessageStore, message_id: int, content: Content) -> None:
        self._store = store
        self._message_id = message_id
        self._content = content
        self.pieces = content.pieces

    def piece(self, number: int) -> bytes:
        try:
            return self._content.piece(number)
        except (CairnError, LookupError) as error:
            if not self._store.holds(self._message_id):
                raise ContentRemoved from error
            raise
