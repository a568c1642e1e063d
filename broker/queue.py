"""A queue: messages in order, and consumers who take turns.

The messages are in `contents`; here they are handed out. Consumers take from `ready` only; while they take one batch,
the next one is read ahead of them from the backlog.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Any

from .backlog import Page
from .entry import Entry
from .failures import FailureCounts
from .following import Following
from .gate import Gate
from .policy import policy_of
from .reading import BATCH_MESSAGES, Loaded
from .takers import Taker
from .timing import Timing

if TYPE_CHECKING:
    from .broker import Broker

Driver = Any
"""Of a producer; the queue only knows that it is there."""


class Queue(Following):
    """One queue. Core only."""

    def __init__(self, broker: Broker, name: str, queue_id: int, arguments: Mapping[str, Any]) -> None:
        """*arguments* say its policy. Raises `StoreError` if they are not right."""
        super().__init__(broker, name, queue_id, arguments)
        if self.policy.has_gate:
            self.gate = Gate(broker, self)

    def change(self, arguments: Mapping[str, Any]) -> None:
        """Other arguments, from now on; only such as may change. What is too much by new limits of a ring goes."""
        self.arguments = arguments
        self.policy = policy_of(self.name, arguments)
        if self.gate is not None:
            self.gate.change(self.policy)
        elif self.policy.has_gate:
            self.gate = Gate(self._broker, self)
            self.gate.begin()
        self.keep_counts()
        self._broker.touch(self)

    def keep_counts(self) -> None:
        """Count failed deliveries on the disk, or no more, as the policy says now; not of what a cluster has."""
        if self.policy.max_deliveries and self.counts is None and self.queue_id and not self.replicated:
            self.counts = FailureCounts(self._broker, self)
        elif not self.policy.max_deliveries and self.counts is not None:
            self.counts.emptied(())

    def recovered(self, ids: Sequence[int]) -> None:
        super().recovered(ids)
        if len(ids) and (self.policy.message_ttl_ms or self.policy.expiry_address):
            self._broker.later(self._look_at_times)

    def _look_at_times(self) -> None:
        """What was there before the broker started is over when its time is, whether anybody receives or not."""
        if not self.gone:
            self.begin_timing()
            assert self.timing is not None
            self.timing.walk()

    def begin_timing(self) -> None:
        """There is a message with a time."""
        if self.timing is None:
            self.timing = Timing(self._broker, self)

    def stop_consumers(self) -> None:
        """Hand out nothing (D44). What is being read stays here; nobody is busy, as there is one core."""
        self.stopped = True

    def start_consumers(self) -> None:
        """Hand out what there is again, at the end of the step."""
        self.stopped = False
        self._broker.touch(self)

    # ---- handing out ----------------------------------------------------------------------------------------------

    def dispatch(self) -> None:
        """Hand out what there is to those who want it, in turns."""
        if self.timing is not None:
            self.timing.expire()
        if self.policy.paused or (self.stopped and not self.depth):
            for consumer in list(self.draining):
                consumer.handed_out()
        elif self.consumers and not self.stopped:
            if self.returned or self.policy.is_shaped:
                self._dispatch_returned()
            if self.ready and not self.returned:
                self._dispatch_ready()
            if self.backlog.count:
                self._read_ahead()
            for consumer in list(self.draining):
                consumer.handed_out()
        for browser in self.browsers:
            browser.look()

    def is_reading_for(self, taker: Taker) -> bool:
        """Whether *taker* may get more than it has been given: a batch is under way."""
        return self._reading is not None and not self.ready and taker.room() > 0

    def _read_ahead(self) -> None:
        if self._reading is not None or len(self.ready) >= self._mark:
            return
        if self.may_read():
            self.read_first(self._read)
        else:
            self._memory.starved[self] = None

    def read_first(self, then: Callable[[Page, list[Entry], int], None]) -> None:
        """Read the first page of the backlog; *then* gets it, its messages, and how many places these are.

        Nothing of it is taken out meanwhile. Not while another one is being read.
        """
        assert self._reading is None
        self._reading = page = self.backlog.page(self.backlog.first - 1, BATCH_MESSAGES)
        self.reading_end = page.first + len(page.ids)
        self._reader.load(self, page.stored, lambda contents: self._read_first(page, contents, then))

    def _read_first(
        self, page: Page, contents: list[Loaded], then: Callable[[Page, list[Entry], int], None]
    ) -> None:
        if self._reading is not page:  # the queue was purged meanwhile
            return
        self._reading = None
        self.reading_end = 0
        page = self.backlog.page(page.first - 1, len(page.ids))  # again, with what was put back there meanwhile
        entries, done = self._reader.entries(page, contents, self)
        then(page, entries, done)

    def leave_out(self, page: Page, entries: Sequence[Entry]) -> None:
        """Take *page*, the first one, from the backlog: *entries* are what was read of it, and are held from now on."""
        self.backlog.drop(page)
        self.hold(sum([entry.held_bytes for entry in entries]))
        self.let_go(sum([entry.held_bytes for entry in page.held.values()]))  # they were counted before

    @property
    def is_reading(self) -> bool:
        return self._reading is not None

    def _read(self, page: Page, entries: list[Entry], done: int) -> None:
        self.leave_out(page.cut(done), entries)
        timing = self.timing
        if timing is not None:
            early = timing.early(entries)
            self.let_go(sum([entry.held_bytes for entry in early]))
            timing.hold_up(early)
            entries = [entry for entry in entries if entry not in early]
            timing.watch(entries)
        self.ready.extend(entries)
        self.ready.extend(self.backlog.take_held())
        self._mark = max(1, len(entries))
        self.dispatch()

    def _dispatch_ready(self) -> None:
        ready = self.ready
        consumers = self.consumers
        if len(consumers) == 1:
            room = consumers[0].room()
            if room > 0:
                if room >= len(ready):
                    batch = list(ready)
                    ready.clear()
                else:
                    batch = [ready.popleft() for _ in range(room)]
                consumers[0].take(batch)
            return
        shares: list[tuple[Taker, int, list[Entry]]] = []
        for consumer in consumers:
            room = consumer.room()
            if room > 0:
                shares.append((consumer, room, []))
        turn = 0
        while ready and shares:
            turn %= len(shares)
            consumer, room, share = shares[turn]
            share.append(ready.popleft())
            if len(share) < room:
                turn += 1
            else:
                consumer.take(share)
                del shares[turn]
        if shares:  # whose turn it would be begins with the next batch
            first = consumers.index(shares[turn % len(shares)][0])
            consumers[:] = consumers[first:] + consumers[:first]
        for consumer, _, share in shares:
            if share:
                consumer.take(share)

    def _dispatch_returned(self) -> None:
        """One at a time: a consumer may be excluded from a message, which then waits for another one."""
        held: list[Entry] = []
        while self.returned:
            entry = heappop(self.returned)
            taker = next(
                (
                    consumer
                    for consumer in self.consumers
                    if consumer.room() > 0 and not (entry.excluded and consumer in entry.excluded)
                ),
                None,
            )
            if taker is not None:
                self.consumers.remove(taker)
                self.consumers.append(taker)
                taker.take([entry])
                continue
            held.append(entry)
            if not any(consumer.room() > 0 for consumer in self.consumers):
                break
        for entry in held:
            heappush(self.returned, entry)
        if held and all(entry.excluded for entry in self.returned):
            # nobody here may take what came back, so it must not hold up what is behind it
            waiting, self.returned = self.returned, []
            if self.ready:
                self._dispatch_ready()
            self.returned = waiting
