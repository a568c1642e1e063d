"""Tests of the backlog as a list of messages by position, for any sizes of its chunks."""

from __future__ import annotations

import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cairnmq.broker.messages import backlog
from cairnmq.broker.messages.backlog import Backlog
from cairnmq.broker.messages.entry import Entry

moves = st.one_of(
    st.tuples(st.just("extend"), st.integers(1, 30)),
    st.tuples(st.just("hold"), st.integers(1, 5)),
    st.tuples(st.just("drop"), st.integers(1, 40)),
    st.tuples(st.just("take"), st.just(0)),
)


@given(done=st.lists(moves, max_size=40), after=st.integers(0, 300), most=st.integers(1, 50))
@settings(max_examples=300)
def test_it_is_a_list_by_position(done: list[tuple[str, int]], after: int, most: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(backlog, "CHUNK_MESSAGES", 7)
        check_moves(done, after, most)


def check_moves(done: list[tuple[str, int]], after: int, most: int) -> None:
    found, model, position = Backlog(), list[tuple[int, int]](), 1
    for what, number in done:
        if what == "extend":
            ids = [1000 + position + n for n in range(number)]
            found.extend(position, ids)
            model += zip(range(position, position + number), ids, strict=True)
            position += number
        elif what == "hold":
            for _ in range(number):
                found.hold(Entry(0, position, b"", 1))
                model.append((position, 0))
                position += 1
        elif what == "drop":
            page = found.page(0, number)
            found.drop(page)
            assert list(enumerate(page.ids, page.first)) == model[:number] or not page.ids
            assert set(page.held) == {at for at, message_id in model[:number] if not message_id}
            del model[:number]
        else:
            taken = [entry.position for entry in found.take_held()]
            assert taken == [at for at, _ in model[: len(taken)]]
            del model[: len(taken)]
            assert not model or model[0][1]
        if not model:
            position += 3  # positions advance while the backlog is empty
        assert found.count == len(model)
        assert found.stored == sum(1 for _, message_id in model if message_id)
    page = found.page(after, most)
    assert list(enumerate(page.ids, page.first)) == [one for one in model if one[0] > after][:most]
    assert list(page.stored) == [message_id for message_id in page.ids if message_id]
    cut = page.cut(len(page.ids) // 2)
    assert set(cut.held) == {at for at, message_id in enumerate(cut.ids, cut.first) if not message_id}


def test_a_deep_backlog_costs_eight_bytes_a_message() -> None:
    tracemalloc.start()
    try:
        found = Backlog()
        for position in range(1, 1_000_001, 1000):
            found.extend(position, range(position, position + 1000))
        assert tracemalloc.get_traced_memory()[0] < 9_600_000
        found.drop(found.page(0, 999_000))
        assert tracemalloc.get_traced_memory()[0] < 2_000_000
    finally:
        tracemalloc.stop()
