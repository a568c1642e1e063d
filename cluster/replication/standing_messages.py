"""The messages on a replicated queue at one position in the order, for all members. Core only."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain
from typing import NamedTuple

from ...broker.messages.entry import ARRIVAL_MASK, Entry
from .replica import Replica


class StandingMessage(NamedTuple):
    """A message to send."""

    position: int
    message_id: int
    failures: int
    """The delivery count, as in update_front."""
    entry: Entry | None
    """The entry, if the message is in memory."""


def standing_messages(replica: Replica, last: int, unheard: Iterable[Entry]) -> dict[int, StandingMessage]:
    """Returns, by position up to *last*, the messages that the queue has for all members, wherever they are here.

    *unheard*: messages whose dequeue or release was sent and has not come back: it follows later.
    """
    found = {
        (at := entry.position & ARRIVAL_MASK): StandingMessage(at, entry.message_id, _failures(entry), entry)
        for entry in chain(replica.entries(), unheard)
        if entry.position & ARRIVAL_MASK <= last and not entry.is_dequeued
    }
    below = replica.queue.contents.delivered_below
    for position, message_id in replica.stored():
        if position <= last and position not in found:
            found[position] = StandingMessage(position, message_id, 2 if message_id < below else 0, None)
    return found


def _failures(entry: Entry) -> int:
    return entry.failures + 1 if entry.previously_delivered else 0
