"""The content that a receiving link was given and that its connection has not taken over. Core only.

Such content belongs to no queue: a message that is sent settled was dequeued before, and a browser has copies. It waits
in the outbox of the link while the client does not read, and a client may grant credit for any number of messages.
So it is bounded for each link, and counted in the memory budget.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from ...amqp.ports import TerminalEnd
from .memory_budget import MemoryBudget

MOST_AHEAD_BYTES = 1 << 20
"""The bytes that may wait for one link, in addition to one message."""
LEAST_AHEAD_BYTES = 64 << 10
"""The bytes that may wait while no memory is left, and after which the connection reports what was sent."""


class SentAhead:
    """The content on its way to one receiving link."""

    __slots__ = ("_bytes", "_counted_bytes", "_is_closed", "_memory", "_terminal", "_then")

    def __init__(self, memory: MemoryBudget, terminal: TerminalEnd) -> None:
        self._memory = memory
        self._terminal = terminal
        self._bytes = 0
        self._counted_bytes = 0
        """The part of them that is counted in the memory budget: all of them, while a report is due."""
        self._then: Callable[[], None] | None = None
        """The action that waits for room."""
        self._is_closed = False

    @property
    def room_bytes(self) -> int:
        """The bytes that may be added now, at least one."""
        return max(1, self._most_bytes - self._bytes)

    @property
    def _most_bytes(self) -> int:
        return MOST_AHEAD_BYTES if self._memory.free_bytes > 0 else LEAST_AHEAD_BYTES

    def add(self, size_bytes: int, then: Callable[[], None]) -> bool:
        """Count content that was forwarded; return whether there is room for more, or *then* is called when there is.

        *then* is not called once the link is closed.
        """
        if self._is_closed:
            return False
        self._bytes += size_bytes
        is_reported = self._counted_bytes > 0
        if is_reported or self._bytes >= LEAST_AHEAD_BYTES:
            self._count()
            if not is_reported:
                self._terminal.when_sent(partial(self._sent, self._bytes))
        if self._bytes < self._most_bytes:
            return True
        self._then = then
        return False

    def _count(self) -> None:
        self._memory.used_bytes += self._bytes - self._counted_bytes
        self._counted_bytes = self._bytes

    def _sent(self, size_bytes: int) -> None:
        """Handle that the first *size_bytes* were sent."""
        if self._is_closed:
            return
        self._bytes -= size_bytes
        if self._bytes >= LEAST_AHEAD_BYTES:
            self._count()
            self._terminal.when_sent(partial(self._sent, self._bytes))
        else:
            self._memory.used_bytes -= self._counted_bytes
            self._counted_bytes = 0
        if self._then is not None and self._bytes < self._most_bytes:
            then, self._then = self._then, None
            then()

    def close(self) -> None:
        """Release the content: the link is closed. Further calls have no effect."""
        self._is_closed = True
        self._then = None
        self._memory.used_bytes -= self._counted_bytes
        self._counted_bytes = 0
