"""Queries of the messages on queues over the whole state: for recovery, for tools, and for the start of a broker."""

from __future__ import annotations

from array import array
from collections import Counter, defaultdict

import numpy as np

from .message_entry import SIZE_BITS
from .state import FEW, Lsns, State


def count_by_queue(state: State) -> dict[int, int]:
    """Queue id to how many messages are on it."""
    found: Counter[int] = Counter()
    for page in state.pages.values():
        if len(page) < FEW:
            found.update([value >> SIZE_BITS for value in page.values()])
            continue
        values, counts = np.unique(np.fromiter(page.values(), np.uint64, len(page)), return_counts=True)
        for value, count in zip(values.tolist(), counts.tolist(), strict=True):
            found[value >> SIZE_BITS] += count
    for message in state.detailed.values():
        found.update(message.queues.keys())
    return dict(found)


def on_queues(state: State) -> dict[int, array[int]]:
    """Queue id to the messages on it, in order. Looks at every message."""
    found: dict[int, list[Lsns]] = defaultdict(list)
    others: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for slot in sorted(state.pages):
        page = state.pages[slot]
        if len(page) < FEW:
            for message_id, value in page.items():
                others[value >> SIZE_BITS].append((message_id, message_id))
            continue
        ids = np.fromiter(page.keys(), np.uint64, len(page))
        queues = np.fromiter(page.values(), np.uint64, len(page)) >> np.uint64(SIZE_BITS)
        for queue_id in np.unique(queues).tolist():
            found[queue_id].append(ids[queues == queue_id])
    for message_id, message in state.detailed.items():
        for queue_id, (position, _) in message.queues.items():
            others[queue_id].append((position, message_id))
    return {queue_id: _merged(found[queue_id], others[queue_id]) for queue_id in sorted({*found, *others})}


def _merged(plainly: list[Lsns], others: list[tuple[int, int]]) -> array[int]:
    if not plainly:
        return array("Q", [message_id for _, message_id in sorted(others)])
    ids = np.concatenate(plainly)
    if others:
        places = np.concatenate([ids, np.array([position for position, _ in others], np.uint64)])
        ids = np.concatenate([ids, np.array([message_id for _, message_id in others], np.uint64)])
        ids = ids[np.argsort(places, kind="stable")]
    ordered = array("Q")
    ordered.frombytes(ids.tobytes())
    return ordered
