"""Tables of messages, their sizes and queues in memory, for stores whose messages have no journal.

The order on a queue is the order in which messages were put there: `place` is called with increasing positions only.
Everything is in memory (checklist E50), except the contents.

Threads: one at a time changes it. Any may look up a message by its ID.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Collection, Iterable


class MappedMessage:
    """State of one message."""

    __slots__ = ("is_complete", "places", "sizes")

    def __init__(self, sizes: list[int], *, is_complete: bool) -> None:
        self.sizes = sizes
        """The sizes of its pieces in bytes."""
        self.is_complete = is_complete
        self.places: dict[int, int] = {}
        """Queue id to the position there."""


class MemoryTables:
    """Messages by id, and queues as ids of messages in order."""

    def __init__(self) -> None:
        self.messages: dict[int, MappedMessage] = {}
        self.queues: dict[int, dict[int, None]] = {}
        """A queue without messages may be missing."""
        self.queue_bytes: Counter[int] = Counter()
        """The size of the content on each queue, in bytes."""
        self.sharing: set[int] = set()
        """Queues with messages that are, or were, on other ones, too, since they were empty."""

    def place(self, message_id: int, queue_id: int, position: int) -> None:
        """Put a message behind all others on that queue."""
        message = self.messages[message_id]
        message.places[queue_id] = position
        if len(message.places) > 1:
            self.sharing.update(message.places)
        self.queue_bytes[queue_id] += sum(message.sizes)
        self.queues.setdefault(queue_id, {})[message_id] = None

    def take(self, message_id: int, queue_id: int) -> int:
        """Take a message off a queue that it is on; the position it had."""
        on_queue = self.queues[queue_id]
        del on_queue[message_id]
        if not on_queue:
            del self.queues[queue_id]
            self.sharing.discard(queue_id)
        message = self.messages[message_id]
        self.queue_bytes[queue_id] -= sum(message.sizes)
        return message.places.pop(queue_id)

    def cut(self, queue_id: int, keep: Iterable[int]) -> dict[int, None]:
        """Remove all messages but *keep* from a queue, in order; they keep their places until they are processed."""
        messages, cut = self.messages, self.queues.pop(queue_id, {})
        kept = [message_id for message_id in keep if message_id in cut]
        for message_id in kept:
            del cut[message_id]
        self.queue_bytes[queue_id] = sum([sum(messages[message_id].sizes) for message_id in kept])
        if kept:
            kept.sort(key=lambda message_id: messages[message_id].places[queue_id])
            self.queues[queue_id] = dict.fromkeys(kept)
        else:
            self.sharing.discard(queue_id)
            del self.queue_bytes[queue_id]
        return cut

    def is_on(self, message_id: int, queue_id: int) -> bool:
        message = self.messages.get(message_id)
        return message is not None and queue_id in message.places

    def unfinished(self, adds: Collection[int]) -> list[int]:
        """The messages that are incomplete or on no queue, but for *adds*, which will be."""
        return [
            message_id
            for message_id, message in self.messages.items()
            if not (message.is_complete and (message.places or message_id in adds))
        ]

    def on_queues(self) -> dict[int, array[int]]:
        """Queue id to the messages on it, in order."""
        return {queue_id: array("Q", on_queue) for queue_id, on_queue in sorted(self.queues.items())}
