"""Completion of pending queue deletions in recovery: deletes the messages, then the note in the wiring."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from ..base.callbacks import ignore
from ..store.contract.owner import OwnedStore


def expunge_going(store: OwnedStore, on_queue: Mapping[int, int], time_us: int) -> Counter[str]:
    """Dequeue the messages of queues that are being deleted; return the numbers by queue. Call it before `start`.

    *on_queue*: the number of messages on each queue by its ID. After an interruption the next recovery repeats the
    changes that are not durable (checklist E53, E55). It also repeats those for a queue that a prepared transaction
    concerns: until that is decided, the note is kept.
    """
    expunged: Counter[str] = Counter()
    for row in store.going_queues():
        count = on_queue.get(row.id, 0) - len(store.transactions.locks.dequeued_from(row.id))
        is_in_doubt = bool(store.transactions.working_on(row.id))
        if count:
            store.purge(row.id, time_us, is_final=not is_in_doubt)
            expunged[row.name] += count
        store.kick()
        if not is_in_doubt:
            store.finish_destroy_queue(row.id, ignore)  # without the server the note stays, and does no harm
    return expunged
