"""The memory that the messages of one queue hold, out of the budget of all queues (`memory_budget`)."""

from __future__ import annotations

from collections.abc import Sized

from .memory_budget import ALLOWANCE_BYTES, MemoryBudget


class QueueMemory:
    """The memory of one queue. Core only."""

    def __init__(self, budget: MemoryBudget, consumers: Sized) -> None:
        """*consumers*: those of the queue, which has an allowance as long as there are some."""
        self.held_bytes = 0
        """The memory of all messages that are held, including those that consumers have."""
        self.budget = budget
        """The budget of all queues."""
        self._consumers = consumers
        self._is_closed = False

    def is_within_allowance(self, beside_bytes: int = 0) -> bool:
        """Return whether consumers of the queue may have more held for them; *beside_bytes* of it do not count."""
        return bool(self._consumers) and self.held_bytes - beside_bytes < ALLOWANCE_BYTES

    def has_room(self) -> bool:
        """Return whether content that can be read back may be held."""
        return self.held_bytes < self.budget.free_bytes or self.is_within_allowance()

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
            self.budget.used_bytes -= size_bytes

    def close(self) -> None:
        """Release all memory: the queue is deleted, and holds nothing any more."""
        self.release(self.held_bytes)
        self._is_closed = True
