"""Tests of a store's metrics: properties that always hold, exact values after a known load, and holders of slots."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from cairnmq.base.disk.real import RealDirectory
from cairnmq.base.errors import DiskError
from cairnmq.base.testing.manual_clock import ManualClock
from cairnmq.base.testing.memory_disk import MemoryDirectory
from cairnmq.journal.format.record import HEAD_BYTES, Flag, RecordType
from cairnmq.store.checkpoint.checkpoint_file import LmdbFile
from cairnmq.store.journaled.metrics import JournalMetrics, measure
from cairnmq.store.journaled.store import JournalStore
from cairnmq.store.reclaim.slot_holders import MessageHolds, SlotHolders, TombstonesHold
from tests.harness.journal.logs import SIZE, blocks
from tests.harness.store.metered import create_queue, open_store

COUNTERS = (
    "flushes", "blocks", "records", "user_bytes", "relocated_bytes", "log_bytes", "block_bytes", "base_lsn",
    "durable_lsn", "end_lsn", "made_containers", "archived_containers", "dropped_containers", "emptied_slots",
    "checkpoints",
)  # fmt: skip
KIB = bytes(1024)


def churn(store: JournalStore, queue_id: int, steps: int, random: Random) -> Iterator[list[int]]:
    """Enqueue messages and dequeue most of them soon; yield the remaining one in a hundred after each step."""
    stays: list[int] = []
    here: list[int] = []
    for _ in range(steps):
        here += store.put_all(queue_id, [bytes(random.randrange(2000)) for _ in range(40)], 1)[0]
        store.kick()
        while len(here) > 200:
            message_id = here.pop(0)
            if random.random() < 0.01:
                stays.append(message_id)
            else:
                store.dequeue(message_id, queue_id, 1)
        store.kick()
        yield stays


def check_laws(metrics: JournalMetrics) -> None:
    assert 0 <= metrics.live_ratio <= 1
    assert metrics.live_bytes <= metrics.used_bytes == metrics.slots * SIZE
    assert metrics.base_lsn <= metrics.durable_lsn <= metrics.end_lsn
    assert metrics.replay_bytes <= metrics.durable_lsn - metrics.base_lsn
    assert metrics.write_amplification >= 1
    record_bytes = metrics.user_bytes + metrics.relocated_bytes + metrics.log_bytes
    assert record_bytes + 64 * metrics.blocks <= metrics.block_bytes
    assert metrics.group_records.count == metrics.group_bytes.count == metrics.flushes
    assert metrics.group_records.total == metrics.records
    assert metrics.group_bytes.total == metrics.block_bytes
    assert metrics.base_held_by


def test_what_is_archived_is_not_dropped(tmp_path: Path) -> None:
    """Every container that leaves the log is counted once, as archived or as dropped."""
    store = open_store(RealDirectory(str(tmp_path / "journal"), create=True), archive_dir=str(tmp_path / "archive"))
    for _ in churn(store, create_queue(store, "orders"), 60, Random(1)):
        found = measure(store)
        assert (found.archived_containers, found.dropped_containers) == (store.journal.pool.released, 0)
    assert found.archived_containers == len(os.listdir(tmp_path / "archive")) > 0
    store.close()


@settings(max_examples=5)
@given(st.integers(0, 1 << 32))
def test_laws_under_churn(seed: int) -> None:
    disk = MemoryDirectory()
    store = open_store(disk)
    queue_id = create_queue(store, "orders")
    seen = [measure(store)]
    for _ in churn(store, queue_id, 150, Random(seed)):
        seen.append(measure(store))
        check_laws(seen[-1])
    for before, after in pairwise(seen):
        assert all(getattr(after, name) >= getattr(before, name) for name in COUNTERS)
    last = seen[-1]
    assert last.emptied_slots > 0
    assert last.dropped_containers > 0
    assert last.relocated_bytes > 0
    used = len(store.journal.pool.slots())
    assert last.slots <= used  # the container of a slot that left the log is free once that is durable
    files = [name for name in disk.names() if name.endswith(".cairn")]
    assert used + last.free_containers == len(files) <= last.made_containers


def test_sums_are_what_the_log_holds() -> None:
    """The sums equal those of the log's records: flags mark the relocated ones, types those of the log itself."""
    disk = MemoryDirectory()
    store = open_store(disk)
    queue_id = create_queue(store, "orders")
    held: dict[str, int] = {"user_bytes": 0, "relocated_bytes": 0, "log_bytes": 0}
    counted: set[int] = set()
    for _ in churn(store, queue_id, 150, Random(5)):
        for block in blocks(disk):  # including blocks that will leave the log
            if block.lsn in counted:
                continue
            counted.add(block.lsn)
            for head in block.heads():
                moved = "relocated_bytes" if head.flags & Flag.MOVED else "user_bytes"
                held["log_bytes" if head.type >= RecordType.LOG_OPEN else moved] += HEAD_BYTES + head.size
    metrics = measure(store)
    assert {name: getattr(metrics, name) for name in held} == held
    assert metrics.blocks == len(counted)
    assert held["relocated_bytes"] > 0
    assert metrics.relocated_bytes == store.relocation.copied_bytes


def test_exact_values_after_a_known_load() -> None:
    store = open_store(MemoryDirectory(), initial_containers=3)
    queue_id = create_queue(store, "orders")
    first, *others = store.put_all(queue_id, [KIB] * 10, 1)[0]
    store.kick()
    store.dequeue(first, queue_id, 1)
    store.kick()
    found = measure(store)
    put_bytes, end_bytes = 10 * (HEAD_BYTES + 1024), HEAD_BYTES
    written = 512 + -(-(64 + put_bytes) // 512) * 512 + 512  # the log-open record, the messages, one dequeue
    assert (found.flushes, found.blocks, found.records) == (3, 3, 12)
    assert (found.user_bytes, found.relocated_bytes, found.log_bytes) == (put_bytes + end_bytes, 0, HEAD_BYTES)
    assert found.block_bytes == written
    assert found.group_records.total == 12
    assert (found.base_lsn, found.durable_lsn, found.end_lsn) == (0, 512 + written, 512 + written)
    assert found.live_bytes == 9 * (HEAD_BYTES + 1024)
    assert (found.slots, found.used_bytes, found.live_ratio) == (1, SIZE, found.live_bytes / SIZE)
    assert (found.free_containers, found.made_containers, found.dropped_containers) == (2, 3, 0)
    assert (found.holes, found.base_slot) == (0, 0)
    assert found.base_held_by == f"message {others[0]} on queue orders"
    assert (found.write_amplification, found.emptied_slots, found.is_relocating) == (1, 0, False)
    assert (found.checkpoints, found.checkpoint_age_s, found.replay_bytes) == (0, None, found.durable_lsn)
    assert (found.disk_full, found.disk_low, found.checkpoint_failure) == ("", "", "")
    for message_id in others:
        store.dequeue(message_id, queue_id, 1)
    store.kick()
    assert measure(store).live_bytes == 0
    assert measure(store).base_held_by == "the end of the log"


def test_the_checkpoint_is_told(tmp_path: Path) -> None:
    clock = ManualClock()
    store = open_store(MemoryDirectory(), clock, LmdbFile(f"{tmp_path}/checkpoint"), checkpoint_bytes=100 << 10)
    queue_id = create_queue(store, "orders")
    assert measure(store).checkpoint_age_s is None
    while not measure(store).checkpoints:
        store.put(queue_id, KIB, 1)
        store.kick()
    clock.advance(7)
    found = measure(store)
    assert found.checkpoint_age_s == 7
    assert found.checkpoint_lsn >= 100 << 10
    assert found.checkpoint_bytes > 0
    assert found.replay_bytes == found.durable_lsn - found.checkpoint_lsn


def test_the_replay_is_without_holes() -> None:
    """With a message that holds the base, the replay counts only existing slots, without reclaimed ranges."""
    store = open_store(MemoryDirectory())
    queue_id = create_queue(store, "orders")
    store.put(queue_id, KIB, 1)
    store.relocation.victims.unreadable[0] = "left alone by this test"
    for _ in range(4 * SIZE // 1024):
        message_id, _ = store.put(queue_id, KIB, 1)
        store.kick()
        store.dequeue(message_id, queue_id, 1)
        store.kick()
    found = measure(store)
    assert found.holes > 0
    assert found.unreadable_slots == 1
    assert found.replay_bytes <= found.used_bytes < found.durable_lsn


def test_a_disk_that_tells_nothing_is_no_error() -> None:
    disk = MemoryDirectory()
    store = open_store(disk)
    assert measure(store).disk_free_bytes == disk.free_bytes()
    store.journal.pool.directory = _Mute()
    assert measure(store).disk_free_bytes is None


class _Mute(MemoryDirectory):
    def free_bytes(self) -> int:
        raise DiskError(self.path, "statvfs failed")


def test_what_holds_a_slot() -> None:
    """Every kind of holder is reported by name: plain, staged, fanned-out messages, and ends of other messages."""
    store = open_store(MemoryDirectory())
    first_queue, second_queue = create_queue(store, "orders"), create_queue(store, "bills")
    plain, _ = store.put(first_queue, KIB, 1)
    staged = store.stage(KIB, 1)
    fanned = store.stage(KIB, 1)
    store.append_content(fanned, KIB, 1, last=True)
    store.enqueue(fanned, first_queue, 1)
    store.enqueue(fanned, second_queue, 1)
    removed, _ = store.put(second_queue, KIB, 1)
    while store.journal.next_lsn < SIZE:
        store.put(first_queue, bytes(60_000), 1)
    store.kick()
    store.dequeue(removed, second_queue, 1)
    store.kick()
    holders = SlotHolders(store.state, SIZE)
    found = list(holders.of(0))
    assert MessageHolds(plain, (first_queue,)) in found
    assert MessageHolds(staged, ()) in found
    assert MessageHolds(fanned, (first_queue, second_queue)) in found
    assert removed not in {holder.message_id for holder in found if isinstance(holder, MessageHolds)}
    assert TombstonesHold(0, 1) in list(holders.of(store.journal.writer.durable_lsn // SIZE))
    names = {first_queue: "orders"}
    assert MessageHolds(5, (first_queue, 77)).description(names) == "message 5 on queue orders, id 77"
    assert MessageHolds(5, ()).description(names) == "message 5, on no queue yet"
    assert TombstonesHold(12, 3).description(names) == "ends of messages in slot 12"


@settings(max_examples=5)
@given(st.integers(0, 1 << 32))
def test_holders_and_pins_agree(seed: int) -> None:
    """A settled slot is needed if and only if it has a holder; the cached first holder is one of them."""
    store = open_store(MemoryDirectory())
    queue_id = create_queue(store, "orders")
    holders = SlotHolders(store.state, SIZE)
    for _ in churn(store, queue_id, 100, Random(seed)):
        if store.relocation.is_at_work:  # until copies are durable, holders and pins may differ in the slot
            continue
        for slot in store.journal.extent.slots:
            found = list(holders.of(slot))
            assert bool(found) == store.state.pins.is_needed(slot)
            first = holders.first(slot)
            assert (first in found) if found else (first is None)


def test_any_thread_may_ask() -> None:
    """Any thread may read metrics while the store works; no counter decreases."""
    store = open_store(MemoryDirectory())
    queue_id = create_queue(store, "orders")
    done = threading.Event()
    seen: list[JournalMetrics] = []
    errors: list[BaseException] = []

    def ask() -> None:
        try:
            while not done.is_set() or not seen:
                seen.append(measure(store))
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=ask)
    thread.start()
    for _ in churn(store, queue_id, 150, Random(3)):
        pass
    done.set()
    thread.join()
    assert not errors
    for before, after in pairwise(seen):
        assert all(getattr(after, name) >= getattr(before, name) for name in COUNTERS if name != "end_lsn")
        assert 0 <= after.live_ratio <= 1
