"""Contents of messages as they come from the store: only encoded AMQP messages enter the broker.

Clients' messages are checked when they arrive, as are those of other brokers. A store may also hold the bytes of an
embedded program, of an edited dump, or of a salvage. They are checked here, where they are read, as far as those of
clients: what is no AMQP message becomes its error, as unreadable content does. The message stays in the store, and is
not delivered. Any thread.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...amqp.codec import header
from ...amqp.codec.primitives import Malformed
from ...base.errors import CairnError
from ...store.contract.interface import MessageStore


class NotAMessage(CairnError):
    """Stored bytes that are not an encoded AMQP message."""

    def __init__(self, message_id: int, reason: str) -> None:
        super().__init__(f"message {message_id}", reason)


def load_contents(store: MessageStore, ids: Sequence[int], most_bytes: int) -> list[bytes | CairnError | None]:
    """Return contents as `MessageStore.load_many` does, and errors in place of what is no AMQP message."""
    found = store.load_many(ids, most_bytes)
    for number, content in enumerate(found):
        if isinstance(content, bytes) and (error := defect(ids[number], content)) is not None:
            found[number] = error
    return found


def load_piece(store: MessageStore, message_id: int, number: int) -> bytes:
    """Return a piece of a message as `MessageStore.load_piece` does. Raise `NotAMessage`, too."""
    piece = store.load_piece(message_id, number)
    if not number and (error := defect(message_id, piece)) is not None:
        raise error
    return piece


def defect(message_id: int, beginning: bytes) -> NotAMessage | None:
    """Return the error for a content that begins with *beginning* if it is no AMQP message, else None."""
    if not beginning:
        return NotAMessage(message_id, "it is empty")
    try:
        header.parse(beginning)
    except Malformed as error:
        return NotAMessage(message_id, str(error))
    return None
