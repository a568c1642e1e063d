"""Tests of the log at its maximum of reclaimed ranges: it keeps its size limit, and compaction copies little."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from cairnmq.base.testing.manual_clock import ManualClock
from cairnmq.base.testing.memory_disk import MemoryDirectory
from cairnmq.journal.format import holes
from cairnmq.journal.format.record import HEAD_BYTES
from cairnmq.journal.write.log_slots import LogSlots
from cairnmq.recovery.recover import recover
from cairnmq.store.contract.options import StoreOptions
from cairnmq.store.journaled.store import JournalStore
from cairnmq.store.message_map.pins import Pins
from cairnmq.store.reclaim import hole_policy as gaps
from tests.harness.recovery.world import MemoryWiring
from tests.harness.store.stores import NOW_US, come_to_rest, live_records, queue, shown

SIZE = 16 << 10
OPTIONS = StoreOptions(container_bytes=SIZE, min_container_bytes=SIZE, checkpoint_bytes=0)
CONTENT = bytes(1900)
PER_CONTAINER = (SIZE - 1024) // (HEAD_BYTES + len(CONTENT))
Round = Callable[[random.Random], tuple[int, int]]
"""A function that returns the number of containers whose messages stay, and of those that are dequeued after them."""

MIXES: dict[str, Round] = {
    "ten stay, two go": lambda rng: (10, 2),
    "one stays, one goes": lambda rng: (1, 1),
    "one stays, two go": lambda rng: (1, 2),
    "one stays, three go": lambda rng: (1, 3),
    "one stays, ten go": lambda rng: (1, 10),
    "any": lambda rng: (rng.randrange(1, 5), rng.randrange(1, 12)),
}


class Traffic:
    """A store with containers full of messages that stay, and of messages that are dequeued after a while."""

    def __init__(self) -> None:
        self.files, self.wiring = MemoryDirectory(), MemoryWiring()
        self.store = self.open()
        self.q = queue(self.store)
        self.kept: list[int] = []
        self.asked_bytes = 0
        self._going: list[list[int]] = []

    def open(self) -> JournalStore:
        store, _ = recover(self.files, self.wiring, ManualClock(), OPTIONS)
        store.run_inline(store.became_durable)
        return store

    def put(self, containers: int) -> list[int]:
        ids = [self.store.put(self.q, CONTENT, NOW_US)[0] for _ in range(containers * PER_CONTAINER)]
        self.asked_bytes += len(ids) * (HEAD_BYTES + len(CONTENT))
        self.store.kick()
        return ids

    def round(self, stay: int, go: int, lag: int = 0) -> None:
        self.kept += self.put(stay)
        self._going.append(self.put(go))
        while len(self._going) > lag:
            for message_id in self._going.pop(0):
                self.store.dequeue(message_id, self.q, NOW_US)
                self.asked_bytes += HEAD_BYTES
        self.store.kick()

    def check_size(self) -> None:
        """Check the limits of the log's size and of its reclaimed ranges, which hold at rest."""
        journal, pins = self.store.journal, self.store.state.pins
        assert len(journal.extent.holes) <= journal.extent.most_of_openings
        assert len(journal.extent.slots) * SIZE <= 2 * pins.live_bytes + 4 * SIZE

    def check(self) -> None:
        assert self.store.state.pins.live == live_records(self.store)
        assert shown(self.store) == {self.q: sorted(sum(self._going, self.kept))}


@pytest.mark.parametrize("lag", [0, 2])
@pytest.mark.parametrize("mix", MIXES)
def test_the_log_stays_within_its_limit_and_little_is_written_twice(mix: str, lag: int) -> None:
    """E24, E69: with "ten stay, two go", compaction of the oldest slots first wrote each byte 3 to 5 times."""
    traffic, rng = Traffic(), random.Random(1)
    copied_bytes = seen = 0
    while traffic.store.journal.next_lsn < 500 * SIZE:
        traffic.round(*MIXES[mix](rng), lag)
        come_to_rest(traffic.store)
        traffic.check_size()
        seen = max(seen, len(traffic.store.journal.extent.holes))
        if rng.random() < 0.02:
            copied_bytes += traffic.store.relocation.copied_bytes
            traffic.store.close()
            traffic.store = traffic.open()
            traffic.check()
    traffic.check()
    copied_bytes += traffic.store.relocation.copied_bytes
    assert 1 + copied_bytes / traffic.asked_bytes <= 1.5
    assert seen == holes.most(SIZE), "nothing was shown"
    if mix == "ten stay, two go":
        assert copied_bytes == 0  # needs no compaction


def test_what_waits_for_a_hole_is_told() -> None:
    """`held_by` reports the maximum of reclaimed ranges for slots that neither a message nor a later flush holds."""
    traffic = Traffic()
    while traffic.store.journal.next_lsn < 60 * SIZE:
        traffic.round(1, 1)
        come_to_rest(traffic.store)
    pins, slots = traffic.store.state.pins, traffic.store.journal.extent.slots
    told = {slot: traffic.store.held_by(slot)[0] for slot in slots if not pins.is_needed(slot)}
    waiting = [slot for slot, text in told.items() if "the maximum of reclaimed ranges" in text]
    assert len(waiting) > 5
    assert set(told) - set(waiting) <= {traffic.store.journal.extent.current_slot}


def test_the_power_fails_while_slots_beside_holes_are_emptied() -> None:
    """I1 to I7: recovery finds each message once, also those of compacted slots that are still in the log."""
    traffic, rng = Traffic(), random.Random(2)
    while not traffic.store.relocation.copied_bytes:
        traffic.round(1, 2)
    cuts = 0
    for _ in range(40):
        traffic.round(1, 2)
        while traffic.store.relocation.is_at_work or traffic.store.journal.has_unsealed:
            traffic.store.became_durable(traffic.store.durable_lsn)
            traffic.store.kick()
            if rng.random() < 0.2:
                cut = traffic.files.after_power_cut(rng)
                store, _ = recover(cut, traffic.wiring, ManualClock(), OPTIONS)
                assert shown(store) == {traffic.q: traffic.kept}
                cuts += 1
    assert cuts > 10


def test_what_was_emptied_leaves_the_log() -> None:
    """Each chosen slot in turn is next to a reclaimed range or begins the log; else copies only make the log longer."""
    emptied = 0
    for seed in range(300):
        rng = random.Random(seed)
        count = rng.randrange(4, 60)
        slots = {slot: max(0, slot * SIZE - 512) for slot in range(count)}
        extent = LogSlots(SIZE, slots, [], count)
        extent.begin(count, count * SIZE - 512, count * SIZE)
        extent.most_holes = rng.randrange(1, 6)
        pins = Pins(SIZE)
        for slot in range(count + 1):
            if slot == 0 or rng.random() < 0.6:
                pins.hold(slot * SIZE + 1024, rng.choice((500, SIZE // 2, SIZE - 1024)))
        extent.retire([slot for slot in range(count) if not pins.is_needed(slot)])
        stays = {slot for slot in range(count) if rng.random() < 0.1}
        chosen = gaps.choose(extent, pins, count - 1, 0.9, lambda slot, stays=stays: slot not in stays)  # type: ignore[misc]
        assert stays.isdisjoint(chosen)
        for slot in chosen:
            assert slot < count - 1
            passed, punched = extent.retire([slot])
            assert slot in passed + punched
        emptied += len(chosen)
    assert emptied > 300
