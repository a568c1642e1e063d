"""The memory budget: the limit of content that all queues together hold.

Stored content, which can be read back, is held only while its queue holds less than is still free. So one deep queue
takes half of the limit, two take a third each, and another queue always has room.

Transient messages cannot be read back. Their senders are throttled (`throttle`) once the queue, or all queues of its
owner together, hold as much as is still free above a reserve: credit is withheld and the links are held, and nothing is
rejected. The reserve is for messages in flight at that time. Transient messages are rejected only if it is used up,
too.

A queue with consumers may always hold `ALLOWANCE_BYTES`, independent of other queues: a queue that keeps up stays in
memory, and a deep one makes progress. The messages behind those to be read do not count against the allowance, or the
two would wait for each other.

So the budget is exceeded by at most twice the allowance for each queue with consumers, and one batch each. Consumers
with selectors may have twice the allowance more (`queue_memory`).
"""

from __future__ import annotations

from ..scheduling.throttle import Throttle, Throttles
from .ports import CoreQueue

DEFAULT_LIMIT_BYTES = 256 << 20
ALLOWANCE_BYTES = 1 << 20
ENTRY_BYTES = 250
"""The memory of a held message beside its content."""
RESERVE_SHARE = 8
"""The divisor of the limit for the reserve, which is left to messages in flight when senders are throttled."""
LOW_MARK = 0.75
"""The part of its share that a queue may hold for its throttled senders to continue."""
NO_MEMORY = "no memory is left for messages that are not durable; see --memory-limit"


class MemoryBudget:
    """The memory that all queues hold, and its limit. Core only."""

    def __init__(self, limit_bytes: int = DEFAULT_LIMIT_BYTES, throttles: Throttles | None = None) -> None:
        self.limit_bytes = limit_bytes
        self._throttles = Throttles() if throttles is None else throttles
        self.waiting: dict[CoreQueue, Throttle] = {}
        """Queues that hold their share, whose senders of transient messages wait."""
        self.used_bytes = 0
        self.ahead_bytes: dict[str, int] = {}
        """The part of them that was sent ahead to clients that have not read it, by user (`sent_ahead`)."""
        self.starved: dict[CoreQueue, None] = {}
        """Queues that could not read ahead for lack of room; looked at again with each step."""
        self.starved_selections: dict[CoreQueue, None] = {}
        """Queues with consumers that could not read on to apply their selectors."""

    @property
    def share_bytes(self) -> int:
        """The bytes that one queue, or one user, may hold before its senders of transient messages are throttled."""
        free_bytes = self.free_bytes
        return max(free_bytes - self.limit_bytes // RESERVE_SHARE, min(ALLOWANCE_BYTES, free_bytes // 2))

    def throttle(self, queue: CoreQueue) -> Throttle:
        """Return the throttle of senders of transient messages to *queue*, which holds its share."""
        if queue.memory_throttle is None:
            queue.memory_throttle = Throttle(self._throttles)
            self.waiting[queue] = queue.memory_throttle
        return queue.memory_throttle

    def release(self) -> None:
        """Release senders to queues that hold clearly less than their share, at the end of a step."""
        share_bytes = self.share_bytes
        room_bytes = share_bytes - int(LOW_MARK * share_bytes)
        for queue, throttle in [*self.waiting.items()]:
            if queue.is_deleted or not queue.is_over_share(room_bytes):
                del self.waiting[queue]
                queue.memory_throttle = None
                throttle.release()

    @property
    def free_bytes(self) -> int:
        return max(0, self.limit_bytes - self.used_bytes)

    def take_relieved(self) -> list[CoreQueue]:
        """Remove and return the starved queues that may read ahead again."""
        relieved = [queue for queue in self.starved if queue.may_read()]
        for queue in relieved:
            del self.starved[queue]
        selections = [queue for queue in self.starved_selections if queue.may_select()]
        for queue in selections:
            del self.starved_selections[queue]
        return relieved + selections
