"""The expiry and delayed delivery of messages on a queue (see `messages.message_times`). Core only.

An expired message is never dispatched. It leaves the queue when its time is over if it is in memory, or first in the
backlog; behind messages without a time in the backlog, it leaves when these do. Delayed messages wait separately,
without their content if it can be read back.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from heapq import heapify, heappop, heappush
from math import inf

from ...base.callbacks import ignore
from ..kernel.context import CoreContext
from ..kernel.memory_budget import ENTRY_BYTES
from ..messages.backlog import Page
from ..messages.death_history import EXPIRY
from ..messages.entry import Entry
from ..messages.message_times import TimedEntry
from .ports import Expirable

MOST_MOVING = 16
"""Expired messages of one queue that are on their way to another address at a time: each is read, and then stored."""
DeadLetter = Callable[[Entry, str, Callable[[int], None]], None]
"""Moves a message off the queue for a reason; the callback gets the LSN to wait for."""


class Expiry:
    """Expiry and delayed delivery on one queue that has had messages with times."""

    def __init__(self, core: CoreContext, queue: Expirable, dead_letter: DeadLetter) -> None:
        self._core = core
        self._queue = queue
        self._dead_letter = dead_letter
        self._expiring: list[tuple[int, int, TimedEntry]] = []
        """A heap of messages in memory: expiry time, position, entry."""
        self._alarm_us = inf
        self._dead = 0
        """Entries that have expired and are still among the others."""
        self._over: deque[Entry] = deque()
        """Expired messages outside of the order that wait to be removed, from the backlog or for a free move."""
        self._is_behind = False
        """The backlog is to be looked at again once `_over` is empty."""
        self._moving = 0
        """Expired messages that are being moved to another address."""
        self._is_put_off = False

    def early(self, entries: Iterable[Entry]) -> dict[Entry, None]:
        """Return those of *entries* that are to be delivered later."""
        now_us = self._core.clock.wall_us()
        return dict.fromkeys(entry for entry in entries if isinstance(entry, TimedEntry) and entry.due_us > now_us)

    def hold_up(self, early: Iterable[Entry]) -> None:
        """Delay messages, which return to the queue when they are due."""
        queue = self._queue
        for entry in early:
            assert isinstance(entry, TimedEntry)
            queue.contents.delayed[entry] = None
            if entry.message_id:  # it can be read back, and may have a long time to wait
                entry.content, entry.held_bytes = None, ENTRY_BYTES
            queue.memory.hold(entry.held_bytes)
            self._core.scheduler.at(entry.due_us, self._due, entry)

    def is_timely(self, entry: Entry) -> bool:
        """Return whether a message is due and has not expired."""
        if not isinstance(entry, TimedEntry):
            return True
        now_us = self._core.clock.wall_us()
        return entry.due_us <= now_us and not 0 < entry.expires_us <= now_us

    def watch(self, entries: Sequence[Entry]) -> None:
        """Watch messages in memory, which may be dispatched from now on, until they expire."""
        for entry in entries:
            if isinstance(entry, TimedEntry) and entry.expires_us:
                heappush(self._expiring, (entry.expires_us, entry.position, entry))
                self._set_alarm(entry.expires_us)

    def watch_stored(self, entries: Sequence[Entry]) -> None:
        """Schedule a check for the first expiry among messages that are not held in memory."""
        ends = [entry.expires_us for entry in entries if isinstance(entry, TimedEntry) and entry.expires_us]
        if ends:
            self._set_alarm(min(ends))

    def _due(self, entry: TimedEntry) -> None:
        queue = self._queue
        contents = queue.contents
        if entry in contents.delayed:
            del contents.delayed[entry]
            contents.give_back(entry)
            self._core.schedule_dispatch(queue)

    def expire(self) -> bool:
        """Remove expired messages, so that they are not dispatched; return False if the rest follows in later steps."""
        queue, now_us = self._queue, self._core.clock.wall_us()
        if not queue.is_owner:  # the decider multicasts it
            return True
        while self._expiring and self._expiring[0][0] <= now_us:
            if not self._has_time():
                self.clean(thoroughly=False)
                return False
            _, _, entry = heappop(self._expiring)
            if not (entry.is_dequeued or entry in queue.contents.delayed or queue.is_held(entry)):
                self._dead += 1
                if self._moving < MOST_MOVING:
                    self._expire(entry)
                else:  # it must not be dispatched, nor hold up other messages
                    queue.contents.delayed[entry] = None
                    self._over.append(entry)
        if self._dead:
            self.clean(any(consumer.room() > 0 for consumer in queue.consumers))
        if self._expiring:
            self._set_alarm(self._expiring[0][0])
        return True

    def _expire(self, entry: Entry) -> None:
        if self._queue.order.limits_events:
            self._dead_letter(entry, EXPIRY, ignore)
            return
        self._moving += 1
        self._dead_letter(entry, EXPIRY, self._expired)

    def _expired(self, lsn: int) -> None:
        """Continue after a message left the queue, or could not leave it yet."""
        self._moving -= 1
        if self._over:
            self._put_off()

    def _has_time(self) -> bool:
        """Return whether more expired messages may be removed in this step; if not, a later step continues."""
        if self._core.background.has_time():
            return True
        self._put_off()
        return False

    def _put_off(self) -> None:
        if not self._is_put_off:
            self._is_put_off = True
            self._core.background.put_off(self._go_on)

    def _go_on(self) -> None:
        self._is_put_off = False
        if not self._queue.is_deleted:
            self._expire_over()
            self._core.schedule_dispatch(self._queue)  # which calls `expire`

    def emptied(self) -> tuple[list[tuple[int, int, TimedEntry]], deque[Entry]]:
        """Reset after a purge or a deletion; return the containers to dispose of.

        Requeued messages are watched again.
        """
        unused = self._expiring, self._over
        self._expiring, self._over, self._dead = [], deque(), 0
        return unused

    def clean(self, thoroughly: bool) -> None:
        """Remove entries from the queue that are dequeued, or are being dequeued."""
        contents = self._queue.contents
        away, ready = contents.delayed, contents.ready
        while ready and (ready[0].is_dequeued or ready[0] in away):
            ready.popleft()
            self._dead -= 1
        if self._dead and (thoroughly or self._dead > len(ready) // 2):
            contents.ready = deque([entry for entry in ready if not (entry.is_dequeued or entry in away)])
            contents.returned = [entry for entry in contents.returned if not (entry.is_dequeued or entry in away)]
            heapify(contents.returned)
            self._dead = 0

    def wake(self) -> None:
        """Start to remove expired messages on this member."""
        self._alarm_us = inf
        if self._expiring:
            self._set_alarm(self._expiring[0][0])
        self.walk()

    def _set_alarm(self, at_us: int) -> None:
        if at_us < self._alarm_us:
            self._alarm_us = at_us
            self._core.scheduler.at(at_us, self._ring, at_us)

    def _ring(self, at_us: int) -> None:
        if at_us == self._alarm_us and not self._queue.is_deleted:
            self._alarm_us = inf
            if not self._queue.is_owner:  # `wake` checks again
                return
            self.expire()
            self.walk()

    def walk(self) -> None:
        """Check the first messages that are not in memory for expiry."""
        queue = self._queue
        contents = queue.contents
        if self._over:
            self._is_behind = True
        elif contents.backlog.count and queue.is_owner and not contents.reader.is_reading:
            contents.reader.read_first(self._walked)

    def _walked(self, page: Page, entries: list[Entry], done: int) -> None:
        queue, now_us = self._queue, self._core.clock.wall_us()
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
        queue.contents.reader.leave_out(page.cut(done), over)
        queue.contents.delayed.update(dict.fromkeys(over))
        self._over.extend(over)
        self._is_behind = done == len(page.ids)
        self._expire_over()
        self._core.schedule_dispatch(queue)

    def _expire_over(self) -> None:
        """Remove expired messages outside of the order; then check the backlog, if it may have more."""
        queue = self._queue
        while self._over:
            if self._moving >= MOST_MOVING or not self._has_time():  # a move that ends continues
                return
            entry = self._over.popleft()
            if entry in queue.contents.delayed and not entry.is_dequeued:  # else it was purged meanwhile
                del queue.contents.delayed[entry]
                self._expire(entry)
        if self._is_behind:
            self._is_behind = False
            self.walk()
