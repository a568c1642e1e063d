"""The ports of a queue: to the parts above it, and for its own parts."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from ...amqp.ports import TerminalEnd
from ..kernel.ports import CoreQueue, Dispatchable
from ..kernel.queue_memory import QueueMemory
from ..messages.entry import Entry
from .backlog_reader import ContentsParts, ReadQueue
from .policy import Policy
from .queue_order import QueueOrder


class LinkErrors(Protocol):
    """A link that fails when its queue is deleted."""

    def failure(self, condition: str, description: str) -> None: ...


class UnsettledHolder(Protocol):
    """A holder of acquired messages, as the queue sees it."""

    unsettled: dict[Entry, None]


class QueueConsumer(UnsettledHolder, Protocol):
    """A consumer, as the queue sees it."""

    @property
    def terminal(self) -> LinkErrors: ...

    def room(self) -> int:
        """Return the number of messages that the consumer accepts now."""

    def take(self, entries: list[Entry]) -> None:
        """Acquire messages."""

    def dispatched(self) -> None:
        """Note that all messages are dispatched or being read; called for consumers in `Queue.draining`."""


class QueueBrowser(Protocol):
    """A browser, as the queue sees it."""

    terminal: TerminalEnd

    def look(self) -> None:
        """Look for new messages."""


class FilteringConsumer(QueueBrowser, UnsettledHolder, Protocol):
    """A consumer that takes only some of the messages, from wherever they stand."""

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


class ContentsOwner(CoreQueue, QueueState, ReadQueue, Protocol):
    """A queue as its contents see it."""

    def count_transient(self, size_bytes: int) -> None:
        """Add to the memory that the queue counts for messages that are not stored."""

    def trim(self) -> None:
        """Apply an overflow policy that drops messages."""


class MessageOrder(Protocol):
    """Decides where messages stand among the contents of one queue, and which consumer gets them. Core only.

    Messages are in order by arrival, or by properties of theirs. `QueueOrder` orders the changes to the messages.
    """

    @property
    def is_sorted(self) -> bool:
        """Return whether the order or the consumers of messages depend on their content."""

    @property
    def note_dequeued(self) -> Callable[[Sequence[Entry]], None] | None:
        """Return what to call with messages that were dequeued, if the order has to know them."""

    @property
    def parked_count(self) -> int:
        """Return the number of messages that `parked` returns."""

    def parked(self) -> Iterable[Entry]:
        """Return the messages that wait for one consumer, apart from the others."""

    def is_away(self, entry: Entry) -> bool:
        """Return whether a message is hidden from browsers."""

    def add(self, entries: Sequence[Entry]) -> None:
        """Add new messages, which are durable now if they are stored."""

    def give_back(self, entry: Entry) -> None:
        """Requeue a message at its position."""

    def take_oldest(self) -> Entry | None:
        """Remove and return the first message that no consumer has, or None; in a sorted queue the least important."""

    def dispose(self, kept: Sequence[Entry], user: str) -> None:
        """Forget all messages except *kept*, which consumers have; what is left is emptied in turns of *user*."""

    def pick(self, position: int) -> Entry | None:
        """Take the message at *position* from its place; return None if a consumer of this member has it."""

    def put_before(self, front: Sequence[Entry], end: int) -> None:
        """Put messages in order before all others; *end*: the position of the next message that is added."""

    def leave_hole(self, position: int) -> None:
        """Leave a hole for a message that was dequeued before it was shown."""

    def now_decides(self) -> None:
        """Start to dequeue replaced messages on this member."""

    def dispatch_returned(self, consumers: list[QueueConsumer]) -> bool:
        """Dispatch messages of `returned`; return whether those that remain do not hold up `ready`."""

    def read_ahead(self) -> None:
        """Read the next page of the backlog, if few messages are ready."""

    def is_reading_for(self, taker: QueueConsumer) -> bool:
        """Return whether *taker* may get more messages, from a page that is being read."""


class Expirable(Dispatchable, QueueState, Protocol):
    """A queue as its expiry sees it."""

    consumers: list[QueueConsumer]
    memory: QueueMemory

    @property
    def contents(self) -> ContentsParts: ...

    def is_held(self, entry: Entry) -> bool:
        """Return whether a consumer has a message, or a transaction takes it off."""
