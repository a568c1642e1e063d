"""Tests of the record header, which has 64 bytes, and is read as it was packed."""

from __future__ import annotations

import numbers

from hypothesis import given
from hypothesis import strategies as st

from cairnmq.journal.format.record import HEAD, HEAD_BYTES, RecordHead, RecordType, heads_of, type_name

BYTE, U16, U32, U64 = (st.integers(0, 2**bits - 1) for bits in (8, 16, 32, 64))
HEADS = st.builds(RecordHead, BYTE, BYTE, U16, U32, U32, U32, U64, U64, U64, U64, U64, U64)


@given(heads=st.lists(HEADS, max_size=5))
def test_what_was_packed_is_read(heads: list[RecordHead]) -> None:
    table = b"".join(HEAD.pack(*head) for head in heads)
    assert len(table) == HEAD_BYTES * len(heads) == 64 * len(heads)
    assert list(heads_of(memoryview(table))) == heads


@given(head=HEADS)
def test_every_field_stands_where_the_table_says(head: RecordHead) -> None:
    packed = HEAD.pack(*head)
    places = {"type": (0, 1), "flags": (1, 1), "number": (2, 2), "place": (4, 4), "size": (8, 4), "crc32c": (12, 4)}
    names = ("undo_prev", "message_id", "queue_id", "txn_id", "time_us", "extra")
    places |= {name: (16 + 8 * index, 8) for index, name in enumerate(names)}
    assert list(places) == list(RecordHead._fields)
    for name, (at, size) in places.items():
        assert int.from_bytes(packed[at : at + size], "little") == getattr(head, name)


def test_types_have_names() -> None:
    """E16, E33: record types have the names of the papers; an unknown number is shown as such."""
    papers = "start chunk delete enqueue dequeue dtx-start tx-start tx-end tx-prepare tx-commit tx-rollback tx-delete"
    assert [type_name(kind) for kind in RecordType][:12] == papers.split()
    assert type_name(200) == "type-200"
    assert all(isinstance(kind, numbers.Integral) and 0 < kind < 256 for kind in RecordType)
