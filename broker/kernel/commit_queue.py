"""The commit queue: answers and messages that wait for their records to be durable, in log order. Core only."""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Sequence
from time import perf_counter
from typing import Any

from ...base.histogram import Histogram
from ...store.contract.interface import MessageStore
from ..messages.entry import Entry
from ..users.user_accounts import OwnedQueue
from .fair_share import ALONE_BYTES, LEAST_BYTES, RECENT_BYTES, UNKNOWN_BYTES, fair_bytes
from .ports import CoreQueue, Dispatchable

_LOOK_EVERY = 16
"""The number of moves of the durable LSN between two looks at the durations of flushes."""
Shown = Sequence[tuple[CoreQueue, list[Entry]]]
"""Queues, each with the entries to put on it once they are durable."""


class CommitQueue:
    """Actions that wait for the durable LSN of the store."""

    def __init__(self, store: MessageStore, charged: dict[OwnedQueue, None], settle_s: Histogram) -> None:
        """*charged*: gets the queues with an owner that messages were put on; *settle_s*: see `latencies`."""
        self._store = store
        self._charged = charged
        self._waiting: deque[tuple[int, Callable[..., None], tuple[Any, ...]]] = deque()
        self._held_up: list[Callable[[], None]] = []
        self._awaited_lsn = -RECENT_BYTES
        """The last LSN that an action waited for, other than the end of a long message."""
        self._fair_bytes = UNKNOWN_BYTES
        self._looks = 0
        self._settle_s = settle_s
        self._timed_lsn = 0
        """The LSN of the waiting action that is measured; 0 for none."""
        self._timed_from_s = 0.0
        self.dirty: dict[Dispatchable, None] = {}
        """Queues with changes, whose messages are dispatched at the end of the step."""

    def when_durable(self, lsn: int, action: Callable[..., None], *args: Any) -> None:
        """Do *action* when the record at *lsn* is on the disk; with 0, when everything before it in line is."""
        if lsn < self._store.durable_lsn and not self._waiting:
            action(*args)
        else:
            self._waiting.append((lsn, action, args))
            self._awaited_lsn = lsn or self._awaited_lsn
            if lsn and not self._timed_lsn:
                self._timed_lsn, self._timed_from_s = lsn, perf_counter()

    def show(self, lsn: int, shown: Shown, then: Callable[..., None], *args: Any) -> None:
        """Put entries on their queues when *lsn* is durable, and call *then*.

        With 0 that happens at once, unless earlier entries of one of these queues are waiting.
        """
        waits = False
        for queue, entries in shown:
            queue.messages += len(entries)
            if queue.account is not None:
                self._charged[queue] = None
            if queue.limits is not None:
                lsn = max(lsn, queue.limits.count_enqueued(entries))
            waits = waits or queue.waiting > 0
        if waits or lsn:
            for queue, _ in shown:
                queue.waiting += 1
            if lsn < self._store.durable_lsn and not self._waiting:
                self._show(1, shown, then, args)
            else:  # `when_durable`, without a call
                self._waiting.append((lsn, self._show, (1, shown, then, args)))
                self._awaited_lsn = lsn or self._awaited_lsn
                if lsn and not self._timed_lsn:
                    self._timed_lsn, self._timed_from_s = lsn, perf_counter()
        else:
            self._show(0, shown, then, args)

    def show_long(self, lsn: int, shown: Shown, then: Callable[..., None], *args: Any) -> None:
        """Put entries of a long message on their queues as `show` does, without counting its end as awaited."""
        awaited_lsn = self._awaited_lsn
        self.show(lsn, shown, then, *args)
        self._awaited_lsn = awaited_lsn

    def _show(self, waited: int, shown: Shown, then: Callable[..., None], args: tuple[Any, ...]) -> None:
        for queue, entries in shown:
            queue.waiting -= waited
            queue.add(entries)
            if queue.limits is not None:
                queue.limits.shown()
            self.dirty[queue] = None
        then(*args)

    def held_up(self, then: Callable[[], None]) -> bool:
        """Return whether small messages would wait long for the disk; if so, *then* is called when that ends."""
        if not self._is_long():
            return False
        self._held_up.append(then)
        return True

    def _is_long(self) -> bool:
        next_lsn = self._store.next_lsn
        ahead_bytes = next_lsn - self._store.durable_lsn
        return ahead_bytes > LEAST_BYTES and ahead_bytes > self._most_bytes(next_lsn)

    def _most_bytes(self, next_lsn: int) -> int:
        if next_lsn - self._awaited_lsn > RECENT_BYTES:
            return ALONE_BYTES
        if not self._looks:
            self._looks = _LOOK_EVERY
            self._fair_bytes = fair_bytes(self._store.last_flushes(), self._fair_bytes)
        return self._fair_bytes

    def move(self) -> None:
        """Do the actions that waited for the durable LSN of the store, which has moved."""
        if self._held_up:
            self._looks = max(0, self._looks - 1)
            if not self._is_long():
                relieved, self._held_up = self._held_up, []
                for then in relieved:
                    then()
        waiting, durable_lsn = self._waiting, self._store.durable_lsn
        while waiting and waiting[0][0] < durable_lsn:
            _, action, args = waiting.popleft()
            action(*args)
        if 0 < self._timed_lsn < durable_lsn:
            settle_s, took_s = self._settle_s, perf_counter() - self._timed_from_s
            settle_s.counts[bisect_left(settle_s.bounds, took_s)] += 1  # `observe`, without a call
            settle_s.total += took_s
            self._timed_lsn = 0
