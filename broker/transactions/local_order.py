"""The order of queues that this broker alone has. Core only."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ...base.callbacks import ignore
from ...store.contract.dequeue_reason import DequeueReason
from ..kernel.context import CoreContext
from ..messages.entry import Entry
from ..queues.ends import SourceQueue
from ..queues.purges import QueuePurges
from .dead_letters import Returns


class LocalOrder:
    """The order of one queue: a change is done at once, and safe when it is durable."""

    finds_by_position = False
    counts_failures = True
    remembers_together = False
    limits_events = False

    __slots__ = ("_core", "_purges", "_queue", "_returns")

    def __init__(self, core: CoreContext, returns: Returns, purges: QueuePurges, queue: SourceQueue) -> None:
        self._queue = queue
        self._core = core
        self._returns = returns
        self._purges = purges

    def take(self, entries: Sequence[Entry], reason: DequeueReason, then: Callable[..., None], *args: Any) -> None:
        core, queue = self._core, self._queue
        stored = [entry.message_id for entry in entries if entry.message_id]
        lsns = core.store.dequeue_all(stored, queue.queue_id, core.clock.wall_us(), reason)
        queue.count_dequeued(entries)
        core.commits.when_durable(lsns[-1] if lsns else 0, then, *args)

    def drop(self, entries: Sequence[Entry], reason: DequeueReason, then: Callable[[], None]) -> None:
        self._queue.count_dequeued(entries)
        stored = [entry.message_id for entry in entries if entry.message_id]
        if stored:
            self._core.store.dequeue_all(stored, self._queue.queue_id, self._core.clock.wall_us(), reason)
        then()

    def drop_free(self, entries: Sequence[Entry], reason: DequeueReason, take_out: Callable[[Entry], bool]) -> None:
        out = [entry for entry in entries if not (entry.is_dequeued or self._queue.is_held(entry))]
        if out:
            self.drop(out, reason, ignore)

    def drop_returned(self, entry: Entry, reason: DequeueReason) -> bool:
        self.drop([entry], reason, ignore)
        return True

    def dead_letter(self, entry: Entry, reason: DequeueReason, then: Callable[[int], None]) -> None:
        core, queue = self._core, self._queue
        queue.count_dequeued([entry])
        lsn = 0
        if entry.message_id:
            lsn = core.store.dequeue(entry.message_id, queue.queue_id, core.clock.wall_us(), reason)
        then(lsn)

    def rewrite(self, entry: Entry, content: bytes) -> int:
        return self._returns.rewrite(self._queue, entry, content)

    def still_has(self, entry: Entry) -> bool:
        return entry in self._queue.contents.delayed

    def answer(self, then: Callable[..., None], *args: Any) -> None:
        self._core.commits.when_durable(0, then, *args)

    def requeue(self, entry: Entry, failed: bool, then: Callable[[], None]) -> bool:
        self._returns.give_back(self._queue, entry, failed=failed)
        return True

    def release(self, entry: Entry, failed: bool) -> None:
        self._queue.contents.give_back(entry)

    def _do_nothing(self) -> None:
        """Do nothing: no other member counts consumers or keeps state, and released messages are back already."""

    release_all = consuming = not_consuming = deleted = _do_nothing

    def has_other_consumers(self) -> bool:
        return False

    def deletes(self) -> bool:
        return True

    def purge(self, done: Callable[[int | Exception], None], user: str) -> None:
        self._purges.purge(self._queue, done, user)
