"""A queue's gate: it looks at each message before the queue takes it, if the policy has limits or wants no duplicates.

Core only. A queue without such a policy has no gate, and its messages are taken a batch at a time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..channel.words import TerminalEnd
from .duplicates import Duplicates
from .entry import ARRIVAL_MASK, Entry

if TYPE_CHECKING:
    from .broker import Broker
    from .queue import Queue

LOW_MARK = 0.75
"""Senders that were blocked get credit again when so much of a limit is in use."""


class Gate:
    """Limits, and memory of message-ids, of one queue."""

    def __init__(self, broker: Broker, queue: Queue) -> None:
        policy = queue.policy
        self.bytes = 0
        """Of all messages on the queue, if they are limited."""
        self._broker = broker
        self._queue = queue
        self._most_messages = policy.max_messages
        self._most_bytes = policy.max_bytes
        self._overflow = policy.overflow
        self._duplicates = Duplicates(broker, queue) if policy.duplicate_window else None
        self._sizes: dict[int, int] = {}
        """Position to size, for a limit in bytes."""
        self._withheld: dict[TerminalEnd, int] = {}

    def recovered(self, ids: Sequence[int]) -> None:
        """These were on the queue when the store was opened, at the positions from 1 on."""
        if self._most_bytes:
            self._sizes = {number: self._broker.store.size_of(one) for number, one in enumerate(ids, 1)}
            self.bytes = sum(self._sizes.values())

    # ---- messages that come ---------------------------------------------------------------------------------------

    def look_at(self, content: bytes) -> str | None:
        """Whether to take it: an empty text. Else why it is refused, or None to drop it without a word."""
        if self._most_bytes and len(content) > self._most_bytes:
            return f"the queue {self._queue.name!r} has room for {self._most_bytes} bytes"
        if self._overflow in ("reject", "drop") and self._use(1, len(content)) > 1:
            if self._overflow == "drop":
                return None
            return f"the queue {self._queue.name!r} is full: {self._shown_use()}"
        if self._duplicates is not None and self._duplicates.knows(content):
            return None
        return ""

    def put(self, entries: Sequence[Entry]) -> None:
        """These were recorded."""
        if self._most_bytes:
            for entry in entries:
                size = self._size_of(entry)
                self._sizes[entry.position & ARRIVAL_MASK] = size
                self.bytes += size
        if self._duplicates is not None:
            self._duplicates.remember(entries)

    def shown(self) -> None:
        """They can be handed out now. What is too much of a ring goes."""
        if self._overflow != "ring":
            return
        while self._use() > 1:
            oldest = self._queue.take_oldest()
            if oldest is None:  # consumers have the others
                return
            self._queue.took([oldest])
            if oldest.message_id:
                now_us = self._broker.clock.wall_us()
                self._broker.store.dequeue(oldest.message_id, self._queue.queue_id, now_us)

    def took(self, entries: Sequence[Entry]) -> None:
        """These are off the queue for good."""
        if self._most_bytes:
            for entry in entries:
                self.bytes -= self._sizes.pop(entry.position & ARRIVAL_MASK, 0)
        if self._withheld and self._use() <= LOW_MARK:
            withheld, self._withheld = self._withheld, {}
            for terminal, credit in withheld.items():
                terminal.grant(credit)

    def end(self) -> None:
        """The queue is gone."""
        if self._duplicates is not None:
            self._duplicates.end()

    def emptied(self) -> None:
        """The queue was purged."""
        kept = {entry.position & ARRIVAL_MASK for entry in self._queue.with_consumers()}
        self._sizes = {position: size for position, size in self._sizes.items() if position in kept}
        self.bytes = sum(self._sizes.values())
        self.took(())

    # ---- credit ---------------------------------------------------------------------------------------------------

    def credit(self, terminal: TerminalEnd, wanted: int) -> int:
        """How much credit its sender gets back of *wanted*; the rest is given when there is room."""
        if self._overflow != "block" or self._use() < 1:
            return wanted
        self._withheld[terminal] = self._withheld.get(terminal, 0) + wanted
        return 0

    def no_credit(self, terminal: TerminalEnd) -> None:
        """The channel is gone, and what was withheld from it."""
        self._withheld.pop(terminal, None)

    # ---- limits ---------------------------------------------------------------------------------------------------

    def _use(self, more_messages: int = 0, more_bytes: int = 0) -> float:
        """How much of a limit is in use, of the one that is nearer: 1 is all of it."""
        messages = (self._queue.messages + more_messages) / self._most_messages if self._most_messages else 0.0
        size = (self.bytes + more_bytes) / self._most_bytes if self._most_bytes else 0.0
        return max(messages, size)

    def _shown_use(self) -> str:
        shown = []
        if self._most_messages:
            shown.append(f"{self._queue.messages} of {self._most_messages} messages")
        if self._most_bytes:
            shown.append(f"{self.bytes} of {self._most_bytes} bytes")
        return ", ".join(shown)

    def _size_of(self, entry: Entry) -> int:
        content = entry.content
        if isinstance(content, bytes):
            return len(content)
        if content is None:
            return self._broker.store.size_of(entry.message_id)
        return sum(len(content.piece(number)) for number in range(content.pieces))
