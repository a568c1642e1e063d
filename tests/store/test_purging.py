"""Tests of purges and deletions of queues, which write one record for any number of messages; none comes back."""

from __future__ import annotations

import itertools
import random
import time

import pytest

from cairnmq.base.clock import SystemClock
from cairnmq.base.errors import MessageLocked, StoreError, TransactionEnded
from cairnmq.base.testing.manual_clock import ManualClock
from cairnmq.base.testing.memory_disk import MemoryDirectory
from cairnmq.journal.format.record import RecordType
from cairnmq.recovery.recover import recover
from cairnmq.store.checkpoint import checkpointer as checkpointing
from cairnmq.store.checkpoint.checkpoint_file import BadCheckpoint
from cairnmq.store.contract.options import StoreOptions
from cairnmq.store.contract.transaction import TxState
from cairnmq.store.journaled.store import JournalStore
from cairnmq.store.message_map.purges import MAX_KEPT, PurgeMark
from cairnmq.store.message_map.reconciliation import reconcile
from cairnmq.store.message_map.state import FLAG_ENQUEUE, State
from tests.harness.checkpoints import MemoryCheckpoint
from tests.harness.journal.logs import read_all
from tests.harness.recovery.world import MemoryWiring
from tests.harness.store.stores import NOW_US, Disk, come_to_rest, put, queue, shown
from tests.harness.thorough import amount

SMALL = 8192


def test_one_record_whatever_is_on_the_queue() -> None:
    """E53: one record is written for plain messages, long messages, and messages on two queues."""
    disk = Disk()
    store, _ = disk.open()
    a, b = queue(store, "a"), queue(store, "b")
    ids, _ = store.put_all(a, [b"content"] * 300, NOW_US)
    both = ids[7]
    store.enqueue(both, b, NOW_US)
    long = store.put(a, bytes(200_000), NOW_US)[0]
    other = put(store, b)
    store.kick()
    before = len(list(read_all(disk.files)))
    lsn = store.purge(a, NOW_US)
    assert store.durable_lsn <= lsn
    assert not any(map(store.holds, [*ids[:7], *ids[8:], long]))
    assert store.holds(both)
    later = put(store, a)
    store.kick()
    last = list(read_all(disk.files))[before:]
    assert [RecordType(read.head.type) for read in last] == [RecordType.QUEUE_DELETE, RecordType.START]
    assert shown(store) == {a: [later], b: [other, both]} or shown(store) == {a: [later], b: [both, other]}
    again, report = disk.open()
    assert shown(again) == shown(store)
    assert report.messages == 3


def test_what_is_to_stay_stays() -> None:
    disk = Disk()
    store, _ = disk.open()
    a, b = queue(store, "a"), queue(store, "b")
    ids = [put(store, a) for _ in range(5)]
    elsewhere = put(store, b)
    store.purge(a, NOW_US, keep=[ids[1], ids[3], elsewhere, 12345])
    store.kick()
    assert shown(store) == shown(disk.open()[0]) == {a: [ids[1], ids[3]], b: [elsewhere]}


def test_what_was_purged_is_gone_for_everybody() -> None:
    """Purged messages can't be used even before the purge is durable and swept."""
    store, _ = Disk().open()
    a, b = queue(store, "a"), queue(store, "b")
    plain, both = put(store, a), put(store, a)
    store.enqueue(both, b, NOW_US)
    store.purge(a, NOW_US)
    for call in (store.dequeue, store.enqueue):
        with pytest.raises(StoreError):
            call(plain, a, NOW_US)
    with pytest.raises(StoreError):
        store.destroy(plain, NOW_US)
    with pytest.raises(StoreError):
        store.dequeue(both, a, NOW_US)
    with pytest.raises(StoreError):
        store.transactions.begin(NOW_US).dequeue(plain, a, NOW_US)
    store.enqueue(both, a, NOW_US)  # the message is on b, so it can be enqueued again
    store.dequeue(both, b, NOW_US)
    assert shown(store) == {a: [both]}


def test_transactions_keep_what_they_take_off() -> None:
    """E46: locked messages are not purged; a message that a transaction enqueues elsewhere stays, on no queue (E43)."""
    disk = Disk()
    store, _ = disk.open()
    a, b = queue(store, "a"), queue(store, "b")
    taken, moved, other = (put(store, a) for _ in range(3))
    local = store.transactions.begin(NOW_US)
    local.enqueue(moved, b, NOW_US)
    prepared = store.transactions.begin(NOW_US, xid=b"x")
    prepared.dequeue(taken, a, NOW_US)
    prepared.put(a, b"new", NOW_US)
    prepared.prepare(NOW_US)
    store.purge(a, NOW_US)
    store.kick()
    assert not store.holds(other)
    local.commit(NOW_US)
    assert shown(store) == {a: [taken], b: [moved]}
    store.kick()
    store, _ = disk.open()
    again = store.transactions.of(b"x")
    again.commit(NOW_US)
    new = again.made()[0]
    assert shown(store) == {a: [new], b: [moved]}


def test_a_queue_that_goes_ends_open_transactions_and_waits_for_prepared_ones() -> None:
    store, _ = Disk().open()
    a, b = queue(store, "a"), queue(store, "b")
    one, two = put(store, a), put(store, a)
    local = store.transactions.begin(NOW_US)
    local.dequeue(one, a, NOW_US)
    local.put(b, b"never", NOW_US)
    apart = store.transactions.begin(NOW_US)
    apart.put(b, b"new", NOW_US)
    prepared = store.transactions.begin(NOW_US, xid=b"x")
    prepared.dequeue(two, a, NOW_US)
    prepared.prepare(NOW_US)
    with pytest.raises(MessageLocked, match="prepared"):
        store.purge(a, NOW_US, is_final=True)
    assert shown(store) == {a: [one, two]}
    assert local.state is TxState.OPEN
    prepared.rollback(NOW_US)
    store.purge(a, NOW_US, is_final=True)
    with pytest.raises(TransactionEnded, match="a queue that it concerns was deleted"):
        local.commit(NOW_US)
    apart.commit(NOW_US)
    assert shown(store) == {b: apart.message_ids}


def test_more_than_a_record_can_list_is_refused() -> None:
    store, _ = Disk().open()
    a = queue(store)
    ids, _ = store.put_all(a, [b""] * (MAX_KEPT + 1), NOW_US)
    with pytest.raises(MessageLocked, match=str(MAX_KEPT)):
        store.purge(a, NOW_US, keep=ids)
    assert len(shown(store)[a]) == MAX_KEPT + 1
    store.purge(a, NOW_US, keep=ids[1:])
    assert shown(store) == {a: ids[1:]}


def test_the_log_is_given_back_without_any_traffic() -> None:
    """E54: purged messages no longer hold the log, and then the record of the purge does not, either."""
    store, _ = Disk().open()
    a = queue(store)
    for _ in range(40):
        store.put_all(a, [bytes(20_000)] * 10, NOW_US)
        store.kick()
    assert len(store.journal.extent.slots) > 7
    store.purge(a, NOW_US)
    for _ in range(40):
        store.kick()
        store.became_durable(store.durable_lsn)
    assert len(store.journal.extent.slots) == 1
    assert store.state.pins.live_bytes == 0


def test_a_purge_of_many_is_no_longer_than_one_of_few() -> None:
    """The call does not visit the messages, so it takes similar times for 1,000 and 250,000 of them."""
    store, _ = Disk().open()
    took_s = []
    for count in (1_000, 250_000):
        a = queue(store, f"of {count}")
        for _ in range(count // 1000):
            store.put_all(a, [b""] * 1000, NOW_US)
        best_s = 1.0
        for _ in range(5):
            begun_s = time.perf_counter()
            store.purge(a, NOW_US)
            best_s = min(best_s, time.perf_counter() - begun_s)
        took_s.append(best_s)
    assert took_s[1] < 20 * took_s[0]


def test_it_is_looked_at_in_small_steps() -> None:
    """The core does other work between the steps of a sweep; new messages and other queues are unchanged."""
    store, _ = Disk().open()
    a, b = queue(store, "a"), queue(store, "b")
    store.put_all(a, [b""] * 20_000, NOW_US)
    store.kick()
    store.places.settles_at_once = 100
    store.purge(a, NOW_US)
    store.kick()
    left = [len(store.state)]
    while store.state.cuts.unswept:
        put(store, b)
        store.became_durable(store.durable_lsn)
        left.append(len(store.state))
    steps = [before - after for before, after in itertools.pairwise(left)]
    assert max(steps) <= 100
    assert len(steps) > 150
    assert len(shown(store)[b]) == len(left) - 1


def test_with_threads_it_goes_on_by_itself(tmp_path: object) -> None:
    disk = Disk()
    store, _ = recover(disk.files, disk.wiring, SystemClock(), StoreOptions(container_bytes=1 << 20))
    posted: list[int] = []
    store.start(posted.append, lambda error: None)
    try:
        a = queue_of(store)
        for _ in range(30):
            store.put_all(a, [b""] * 1000, NOW_US)
        store.purge(a, NOW_US)
        store.kick()
        deadline_s = time.monotonic() + 180
        while store.state.cuts.unswept or len(store.state):
            assert time.monotonic() < deadline_s
            while posted:
                store.became_durable(posted.pop(0))
    finally:
        store.close()


def queue_of(store: JournalStore) -> int:
    made: list[object] = []
    store.create_queue("q", made.append)
    deadline_s = time.monotonic() + 180
    while not made:
        assert time.monotonic() < deadline_s
    return made[0].id  # type: ignore[attr-defined,no-any-return]


class Small:
    """A store with small containers, which a test can kill, and which sweeps one message per step."""

    def __init__(self, *, checkpoint_bytes: int = 0) -> None:
        self.checkpoint = MemoryCheckpoint() if checkpoint_bytes else None
        self._options = StoreOptions(
            SMALL, min_container_bytes=SMALL, max_write_buffers=0, checkpoint_bytes=checkpoint_bytes
        )
        self._files, self._wiring = MemoryDirectory(), MemoryWiring()
        self.store = self.opened()

    def opened(self, at_once: int = 1) -> JournalStore:
        store, _ = recover(self._files, self._wiring, ManualClock(), self._options, checkpoint=self.checkpoint)
        store.run_inline(store.became_durable)
        store.places.settles_at_once = at_once
        self.store = store
        return store

    def killed(self, at_once: int = 1) -> JournalStore:
        self.store.journal.abandon()
        return self.opened(at_once)


def test_the_record_stays_until_all_messages_are_looked_at() -> None:
    """The record of the purge stays in the log until the sweep ends; else messages would come back after a crash."""
    for steps in range(40):
        small = Small()
        store = small.store
        a, b = queue(store, "a"), queue(store, "b")
        for _ in range(16):
            put(store, a, bytes(3000))
        for _ in range(2):  # puts the record into a container without these messages
            store.dequeue(put(store, b, bytes(5000)), b, NOW_US)
            store.kick()
        store.purge(a, NOW_US)
        store.kick()
        for _ in range(steps):
            store.dequeue(put(store, b, bytes(5000)), b, NOW_US)
            store.kick()
        assert shown(small.killed()) == {}


def test_a_checkpoint_with_pages_from_before_knows_what_was_cut() -> None:
    """The sweep is done when the checkpoint ends, but was not when the checkpoint wrote the page of the messages."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(checkpointing, "_STEP_MESSAGES", 1)  # one page per step
        _check_a_checkpoint_with_pages_from_before()


def _check_a_checkpoint_with_pages_from_before() -> None:
    small = Small(checkpoint_bytes=4 * SMALL)
    store = small.store
    assert store.checkpointing is not None
    a, b = queue(store, "a"), queue(store, "b")
    store.put_all(a, [b""] * 5, NOW_US)
    kept = [put(store, b, bytes(2000)) for _ in range(30)]
    store.kick()
    while not store.checkpointing.taken:
        store.became_durable(store.durable_lsn)
    store.purge(a, NOW_US)
    kept += [put(store, b, bytes(2000)) for _ in range(30)]
    store.kick()
    while store.checkpointing.taken < 2:
        store.became_durable(store.durable_lsn)
    assert not store.state.cuts.unswept
    assert shown(small.killed()) == {b: kept}


def test_a_checkpoint_that_begins_before_a_copy_knows_what_was_cut() -> None:
    """Compaction reaches purged messages before the sweep does; then a checkpoint begins."""
    small = Small(checkpoint_bytes=10 * SMALL)
    store = small.store
    checkpointing, journal = store.checkpointing, store.journal
    assert checkpointing is not None
    a, b = queue(store, "a"), queue(store, "b")
    kept = [put(store, b, bytes(3000))]
    store.put_all(a, [b""] * 12, NOW_US)  # these are swept first
    sparse = 0
    while journal.next_lsn < 7 * SMALL:
        store.dequeue(put(store, b, bytes(2500)), b, NOW_US)
        if journal.next_lsn // SMALL > sparse:
            put(store, a, bytes(100))
            sparse += 1
    store.run_inline(lambda lsn: None)
    store.purge(a, NOW_US)
    store.kick()
    while journal.next_lsn < 11 * SMALL:
        kept.append(put(store, b, bytes(4000)))
    before_lsn = journal.writer.durable_lsn
    journal.seal()
    while store.state.cuts.unswept:
        store.became_durable(before_lsn)
    assert not checkpointing.is_at_work
    journal.writer.write_out()
    store.became_durable(journal.writer.durable_lsn)
    assert checkpointing.is_at_work
    while not checkpointing.taken:
        store.kick()
        store.became_durable(journal.writer.durable_lsn)
    assert shown(small.killed()) == {b: kept}


@pytest.mark.parametrize("seed", range(amount("CAIRN_PURGINGS", 40, 8)))
def test_history_agrees_with_model(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Random enqueues, dequeues, purges, transactions, checkpoints, kills and compaction agree with a plain model."""
    rng = random.Random(seed)
    files, wiring, checkpoint = MemoryDirectory(), MemoryWiring(), MemoryCheckpoint()
    options = StoreOptions(SMALL, min_container_bytes=SMALL, max_write_buffers=0, checkpoint_bytes=3 * SMALL)
    with_checkpoint = rng.random() < 0.6
    if rng.random() < 0.7:
        monkeypatch.setattr(checkpointing, "_STEP_MESSAGES", 1)  # one page per step

    def opened() -> JournalStore:
        store, _ = recover(files, wiring, ManualClock(), options, checkpoint=checkpoint if with_checkpoint else None)
        store.run_inline(store.became_durable)
        store.places.settles_at_once = rng.choice((1, 2, 5, 100))
        return store

    store = opened()
    queues = [queue(store, name) for name in "abc"]
    model: dict[int, list[int]] = {number: [] for number in queues}
    for _ in range(400):
        q = rng.choice(queues)
        on = model[q]
        what = rng.random()
        if what < 0.45:
            on.append(put(store, q, bytes(rng.choice((0, 30, 400, 2000)))))
        elif what < 0.65 and on:
            store.dequeue(on.pop(rng.randrange(len(on))), q, NOW_US)
        elif what < 0.72 and on:
            message_id, other = rng.choice(on), rng.choice(queues)
            if message_id not in model[other]:
                store.enqueue(message_id, other, NOW_US)
                model[other].append(message_id)
        elif what < 0.77:
            keep = rng.sample(on, min(len(on), rng.choice((0, 0, 1, 3))))
            store.purge(q, NOW_US, keep=keep)
            on[:] = [message_id for message_id in on if message_id in keep]
        elif what < 0.82 and on:
            txn = store.transactions.begin(NOW_US)
            txn.dequeue(on[0], q, NOW_US)
            txn.put(q, b"instead", NOW_US)
            on.pop(0)
            txn.commit(NOW_US)
            on += txn.message_ids
        elif what < 0.95:
            store.kick()
        else:
            store.kick()
            if rng.random() < 0.3:
                store.close()
            else:
                store.journal.abandon()
            store = opened()
            assert shown(store) == {number: ids for number, ids in model.items() if ids}
    store.kick()
    assert shown(store) == {number: ids for number, ids in model.items() if ids}


@pytest.mark.parametrize("checkpoint_bytes", [0, 1 << 40])
def test_purge_stays_although_the_message_was_enqueued_again(checkpoint_bytes: int) -> None:
    """A recovery between the second enqueue and the dequeue still knows what the purge ended the first time."""
    small = Small(checkpoint_bytes=checkpoint_bytes)
    store = small.store
    a, b, c = (queue(store, name) for name in "abc")
    message_id = put(store, a, bytes(3000))
    store.enqueue(message_id, b, NOW_US)
    fill(store, c, 2)
    store.purge(a, NOW_US)
    store.kick()
    come_to_rest(store)
    fill(store, c, 4)
    store.enqueue(message_id, a, NOW_US)
    fill(store, c, 6)
    store = small.killed()
    fill(store, c, 7)
    come_to_rest(store)
    store.dequeue(message_id, a, NOW_US)
    fill(store, c, store.journal.next_lsn // SMALL + 3)
    come_to_rest(store)
    assert shown(store) == {b: [message_id]}
    if small.checkpoint is not None:
        small.checkpoint.entries = None
    assert shown(small.killed()) == {b: [message_id]}


def fill(store: JournalStore, queue_id: int, slot: int) -> None:
    """Enqueue and dequeue messages until the log reaches *slot*."""
    while store.journal.next_lsn // SMALL < slot:
        store.dequeue(put(store, queue_id, bytes(1000)), queue_id, NOW_US)
        store.kick()


def with_message_to_purge(store: JournalStore) -> tuple[list[int], list[int]]:
    """Return three queues, and the only message of the second; the first has one, too, and the log is in slot 2."""
    a, b, c = queues = [queue(store, name) for name in "abc"]
    put(store, a, bytes(100))
    kept = [put(store, b, bytes(6000))]
    fill(store, c, 2)
    return queues, kept


def test_checkpoint_has_the_purge_or_what_it_ended() -> None:
    """While a checkpoint is taken, a purge is swept, and a second one makes it needless."""
    small = Small(checkpoint_bytes=1 << 40)
    store = small.store
    (a, b, c), kept = with_message_to_purge(store)
    other = put(store, c, bytes(10))
    store.run_inline(lambda lsn: None)  # nothing is swept
    store.purge(a, NOW_US)
    fill(store, c, 3)
    store.dequeue(other, c, NOW_US)
    fill(store, c, 4)
    kept.append(put(store, b, bytes(6000)))
    store.kick()
    assert small.checkpoint is not None
    taking = checkpointing.Checkpointer(small.checkpoint, store.state, store.journal, ManualClock(), 1, is_good=False)
    taking.step()
    taking.step()  # the pages
    taking.step()  # with particulars
    sweep(store)
    fill(store, c, 6)
    store.purge(a, NOW_US)
    sweep(store)
    store.run_inline(store.became_durable)
    while not taking.taken:
        store.kick()
        taking.step()
    for slot in (9, 10):
        fill(store, c, slot)
        come_to_rest(store)
    store = small.killed()
    fill(store, c, store.journal.next_lsn // SMALL + 2)
    come_to_rest(store)
    small.checkpoint.entries = None
    assert shown(small.killed()) == {b: kept}


def test_checkpoint_from_before_a_complete_replay_is_not_used_after_it() -> None:
    """The checkpoint could not be read once: the whole log was replayed, which attributes the end to another purge."""
    small = Small(checkpoint_bytes=1 << 40)
    store = small.store
    (a, b, c), kept = with_message_to_purge(store)
    store.purge(a, NOW_US)
    rest(store)
    fill(store, c, 4)
    other = put(store, c, bytes(5000))
    put(store, a, bytes(10))
    store.purge(a, NOW_US)
    rest(store)
    fill(store, c, 6)
    rest(store)
    kept.append(put(store, b, bytes(3000)))
    store.kick()
    assert store.checkpointing is not None
    assert small.checkpoint is not None
    store.checkpointing.close()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(small.checkpoint, "load", unreadable)
        store = small.killed()
    fill(store, c, store.journal.next_lsn // SMALL + 2)
    store = small.killed()
    store.dequeue(other, c, NOW_US)
    fill(store, c, store.journal.next_lsn // SMALL + 3)
    rest(store)
    small.checkpoint.entries = None
    assert shown(small.killed()) == {b: kept}


def unreadable() -> dict[bytes, bytes]:
    raise BadCheckpoint("the process that looks through it could not be started")


def rest(store: JournalStore) -> None:
    """Make everything durable, and finish sweeps and compaction."""
    for _ in range(6):
        store.write_notes()
        store.became_durable(store.durable_lsn)
    sweep(store)
    come_to_rest(store)


def sweep(store: JournalStore) -> None:
    while not store.places.sweep_some():
        pass


def test_copy_of_an_unknown_purge_ends_records_in_all_older_slots() -> None:
    """The original was copied twice after the checkpoint, and its first copy has left the log."""
    state = State(SMALL)
    state.restored_lsn = 2 * SMALL
    first, second = 5 * SMALL + 64, 7 * SMALL + 64
    state.cut(PurgeMark(1, SMALL, frozenset(), first), 3 * SMALL + 64)
    state.cut(PurgeMark(1, SMALL, frozenset(), second), first)
    reconcile(state, {0: 0, 4: 0, 5: 0, 7: 0, 8: 0})
    assert {slot: {*ends} for slot, ends in state.pins.tombstones.items()} == {5: {0, 4}, 7: {0, 4, 5}}


@pytest.mark.parametrize("is_copied", [False, True])
def test_what_one_cut_keeps_an_older_one_may_have_taken(*, is_copied: bool) -> None:
    """A message was on the queue twice; the records of its second time left the log, but the older purge did not."""
    state = State(SMALL)
    state.started(64, FLAG_ENQUEUE, 1, 0)
    state.enqueued(128, 64, 2, 128)
    older_lsn, newer_lsn = 2 * SMALL + 64, SMALL + 64
    if not is_copied:
        older_lsn, newer_lsn = newer_lsn, older_lsn
    cuts = [PurgeMark(1, 1000, frozenset(), older_lsn), PurgeMark(1, 2000, frozenset([64]), newer_lsn)]
    for cut in sorted(cuts, key=lambda cut: cut.lsn):
        state.cut(cut)
    reconcile(state, {0: 0, 1: 0, 2: 0})
    assert state.detailed[64].queues == {2: (128, 128)}
    assert state.pins.tombstones == {older_lsn // SMALL: {0: 1}}
