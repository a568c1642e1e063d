"""The memory that the messages of one queue hold, out of the budget of all queues (`memory_budget`)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence, Sized
from typing import Protocol

from .memory_budget import ALLOWANCE_BYTES, ENTRY_BYTES, MemoryBudget

MOST_SELECTED_BYTES = 2 * ALLOWANCE_BYTES
"""The bytes that the selecting consumers of a queue may have read without room: a page, and messages out of it."""


class HeldMessage(Protocol):
    """A message, as the memory of its queue sees it."""

    held_bytes: int

    def drop_content(self, held_bytes: int) -> int:
        """Hold only *held_bytes* if the store has the content; return the bytes that this releases."""


class SelectionHolder(Protocol):
    """A consumer with a selector, as the memory of its queue sees it."""

    @property
    def unsettled(self) -> Iterable[HeldMessage]:
        """Return the messages that it holds."""


class QueueMemory:
    """The memory of one queue. Core only."""

    def __init__(
        self,
        budget: MemoryBudget,
        consumers: Sized,
        selecting: Sequence[SelectionHolder],
        locked: Iterable[HeldMessage],
    ) -> None:
        """*consumers* and *selecting*: consumers without and with a selector; *locked*: messages in transactions.

        The queue has an allowance as long as there are *consumers*.
        """
        self.held_bytes = 0
        """The memory of all messages that are held, including those that consumers have."""
        self.budget = budget
        """The budget of all queues."""
        self.read_bytes = 0
        """The memory of what was read for selectors, beside the messages that are held."""
        self.reads = 0
        """The number of reads for selectors."""
        self._consumers = consumers
        self._selecting = selecting
        self._locked = locked
        self._is_closed = False
        self._selected_bytes = 0
        """The memory of the messages of selecting consumers, as it was counted, and of those that they got since."""
        self._released_bytes = 0
        """The bytes that were released or requeued since that count."""

    def is_within_allowance(self, beside_bytes: int = 0) -> bool:
        """Return whether consumers of the queue may have more held for them; *beside_bytes* of it do not count."""
        return bool(self._consumers) and self.held_bytes - beside_bytes < ALLOWANCE_BYTES

    def has_room(self) -> bool:
        """Return whether content that can be read back may be held."""
        return self.held_bytes < self.budget.free_bytes or self.is_within_allowance()

    def may_select(self) -> bool:
        """Return whether more may be read for selectors.

        Messages that no selector matches may fill the memory, and stay, so `MOST_SELECTED_BYTES` are permitted in any
        case. They are counted again after a part was released, as a count visits the messages.
        """
        if self.held_bytes + self.read_bytes < self.budget.free_bytes:
            return True
        if self._released_bytes >= MOST_SELECTED_BYTES // 32:
            self._released_bytes = 0
            self._selected_bytes = self._count_selected()
        return self.read_bytes + self._selected_bytes < MOST_SELECTED_BYTES

    def _count_selected(self) -> int:
        """Return the memory of the messages of selecting consumers, and of those in transactions, up to the limit."""
        selected_bytes = 0
        for messages in (self._locked, *[holder.unsettled for holder in self._selecting]):
            for message in messages:
                selected_bytes += message.held_bytes
                if selected_bytes >= MOST_SELECTED_BYTES:
                    return selected_bytes
        return selected_bytes

    def count_read(self, size_bytes: int) -> None:
        """Count memory that is read for a selector from now on, or no longer if *size_bytes* is negative."""
        self.reads += size_bytes > 0
        self.read_bytes += size_bytes
        self.budget.used_bytes += size_bytes

    def count_selected(self, size_bytes: int) -> None:
        """Count messages that a selecting consumer acquired."""
        self._selected_bytes += size_bytes

    def selection_ends(self) -> None:
        """Count the messages of selecting consumers anew, as one of them leaves."""
        self._released_bytes += MOST_SELECTED_BYTES

    def requeue(self, message: HeldMessage) -> None:
        """Handle that a message is requeued: a stored one keeps no content if there is no room for it."""
        self._released_bytes += message.held_bytes
        if not self.has_room():
            self.release(message.drop_content(ENTRY_BYTES))

    def spare_bytes(self) -> int:
        """Return how many bytes may be held that can't be read back."""
        return max(self.budget.free_bytes, ALLOWANCE_BYTES - self.held_bytes if self._consumers else 0)

    def hold(self, size_bytes: int) -> None:
        """Count memory that is held until `release`, unless the queue is deleted."""
        if not self._is_closed:
            self.held_bytes += size_bytes
            self.budget.used_bytes += size_bytes

    def release(self, size_bytes: int) -> None:
        """Release memory that was held."""
        if not self._is_closed:
            self.held_bytes -= size_bytes
            self._released_bytes += size_bytes
            self.budget.used_bytes -= size_bytes

    def close(self) -> None:
        """Release all memory: the queue is deleted, and holds nothing any more."""
        self.release(self.held_bytes)
        self._is_closed = True
