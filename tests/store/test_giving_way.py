"""Tests of dequeues on a full disk: holds and staged messages are released for them, and large batches are refused."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from cairnmq.base.errors import DiskFull, TransactionTimedOut
from cairnmq.base.testing.manual_clock import ManualClock
from cairnmq.base.testing.memory_disk import MemoryDirectory
from cairnmq.journal.format.record import HEAD_BYTES
from cairnmq.recovery.recover import recover
from cairnmq.store.contract.options import StoreOptions
from cairnmq.store.contract.transaction import StoreTransaction
from cairnmq.store.journaled.store import JournalStore
from tests.harness.recovery.world import MemoryWiring
from tests.harness.store.small_disk import Held, SmallDisk
from tests.harness.store.spares import make_spares
from tests.harness.store.stores import NOW_US, queue, shown

SIZE = 32 << 10
OPTIONS = StoreOptions(container_bytes=SIZE, min_container_bytes=4096, reserve_bytes=4 * SIZE)
CAPACITY_BYTES = (4 << 20) + 60 * SIZE
"""The size of the disk: messages are accepted until 4 MiB are left, which other programs use then."""


class Place:
    """A store on a small disk, which a test can restart."""

    def __init__(self) -> None:
        self.disk = SmallDisk(MemoryDirectory(), CAPACITY_BYTES)
        self.wiring = MemoryWiring()
        self.held = Held()
        self.store = self.open()
        self.queue = queue(self.store)

    def open(self) -> JournalStore:
        self.disk.calls.clear()
        store, _ = recover(self.disk, self.wiring, ManualClock(), OPTIONS, holds=self.held)
        store.run_inline(store.became_durable)
        make_spares(store)
        return store

    def restart(self) -> None:
        self.store.journal.abandon()
        self.store = self.open()

    def fill(self, put: Callable[[int], object]) -> None:
        """Call *put* with batches until the store is full, and then use up the rest of the disk."""
        while not self.store.full():
            put(20)
            self.store.kick()
            make_spares(self.store)
        self.disk.capacity_bytes = self.disk.used_bytes()
        make_spares(self.store)

    def put(self, count: int) -> None:
        self.store.put_all(self.queue, [bytes(200)] * count, NOW_US)

    def take_all(self) -> None:
        for message_id in shown(self.store).get(self.queue, []):
            self.store.dequeue(message_id, self.queue, NOW_US)
            self.store.kick()
            make_spares(self.store)


@pytest.fixture
def place() -> Place:
    return Place()


# ---- transactions ---------------------------------------------------------------------------------------------------


def roll_back(place: Place, transaction: StoreTransaction) -> None:
    transaction.rollback(NOW_US)


def time_out(place: Place, transaction: StoreTransaction) -> None:
    assert place.store.transactions.expire(NOW_US + 100) == [transaction]
    with pytest.raises(TransactionTimedOut):
        transaction.commit(NOW_US + 100)


def be_killed(place: Place, transaction: StoreTransaction) -> None:
    place.restart()


@pytest.mark.parametrize("end", [roll_back, time_out, be_killed])
def test_what_a_transaction_has_staged_goes_though_no_record_of_it_fits(
    place: Place, end: Callable[[Place, StoreTransaction], None]
) -> None:
    """Records for each message would need several times the reserve; no message comes back, and all space is freed."""
    old = [place.store.put(place.queue, bytes(200), NOW_US)[0] for _ in range(300)]
    transaction = place.store.transactions.begin(NOW_US, xid=b"x", timeout_us=100)
    place.fill(lambda count: transaction.put_all(place.queue, [bytes(20)] * count, NOW_US))
    staged = len(transaction.staged)
    assert staged * HEAD_BYTES > 4 * OPTIONS.reserve_bytes
    end(place, transaction)
    place.store.kick()
    place.store.journal.writer.write_mark()
    assert len(place.store.state) == len(old)
    assert len(place.store.journal.pool.slots()) < 10
    for _ in range(5):
        place.restart()
        assert shown(place.store) == {place.queue: old}
    place.take_all()
    assert shown(place.store) == {}


def test_with_room_each_message_that_goes_has_its_record(place: Place) -> None:
    transaction = place.store.transactions.begin(NOW_US, xid=b"x")
    transaction.put_all(place.queue, [b"1", b"2"], NOW_US)
    place.store.kick()
    before = place.store.journal.next_lsn
    transaction.rollback(NOW_US)
    assert place.store.journal.next_lsn > before


def test_a_commit_that_could_end_the_store_is_refused_and_can_be_rolled_back(place: Place) -> None:
    transaction = place.store.transactions.begin(NOW_US, xid=b"x")
    place.fill(lambda count: transaction.put_all(place.queue, [bytes(20)] * count, NOW_US))
    before = place.store.journal.next_lsn
    with pytest.raises(DiskFull, match="do less in a transaction"):
        transaction.commit(NOW_US)
    assert place.store.journal.next_lsn == before
    transaction.rollback(NOW_US)
    place.restart()
    assert shown(place.store) == {}


def test_a_full_disk_is_emptied_by_transactions_of_a_few_messages(place: Place) -> None:
    place.fill(place.put)
    ids = shown(place.store)[place.queue]
    for at in range(0, len(ids), 10):
        transaction = place.store.transactions.begin(NOW_US)
        transaction.dequeue_all(ids[at : at + 10], place.queue, NOW_US)
        transaction.commit(NOW_US)
        place.store.kick()
        make_spares(place.store)
    place.restart()
    assert shown(place.store) == {}


# ---- holds ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("since", ["before it was full", "when it was full", "a start"])
def test_a_hold_gives_way_when_the_reserve_is_in_use(place: Place, since: str) -> None:
    """The hold is broken only then: a full disk alone does not end a backup."""
    place.held.is_there = since == "before it was full"
    place.fill(place.put)
    assert place.store.full()
    broken = place.held.broken
    assert broken == 0
    place.held.is_there = True
    if since == "a start":
        place.restart()
    place.take_all()
    assert place.held.broken == 1
    place.restart()
    assert shown(place.store) == {}


def test_a_start_that_finds_nothing_but_what_is_held_breaks_the_hold(place: Place) -> None:
    """Starts that are killed before compaction leave free containers that are held."""
    place.held.is_there = True
    place.fill(place.put)
    pool = place.store.journal.pool
    assert pool.free_count > 0
    for _ in range(pool.free_count + 5):  # each start begins a container, and ends before it frees one
        place.store.journal.abandon()
        place.held.is_there = True
        place.disk.calls.clear()
        place.store = recover(place.disk, place.wiring, ManualClock(), OPTIONS, holds=place.held)[0]
        place.store.run_inline(lambda lsn: None)
        place.store.dequeue(shown(place.store)[place.queue][0], place.queue, NOW_US)
        place.store.kick()
    place.restart()
    place.take_all()
    assert shown(place.store) == {}


# ---- many reclaimed ranges ------------------------------------------------------------------------------------------


def take_until_there_are_most_holes(place: Place) -> list[int]:
    """Fill the disk, dequeue random messages up to the limit of reclaimed ranges, and return the messages left."""
    place.fill(place.put)
    extent = place.store.journal.extent
    ids = shown(place.store)[place.queue]
    random.Random(1).shuffle(ids)
    while len(extent.holes) < extent.most_holes:
        for _ in range(3):
            place.store.dequeue(ids.pop(), place.queue, NOW_US)
        place.store.kick()
        make_spares(place.store)
    place.store.journal.flush()  # writes the last reclaimed range to the log
    return ids


def test_kills_in_a_row_take_nothing_from_the_reserve_though_there_are_as_many_holes_as_there_may_be(
    place: Place,
) -> None:
    """The records of the starts leave the log; all messages can be dequeued afterwards, a few per flush."""
    ids = take_until_there_are_most_holes(place)
    unclaimed = place.store.journal.pool.unclaimed
    for _ in range(15):
        place.restart()
        assert place.store.journal.pool.unclaimed >= unclaimed - 1
    assert {*shown(place.store)[place.queue]} == {*ids}
    take_by_threes(place, ids)


def test_starts_that_are_killed_after_their_first_dequeue_with_as_many_holes(place: Place) -> None:
    """Each start leaves a container that cannot become a reclaimed range; the next start compensates for it first."""
    ids = take_until_there_are_most_holes(place)
    for _ in range(60):
        place.store.journal.abandon()
        place.store = recover(place.disk, place.wiring, ManualClock(), OPTIONS)[0]
        place.store.run_inline(lambda lsn: None)
        place.store.dequeue(ids.pop(), place.queue, NOW_US)
        place.store.kick()
    place.restart()
    assert {*shown(place.store)[place.queue]} == {*ids}
    take_by_threes(place, ids)


def take_by_threes(place: Place, ids: list[int]) -> None:
    for at in range(0, len(ids), 3):
        for message_id in ids[at : at + 3]:
            place.store.dequeue(message_id, place.queue, NOW_US)
        place.store.kick()
        make_spares(place.store)
    place.restart()
    assert shown(place.store) == {}


# ---- many queues ----------------------------------------------------------------------------------------------------


def test_a_batch_to_many_queues_is_let_in_if_all_of_it_has_room(place: Place) -> None:
    """`full` is asked first; it refuses a batch that does not fit, but does not mark the store as full for others."""
    others = [queue(place.store, f"q{number}") for number in range(100)]
    records = 100 * len(others)
    assert records * HEAD_BYTES > 4 * OPTIONS.reserve_bytes
    place.disk.capacity_bytes = place.disk.used_bytes() + (4 << 20) + 6 * SIZE
    make_spares(place.store)
    assert place.store.full() == ""
    used_bytes = place.disk.used_bytes()
    assert "at once" in place.store.full(100 * 20, records)
    assert place.store.full() == ""
    assert place.disk.used_bytes() == used_bytes
    place.disk.capacity_bytes += 40 * SIZE
    assert place.store.full(100 * 20, records) == ""
    place.disk.capacity_bytes = place.disk.used_bytes()  # other programs use the rest
    ids = place.store.put_all(others[0], [bytes(20)] * 100, NOW_US)[0]
    for other in others[1:]:
        for message_id in ids:
            place.store.enqueue(message_id, other, NOW_US)
    place.store.kick()
    make_spares(place.store)
    place.restart()
    assert {len(on) for on in shown(place.store).values()} == {100}
    for other in others:
        for message_id in ids:
            place.store.dequeue(message_id, other, NOW_US)
            place.store.kick()
    place.restart()
    assert shown(place.store) == {}
