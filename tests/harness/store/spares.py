"""Spare containers of a store."""

from __future__ import annotations

from cairnmq.store.journaled.store import JournalStore


def make_spares(store: JournalStore) -> None:
    """Prepare spare containers, as the containers' thread does beside the traffic."""
    while store.journal.pool.prepare():
        pass
    store.journal.pool.look_at_room()
