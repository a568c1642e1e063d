"""The memory budget: how much content all queues together hold.

Two rules. What can be read back from the store is held in memory only while its queue holds less than is still free:
so one deep queue takes half of the limit, two take a third each, and there is always room for a newcomer. What can't be
read back (transient messages) is refused once the limit is reached. A queue with consumers may always hold
`ALLOWANCE_BYTES`, whatever the others do: one that keeps up stays in memory, and one that was deep moves on. There
what it holds behind the messages to be read does not count, or these would wait for what waits for them.

So the budget is exceeded by at most twice the allowance for each queue with consumers, and one batch each.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .queue import Queue

DEFAULT_LIMIT_BYTES = 256 << 20
ALLOWANCE_BYTES = 1 << 20
ENTRY_BYTES = 250
"""What a message held in memory costs beside its content."""
NO_MEMORY = "no memory is left for messages that are not durable; see --memory-limit"


class Memory:
    """What all queues hold, against the limit. Core only."""

    def __init__(self, limit_bytes: int = DEFAULT_LIMIT_BYTES) -> None:
        self.limit_bytes = limit_bytes
        self.used_bytes = 0
        self.starved: dict[Queue, None] = {}
        """Queues that could not read ahead for lack of room; looked at again with each step."""

    @property
    def free_bytes(self) -> int:
        return max(0, self.limit_bytes - self.used_bytes)

    def take_relieved(self) -> list[Queue]:
        """The starved queues for which there is room again."""
        relieved = [queue for queue in self.starved if queue.may_read()]
        for queue in relieved:
            del self.starved[queue]
        return relieved
