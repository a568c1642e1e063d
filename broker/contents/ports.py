"""The ports of a queue: to the parts above it, and for its own parts."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from ...channel.ports import TerminalEnd
from ..kernel.ports import Dispatchable
from ..kernel.queue_memory import QueueMemory
from ..messages.backlog import Backlog, Page
from ..messages.entry import Entry
from .policy import Policy
from .queue_order import QueueOrder


class LinkErrors(Protocol):
    """A link that fails when its queue is deleted."""

    def failure(self, condition: str, description: str) -> None: ...


class QueueConsumer(Protocol):
    """A consumer, as the queue sees it."""

    unsettled: dict[Entry, None]

    @property
    def terminal(self) -> LinkErrors: ...

    def room(self) -> int:
        """Return the number of messages that the consumer accepts now."""

    def take(self, entries: list[Entry]) -> None:
        """Acquire messages."""

    def dispatched(self) -> None:
        """Note that all messages are dispatched or being read; called for consumers in `Queue.draining`."""


class UnsettledHolder(Protocol):
    """A holder of acquired messages, as the queue sees it."""

    unsettled: dict[Entry, None]


class QueueBrowser(Protocol):
    """A browser, as the queue sees it."""

    terminal: TerminalEnd

    def look(self) -> None:
        """Look for new messages."""


class FilteringConsumer(QueueBrowser, Protocol):
    """A consumer that takes only some of the messages, from wherever they stand."""

    unsettled: dict[Entry, None]

    def look_again(self, entry: Entry) -> None:
        """Check a requeued message."""


class LateSelector(Protocol):
    """The selector of a subscription, applied to messages that are on its queue already."""

    text: str
    """The text of the selector."""
    is_needed: bool
    """The selector may not have been applied to all messages."""

    def sift(self) -> tuple[deque[Entry], list[Entry], bool]:
        """Leave dispatchable messages in `ready` and `returned`.

        Return the rest of both, and whether it waits for a result.
        """

    def put_back(self, behind: deque[Entry], behind_returned: list[Entry]) -> None:
        """Put the messages that `sift` removed back."""


class QueueState(Protocol):
    """Name, policy, order and lifetime of a queue."""

    name: str
    order: QueueOrder
    queue_id: int
    policy: Policy
    replicated: bool
    is_owner: bool
    is_deleted: bool


class InternalQueue(Protocol):
    """A queue in which another one keeps records."""

    name: str
    queue_id: int
    arguments: Mapping[str, Any]
    policy: Policy
    backlog: Backlog
    is_deleting: bool

    def clear(self) -> int:
        """Forget its messages, which the store keeps."""


class InternalQueues(Protocol):
    """The queues of a broker by name, among them those in which other queues keep records."""

    @property
    def queues(self) -> Mapping[str, InternalQueue]: ...

    def create_queue(
        self, name: str, arguments: Mapping[str, Any], done: Callable[[InternalQueue | Exception], None]
    ) -> None:
        """Create a durable queue, or find the existing one."""

    def drop_queue(self, name: str, done: Callable[[Exception | None], None]) -> None:
        """Delete a queue, if it exists."""


class ContentsView(Protocol):
    """A queue whose messages can be looked at in pages."""

    @property
    def unordered_count(self) -> int:
        """The number of messages that a scan by `in_memory` visits."""

    def in_memory(self, after: int, most: int) -> list[Entry]:
        """Return the first messages in memory with positions above *after*, in order."""

    def unordered(self) -> list[Entry]:
        """Return messages in memory that are not in order, some of which may have gone."""

    def is_away(self, entry: Entry) -> bool:
        """Return whether an entry can't be seen."""

    def with_ready(self, found: list[Entry], after: int, most: int) -> list[Entry]:
        """Complete a page that begins with *found* by messages that are in order."""


class LimitedQueue(QueueState, Protocol):
    """A queue as its limits see it."""

    messages: int
    delayed: dict[Entry, None]
    backlog: Backlog

    def in_memory(self, after: int, most: int) -> list[Entry]: ...

    def with_consumers(self) -> list[Entry]:
        """Return the messages that consumers have, and those that transactions take off."""

    def take_oldest(self) -> Entry | None:
        """Remove the first message that no consumer has, out of order."""

    def count_dequeued(self, entries: Sequence[Entry]) -> None:
        """Count messages that are off the queue for good."""


class Expirable(Dispatchable, QueueState, Protocol):
    """A queue as its expiry sees it."""

    ready: deque[Entry]
    returned: list[Entry]
    delayed: dict[Entry, None]
    backlog: Backlog
    consumers: list[QueueConsumer]
    memory: QueueMemory

    @property
    def is_reading(self) -> bool: ...

    def give_back(self, entry: Entry) -> None:
        """Put a message back to its place."""

    def is_held(self, entry: Entry) -> bool:
        """Return whether a consumer has a message, or a transaction takes it off."""

    def read_first(self, then: Callable[[Page, list[Entry], int], None]) -> None:
        """Read the first page of the backlog."""

    def leave_out(self, page: Page, entries: Sequence[Entry]) -> None:
        """Take the first page from the backlog; *entries* of it are held."""
