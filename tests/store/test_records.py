"""Tests of the records that the store writes for each call, and of the part of the log that they retain."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from queue import SimpleQueue

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cairnmq.base.errors import StoreError
from cairnmq.journal.format.record import MAX_PAYLOAD_BYTES, Flag, RecordType
from cairnmq.store.contract.wiring_rows import Arguments, QueueRow
from tests.harness.journal.logs import container_start
from tests.harness.recovery.checker import content_of
from tests.harness.store.stores import BIG, NOW_US, SIZE, Disk, put, queue, shown


@pytest.fixture
def disk() -> Disk:
    return Disk()


def test_a_whole_message_is_one_record_and_so_is_its_end(disk: Disk) -> None:
    """E13, E17, E19, E20: the Start includes the enqueue, and the last Dequeue includes the delete."""
    store, _ = disk.open()
    q = queue(store)
    message_id, lsn = store.put(q, b"content", NOW_US)
    store.dequeue(message_id, q, NOW_US)
    store.kick()
    start, dequeue = disk.records()
    assert message_id == lsn == start.lsn
    assert (start.head.type, start.head.flags, start.payload) == (RecordType.START, Flag.ENQUEUE, b"content")
    assert (start.head.message_id, start.head.queue_id) == (message_id, q)
    assert (start.head.txn_id, start.head.undo_prev) == (0, 0)
    assert (dequeue.head.type, dequeue.head.flags) == (RecordType.DEQUEUE, Flag.DELETE)
    assert (dequeue.head.message_id, dequeue.head.queue_id, dequeue.head.txn_id) == (message_id, q, 0)
    assert dequeue.head.undo_prev == message_id  # E14
    assert start.head.time_us == dequeue.head.time_us == NOW_US


def test_a_message_in_pieces_is_a_chain(disk: Disk) -> None:
    """E14, E17, E18, E32: a Start and Chunks, each of 64 KiB at most, then an Enqueue for each queue."""
    store, _ = disk.open()
    a, b = queue(store, "a"), queue(store, "b")
    message_id = store.stage(b"head", NOW_US)
    store.append_content(message_id, BIG + b"rest", NOW_US, last=False)
    store.append_content(message_id, b"", NOW_US, last=False)
    store.append_content(message_id, b"tail", NOW_US, last=True)
    lsns = [store.enqueue(message_id, a, NOW_US), store.enqueue(message_id, b, NOW_US)]
    store.dequeue(message_id, a, NOW_US)
    store.dequeue(message_id, b, NOW_US)
    store.kick()
    kinds = [(read.head.type, read.head.flags, len(read.payload)) for read in disk.records()]
    assert kinds == [
        (RecordType.START, Flag.MORE, 4),
        (RecordType.CHUNK, Flag.MORE, MAX_PAYLOAD_BYTES),
        (RecordType.CHUNK, Flag.MORE, 4),
        (RecordType.CHUNK, Flag.MORE, 0),
        (RecordType.CHUNK, 0, 4),
        (RecordType.ENQUEUE, 0, 0),
        (RecordType.ENQUEUE, 0, 0),
        (RecordType.DEQUEUE, 0, 0),
        (RecordType.DEQUEUE, Flag.DELETE, 0),
    ]
    assert [read.lsn for read in disk.records()[5:7]] == lsns
    assert [read.head.queue_id for read in disk.records()[5:]] == [a, b, a, b]  # E19
    assert {read.head.undo_prev for read in disk.records()[1:]} == {message_id}
    assert {read.head.message_id for read in disk.records()} == {message_id}


@given(size=st.integers(0, 5) | st.sampled_from([65_535, 65_536, 65_537, 131_072, 131_073, 300_000]))
def test_a_long_message_is_put_in_pieces(size: int) -> None:
    """E18, E31: no piece is longer than 64 KiB, the last one is as long as what remains."""
    disk = Disk()
    store, _ = disk.open()
    content = (BIG * 5)[3 : 3 + size]
    message_id, _ = store.put(queue(store), content, NOW_US)
    store.kick()
    pieces = [store.load_piece(message_id, number) for number in range(store.piece_count(message_id))]
    assert b"".join(pieces) == content
    assert all(len(piece) == MAX_PAYLOAD_BYTES for piece in pieces[:-1])
    assert len(pieces) == max(1, -(-size // MAX_PAYLOAD_BYTES))
    store.close()
    again, _ = disk.open()
    assert content_of(again, message_id) == content  # E29, E74


def test_queues_share_one_stored_message(disk: Disk) -> None:
    """E65: queues share a message even if its first record included the enqueue."""
    store, _ = disk.open()
    a, b, c = (queue(store, name) for name in "abc")
    message_id = put(store, a)
    store.enqueue(message_id, b, NOW_US)
    store.enqueue(message_id, c, NOW_US)
    store.dequeue(message_id, a, NOW_US)
    store.kick()
    assert [read.payload for read in disk.records()].count(b"content") == 1
    store, _ = disk.open()
    assert shown(store) == {b: [message_id], c: [message_id]}
    store.dequeue(message_id, b, NOW_US)
    store.kick()
    assert content_of(store, message_id) == b"content"
    store.dequeue(message_id, c, NOW_US)
    store.kick()
    assert message_id not in store.state
    assert disk.open()[1].messages == 0


def test_what_is_wrong_is_refused_and_changes_nothing(disk: Disk) -> None:
    store, _ = disk.open()
    a, b = queue(store, "a"), queue(store, "b")
    message_id = put(store, a)
    staged = store.stage(b"x", NOW_US)
    wrong: list[Callable[[], object]] = [
        lambda: store.dequeue(message_id, b, NOW_US),
        lambda: store.dequeue(staged, a, NOW_US),
        lambda: store.enqueue(message_id, a, NOW_US),
        lambda: store.enqueue(staged, a, NOW_US),
        lambda: store.enqueue(12345, a, NOW_US),
        lambda: store.append_content(message_id, b"y", NOW_US, last=True),
        lambda: store.append_content(12345, b"y", NOW_US, last=True),
        lambda: store.destroy(message_id, NOW_US),
        lambda: store.destroy(12345, NOW_US),
    ]
    before = store.journal.next_lsn
    for attempt in wrong:
        with pytest.raises(StoreError):
            attempt()
    assert store.journal.next_lsn == before
    store.dequeue(message_id, a, NOW_US)
    with pytest.raises(StoreError, match=f"message {message_id}: it is not on queue {a}"):
        store.dequeue(message_id, a, NOW_US)
    store.destroy(staged, NOW_US)
    with pytest.raises(StoreError):
        store.append_content(staged, b"late", NOW_US, last=True)
    with pytest.raises(StoreError):
        store.destroy(staged, NOW_US)
    assert len(store.state) == 0


# ---- retention of the log -------------------------------------------------------------------------------------------


def test_the_base_moves_when_the_last_dequeue_is_durable(disk: Disk) -> None:
    """E8, E20, E23: the base does not move before, although the message is removed from the map at once."""
    store, _ = disk.open()
    q = queue(store)
    old = put(store, q)
    while store.journal.next_lsn < SIZE:
        store.dequeue(put(store, q, BIG), q, NOW_US)
        store.kick()
    base_lsn = store.journal.extent.base_lsn
    assert base_lsn <= old
    store.dequeue(old, q, NOW_US)
    assert old not in store.state
    assert store.journal.extent.base_lsn == base_lsn
    store.kick()
    assert old < store.journal.extent.base_lsn <= store.journal.next_lsn
    put(store, q)
    store.kick()
    assert disk.base_lsn() == store.journal.extent.base_lsn


def test_a_dequeue_that_never_became_durable_did_not_move_the_base(disk: Disk) -> None:
    store, _ = disk.open()
    q = queue(store)
    message_id = put(store, q)
    while store.journal.next_lsn < SIZE:
        store.dequeue(put(store, q, BIG), q, NOW_US)
        store.kick()
    store.dequeue(message_id, q, NOW_US)
    store.journal.abandon()
    store, report = disk.open()
    assert report.log.base_lsn <= message_id
    assert shown(store) == {q: [message_id]}
    assert content_of(store, message_id) == b"content"


@given(order=st.permutations(range(12)))
def test_out_of_order_deletes_never_pass_a_live_message(order: list[int]) -> None:
    """E21, E24: the base is in the container of the oldest live message, in whatever order the others are dequeued."""
    disk = Disk()
    store, _ = disk.open()
    q = queue(store)
    ids = [put(store, q, BIG[number:]) for number in range(12)]
    store.kick()
    left = dict(enumerate(ids))
    for number in order:
        store.dequeue(left.pop(number), q, NOW_US)
        store.kick()
        oldest = min(left.values(), default=store.journal.next_lsn)
        assert store.journal.extent.base_lsn == container_start(store.journal, oldest)
    assert store.state.pins.live == {}


def test_the_first_message_into_an_empty_store_begins_the_log(disk: Disk) -> None:
    """E22, E68, E69: the log stays short for any number of messages, one at a time."""
    store, _ = disk.open()
    q = queue(store)
    most = 0
    for _ in range(150):
        message_id = put(store, q, BIG)
        store.kick()
        store.dequeue(message_id, q, NOW_US)
        store.kick()
        assert store.journal.next_lsn - store.journal.extent.base_lsn <= SIZE + len(BIG) + 2048
        most = max(most, len(disk.files.names()))
    assert store.journal.next_lsn > 15 * SIZE
    assert most <= 5  # the mark and four containers
    store.close()
    store, report = disk.open()
    assert report.log.records < 40


def test_a_container_that_dies_before_its_end_is_given_back(disk: Disk) -> None:
    """E9, E69: no record of a container without live messages is needed once the log continues after it."""
    store, _ = disk.open()
    q = queue(store)
    while SIZE - store.journal.next_lsn > len(BIG):
        store.dequeue(put(store, q, BIG[: SIZE // 16]), q, NOW_US)
        store.kick()
    assert list(store.journal.extent.slots) == [0]
    assert put(store, q, BIG) > SIZE
    store.kick()
    assert list(store.journal.extent.slots) == [1]


def test_one_slow_message_holds_no_more_than_its_container(disk: Disk) -> None:
    """E24, E69: containers after a live message are reclaimed."""
    store, _ = disk.open()
    q = queue(store)
    slow = put(store, q, b"slow")
    for _ in range(200):
        store.dequeue(put(store, q, BIG), q, NOW_US)
        store.kick()
        assert len(store.journal.extent.slots) <= 4
    assert content_of(store, slow) == b"slow"
    assert shown(store) == {q: [slow]}
    store, _ = disk.open()
    assert shown(store) == {q: [slow]}
    store.dequeue(slow, q, NOW_US)
    for _ in range(2):
        store.kick()
        put(store, q, b"x")
    store.kick()
    assert len(store.journal.pool.slots()) <= 2


# ---- with threads ---------------------------------------------------------------------------------------------------


def test_notification_follows_durability(disk: Disk) -> None:
    """E66: another thread reports the completion, after the sync, for all records before the kick."""
    store, _ = disk.open()
    q = queue(store)
    told: SimpleQueue[int] = SimpleQueue()
    failures: SimpleQueue[Exception] = SimpleQueue()
    in_sync, go_on = threading.Event(), threading.Event()

    def gate(operation: str) -> None:
        if operation.startswith("write"):
            in_sync.set()
            assert go_on.wait(180)

    store.start(told.put, failures.put)
    disk.files.on_operation = gate
    message_id, lsn = store.put(q, b"content", NOW_US)
    store.kick()
    assert in_sync.wait(180)
    assert told.empty()
    assert store.durable_lsn <= lsn
    disk.files.on_operation = None
    go_on.set()
    durable_lsn = told.get(timeout=180)
    assert durable_lsn > lsn
    assert store.durable_lsn <= lsn  # the owner chooses the thread that updates it
    store.became_durable(durable_lsn)
    assert store.durable_lsn == durable_lsn
    assert content_of(store, message_id) == b"content"
    store.dequeue(message_id, q, NOW_US)
    store.kick()
    assert told.get(timeout=180) > durable_lsn
    store.close()
    assert failures.empty()


def test_a_queue_is_made_on_another_thread(disk: Disk) -> None:
    """E64: SQL never runs on the calling thread; an error is passed to the callback, not raised."""
    store, _ = disk.open()
    store.start(lambda lsn: None, lambda error: None)
    made: SimpleQueue[tuple[str, QueueRow | Exception]] = SimpleQueue()
    for _ in range(2):
        store.create_queue("q", lambda row: made.put((threading.current_thread().name, row)))
    first, second = made.get(timeout=180), made.get(timeout=180)
    assert first == second
    assert first[0] != threading.current_thread().name
    assert isinstance(first[1], QueueRow)
    disk.wiring.create_queues = _refuse  # type: ignore[method-assign]
    store.create_queue("r", lambda row: made.put(("", row)))
    assert isinstance(made.get(timeout=180)[1], StoreError)
    store.close()
    assert list(disk.open()[0].queues()) == [first[1]]


def _refuse(asked: Sequence[tuple[str, Arguments | None]]) -> list[QueueRow]:
    raise StoreError("memory", f"queue {asked[0][0]!r} can't be created")


def test_closing_makes_everything_durable(disk: Disk) -> None:
    for threads in (False, True):
        store, _ = disk.open()
        q = queue(store)
        if threads:
            store.start(lambda lsn: None, lambda error: None)
        message_id = put(store, q)
        store.close()
        disk.files = disk.files.after_power_cut([])
        store, report = disk.open()
        assert report.log.closed_cleanly
        assert message_id in shown(store)[q]
        store.close()
