"""Purges: all messages of a queue leave it by one record, and the work that follows is done in slices. Core only."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial

from ...base.callbacks import ignore
from ...base.errors import CairnError
from ...store.contract.interface import PurgesInSlices
from ..kernel.context import CoreContext
from .ends import SourceQueue


class QueuePurges:
    """The purges of queues that this broker orders alone, and of deleted queues."""

    def __init__(self, core: CoreContext) -> None:
        self._core = core

    def purge(self, queue: SourceQueue, done: Callable[[int | Exception], None], user: str) -> None:
        """Take all messages off *queue* but those that consumers and transactions have; *done* gets how many.

        They are off the queue at once. *done* is called when the work that follows is done, in turns of *user*, and
        when the purge is durable.
        """
        purging: Iterator[int] = iter((0,))
        if queue.queue_id:
            keep = [entry.message_id for entry in queue.with_consumers() if entry.message_id]
            try:
                purging = self._cut(queue.queue_id, keep=keep)
            except CairnError as error:
                done(error)
                return
        count = queue.clear(user)

        def purged(lsn: int) -> None:
            self._core.disposal.then(lambda: self._core.commits.when_durable(lsn, done, count), user)

        self._go_on(purging, user, purged)

    def purge_deleted(self, queue_id: int) -> None:
        """Purge a deleted durable queue by one record; the wiring forgets the queue when the record is durable."""
        forget = self._core.store.finish_destroy_queue

        def purged(lsn: int) -> None:
            self._core.commits.when_durable(lsn, forget, queue_id, ignore)

        self._go_on(self._cut(queue_id, is_final=True), "", purged)

    def _cut(self, queue_id: int, *, keep: Sequence[int] = (), is_final: bool = False) -> Iterator[int]:
        """Begin the purge; go through the returned LSNs to complete it, and wait for the last one."""
        store, now_us = self._core.store, self._core.clock.wall_us()
        if isinstance(store, PurgesInSlices):
            return store.purge_in_slices(queue_id, now_us, keep=keep, is_final=is_final)
        return iter((store.purge(queue_id, now_us, keep=keep, is_final=is_final),))

    def _go_on(self, purging: Iterator[int], user: str, then: Callable[[int], None], lsn: int = 0) -> None:
        """Go on as long as this step has time; *then* gets the last LSN, which is *lsn* if there are no more."""
        background = self._core.background
        for last_lsn in purging:
            lsn = last_lsn
            if not background.has_time():
                background.put_off(partial(self._go_on, purging, user, then, lsn), user)
                return
        then(lsn)
