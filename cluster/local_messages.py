"""What this member has said and not heard yet, in order: what an event is about here, and who waits for it (D40).

A member's own events come back to it in the order in which it said them, so no numbers are needed to find them again
(D76, D78): the first one here is the one that is heard. Messages need no decoding then: their contents are here.
Core only.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import NamedTuple

from ..broker.cluster import Kept, Then
from ..broker.entry import Entry
from ..broker.queue import Queue
from .events import Event


class Local(NamedTuple):
    """One event of our own."""

    then: Then
    """When it is safe."""
    refused: Then | None = None
    """If nothing came of it."""
    kept: Kept | None = None
    """Messages to be enqueued,"""
    names: Sequence[str] = ()
    """and on which queues."""
    event: Event | None = None
    """What else it says."""
    queue: Queue | None = None
    entries: Sequence[Entry] = ()
    """Messages of that queue which nobody has any more, until the event is heard."""
    parts: Sequence[Local] = ()
    """Of a transaction: one for each of its parts."""
    heard: Then | None = None
    """When it was done here, or was not, before that is safe: of a transaction, and of messages that a gate counts."""
    answered: Callable[[object], None] | None = None
    """Gets the result of a change of the wiring."""
    always: bool = False
    """*then* is called also if it is never heard."""


NOTHING = Local(lambda: None)
"""Nobody waits for it."""


class LocalMessageMap:
    """All of them."""

    def __init__(self) -> None:
        self._locals: deque[Local] = deque()
        self.times_heard = 0

    def __len__(self) -> int:
        return len(self._locals)

    def add(self, local: Local) -> None:
        self._locals.append(local)

    def unheard(self) -> dict[Queue, list[Entry]]:
        """What it is about: messages that are on their queues until it is heard, and that nobody has."""
        found: dict[Queue, list[Entry]] = {}
        for local in self._locals:
            if local.queue is not None:
                found.setdefault(local.queue, []).extend(local.entries)
        return found

    def heard(self) -> Local:
        """The next one was."""
        self.times_heard += 1
        return self._locals.popleft()

    def lost(self) -> list[Local]:
        """The group was left: none of them is heard any more."""
        lost = [*self._locals]
        self._locals.clear()
        return lost
