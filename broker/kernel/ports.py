"""Queues as the kernel sees them: the commit queue shows messages on them, the memory budget limits their content."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from ..messages.entry import Entry
from ..scheduling.throttle import Throttle
from ..users.user_accounts import OwnedQueue, UserAccount


class PutLimits(Protocol):
    """The limits of a queue, which count messages that are not durable yet."""

    def count_enqueued(self, entries: Sequence[Entry]) -> int:
        """Count entries that will be shown; return an LSN that they have to wait for, or 0."""

    def shown(self) -> None:
        """Apply the limits to messages that are on the queue now."""


class Dispatchable(Protocol):
    """A queue that dispatches messages at the end of a step."""

    account: UserAccount | None
    """The account of the owner; None for a queue without one."""
    is_deleted: bool
    has_lifetime: bool
    """The queue is deleted automatically."""

    def dispatch(self) -> None:
        """Dispatch messages to consumers."""

    def check_lifetime(self) -> None:
        """Delete the queue if its lifetime is over."""


class CoreQueue(OwnedQueue, Dispatchable, Protocol):
    """A queue, as the services of the core see it."""

    messages: int
    waiting: int
    memory_throttle: Throttle | None

    @property
    def limits(self) -> PutLimits | None: ...

    def add(self, entries: list[Entry]) -> None:
        """Put durable entries on the queue."""

    def is_over_share(self, more_bytes: int) -> bool:
        """Return whether transient messages of the queue, or of its owner, fill a share together with *more_bytes*."""

    def may_read(self) -> bool:
        """Return whether the memory budget lets the queue read ahead."""

    def may_select(self) -> bool:
        """Return whether the memory budget lets consumers with selectors read on."""
