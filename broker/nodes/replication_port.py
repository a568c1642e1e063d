"""The port from the broker to a cluster, beside `MessageStore` and much like it (D7, D38).

A broker without a cluster has `Standalone` in place of other members. Only events on replicated queues are sent to
other members. Connections, links, users and management are local to each member (D8).

A call orders an event, and changes nothing yet. All members, also the caller, apply the event when it is delivered in
the cluster's order. The callback *then* is called when the event is safe: ordered, known to a majority, and, if it is
durable, on the disks of these and of this member. A member that loses its cluster never calls it: it disconnects its
clients, which see the result at another member. Core only.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

if TYPE_CHECKING:
    from ...store.contract.dequeue_reason import DequeueReason
    from ..contents.policy import Policy
    from ..messages.entry import Entry
    from ..queues.ends import SourceQueue, TargetQueue
    from ..queues.queue import Queue

Then = Callable[[], None]


class Kept(NamedTuple):
    """Complete messages for the same queues, unchanged (D81)."""

    messages: Sequence[tuple[bytes, bool]]
    """The contents, and whether each is durable."""
    timed: bool
    """True if some of them may have times."""


class Moved(NamedTuple):
    """A message that moves from a queue to others, with its content there."""

    queue: SourceQueue
    entry: Entry
    targets: Sequence[TargetQueue]
    message: tuple[bytes, bool]
    """The content, and whether it is durable, as in `Kept`."""
    reason: DequeueReason


class Work(NamedTuple):
    """The work of a client's transaction on replicated queues."""

    puts: Sequence[tuple[Sequence[TargetQueue], Kept]]
    takes: Sequence[tuple[SourceQueue, Sequence[Entry], DequeueReason]]
    moves: Sequence[Moved]


Report = dict[str, Any]
"""The report of a member, a JSON object."""


class Gathered(NamedTuple):
    """The reports of members."""

    answers: dict[str, Report]
    """The reports by member."""
    silent: list[str]
    """Members that did not answer in time."""
    missing: int
    """The number of members that are absent."""


class Members(Protocol):
    """The brokers that share queues with this one: a cluster, or none (`broker.standalone`)."""

    def replicates(self, name: str, policy: Policy) -> bool:
        """Return whether a durable queue of that name and policy is replicated. Raise `StoreError` if it can't be."""

    def made(self, queue: Queue) -> None:
        """Note that a replicated queue was created."""

    @property
    def is_alone(self) -> bool:
        """True if this broker is always the only member, so its store holds all messages."""

    def not_serving_reason(self) -> str:
        """Return why clients are refused here; empty if they are served."""

    def when_answered(self, action: Then) -> None:
        """Do *action* when all events that were ordered so far are safe, or never will be."""

    @property
    def holds(self) -> bool:
        """True if a member lags: senders to replicated queues get no credit until `SenderCredit.grant_withheld`."""

    def held_up(self, then: Then) -> bool:
        """Return whether to read no more of long messages, as too much waits; if so, *then* is called at the end."""

    def durable(self) -> None:
        """Note that the durable LSN of the store has moved."""

    def step(self) -> bool:
        """Send waiting events and apply delivered ones; return whether any event was sent or applied."""

    def transact(self, work: Work, received: Then, then: Then, refused: Then) -> None:
        """Apply all of *work* as one event, or none of it if a queue or a message was removed before: then *refused*.

        `received` is called before *then* or *refused*, when this member has applied or rejected the event.
        """

    def enqueue(self, queues: Sequence[TargetQueue], kept: Kept, then: Then, refused: Then) -> None:
        """Enqueue messages; *refused* is called if none of the queues exists any more when the event is applied."""

    def move(
        self, queue: SourceQueue, entry: Entry, targets: Sequence[TargetQueue], content: bytes, reason: DequeueReason,
        then: Then,
        refused: Then,
    ) -> None:  # fmt: skip
        """Move a message from a queue to others, with that content there, in one transaction.

        *refused*: no target of an operator's move (*reason*) exists when the event is applied, and the message
        was requeued.
        """

    @property
    def shares_queues(self) -> bool:
        """Return whether there may be replicated queues."""

    def reports_by(self, reporter: Callable[[Report], Report]) -> None:
        """Register the function that reports to other members."""

    def gather(self, asked: Report, limit_s: float, done: Callable[[Gathered], None]) -> None:
        """Request reports of all members; *done* gets them after *limit_s* seconds at the latest."""
