"""What the store writes for each call, what of the log it holds by that, and what recovery makes of the records."""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import SimpleQueue

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cairnmq.base.clock import ManualClock
from cairnmq.base.errors import StoreError
from cairnmq.disk.memory import MemoryDirectory
from cairnmq.journal.log import OWN_LSN
from cairnmq.journal.opening import open_log
from cairnmq.journal.reader import LogReader
from cairnmq.journal.record import MAX_PAYLOAD_BYTES, Flag, RecordHead, RecordType
from cairnmq.recovery.recover import recover
from cairnmq.recovery.report import RecoveryReport
from cairnmq.store.journal_store import JournalStore
from cairnmq.store.state import State
from cairnmq.store.wiring import QueueRow

from ..journal.logs import Read, read_all
from ..recovery.checker import content_of
from ..recovery.explorer import OPTIONS, MemoryWiring

SIZE = OPTIONS.container_bytes
NOW_US = 7
BIG = bytes(range(256)) * 256


class Disk:
    """A store's disk and SQL, opened as often as a test likes."""

    def __init__(self) -> None:
        self.files = MemoryDirectory()
        self.wiring = MemoryWiring()

    def open(self) -> tuple[JournalStore, RecoveryReport]:
        store, report = recover(self.files, self.wiring, ManualClock(), OPTIONS)
        store.run_inline(store.became_durable)
        return store, report

    def records(self) -> list[Read]:
        return read_all(self.files)

    def base_lsn(self) -> int:
        reader = LogReader(self.files)
        reader.learn_base()
        return reader.base_lsn


@pytest.fixture
def disk() -> Disk:
    return Disk()


def queue(store: JournalStore, name: str = "q") -> int:
    made: list[QueueRow | Exception] = []
    store.create_queue(name, made.append)
    assert isinstance(made[0], QueueRow)
    return made[0].id


def put(store: JournalStore, queue_id: int, content: bytes = b"content") -> int:
    return store.put(queue_id, content, NOW_US)[0]


def test_a_whole_message_is_one_record_and_so_is_its_end(disk: Disk) -> None:
    """E13, E17, E19, E20: the Start says the enqueue, too; the last Dequeue says the delete, too."""
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
    assert content_of(again, message_id) == content  # E29


def test_queues_share_one_stored_message(disk: Disk) -> None:
    """E65: also one that was put on its first queue at once."""
    store, _ = disk.open()
    a, b, c = (queue(store, name) for name in "abc")
    message_id = put(store, a)
    store.enqueue(message_id, b, NOW_US)
    store.enqueue(message_id, c, NOW_US)
    store.dequeue(message_id, a, NOW_US)
    store.kick()
    assert [read.payload for read in disk.records()].count(b"content") == 1
    store, _ = disk.open()
    found = store.messages()
    assert [list(found.get(q, ())) for q in (a, b, c)] == [[], [message_id], [message_id]]
    store.dequeue(message_id, b, NOW_US)
    store.kick()
    assert content_of(store, message_id) == b"content"
    store.dequeue(message_id, c, NOW_US)
    store.kick()
    assert store.state.positions == {}
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
    assert store.state.messages == {}
    assert store.state.growing == set()


# ---- what holds the log ---------------------------------------------------------------------------------------------


def test_the_base_moves_when_the_last_dequeue_is_durable(disk: Disk) -> None:
    """E8, E20, E23: not before, though the message is gone from the map at once."""
    store, _ = disk.open()
    q = queue(store)
    old = put(store, q)
    while store.journal.next_lsn < SIZE:
        store.dequeue(put(store, q, BIG), q, NOW_US)
        store.kick()
    base_lsn = store.journal.base_lsn
    assert base_lsn <= old
    store.dequeue(old, q, NOW_US)
    assert old not in store.state.messages
    assert store.journal.base_lsn == base_lsn
    store.kick()
    assert old < store.journal.base_lsn <= store.journal.next_lsn
    put(store, q)
    store.kick()
    assert disk.base_lsn() == store.journal.base_lsn


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
    assert list(store.messages().get(q, ())) == [message_id]
    assert content_of(store, message_id) == b"content"


@given(order=st.permutations(range(12)))
def test_out_of_order_deletes_never_pass_a_live_message(order: list[int]) -> None:
    """E21, E24: the base is the container of the oldest that lives, however the others go."""
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
        assert store.journal.base_lsn == store.journal.container_start(oldest)
    assert store.state.oldest_slot() is None


def test_the_first_message_into_an_empty_store_begins_the_log(disk: Disk) -> None:
    """E22, E68, E69: however much traffic goes through, one message at a time."""
    store, _ = disk.open()
    q = queue(store)
    most = 0
    for _ in range(150):
        message_id = put(store, q, BIG)
        store.kick()
        store.dequeue(message_id, q, NOW_US)
        store.kick()
        assert store.journal.next_lsn - store.journal.base_lsn <= SIZE + len(BIG) + 2048
        most = max(most, len(disk.files.names()))
    assert store.journal.next_lsn > 15 * SIZE
    assert most <= 5  # the mark and four containers
    store.close()
    store, report = disk.open()
    assert report.log.records < 40


def test_one_slow_message_holds_its_container_and_what_follows(disk: Disk) -> None:
    """E24: until it goes, then everything is given back at once."""
    store, _ = disk.open()
    q = queue(store)
    slow = put(store, q, b"slow")
    for _ in range(40):
        store.dequeue(put(store, q, BIG), q, NOW_US)
        store.kick()
    assert len(store.journal.pool.slots()) >= 5
    assert content_of(store, slow) == b"slow"
    store.dequeue(slow, q, NOW_US)
    for _ in range(2):
        store.kick()
        put(store, q, b"x")
    store.kick()
    assert len(store.journal.pool.slots()) <= 2


# ---- recovery of records --------------------------------------------------------------------------------------------


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
    before = store.state
    after = disk.open()[0].state
    assert after.messages == before.messages == {ids[0]: (a, b), ids[1]: a, ids[3]: b, long_one: a}
    assert (after.chunks, after.growing, after.positions) == (before.chunks, before.growing, before.positions)
    assert after.live == before.live


def test_what_never_became_whole_or_never_reached_a_queue_is_discarded(disk: Disk) -> None:
    """E29, E30: it is deleted, durably, and reported."""
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
    assert list(store.state.messages) == [kept]
    deletes = {read.head.message_id for read in disk.records() if read.head.type == RecordType.DELETE}
    assert deletes == {torn, bare, homeless}
    assert "discarded 3 messages" in "\n".join(report.lines())
    store.dequeue(kept, q, NOW_US)
    store.kick()
    assert store.state.oldest_slot() is None  # none of them holds the log
    assert disk.open()[1].discarded == 0


def head(kind: RecordType, message_id: int, queue_id: int = 0, flags: int = 0) -> RecordHead:
    return RecordHead(kind, flags, 0, 0, 0, 0, message_id, message_id, queue_id, 0, 0, 0)


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
    """E27, E28: its Start is below the base, so the message was deleted."""
    state = State(SIZE)
    state.apply(600, head(RecordType.START, 600, 2, Flag.ENQUEUE))
    for lsn, (kind, message_id, queue_id, flags) in enumerate(records, 601):
        state.apply(lsn, head(kind, message_id, queue_id, flags))
    assert state.messages == {600: 2}
    assert (state.chunks, state.growing, state.positions, state.live) == ({}, set(), {}, {0: 1})


def test_a_chain_that_ends_in_delete_is_ignored() -> None:
    """E26: with a record of its own, or as a flag of the last dequeue."""
    state = State(SIZE)
    state.apply(600, head(RecordType.START, 600, 0, Flag.MORE))
    state.apply(700, head(RecordType.CHUNK, 600))
    state.apply(800, head(RecordType.DELETE, 600))
    state.apply(900, head(RecordType.START, 900, 1, Flag.ENQUEUE))
    state.apply(1000, head(RecordType.ENQUEUE, 900, 2))
    state.apply(1100, head(RecordType.DEQUEUE, 900, 1))
    state.apply(1200, head(RecordType.DEQUEUE, 900, 2, Flag.DELETE))
    assert (state.messages, state.chunks, state.growing, state.positions, state.live) == ({}, {}, set(), {}, {})


def test_records_below_the_base_do_not_come_back(disk: Disk) -> None:
    """E27: a message whose Start was recycled, and whose Dequeue was not, is nothing."""
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
    journal.advance_base(3 * SIZE)
    journal.flush()
    journal.close()
    store, report = disk.open()
    assert report.log.base_lsn == 3 * SIZE
    assert report.messages == 0
    assert store.state.positions == {}


# ---- with threads ---------------------------------------------------------------------------------------------------


def test_nobody_is_told_before_it_is_durable(disk: Disk) -> None:
    """E66: the completion comes from another thread, after the sync, and covers what was recorded before the kick."""
    store, _ = disk.open()
    q = queue(store)
    told: SimpleQueue[int] = SimpleQueue()
    failures: SimpleQueue[Exception] = SimpleQueue()
    in_sync, go_on = threading.Event(), threading.Event()

    def gate(operation: str) -> None:
        if operation.startswith("write"):
            in_sync.set()
            assert go_on.wait(20)

    store.start(told.put, failures.put)
    disk.files.on_operation = gate
    message_id, lsn = store.put(q, b"content", NOW_US)
    store.kick()
    assert in_sync.wait(20)
    assert told.empty()
    assert store.durable_lsn <= lsn
    disk.files.on_operation = None
    go_on.set()
    durable_lsn = told.get(timeout=20)
    assert durable_lsn > lsn
    assert store.durable_lsn <= lsn  # the owner decides in which thread it learns that
    store.became_durable(durable_lsn)
    assert store.durable_lsn == durable_lsn
    assert content_of(store, message_id) == b"content"
    store.dequeue(message_id, q, NOW_US)
    store.kick()
    assert told.get(timeout=20) > durable_lsn
    store.close()
    assert failures.empty()


def test_a_queue_is_made_on_another_thread(disk: Disk) -> None:
    """E64: SQL never runs on the thread that makes the calls; an error is handed over, not raised."""
    store, _ = disk.open()
    store.start(lambda lsn: None, lambda error: None)
    made: SimpleQueue[tuple[str, QueueRow | Exception]] = SimpleQueue()
    for _ in range(2):
        store.create_queue("q", lambda row: made.put((threading.current_thread().name, row)))
    first, second = made.get(timeout=20), made.get(timeout=20)
    assert first == second
    assert first[0] != threading.current_thread().name
    assert isinstance(first[1], QueueRow)
    disk.wiring.create_queue = _refuse  # type: ignore[method-assign]
    store.create_queue("r", lambda row: made.put(("", row)))
    assert isinstance(made.get(timeout=20)[1], StoreError)
    store.close()
    assert list(disk.open()[0].queues()) == [first[1]]


def _refuse(name: str) -> QueueRow:
    raise StoreError("memory", f"queue {name!r} can't be created")


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
        assert message_id in list(store.messages().get(q, ()))
        store.close()
