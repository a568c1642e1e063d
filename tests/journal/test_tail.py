"""Tests of followers, which read the log from any place while it is written, and detect that a place was reclaimed."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cairnmq.journal.format.record import RecordType
from cairnmq.journal.read.follower import Follower, HistoryReclaimed
from cairnmq.journal.write.journal import Journal
from tests.harness.journal.logs import new_log

BIG = 60000


def append(journal: Journal, number: int, size_bytes: int) -> int:
    return journal.append(RecordType.START, number.to_bytes(4) + bytes(size_bytes), time_us=0)


def given_by(tail: Follower, durable_lsn: int, from_lsn: int = 0) -> list[int]:
    """Return the numbers of the records that *tail* reads at or behind *from_lsn*."""
    found = []
    for block in tail.blocks(durable_lsn):
        for number, head in enumerate(block.heads()):
            if head.type == RecordType.START and block.record_lsn(number) >= from_lsn:
                found.append(int.from_bytes(block.payload(head)[:4]))
    return found


@settings(max_examples=20)
@given(
    batches=st.lists(st.lists(st.sampled_from([0, 500, BIG]), min_size=1, max_size=6), min_size=1, max_size=20),
    data=st.data(),
)
def test_it_gives_each_record_once_in_order_from_any_place_on(batches: list[list[int]], data: st.DataObject) -> None:
    directory, journal = new_log()
    tail = Follower(directory, journal.cut_lsn)
    given, lsns, number = [], [], 0
    for batch in batches:
        for size_bytes in batch:
            cut_lsn = journal.cut_lsn
            lsns.append(append(journal, number, size_bytes))
            assert cut_lsn <= lsns[-1] < journal.cut_lsn
            number += 1
        journal.flush()
        if data.draw(st.booleans()):
            given += given_by(tail, journal.writer.durable_lsn)
    given += given_by(tail, journal.writer.durable_lsn)
    assert given == [*range(number)]
    assert given_by(tail, journal.writer.durable_lsn) == []
    first = data.draw(st.integers(0, number - 1))
    follower, durable_lsn = Follower(directory, lsns[first]), journal.writer.durable_lsn
    assert given_by(follower, durable_lsn, lsns[first]) == [*range(first, number)]
    assert tail.read_record(lsns[first]).payload[:4] == first.to_bytes(4)
    journal.abandon()


def test_what_is_used_for_something_else_is_gone_and_not_passed_by() -> None:
    directory, journal = new_log()
    tail = Follower(directory, journal.cut_lsn)
    begin = append(journal, 0, BIG)
    journal.flush()
    assert given_by(tail, journal.writer.durable_lsn) == [0]
    number = 1
    while journal.extent.current_slot < 12:  # containers without needed records are reused
        append(journal, number, BIG)
        number += 1
        journal.flush()
        journal.retire([slot for slot in journal.extent.slots if slot < journal.extent.current_slot - 1])
    with pytest.raises(HistoryReclaimed):
        given_by(tail, journal.writer.durable_lsn)
    with pytest.raises(HistoryReclaimed):
        given_by(Follower(directory, begin), journal.writer.durable_lsn)
    journal.abandon()
