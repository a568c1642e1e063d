"""The events that this member has sent and not received yet, in order, with their messages and callbacks (D40).

The events of a member come back in the order in which it sent them, so no numbers are needed to find them again (D76,
D78): the next event that comes back is the first one here. Their messages need no decoding, since the contents are
here. Core only.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import NamedTuple

from ...broker.contents.ports import Expirable
from ...broker.messages.entry import Entry
from ...broker.nodes.replication_port import Kept, Then
from .events import Event


class LocalEvent(NamedTuple):
    """One event of this member."""

    then: Then
    """The action to run when it is safe."""
    refused: Then | None = None
    """The action to run if all members rejected it."""
    kept: Kept | None = None
    """The messages to enqueue."""
    names: Sequence[str] = ()
    """The queues that get them."""
    event: Event | None = None
    """The event itself, if `kept` and `names` do not describe it."""
    queue: Expirable | None = None
    entries: Sequence[Entry] = ()
    """Messages of that queue that no consumer has, and that stay off the queue until the event is delivered."""
    parts: Sequence[LocalEvent] = ()
    """For a transaction, one event for each of its parts."""
    received: Then | None = None
    """The action to run when it is applied or rejected here: for transactions, and for limits that count."""
    answered: Callable[[object], None] | None = None
    """The callback for the result of a change of the wiring."""
    always: bool = False
    """True if *then* also runs when the event is never delivered."""


NOTHING = LocalEvent(lambda: None)
"""An event without actions."""


def abandon(local: LocalEvent) -> None:
    """Requeue the messages of an event that will never be delivered."""
    queue = local.queue
    if queue is not None and not queue.is_deleted:
        for entry in local.entries:
            if not entry.is_dequeued:
                queue.contents.delayed.pop(entry, None)
                entry.previously_delivered = True
                queue.contents.give_back(entry)
    if local.always:
        local.then()


class LocalMessageMap:
    """The events of this member that have not come back, in order."""

    def __init__(self) -> None:
        self._locals: deque[LocalEvent] = deque()
        self.times_received = 0

    def __len__(self) -> int:
        return len(self._locals)

    def add(self, local: LocalEvent) -> None:
        self._locals.append(local)

    def unheard(self) -> dict[Expirable, list[Entry]]:
        """Returns, by queue, the messages of these events that no consumer has and that are not back on their queue."""
        found: dict[Expirable, list[Entry]] = {}
        for local in self._locals:
            if local.queue is not None:
                found.setdefault(local.queue, []).extend(local.entries)
        return found

    def received(self) -> LocalEvent:
        """Removes and returns the next event, which came back."""
        self.times_received += 1
        return self._locals.popleft()

    def lost(self) -> list[LocalEvent]:
        """Removes and returns all events, since the group was left and none of them will be delivered."""
        lost = [*self._locals]
        self._locals.clear()
        return lost
