"""Queues as the two ends of a message's stay on them: as targets of enqueued messages, and as their sources."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import count
from typing import Protocol, TypeVar

from ..contents.contents import QueueContents
from ..contents.ports import Expirable, QueueBrowser, QueueState
from ..kernel.ports import CoreQueue
from ..kernel.queue_memory import QueueMemory
from ..messages.entry import Entry
from ..users.user_accounts import OwnedQueue
from .limits import QueueLimits

_Some = TypeVar("_Some", bound=QueueState)


class TargetQueue(CoreQueue, QueueState, Protocol):
    """A queue on which messages are enqueued."""

    is_deleting: bool
    memory: QueueMemory
    positions: count[int]

    @property
    def limits(self) -> QueueLimits | None: ...
    def begin_timing(self) -> None: ...
    def new_entries(self, kept: Sequence[tuple[bytes, bool]], ids: Sequence[int], timed: bool) -> list[Entry]: ...


class SourceQueue(OwnedQueue, Expirable, Protocol):
    """A queue from which messages are dequeued, moved or copied, and to which they are requeued."""

    is_deleting: bool
    locked: dict[Entry, None]
    browsers: list[QueueBrowser]
    dead_lettered: int
    expired: int

    @property
    def contents(self) -> QueueContents: ...
    def clear(self, user: str) -> int: ...
    def count_dequeued(self, entries: Sequence[Entry]) -> None: ...
    def failed(self, entry: Entry) -> bool: ...
    def replace_content(self, entry: Entry, message_id: int, content: bytes) -> None: ...
    def with_consumers(self) -> list[Entry]: ...


def shared(queues: Iterable[_Some]) -> list[_Some]:
    """Return those of *queues* that all members of a cluster have."""
    return [queue for queue in queues if queue.replicated]


def own(queues: Iterable[_Some]) -> list[_Some]:
    """Return those of *queues* that this broker alone has."""
    return [queue for queue in queues if not queue.replicated]
