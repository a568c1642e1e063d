"""The messages that stand on a replicated queue at one place in the order, for all members. Core only."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain
from typing import NamedTuple

from ...broker.messages.entry import ARRIVAL_MASK, Entry
from .replica import Replica


class StandingMessage(NamedTuple):
    """A message to be brought."""

    position: int
    message_id: int
    failures: int
    """As in update_front."""
    entry: Entry | None
    """If it is in memory."""


def standing_messages(replica: Replica, last: int, unheard: Iterable[Entry]) -> dict[int, StandingMessage]:
    """By position, up to *last*, what is on a queue for all members now, wherever it is here.

    *unheard*: messages of which something was said, and not heard yet: it comes later.
    """
    found = {
        (at := entry.position & ARRIVAL_MASK): StandingMessage(at, entry.message_id, _failures(entry), entry)
        for entry in chain(replica.entries(), unheard)
        if entry.position & ARRIVAL_MASK <= last and not entry.gone
    }
    below = replica.queue.delivered_below
    for position, message_id in replica.stored():
        if position <= last and position not in found:
            found[position] = StandingMessage(position, message_id, 2 if message_id < below else 0, None)
    return found


def _failures(entry: Entry) -> int:
    return entry.failures + 1 if entry.previously_delivered else 0
