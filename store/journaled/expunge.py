"""Completion of pending queue deletions in recovery: deletes the messages, then the note in the wiring."""

from __future__ import annotations

from ...base.callbacks import ignore
from ..message_map.placement import count_by_queue
from .store import JournalStore


def expunge_going(store: JournalStore, time_us: int) -> dict[str, int]:
    """Dequeue the messages of queues that are being deleted; return the numbers by queue. Call it before `start`.

    After an interruption the next recovery repeats the changes that are not durable (checklist E53, E55). It also
    repeats those for a queue that a prepared transaction concerns: until that is decided, the note is kept.
    """
    prepared = store.state.outcomes.prepared.values()
    in_doubt = {queue_id for transaction in prepared for _, _, queue_id in transaction.intentions}
    expunged: dict[str, int] = {}
    on_queue = count_by_queue(store.state) if store.going_queues() else {}
    for row in store.going_queues():
        count = on_queue.get(row.id, 0) - len(store.transactions.locks.dequeued_from(row.id))
        if count:
            store.purge(row.id, time_us, is_final=row.id not in in_doubt)
            expunged[row.name] = expunged.get(row.name, 0) + count
        store.kick()
        if row.id not in in_doubt:
            store.finish_destroy_queue(row.id, ignore)  # without the server the note stays, and does no harm
    store.places.settle_all()
    return expunged
