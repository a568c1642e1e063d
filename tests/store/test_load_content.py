"""Tests of reads of content by offset and length, for any division of the content into pieces."""

from __future__ import annotations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from cairnmq.base.errors import StoreError
from cairnmq.journal.format.record import MAX_PAYLOAD_BYTES
from tests.harness.store.stores import BIG, NOW_US, Disk, put, queue


@given(
    sizes=st.lists(st.sampled_from([0, 1, 100, 65_535, 65_536, 70_000]), min_size=1, max_size=6),
    offset=st.integers(0, 300_000),
    length=st.integers(0, 300_000),
)
@example(sizes=[100], offset=1, length=0)
@settings(max_examples=60)
def test_content_is_loaded_from_anywhere(sizes: list[int], offset: int, length: int) -> None:
    """E31: a read may cross pieces, and loads no piece without requested content."""
    store, _ = Disk().open()
    content = (BIG * 7)[5 : 5 + sum(sizes)]
    message_id = store.stage(content[: sizes[0]], NOW_US)
    begin = sizes[0]
    for size in [*sizes[1:], 0]:
        store.append_content(message_id, content[begin : begin + size], NOW_US, last=False)
        begin += size
    store.append_content(message_id, b"", NOW_US, last=True)
    store.kick()
    read: list[int] = []
    load_piece = store.reads.load_piece

    def counted(message_id: int, number: int) -> bytes:
        piece = load_piece(message_id, number)
        read.append(len(piece))
        return piece

    store.reads.load_piece = counted  # type: ignore[method-assign]
    found = store.load_content(message_id, offset, length)
    assert found == content[offset : offset + length]
    assert sum(read) <= len(found) + 2 * MAX_PAYLOAD_BYTES
    assert (read == []) == (found == b"")


def test_content_of_a_plain_message_is_loaded_from_anywhere() -> None:
    """E31: each offset and length of a plain message can be read; invalid ones raise."""
    store, _ = Disk().open()
    message_id = put(store, queue(store), b"content")
    store.kick()
    for offset in range(9):
        for length in range(9):
            assert store.load_content(message_id, offset, length) == b"content"[offset : offset + length]
    for wrong in ((message_id, -1, 2), (message_id, 0, -1), (12345, 0, 1)):
        with pytest.raises(StoreError):
            store.load_content(*wrong)
