"""Queues as other parts see them, each with the few members that the part uses."""

from __future__ import annotations

from typing import Protocol

from ..contents.contents import QueueContents
from ..contents.ports import QueueBrowser, QueueConsumer, QueueState
from ..kernel.ports import Dispatchable
from ..kernel.queue_memory import QueueMemory


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


class BrowsedQueue(Protocol):
    """A queue whose messages are looked at, in memory and on the disk."""

    name: str
    browsers: list[QueueBrowser]

    @property
    def contents(self) -> QueueContents: ...


class SubscribedQueue(QueueState, Dispatchable, Protocol):
    """The queue of a subscription, to whose messages a selector is applied late."""

    consumers: list[QueueConsumer]
    bindings: int

    @property
    def contents(self) -> QueueContents: ...
