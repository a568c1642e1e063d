"""Tests of compaction: the log keeps its size limit with any mix of lifetimes, and the messages stay the same."""

from __future__ import annotations

import pytest

from cairnmq.journal.format.record import Flag, RecordType
from cairnmq.store.journaled.store import JournalStore
from tests.harness.recovery.checker import content_of
from tests.harness.store.histories import MIXES, Moment, Traffic
from tests.harness.store.stores import BIG, NOW_US, SIZE, Disk, come_to_rest, put, queue, shown

STEPS = 300


def stragglers(store: JournalStore, queue_id: int) -> list[int]:
    """Put one message into each container, among dequeued ones, until compaction begins; return their IDs.

    Compaction begins with the first container if that is sparser than the others.
    """
    ids: list[int] = []
    while not store.relocation.copied_bytes and len(ids) < 100:
        slot = store.journal.next_lsn // SIZE
        while store.journal.next_lsn // SIZE == slot and not store.relocation.copied_bytes:
            store.dequeue(put(store, queue_id, BIG), queue_id, NOW_US)
            store.kick()
        ids.append(put(store, queue_id, b"straggler" * 4000))
    assert store.relocation.copied_bytes
    return ids


@pytest.mark.parametrize("mix", MIXES)
def test_the_log_stays_within_twice_what_lives_in_it(mix: str) -> None:
    """E20, E21, E24, E67, E68, E69: the limit also holds after a close, kill or power cut; compaction copies little."""
    traffic = Traffic(mix, seed=1)
    for _ in range(STEPS):
        traffic.step()
        if traffic.rng.random() < 0.8:
            traffic.rest()
            traffic.check_size()
        if traffic.rng.random() < 0.03:
            traffic.reopen()
            traffic.check()
    traffic.rest()
    traffic.check_size()
    traffic.check()
    assert traffic.store.journal.next_lsn > 8 * SIZE
    assert traffic.amplification <= 1.5
    if mix in ("10 % slow", "half are never consumed", "exponential lifetimes"):
        assert traffic.emptied > 1, "nothing was shown"


@pytest.mark.parametrize("mix", MIXES)
@pytest.mark.parametrize("seed", [2, 3])
def test_the_power_fails_at_any_moment(mix: str, seed: int) -> None:
    """I1 to I7, I9: recovery finds exactly the durable changes, also in the middle of a compaction."""
    traffic = Traffic(mix, seed)
    moments: list[Moment] = []

    def hold(operation: str) -> None:
        if traffic.rng.random() < 0.05:
            moments.append(traffic.now())

    for _ in range(60):
        traffic.step(120)
        traffic.disk.files.on_operation = hold
    traffic.disk.files.on_operation = None
    chosen = traffic.rng.sample(moments, min(len(moments), 8))
    chosen += [moment for moment in moments if moment.relocating][:8]
    for moment in chosen:
        traffic.check_moment(moment)
    assert chosen


def test_a_straggler_keeps_its_id_its_place_and_its_content() -> None:
    """E13, E24: the copy contains the original LSN, and is in one container with its content."""
    disk = Disk()
    store, _ = disk.open()
    q = queue(store)
    staged = store.stage(b"in ", NOW_US)
    store.append_content(staged, b"pieces", NOW_US, last=True)
    first = put(store, q, b"first")
    store.enqueue(staged, q, NOW_US)
    third = put(store, q, b"third")
    expected = {q: [first, staged, third]}
    expected[q] += stragglers(store, q)
    come_to_rest(store)
    assert 0 not in store.journal.extent.slots
    assert shown(store) == expected
    contents = [content_of(store, message_id) for message_id in expected[q][:3]]  # before a second start
    again = disk.open()[0]
    assert shown(again) == expected
    for found in (contents, [content_of(again, message_id) for message_id in expected[q][:3]]):
        assert found == [b"first", b"in pieces", b"third"]
    moved = [read for read in disk.records() if read.head.flags & Flag.MOVED and read.head.undo_prev < SIZE]
    assert [(read.head.type, read.head.flags & ~Flag.MOVED, read.head.message_id) for read in moved] == [
        (RecordType.START, Flag.MORE, staged),
        (RecordType.CHUNK, 0, staged),
        (RecordType.START, Flag.ENQUEUE, first),
        (RecordType.ENQUEUE, 0, staged),
        (RecordType.START, Flag.ENQUEUE, third),
    ]
    assert moved[0].head.undo_prev == staged
    assert len({read.lsn // SIZE for read in moved}) == 1


def test_what_is_relocated_can_be_taken_off_in_the_middle_of_it() -> None:
    """E20, E23: a message that is dequeued before or after its copy is durable does not come back."""
    for moment in range(4):
        disk = Disk()
        store, _ = disk.open()
        q = queue(store)
        kept, slow = put(store, q, b"kept"), put(store, q, b"slow")
        others = stragglers(store, q)
        assert {kept, slow} == set(store.state.unsettled.values())
        for _ in range(moment):
            store.kick()
            store.became_durable(store.durable_lsn)
        store.dequeue(slow, q, NOW_US)
        store.kick()
        assert shown(disk.open()[0]) == {q: [kept, *others]}
        store, _ = disk.open()
        come_to_rest(store)
        store.dequeue(kept, q, NOW_US)
        store.kick()
        come_to_rest(store)
        assert shown(disk.open()[0]) == {q: others}


def test_a_relocated_message_is_deleted_for_good() -> None:
    """E20, E26: the dequeue stays in the log as long as the copy, and the copy as long as the original."""
    traffic = Traffic("exponential lifetimes", seed=5)
    for _ in range(150):
        traffic.step()
        traffic.rest()
    for queue_id, ids in list(traffic.on.items()):
        for message_id in list(ids):
            traffic.take(message_id, queue_id)
    traffic.store.kick()
    traffic.rest()
    assert traffic.emptied + traffic.store.relocation.emptied > 1
    for _ in range(3):
        assert traffic.store.state.pins.live == {}
        assert len(traffic.store.journal.extent.slots) <= 4
        traffic.reopen()
        traffic.rest()
        assert shown(traffic.store) == {}


def test_a_container_that_cannot_be_read_is_left_alone() -> None:
    """The container and its messages stay unchanged; it is reported once, and others are compacted in its place."""
    disk = Disk()
    store, _ = disk.open()
    q = queue(store)
    slow = put(store, q, b"slow")
    rotten = [put(store, q, b"rotten")]
    store.kick()
    file = disk.files.open("00000001.cairn", writable=True)
    file.write_at(1024 + 64 + 64 + 64, b"rot")
    others = stragglers(store, q)
    come_to_rest(store)
    assert store.relocation.emptied > 0
    assert shown(store) == {q: [slow, *rotten, *others]}
    assert list(store.relocation.victims.unreadable) == [0]
    assert 0 in store.journal.extent.slots


def test_a_container_that_dies_while_it_is_emptied_is_not_read_on() -> None:
    """The file of the container may already contain another slot."""
    disk = Disk()
    store, _ = disk.open()
    q = queue(store)
    slow = [put(store, q, bytes(9_000)) for _ in range(3)]
    others = stragglers(store, q)
    victim = min(store.state.unsettled.values()) // SIZE
    removed = [message_id for message_id in [*slow, *others] if message_id // SIZE == victim]
    for message_id in removed:
        store.dequeue(message_id, q, NOW_US)
    store.kick()
    assert victim not in store.journal.extent.slots
    for _ in range(20):
        store.dequeue(put(store, q, BIG), q, NOW_US)
        store.kick()
    come_to_rest(store)
    assert store.relocation.victims.unreadable == {}
    left = [message_id for message_id in [*slow, *others] if message_id not in removed]
    assert shown(store) == shown(disk.open()[0]) == {q: left}
