"""Tests of the state that recovery builds from records: the same maps again, without incomplete messages."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cairnmq.base.testing.manual_clock import ManualClock
from cairnmq.journal.format.record import Flag, RecordHead, RecordType
from cairnmq.journal.write.journal import OWN_LSN
from cairnmq.journal.write.open import open_log
from cairnmq.store.message_map.placement import on_queues
from cairnmq.store.message_map.reconciliation import reconcile
from cairnmq.store.message_map.state import State
from tests.harness.journal.logs import advance_base
from tests.harness.store.stores import BIG, NOW_US, SIZE, Disk, particulars, put, queue, shown


@pytest.fixture
def disk() -> Disk:
    return Disk()


def test_the_same_state_from_calls_and_from_records(disk: Disk) -> None:
    """E50, E52: the maps are rebuilt from the log and SQL as they were."""
    store, _ = disk.open()
    a, b = queue(store, "a"), queue(store, "b")
    ids = [put(store, queue_id, b"%d" % number) for number, queue_id in enumerate((a, b, a, b))]
    store.enqueue(ids[0], b, NOW_US)
    store.enqueue(ids[1], a, NOW_US)
    long_one, _ = store.put(a, BIG * 3, NOW_US)
    store.dequeue(ids[1], b, NOW_US)
    store.dequeue(ids[2], a, NOW_US)
    store.kick()
    assert shown(store) == {a: [ids[0], ids[1], long_one], b: [ids[3], ids[0]]}
    before = store.state
    again, _ = disk.open()
    assert shown(again) == shown(store)
    assert particulars(again.state) == particulars(before)
    assert again.state.pins.live == before.pins.live
    assert again.state.pins.tombstones == before.pins.tombstones


def test_what_never_became_whole_or_never_reached_a_queue_is_discarded(disk: Disk) -> None:
    """E29, E30: incomplete messages and messages on no queue are deleted durably, and reported."""
    store, _ = disk.open()
    q = queue(store)
    torn = store.stage(b"begun", NOW_US)
    store.append_content(torn, b"more", NOW_US, last=False)
    bare = store.stage(b"nothing but a start", NOW_US)
    homeless = store.stage(b"whole", NOW_US)
    store.append_content(homeless, b"", NOW_US, last=True)
    kept = put(store, q)
    store.kick()
    store, report = disk.open()
    assert report.discarded == 3
    assert shown(store) == {q: [kept]}
    assert len(store.state) == 1
    deletes = {read.head.message_id for read in disk.records() if read.head.type == RecordType.DELETE}
    assert deletes == {torn, bare, homeless}
    assert "discarded 3 messages, incomplete or on no queue" in "\n".join(report.lines())
    store.dequeue(kept, q, NOW_US)
    store.kick()
    assert store.state.pins.live == {}  # none of them retains the log
    assert disk.open()[1].discarded == 0


def head(kind: RecordType, message_id: int, queue_id: int = 0, flags: int = 0, extra: int = 0) -> RecordHead:
    return RecordHead(kind, flags, 0, 0, 0, 0, message_id, message_id, queue_id, 0, 0, extra)


def take_in(state: State, lsn: int, head: RecordHead) -> None:
    state.apply(lsn, head, lambda: memoryview(b""))


@given(
    records=st.lists(
        st.tuples(
            st.sampled_from([RecordType.CHUNK, RecordType.ENQUEUE, RecordType.DEQUEUE, RecordType.DELETE]),
            st.integers(1, 5),
            st.integers(0, 3),
            st.integers(0, 7),
        )
    )
)
def test_what_has_no_start_is_ignored(records: list[tuple[RecordType, int, int, int]]) -> None:
    """E27, E28: a message whose Start is below the base was deleted, so its records are ignored."""
    state = State(SIZE)
    take_in(state, 600, head(RecordType.START, 600, 2, Flag.ENQUEUE))
    for lsn, (kind, message_id, queue_id, flags) in enumerate(records, 601):
        take_in(state, lsn, head(kind, message_id, queue_id, flags & ~Flag.MOVED, message_id))
    reconcile(state, {0: 0})
    assert len(state) == 1
    assert {queue_id: list(ids) for queue_id, ids in on_queues(state).items()} == {2: [600]}
    assert state.pins.live == {0: 64}


def test_a_chain_that_ends_in_delete_is_ignored() -> None:
    """E26: the delete is a record of its own, or a flag of the last dequeue."""
    state = State(SIZE)
    take_in(state, 600, head(RecordType.START, 600, 0, Flag.MORE))
    take_in(state, 700, head(RecordType.CHUNK, 600, extra=1))
    take_in(state, 800, head(RecordType.DELETE, 600, extra=600))
    take_in(state, 900, head(RecordType.START, 900, 1, Flag.ENQUEUE))
    take_in(state, 1000, head(RecordType.ENQUEUE, 900, 2))
    take_in(state, 1100, head(RecordType.DEQUEUE, 900, 1, extra=900))
    take_in(state, 1200, head(RecordType.DEQUEUE, 900, 2, Flag.DELETE, extra=900))
    reconcile(state, {0: 0})
    assert (len(state), state.pages, state.detailed, state.pins.live) == (0, {}, {}, {})


def test_records_below_the_base_do_not_come_back(disk: Disk) -> None:
    """E27: a message whose Start was recycled is ignored, also if its Dequeue is still there."""
    disk.open()[0].close()
    journal, _ = open_log(disk.files, ManualClock(), visit=lambda block: None)
    q = 1
    message_id = journal.append(
        RecordType.START, BIG, time_us=NOW_US, flags=Flag.ENQUEUE, message_id=OWN_LSN, queue_id=q
    )
    while journal.next_lsn < 4 * SIZE:
        journal.append(RecordType.DELETE, BIG, time_us=NOW_US, message_id=message_id)
        journal.flush()
    for kind in (RecordType.ENQUEUE, RecordType.CHUNK, RecordType.DEQUEUE):
        journal.append(kind, time_us=NOW_US, message_id=message_id, queue_id=q)
    advance_base(journal, 3 * SIZE)
    journal.flush()
    journal.close()
    store, report = disk.open()
    assert report.log.base_lsn == 3 * SIZE
    assert report.messages == 0
    assert len(store.state) == 0
