"""The memory that the messages of one queue hold, out of the budget of all queues (`memory_budget`)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence, Sized
from typing import Protocol

from .memory_budget import ALLOWANCE_BYTES, MemoryBudget

MOST_SELECTED_BYTES = 2 * ALLOWANCE_BYTES
"""The bytes that the selecting consumers of a queue may have read without room: a page, and messages out of it."""


class HeldMessage(Protocol):
    """A message, as the memory of its queue sees it."""

    held_bytes: int


class SelectionHolder(Protocol):
    """A consumer with a selector, as the memory of its queue sees it."""

    @property
    def unsettled(self) -> Iterable[HeldMessage]:
        """Return the messages that it holds."""

    @property
    def read_bytes(self) -> int:
        """Return the memory of what it has read, and not acquired."""


class QueueMemory:
    """The memory of one queue. Core only."""

    def __init__(self, budget: MemoryBudget, consumers: Sized, selecting: Sequence[SelectionHolder]) -> None:
        """*consumers*: those of the queue, which has an allowance as long as there are some; *selecting*: others."""
        self.held_bytes = 0
        """The memory of all messages that are held, including those that consumers have."""
        self.budget = budget
        """The budget of all queues."""
        self._consumers = consumers
        self._selecting = selecting
        self._is_closed = False
        self._released_bytes = 0
        """The bytes that were released, since selecting consumers were found to hold too much."""
        self._selects_too_much = False

    def is_within_allowance(self, beside_bytes: int = 0) -> bool:
        """Return whether consumers of the queue may have more held for them; *beside_bytes* of it do not count."""
        return bool(self._consumers) and self.held_bytes - beside_bytes < ALLOWANCE_BYTES

    def has_room(self) -> bool:
        """Return whether content that can be read back may be held."""
        return self.held_bytes < self.budget.free_bytes or self.is_within_allowance()

    def may_select(self) -> bool:
        """Return whether consumers with selectors may read more of the backlog.

        Messages that no selector matches may fill the memory, and stay, so these consumers may have
        `MOST_SELECTED_BYTES` in any case. That is counted again when a part was released: a count visits all messages.
        """
        if self.held_bytes < self.budget.free_bytes:
            return True
        if not self._selects_too_much or self._released_bytes >= MOST_SELECTED_BYTES // 32:
            self._released_bytes = 0
            self._selects_too_much = self._count_selected() >= MOST_SELECTED_BYTES
        return not self._selects_too_much

    def _count_selected(self) -> int:
        """Return the bytes that selecting consumers hold; it stops when these are enough."""
        selected_bytes = sum([holder.read_bytes for holder in self._selecting])
        for holder in self._selecting:
            for entry in holder.unsettled:
                if selected_bytes >= MOST_SELECTED_BYTES:
                    return selected_bytes
                selected_bytes += entry.held_bytes
        return selected_bytes

    def selection_changed(self) -> None:
        """Count again: selecting consumers gave messages back, or need some no longer."""
        self._selects_too_much = False

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
