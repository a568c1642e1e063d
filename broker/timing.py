"""The clockwork of queues whose messages have times (`times`). Core only.

What has expired is never handed out. It leaves the queue when its time is over if it is in memory, or stands first in
what is not; behind messages that have no time and are not in memory, it leaves when these do. What is to be delivered
later waits apart, without its content if that can be read back.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from heapq import heapify, heappop, heappush
from math import inf
from typing import TYPE_CHECKING

from .backlog import Page
from .entry import Entry
from .memory import ENTRY_BYTES
from .policy import EXPIRY
from .times import TimedEntry

if TYPE_CHECKING:
    from .broker import Broker
    from .queue import Queue


class Timing:
    """The clockwork of one queue that has had messages with times."""

    def __init__(self, broker: Broker, queue: Queue) -> None:
        self._broker = broker
        self._queue = queue
        self._expiring: list[tuple[int, int, TimedEntry]] = []
        """A heap of those in memory: when, position, and which."""
        self._alarm_us = inf
        self._dead = 0
        """Entries that have expired and are still among the others."""

    def early(self, entries: Iterable[Entry]) -> dict[Entry, None]:
        """Those of *entries* that are to be delivered later."""
        now_us = self._broker.clock.wall_us()
        return dict.fromkeys(entry for entry in entries if isinstance(entry, TimedEntry) and entry.due_us > now_us)

    def hold_up(self, early: Iterable[Entry]) -> None:
        """These come back by themselves, when it is time."""
        now_us = self._broker.clock.wall_us()
        for entry in early:
            assert isinstance(entry, TimedEntry)
            self._hold_up(entry, now_us)

    def is_timely(self, entry: Entry) -> bool:
        """Whether it may be handed out now."""
        if not isinstance(entry, TimedEntry):
            return True
        now_us = self._broker.clock.wall_us()
        return entry.due_us <= now_us and not 0 < entry.expires_us <= now_us

    def watch(self, entries: Sequence[Entry]) -> None:
        """These are in memory, and may be handed out from now on, as long as they live."""
        for entry in entries:
            if isinstance(entry, TimedEntry) and entry.expires_us:
                heappush(self._expiring, (entry.expires_us, entry.position, entry))
                self._set_alarm(entry.expires_us)

    def watch_stored(self, entries: Sequence[Entry]) -> None:
        """These are not held in memory: look again when the first of them is over."""
        ends = [entry.expires_us for entry in entries if isinstance(entry, TimedEntry) and entry.expires_us]
        if ends:
            self._set_alarm(min(ends))

    def _hold_up(self, entry: TimedEntry, now_us: int) -> None:
        queue = self._queue
        queue.away[entry] = None
        if entry.message_id:  # it can be read back, and may have a long time to wait
            entry.content, entry.held_bytes = None, ENTRY_BYTES
        queue.hold(entry.held_bytes)
        self._broker.timers.after((entry.due_us - now_us) / 1_000_000, self._due, entry)

    def _due(self, entry: TimedEntry) -> None:
        queue = self._queue
        if entry in queue.away:
            del queue.away[entry]
            queue.give_back(entry)
            self._broker.touch(queue)

    # ---- expiry ---------------------------------------------------------------------------------------------------

    def expire(self) -> None:
        """Take out what is over, so that it is not handed out."""
        queue, now_us = self._queue, self._broker.clock.wall_us()
        if not queue.decides:  # who decides says so, to all
            return
        while self._expiring and self._expiring[0][0] <= now_us:
            _, _, entry = heappop(self._expiring)
            if not (entry.gone or entry in queue.away or queue.is_held(entry)):
                self._dead += 1
                self._broker.returns.bury(queue, entry, EXPIRY, _nobody_waits)
        if self._dead:
            self.clean(bool(queue.consumers))

    def clean(self, thoroughly: bool) -> None:
        """Take entries that are gone, or going, from between the others."""
        queue = self._queue
        away, ready = queue.away, queue.ready
        while ready and (ready[0].gone or ready[0] in away):
            ready.popleft()
            self._dead -= 1
        if self._dead and (thoroughly or self._dead > len(ready) // 2):
            queue.ready = deque([entry for entry in ready if not (entry.gone or entry in away)])
            queue.returned = [entry for entry in queue.returned if not (entry.gone or entry in away)]
            heapify(queue.returned)
            self._dead = 0

    def wake(self) -> None:
        """It is decided here from now on: see what is over."""
        self._alarm_us = inf
        if self._expiring:
            self._set_alarm(self._expiring[0][0])
        self.walk()

    def _set_alarm(self, at_us: int) -> None:
        if at_us < self._alarm_us:
            self._alarm_us = at_us
            self._broker.timers.after(max(0, at_us - self._broker.clock.wall_us()) / 1_000_000, self._ring, at_us)

    def _ring(self, at_us: int) -> None:
        if at_us == self._alarm_us and not self._queue.gone:
            self._alarm_us = inf
            if not self._queue.decides:  # `wake` looks again
                return
            self.expire()
            self.walk()
            if self._expiring:
                self._set_alarm(self._expiring[0][0])

    # ---- what is not in memory ------------------------------------------------------------------------------------

    def walk(self) -> None:
        """Look at the first messages that are not in memory, whether they are over."""
        queue = self._queue
        if queue.backlog.count and queue.decides and not queue.is_reading:
            queue.read_first(self._walked)

    def _walked(self, page: Page, entries: list[Entry], done: int) -> None:
        queue, now_us = self._queue, self._broker.clock.wall_us()
        over: list[Entry] = []
        for entry in entries:
            if not isinstance(entry, TimedEntry) or not entry.expires_us:
                break
            if entry.expires_us > now_us:
                self._set_alarm(entry.expires_us)
                break
            over.append(entry)
        if len(over) < len(entries):
            done = over[-1].position + 1 - page.first if over else 0
        queue.leave_out(page.cut(done), over)
        for entry in over:
            self._broker.returns.bury(queue, entry, EXPIRY, _nobody_waits)
        self._broker.touch(queue)
        if done == len(page.ids):
            self.walk()


def _nobody_waits(lsn: int) -> None:
    """That a message has expired is told to nobody."""
