"""A message's place on a queue."""

from __future__ import annotations

from ..amqp import header
from ..base.errors import CairnError
from ..channel.words import Content, Gone
from ..store.interface import MessageStore

ARRIVAL_BITS = 56
ARRIVAL_MASK = (1 << ARRIVAL_BITS) - 1
"""The part of a position that tells the order of arrival; above it, a priority may stand."""


class Entry:
    """One message on one queue. `message_id` is 0 if it is not stored; `content` None if only the store holds it."""

    __slots__ = (
        "acquired",
        "beginning",
        "content",
        "excluded",
        "failures",
        "gone",
        "held_bytes",
        "least_shown",
        "message_id",
        "position",
    )

    beginning: bytes
    """How a long message begins that is on its way to a queue which wants to know; else it is not set at all."""
    least_shown: int
    """So many failures its header tells of at least, be there as many or not; none if it is not set."""

    def __init__(self, message_id: int, position: int, content: bytes | Content | None, held_bytes: int) -> None:
        self.message_id = message_id
        self.held_bytes = held_bytes
        """What it counts for in the memory budget while it is held."""
        self.position = position
        """Its order on the queue; kept when it comes back."""
        self.content = content
        self.failures = 0
        """Deliveries that did not succeed, on top of what the header said on arrival."""
        self.acquired = False
        """Somebody may have seen it before."""
        self.gone = False
        """Taken off the queue for good; browsers that hold it pass it by."""
        self.excluded: set[object] | None = None
        """Consumers that said it is undeliverable to them."""

    def __lt__(self, other: Entry) -> bool:
        return self.position < other.position

    def whole(self) -> bytes:
        """Its content, which must be in memory."""
        content = self.content
        assert content is not None
        return content if isinstance(content, bytes) else b"".join(map(content.piece, range(content.pieces)))

    def outgoing(self, store: MessageStore) -> bytes | Content:
        """What to send."""
        content = self.content
        return self.marked(StoredContent(store, self.message_id) if content is None else content)

    def marked(self, content: bytes | Content) -> bytes | Content:
        """*content*, which is this message's, with a header that tells a redelivery from a first delivery."""
        if not self.acquired:
            return content
        if isinstance(content, bytes):
            return header.redelivered(content, self._shown_failures)
        return RedeliveredContent(content, self._shown_failures)

    @property
    def _shown_failures(self) -> int:
        return max(self.failures, getattr(self, "least_shown", 0))


class StoredContent:
    """Content that is read back from the store piece by piece as it is sent."""

    __slots__ = ("_message_id", "_store", "pieces")

    def __init__(self, store: MessageStore, message_id: int) -> None:
        self._store = store
        self._message_id = message_id
        self.pieces = store.piece_count(message_id)

    def piece(self, number: int) -> bytes:
        return self._store.load_piece(self._message_id, number)


class HeldContent:
    """Long content held in memory as the fragments it came in: of messages that are not stored."""

    __slots__ = ("_fragments",)

    def __init__(self, fragments: list[bytes]) -> None:
        self._fragments = fragments

    @property
    def pieces(self) -> int:
        return len(self._fragments)

    def piece(self, number: int) -> bytes:
        return self._fragments[number]

    def beginning(self, size_bytes: int) -> bytes:
        """So much of it, or a little more."""
        begin = b""
        for fragment in self._fragments:
            begin += fragment
            if len(begin) >= size_bytes:
                break
        return begin


class RedeliveredContent:
    """Long content whose header, at the start of its first piece, is rewritten."""

    __slots__ = ("_content", "_failures")

    def __init__(self, content: Content, failures: int) -> None:
        self._content = content
        self._failures = failures

    @property
    def pieces(self) -> int:
        return self._content.pieces

    def piece(self, number: int) -> bytes:
        piece = self._content.piece(number)
        return piece if number else header.redelivered(piece, self._failures)


class LookedAtContent:
    """Long content for a browser: the message may leave the queue, and the store, while the copy is sent."""

    __slots__ = ("_content", "_message_id", "_store")

    def __init__(self, store: MessageStore, message_id: int, content: Content) -> None:
        self._store = store
        self._message_id = message_id
        self._content = content

    @property
    def pieces(self) -> int:
        return self._content.pieces

    def piece(self, number: int) -> bytes:
        try:
            return self._content.piece(number)
        except (CairnError, LookupError) as error:
            if not self._store.holds(self._message_id):
                raise Gone from error
            raise
