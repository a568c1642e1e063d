"""Tests that messages and bytes are counted by queue as one would count them one by one."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from cairnmq.store.message_map.message_entry import DetailedMessage, plain
from cairnmq.store.message_map.placement import totals_by_queue
from cairnmq.store.message_map.state import FEW, State

QUEUE_IDS = st.one_of(st.integers(1, 9), st.integers(1, 1 << 40))
"""Queue IDs that are close together, which are counted without a sort, or far apart."""


@st.composite
def pages(draw: st.DrawFn) -> list[tuple[int, int]]:
    """Generate the queue ID and the size of each message of a slot, fewer than `FEW` or more."""
    ids = draw(st.lists(QUEUE_IDS, min_size=1, max_size=4))
    length = draw(st.sampled_from((1, FEW - 1, FEW, 4 * FEW)))
    rng = draw(st.randoms(use_true_random=False))
    return [(rng.choice(ids), rng.choice((0, 1, 256, 65536))) for _ in range(length)]


@given(slots=st.lists(pages(), max_size=3), shared=st.lists(st.tuples(QUEUE_IDS, QUEUE_IDS), max_size=3))
def test_totals_by_queue_are_those_of_the_single_messages(
    slots: list[list[tuple[int, int]]], shared: list[tuple[int, int]]
) -> None:
    state = State(1 << 20)
    messages: Counter[int] = Counter()
    sizes: Counter[int] = Counter()
    for slot, page in enumerate(slots):
        state.pages[slot] = {number: plain(*message) for number, message in enumerate(page)}
        for queue_id, size_bytes in page:
            messages[queue_id] += 1
            sizes[queue_id] += size_bytes
    for number, queue_ids in enumerate(shared):
        message = state.detailed[number] = DetailedMessage()
        message.size_bytes = 100 + number
        message.pieces = {1: (0, 50)}
        message.queues = dict.fromkeys(queue_ids, (0, 0))
        messages.update({*queue_ids})
        sizes.update(dict.fromkeys(queue_ids, message.content_bytes))
    assert totals_by_queue(state) == (messages, +sizes)
