"""The content that a receiving link was given and that its connection has not taken over. Core only.

Such content belongs to no queue: a message that is sent settled was dequeued before, and a browser has copies. It waits
in the outbox of the link while the client does not read, and a client may grant credit for any number of messages.
So it is bounded for each link, and counted in the memory budget. All links of a user have the share of one queue.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from ...amqp.ports import TerminalEnd
from .memory_budget import MemoryBudget

MOST_AHEAD_BYTES = 1 << 20
"""The bytes that may wait for one link, in addition to one message."""
LEAST_AHEAD_BYTES = 64 << 10
"""The bytes that may wait while the user has no share of the memory left; and those after which a report is due."""


class SentAhead:
    """The content on its way to one receiving link."""

    __slots__ = ("_bytes", "_counted_bytes", "_is_closed", "_memory", "_terminal", "_then", "_user")

    def __init__(self, memory: MemoryBudget, terminal: TerminalEnd, user: str) -> None:
        self._memory = memory
        self._terminal = terminal
        self._user = user
        self._bytes = 0
        self._counted_bytes = 0
        """The bytes that are counted in the memory budget: all of `_bytes` while a report is due, else none."""
        self._then: Callable[[], None] | None = None
        """The action that waits for room."""
        self._is_closed = False

    @property
    def room_bytes(self) -> int:
        """The bytes that may be added now, at least one."""
        return max(1, self._most_bytes - self._bytes)

    @property
    def _most_bytes(self) -> int:
        has_share = self._memory.ahead_bytes.get(self._user, 0) < self._memory.share_bytes
        return MOST_AHEAD_BYTES if has_share else LEAST_AHEAD_BYTES

    def add(self, size_bytes: int, then: Callable[[], None]) -> bool:
        """Count content that was forwarded; return whether there is room for more, or *then* is called when there is.

        *then* is not called once the link is closed.
        """
        if self._is_closed:
            return False
        self._bytes += size_bytes
        is_reported = self._counted_bytes > 0
        if is_reported or self._bytes >= LEAST_AHEAD_BYTES:
            self._count(self._bytes)
            if not is_reported:
                self._terminal.when_sent(partial(self._sent, self._bytes))
        if self._bytes < self._most_bytes:
            return True
        self._then = then
        return False

    def _count(self, size_bytes: int) -> None:
        """Count *size_bytes* in the memory budget from now on."""
        added_bytes, self._counted_bytes = size_bytes - self._counted_bytes, size_bytes
        self._memory.used_bytes += added_bytes
        ahead_bytes = self._memory.ahead_bytes.pop(self._user, 0) + added_bytes
        if ahead_bytes:
            self._memory.ahead_bytes[self._user] = ahead_bytes

    def _sent(self, size_bytes: int) -> None:
        """Handle that the first *size_bytes* were sent."""
        if self._is_closed:
            return
        self._bytes -= size_bytes
        if self._bytes >= LEAST_AHEAD_BYTES:
            self._count(self._bytes)
            self._terminal.when_sent(partial(self._sent, self._bytes))
        else:
            self._count(0)
        if self._then is not None and self._bytes < self._most_bytes:
            then, self._then = self._then, None
            then()

    def close(self) -> None:
        """Release the content: the link is closed. Further calls have no effect."""
        self._is_closed = True
        self._then = None
        self._count(0)
