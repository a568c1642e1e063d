"""The events that this member received and has not applied yet."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

from ..group.group_events import Event
from ..group.member_id import MemberId


class ReceivedEvent(NamedTuple):
    """A payload that the group delivered."""

    sender: MemberId
    position: int
    payload: bytes
    number: int
    """The number of its batch, among those of the sender."""
    is_last: bool
    """True for the last event of that batch."""
    kept: bool = False
    """True if it was received before this member had the wiring, and is processed again."""


class Inbox:
    """A queue of events, which a change of the wiring can stall. Core only."""

    def __init__(self) -> None:
        self.events: deque[Event | ReceivedEvent] = deque()
        self.is_stalled = False
        self.stalls = 0
        """The number of stalls so far."""

    def stall(self) -> None:
        """Holds all events until the wiring is written."""
        self.is_stalled = True
        self.stalls += 1

    def resume(self) -> None:
        """Ends a stall."""
        self.is_stalled = False

    def put_back(self, kept: Sequence[Event | ReceivedEvent]) -> None:
        """Puts events that were kept before those that wait."""
        self.events.extendleft(reversed(kept))
