"""The events that this member has sent and not received yet, in order, with their messages and callbacks (D40).

A member's own events come back to it in the order in which it said them, so no numbers are needed to find them again
(D76, D78): the first one here is the one that is heard. Messages need no decoding then: their contents are here.
Core only.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import NamedTuple

from ...broker.messages.entry import Entry
from ...broker.nodes.replication_port import Kept, Then
from ...broker.queues.ports import Expirable
from .events import Event


class LocalEvent(NamedTuple):
    """One event of this member."""

    then: Then
    """When it is safe."""
    refused: Then | None = None
    """If nothing came of it."""
    kept: Kept | None = None
    """Messages to be enqueued,"""
    names: Sequence[str] = ()
    """and on which queues."""
    event: Event | None = None
    """The event itself, if `kept` and `names` do not describe it."""
    queue: Expirable | None = None
    entries: Sequence[Entry] = ()
    """Messages of that queue which nobody has any more, until the event is heard."""
    parts: Sequence[LocalEvent] = ()
    """Of a transaction: one for each of its parts."""
    heard: Then | None = None
    """When it was done here, or was not, before that is safe: of a transaction, and of messages that limits count."""
    answered: Callable[[object], None] | None = None
    """Gets the result of a change of the wiring."""
    always: bool = False
    """*then* is called also if it is never heard."""


NOTHING = LocalEvent(lambda: None)
"""Nobody waits for it."""


def abandon(local: LocalEvent) -> None:
    """Requeue the messages of an event that will never be delivered."""
    queue = local.queue
    if queue is not None and not queue.is_deleted:
        for entry in local.entries:
            if not entry.gone:
                queue.delayed.pop(entry, None)
                entry.previously_delivered = True
                queue.give_back(entry)
    if local.always:
        local.then()


class LocalMessageMap:
    """The events of this member that have not come back, in order."""

    def __init__(self) -> None:
        self._locals: deque[LocalEvent] = deque()
        self.times_heard = 0

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

    def heard(self) -> LocalEvent:
        """The next one was."""
        self.times_heard += 1
        return self._locals.popleft()

    def lost(self) -> list[LocalEvent]:
        """The group was left: none of them is heard any more."""
        lost = [*self._locals]
        self._locals.clear()
        return lost
