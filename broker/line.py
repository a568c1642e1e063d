"""The line: what may not be told or shown before it is durable waits here, in the order of the log. Core only."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from ..store.interface import MessageStore
from .entry import Entry
from .queue import Queue

AHEAD_BYTES = 512 << 10
"""With more than this on its way to the disk, long messages wait for it before more of them is read."""
Shown = list[tuple[Queue, list[Entry]]]
"""What is on which queue once it is durable."""


class Line:
    """What waits for the store's durable LSN."""

    def __init__(self, store: MessageStore) -> None:
        self._store = store
        self._waiting: deque[tuple[int, Callable[..., None], tuple[Any, ...]]] = deque()
        self._held_up: list[Callable[[], None]] = []
        self.dirty: dict[Queue, None] = {}
        """Queues where something changed: their messages are handed out at the end of the step."""

    def when_durable(self, lsn: int, action: Callable[..., None], *args: Any) -> None:
        """Do *action* when the record at *lsn* is on the disk; with 0, when everything before it in line is."""
        if lsn < self._store.durable_lsn and not self._waiting:
            action(*args)
        else:
            self._waiting.append((lsn, action, args))

    def show(self, lsn: int, shown: Shown, then: Callable[..., None], *args: Any) -> None:
        """Put entries on their queues when *lsn* is durable, and do *then*.

        With 0 that is at once, unless something that comes before on one of these queues is waiting.
        """
        waits = lsn > 0
        for queue, entries in shown:
            queue.messages += len(entries)
            if queue.gate is not None:
                queue.gate.put(entries)
            waits = waits or queue.waiting > 0
        if waits:
            for queue, _ in shown:
                queue.waiting += 1
            self.when_durable(lsn, self._show, 1, shown, then, args)
        else:
            self._show(0, shown, then, args)

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
        return self._store.next_lsn - self._store.durable_lsn > AHEAD_BYTES

    def move(self) -> None:
        """The store's durable LSN has moved: do what waited for it."""
        if self._held_up and not self._is_long():
            relieved, self._held_up = self._held_up, []
            for then in relieved:
                then()
        waiting, durable_lsn = self._waiting, self._store.durable_lsn
        while waiting and waiting[0][0] < durable_lsn:
            _, action, args = waiting.popleft()
            action(*args)
