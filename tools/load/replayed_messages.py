"""The arrivals of a journal as messages that are sent again, byte for byte and in order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator

from ...base.errors import CairnError, JournalError
from ...base.texts import counted
from ..history.arrivals import Arrivals, RecordReader
from ..history.history_view import HistoryView
from .bulk_sender import OutgoingMessage

MAX_SPEED = 0.0


class ReplayedMessages:
    """The messages that arrived in a range. Iterate once, then close."""

    def __init__(
        self, past: HistoryView, first_lsn: int, end_lsn: int, wanted: Callable[[int], bool], address: str, *,
        speed: float = MAX_SPEED, rate: float | None = None, count: int | None = None,
    ) -> None:  # fmt: skip
        """*wanted* selects queues by ID. *address*: where to send all; empty for the names of their queues.

        *speed* is relative to their arrivals; *rate* is in messages per second, instead. *count*: the most messages.
        """
        self._past = past
        self._arrivals = Arrivals(past.history, first_lsn, end_lsn, wanted)
        self._records = RecordReader(past.history)
        self._lost: Counter[str] = Counter()
        self._address = address
        self._speed = speed
        self._rate = rate
        self._count = count
        self.next_lsn: int | None = None
        """The LSN of the first message beyond *count*; None without one."""

    def __iter__(self) -> Iterator[OutgoingMessage]:
        first_us = None
        number = 0
        for arrival in self._arrivals:
            if number == self._count:
                self.next_lsn = arrival.lsn
                return
            to = self._address or self._past.queue_names.get(arrival.queue_id, "")
            if not to:
                self._lost[f"queue {arrival.queue_id} has no name any more: end the URL with /ADDRESS"] += 1
                continue
            try:
                content = self._records.content(arrival)
            except CairnError as error:
                self._lost[f"can't be read ({error.reason if isinstance(error, JournalError) else error})"] += 1
                continue
            first_us = arrival.time_us if first_us is None else first_us
            spaced_s = max(0, arrival.time_us - first_us) / 1e6 / self._speed if self._speed else 0.0
            yield OutgoingMessage(arrival.lsn, to, content, number / self._rate if self._rate else spaced_s)
            number += 1

    def faults(self) -> list[str]:
        """Return the reasons why messages of the range were not sent."""
        found = [f"LSN {one.first_lsn} to {one.end_lsn} can't be read: {one.reason}" for one in self._arrivals.damage]
        if self._arrivals.unreadable:
            found.append(f"the content of {counted(len(self._arrivals.unreadable), 'message')} is not kept any more")
        return found + [f"{name}: {counted(number, 'message')}" for name, number in self._lost.items()]

    def close(self) -> None:
        self._records.close()
