"""The line: what may not be told or shown before it is durable waits here, in the order of the log. Core only."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from ..store.interface import MessageStore
from .entry import Entry
from .queue import Queue
from .sharing import ALONE_BYTES, LEAST_BYTES, RECENT_BYTES, UNKNOWN_BYTES, fair_bytes

_LOOK_EVERY = 16
"""Notices that something is durable between two looks at how long flushes take."""
Shown = list[tuple[Queue, list[Entry]]]
"""What is on which queue once it is durable."""


class Line:
    """What waits for the store's durable LSN."""

    def __init__(self, store: MessageStore) -> None:
        self._store = store
        self._waiting: deque[tuple[int, Callable[..., None], tuple[Any, ...]]] = deque()
        self._held_up: list[Callable[[], None]] = []
        self._awaited_lsn = -RECENT_BYTES
        """What somebody waited for last, other than the end of a long message."""
        self._fair_bytes = UNKNOWN_BYTES
        self._looks = 0
        self.dirty: dict[Queue, None] = {}
        """Queues where something changed: their messages are handed out at the end of the step."""

    def when_durable(self, lsn: int, action: Callable[..., None], *args: Any) -> None:
        """Do *action* when the record at *lsn* is on the disk; with 0, when everything before it in line is."""
        if lsn < self._store.durable_lsn and not self._waiting:
            action(*args)
        else:
            self._waiting.append((lsn, action, args))
            self._awaited_lsn = lsn or self._awaited_lsn

    def show(self, lsn: int, shown: Shown, then: Callable[..., None], *args: Any) -> None:
        """Put entries on their queues when *lsn* is durable, and do *then*.

        With 0 that is at once, unless something that comes before on one of these queues is waiting.
        """
        waits = False
        for queue, entries in shown:
            queue.messages += len(entries)
            if queue.gate is not None:
                lsn = max(lsn, queue.gate.put(entries))
            waits = waits or queue.waiting > 0
        if waits or lsn:
            for queue, _ in shown:
                queue.waiting += 1
            self.when_durable(lsn, self._show, 1, shown, then, args)
        else:
            self._show(0, shown, then, args)

    def show_long(self, lsn: int, shown: Shown, then: Callable[..., None], *args: Any) -> None:
        """The same for a long message, for whose sake others need not wait."""
        awaited_lsn = self._awaited_lsn
        self.show(lsn, shown, then, *args)
        self._awaited_lsn = awaited_lsn

    def _show(self, waited: int, shown: Shown, then: Callable[..., None], args: tuple[Any, ...]) -> None:
        for queue, entries in shown:
            queue.waiting -= waited
            queue.add(entries)
            if queue.gate is not None:
                queue.gate.shown()
            self.dirty[queue] = None
        then(*args)

    def held_up(self, then: Callable[[], None]) -> bool:
        """Whether so much is on its way to the disk that what is small would wait long; if so, *then* tells the end."""
        if not self._is_long():
            return False
        self._held_up.append(then)
        return True

    def _is_long(self) -> bool:
        store = self._store
        ahead_bytes = store.next_lsn - store.durable_lsn
        return ahead_bytes > LEAST_BYTES and ahead_bytes > self._most_bytes(store.next_lsn)

    def _most_bytes(self, next_lsn: int) -> int:
        if next_lsn - self._awaited_lsn > RECENT_BYTES:
            return ALONE_BYTES
        if not self._looks:
            self._looks = _LOOK_EVERY
            self._fair_bytes = fair_bytes(self._store.last_flushes(), self._fair_bytes)
        return self._fair_bytes

    def move(self) -> None:
        """The store's durable LSN has moved: do what waited for it."""
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
