"""Queues as other parts see them, each with the few members that the part uses."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Protocol

from ..contents.ports import ContentsView, QueueBrowser, QueueConsumer, QueueState
from ..kernel.loader import Loaded
from ..kernel.ports import Dispatchable
from ..kernel.queue_memory import QueueMemory
from ..messages.backlog import Backlog, Page
from ..messages.entry import Entry


class QueueTotals(Protocol):
    """A queue that counts its messages since the broker started."""

    taken: int
    dead_lettered: int
    expired: int

    @property
    def enqueued(self) -> int: ...


class MeasuredQueue(QueueTotals, Protocol):
    """A queue with metrics."""

    name: str
    messages: int
    memory: QueueMemory

    @property
    def taker_count(self) -> int: ...

    @property
    def depth(self) -> int: ...


class BrowsedQueue(ContentsView, Protocol):
    """A queue whose messages are looked at, in memory and on the disk."""

    name: str
    backlog: Backlog
    browsers: list[QueueBrowser]

    def load(self, page: Page, then: Callable[[list[Loaded]], None]) -> None:
        """Load the contents of a page of the backlog."""

    def entries_of(self, page: Page, contents: Sequence[Loaded]) -> tuple[list[Entry], int]:
        """Return the messages of a page, as far as *contents* go, and the number of its places that these cover."""


class SubscribedQueue(QueueState, Dispatchable, Protocol):
    """The queue of a subscription, to whose messages a selector is applied late."""

    consumers: list[QueueConsumer]
    ready: deque[Entry]
    returned: list[Entry]
    delayed: dict[Entry, None]
    delivered_below: int
    bindings: int
