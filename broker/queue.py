"""A queue: messages in order, and consumers who take turns.

Order is by position. A message that comes back keeps its position and so goes out again before all later ones. Only
what is durable is on the queue: the broker puts a batch here when the flush that holds it is done.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from heapq import heappop, heappush
from itertools import count
from typing import Protocol

from .entry import Entry


class Taker(Protocol):
    """A consumer, as the queue sees it."""

    def room(self) -> int:
        """How many messages it wants now."""
        ...

    def take(self, entries: list[Entry]) -> None:
        """These are its own now."""
        ...


class Looker(Protocol):
    """A browser, as the queue sees it."""

    def look(self) -> None:
        """There may be something new to see."""
        ...


class Queue:
    """One queue. Core only."""

    def __init__(self, name: str, queue_id: int) -> None:
        self.name = name
        self.queue_id = queue_id
        """The wiring's id; 0 for a queue that is not durable."""
        self.maker: object = None
        """The driver it goes away with, if it was made for one channel."""
        self.owner: object = None
        """The connection it goes away with."""
        self.waiting = 0
        """Batches that are not durable yet: what comes behind them must wait too."""
        self.ready: deque[Entry] = deque()
        self.returned: list[Entry] = []
        """A heap of messages that came back: all of them stand before `ready`."""
        self.consumers: list[Taker] = []
        self.browsers: list[Looker] = []
        self.positions = count(1)
        self.gone = False

    @property
    def depth(self) -> int:
        """Messages that can be taken now."""
        return len(self.ready) + len(self.returned)

    def add(self, entries: Iterable[Entry]) -> None:
        self.ready.extend(entries)

    def give_back(self, entry: Entry) -> None:
        """A consumer did not want it after all."""
        heappush(self.returned, entry)

    def dispatch(self) -> None:
        """Hand out what there is to those who want it, in turns."""
        if self.consumers and (self.ready or self.returned):
            if self.returned:
                self._dispatch_returned()
            if self.ready and not self.returned:
                self._dispatch_ready()
        for browser in self.browsers:
            browser.look()

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

    def snapshot(self, after: int) -> list[Entry]:
        """What can be seen now of the messages with positions above *after*, in order: for browsers."""
        found = sorted(entry for entry in self.returned if entry.position > after)
        if self.ready and self.ready[-1].position > after:
            fresh: list[Entry] = []
            for entry in reversed(self.ready):
                if entry.position <= after:
                    break
                fresh.append(entry)
            fresh.reverse()
            found += fresh
        return found
