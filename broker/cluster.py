"""What the broker asks of a cluster: the seam between the two, beside `MessageStore` and much like it (D7, D38).

A broker without a cluster has None in its place. Only what happens on queues that are `replicated` is told, and nothing
of connections, links, users or management (D8): these stay each member's own business.

A call orders something, and changes nothing yet. All members do it, the caller's too, when it comes back in the
cluster's order; what was to happen then (*then*) is called when it is safe: ordered, known to a majority, and on the
disks of these and of this member if it lasts. A member that loses its cluster never calls it: its clients are sent
away, and learn elsewhere what became of it. Core only.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

if TYPE_CHECKING:
    from ..channel.words import TerminalEnd
    from ..store.why import Why
    from .broker import Broker
    from .entry import Entry
    from .follower_link import Said
    from .nodes import Gone, MakeQueue, Nodes
    from .policy import Policy
    from .queue import Queue

Then = Callable[[], None]


class Kept(NamedTuple):
    """Whole messages for the same queues, as they came (D81)."""

    messages: Sequence[tuple[bytes, bool]]
    """Contents, and whether each is to last."""
    timed: bool
    """Some may have times."""


class Moved(NamedTuple):
    """A message off a queue, and one of that content on others."""

    queue: Queue
    entry: Entry
    targets: Sequence[Queue]
    message: tuple[bytes, bool]
    """As in `Kept`."""
    why: Why


class Work(NamedTuple):
    """What a client's transaction does on replicated queues."""

    puts: Sequence[tuple[Sequence[Queue], Kept]]
    takes: Sequence[tuple[Queue, Sequence[Entry], Why]]
    moves: Sequence[Moved]


Report = dict[str, Any]
"""What JSON has."""


class Gathered(NamedTuple):
    """What members told."""

    answers: dict[str, Report]
    """By member."""
    silent: list[str]
    """Members that did not answer in time."""
    missing: int
    """How many are not there at all."""


class Cluster(Protocol):
    """The cluster that a broker is a member of."""

    def attach(self, broker: Broker) -> None:
        """The broker is there, and recovered: join."""
        ...

    def nodes(self, broker: Broker, make_queue: MakeQueue, gone: Gone) -> Nodes:
        """The nodes of a broker that is being made: what is done to replicated ones is ordered, too (D58)."""
        ...

    def replicates(self, name: str, policy: Policy) -> bool:
        """Whether a durable queue of that name and policy is one of all members. Raises `StoreError` if it can't be."""
        ...

    def made(self, queue: Queue) -> None:
        """A replicated queue is there now."""
        ...

    def gone(self, queue: Queue) -> None:
        """It is not any more."""
        ...

    @property
    def is_alone(self) -> bool:
        """It has one member, and never more: what is in its store is all there is."""
        ...

    def follow(self, queue: Queue, said: Said, terminal: TerminalEnd) -> None:
        """The link of a follower at another site to a replicated queue: it is opened here, or refused."""
        ...

    def why_not_serving(self) -> str:
        """Why clients are sent elsewhere; empty if they are served."""
        ...

    def put(self, queues: Sequence[Queue], kept: Kept, then: Then, refused: Then) -> None:
        """Messages on queues; *refused* if none of them is there any more when it is their turn."""
        ...

    def take(self, queue: Queue, entries: Sequence[Entry], why: Why, then: Then) -> None:
        """Messages off a queue for good, which one member has, or nobody."""
        ...

    def give_back(self, queue: Queue, entries: Sequence[tuple[Entry, bool]], then: Then) -> None:
        """Messages back to where they were, each with whether its delivery failed."""
        ...

    def move(
        self, queue: Queue, entry: Entry, targets: Sequence[Queue], content: bytes, why: Why, then: Then, refused: Then
    ) -> None:
        """A message off a queue, and one of that content on others, in one go.

        *refused*: it is on its queue again, as an operator wanted it moved (*why*), and none of the others is there any
        more when it is their turn.
        """
        ...

    def transact(self, work: Work, heard: Then, then: Then, refused: Then) -> None:
        """All of that in one go; *refused*, and nothing is done, if a queue is gone by then, or a message.

        *heard*: is called before either, when it was done here, or was not.
        """
        ...

    def purge(self, queue: Queue, done: Callable[[int | Exception], None]) -> None:
        """All messages off a queue but those that consumers have; *done* gets how many."""
        ...

    def consuming(self, queue: Queue) -> None:
        """The queue has one consumer more."""
        ...

    def not_consuming(self, queue: Queue) -> None:
        """The queue has one consumer less."""
        ...

    def is_taken(self, queue: Queue) -> bool:
        """Whether the queue has consumers on other members."""
        ...

    def deletes(self, queue: Queue) -> bool:
        """Whether this member is the one to delete a queue that nobody needs any more."""
        ...

    def when_answered(self, action: Then) -> None:
        """Do *action* when all that was ordered so far is safe, or never will be."""
        ...

    def reports_by(self, reporter: Callable[[Report], Report]) -> None:
        """*reporter* tells what others ask of this member."""
        ...

    def gather(self, asked: Report, limit_s: float, done: Callable[[Gathered], None]) -> None:
        """Ask all members; *done* hears what they told, after so many seconds at the latest."""
        ...

    @property
    def holds(self) -> bool:
        """Some member can't keep up: senders to replicated queues get no credit. `Broker.room_again` tells the end."""
        ...

    def held_up(self, then: Then) -> bool:
        """Whether no more of long messages is to be read, since so much waits; if so, *then* tells the end."""
        ...

    def durable(self) -> None:
        """The store's durable LSN has moved."""
        ...

    def step(self) -> bool:
        """Send what is to be said, do what has come; whether there was anything."""
        ...
