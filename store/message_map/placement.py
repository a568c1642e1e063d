"""Queries of the messages on queues over the whole state: for recovery, for tools, and for the start of a broker."""

from __future__ import annotations

from array import array
from collections import Counter, defaultdict

import numpy as np

from .message_entry import SIZE_BITS, SIZE_MASK
from .state import FEW, Lsns, State


def totals_by_queue(state: State) -> tuple[dict[int, int], dict[int, int]]:
    """Count the messages on each queue, and the bytes of their contents, by queue ID. Reads every message."""
    messages: Counter[int] = Counter()
    sizes: Counter[int] = Counter()
    for page in state.pages.values():
        if len(page) < FEW:
            messages.update([value >> SIZE_BITS for value in page.values()])
            for value in page.values():
                sizes[value >> SIZE_BITS] += value & SIZE_MASK
            continue
        values = np.fromiter(page.values(), np.int64, len(page))
        queue_ids = values >> SIZE_BITS
        first = int(queue_ids.min())
        if int(queue_ids.max()) - first < 4 * len(page):  # then no sort is needed
            which, known = queue_ids - first, range(first, int(queue_ids.max()) + 1)
        else:
            found, which = np.unique(queue_ids, return_inverse=True)
            known = found.tolist()
        counts, sums = np.bincount(which), np.bincount(which, weights=values & SIZE_MASK)
        for at in counts.nonzero()[0].tolist():
            messages[known[at]] += int(counts[at])
            sizes[known[at]] += int(sums[at])
    for message in state.detailed.values():
        messages.update(message.queues.keys())
        for queue_id in message.queues:
            sizes[queue_id] += message.content_bytes
    return dict(messages), {queue_id: size_bytes for queue_id, size_bytes in sizes.items() if size_bytes}


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
