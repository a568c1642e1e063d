"""Random traffic through a store, with a model of its contents: lifetimes in several mixes, from one seed.

The model knows the LSN of each operation, so it defines the result of recovery for any disk that a crash may leave.
"""

from __future__ import annotations

import random
from bisect import bisect_left
from collections.abc import Callable
from typing import NamedTuple

from cairnmq.base.testing.memory_disk import MemoryDirectory
from cairnmq.journal.format.record import HEAD_BYTES
from cairnmq.recovery.report import RecoveryReport
from cairnmq.store.journaled.store import JournalStore
from tests.harness.recovery.checker import content_of
from tests.harness.store.stores import NOW_US, SIZE, Disk, come_to_rest, live_records, queue, shown

NEVER = 1 << 60
Lifetime = Callable[["Traffic"], int]
"""The number of steps for which a message stays on a queue, including the current one."""


def _one_stays(traffic: Traffic) -> int:
    return 0 if traffic.operations else NEVER


MIXES: dict[str, Lifetime] = {
    "one message is never consumed": _one_stays,
    "1 % stragglers": lambda traffic: NEVER if traffic.rng.random() < 0.01 else 0,
    "10 % slow": lambda traffic: traffic.rng.randrange(1, 300) if traffic.rng.random() < 0.1 else 0,
    "half are never consumed": lambda traffic: NEVER if traffic.rng.random() < 0.5 else 0,
    "exponential lifetimes": lambda traffic: int(traffic.rng.expovariate(1 / 30)),
    "a backlog, first in first out": lambda traffic: 40,
    "in pieces on two queues": lambda traffic: int(traffic.rng.expovariate(1 / 30)),
    "back on the same queue": lambda traffic: int(traffic.rng.expovariate(1 / 30)),
}


class Operation(NamedTuple):
    """An enqueue or a dequeue, recorded at *lsn*."""

    lsn: int
    puts: bool
    message_id: int
    queue_id: int


class Moment(NamedTuple):
    """The disk as a process leaves it that is killed now."""

    files: MemoryDirectory
    confirmed_lsn: int
    operations: int
    relocating: bool


class Traffic:
    """A store with two queues, the operations on it, and the expected contents."""

    rng: random.Random

    def __init__(self, mix: str, seed: int) -> None:
        self.rng = random.Random(seed)
        self.mix = mix
        self.disk = Disk()
        self.store, _ = self.disk.open()
        self.queues = [queue(self.store, name) for name in "ab"]
        self.operations: list[Operation] = []
        self.contents: dict[int, bytes] = {}
        self.on: dict[int, dict[int, None]] = {queue_id: {} for queue_id in self.queues}
        self.due: list[tuple[int, int, int]] = []
        self.step_number = 0
        self.offered_bytes = 0
        """The number of record bytes written for the operations of the traffic."""
        self.copied_bytes = 0
        self.emptied = 0

    # ---- operations -----------------------------------------------------------------------------------------------

    def step(self, most: int = 40) -> None:
        """Enqueue some messages, dequeue those that are due, and request a flush."""
        for _ in range(self.rng.randrange(1, most)):
            if self.mix == "in pieces on two queues" and self.rng.random() < 0.3:
                self.put_in_pieces()
            else:
                self.put(self.rng.choice(self.queues))
        due, self.due = self.due, []
        for at, message_id, queue_id in due:
            if at <= self.step_number:
                self.take(message_id, queue_id)
            else:
                self.due.append((at, message_id, queue_id))
        if self.mix == "back on the same queue":
            self.turn_around()
        self.store.kick()
        self.step_number += 1

    def put(self, queue_id: int) -> None:
        content = self.rng.randbytes(self.rng.choice((0, 100, 3000, 9000)))
        stays = MIXES[self.mix](self)
        message_id, lsn = self.store.put(queue_id, content, NOW_US)
        self.contents[message_id] = content
        self.offered_bytes += HEAD_BYTES + len(content)
        self.did_put(lsn, message_id, queue_id, stays)

    def put_in_pieces(self) -> None:
        content = self.rng.randbytes(self.rng.choice((100, 3000, 80_000)))
        cut = self.rng.randrange(len(content))
        message_id = self.store.stage(content[:cut], NOW_US)
        self.store.append_content(message_id, content[cut:], NOW_US, last=True)
        self.contents[message_id] = content
        self.offered_bytes += HEAD_BYTES * self.store.piece_count(message_id) + len(content)
        for queue_id in self.queues:
            lsn = self.store.enqueue(message_id, queue_id, NOW_US)
            self.offered_bytes += HEAD_BYTES
            self.did_put(lsn, message_id, queue_id, MIXES[self.mix](self))

    def turn_around(self) -> None:
        """Move some messages to the end of the other queue, from which some return later."""
        one, other = self.rng.sample(self.queues, 2)
        for message_id in self.rng.sample(list(self.on[one]), min(len(self.on[one]), self.rng.randrange(6))):
            if message_id in self.on[other]:
                continue
            lsn = self.store.enqueue(message_id, other, NOW_US)
            self.did_put(lsn, message_id, other, MIXES[self.mix](self))
            self.take(message_id, one)
            self.offered_bytes += 2 * HEAD_BYTES

    def did_put(self, lsn: int, message_id: int, queue_id: int, stays: int) -> None:
        self.operations.append(Operation(lsn, True, message_id, queue_id))
        self.on[queue_id][message_id] = None
        if stays < NEVER:
            self.due.append((self.step_number + stays, message_id, queue_id))

    def take(self, message_id: int, queue_id: int) -> None:
        if message_id not in self.on[queue_id]:  # a message that changed queues
            return
        lsn = self.store.dequeue(message_id, queue_id, NOW_US)
        self.offered_bytes += HEAD_BYTES
        self.operations.append(Operation(lsn, False, message_id, queue_id))
        del self.on[queue_id][message_id]

    def rest(self) -> None:
        come_to_rest(self.store)

    # ---- crashes --------------------------------------------------------------------------------------------------

    def now(self) -> Moment:
        journal = self.store.journal
        return Moment(
            self.disk.files.after_kill(), journal.writer.durable_lsn, len(self.operations),
            self.store.relocation.is_at_work,
        )

    def reopen(self) -> RecoveryReport:
        """Reopen the store after a close, a kill or a power cut; everything done so far is durable on the disk."""
        self.count_copies()
        how = self.rng.randrange(3)
        if how == 0:
            self.store.close()
        else:
            self.store.journal.abandon()
        if how == 2:
            self.disk.files = self.disk.files.after_power_cut(self.rng)
        self.store, report = self.disk.open()
        return report

    def count_copies(self) -> None:
        self.copied_bytes += self.store.relocation.copied_bytes
        self.emptied += self.store.relocation.emptied
        self.store.relocation.copied_bytes = self.store.relocation.emptied = 0

    @property
    def amplification(self) -> float:
        """The number of record bytes written for each byte of the operations."""
        self.count_copies()
        return 1 + self.copied_bytes / self.offered_bytes

    # ---- checks ---------------------------------------------------------------------------------------------------

    def expected(self, end_lsn: int, count: int | None = None) -> dict[int, list[int]]:
        """Return the queues after all operations below *end_lsn* of the first *count*."""
        queues: dict[int, dict[int, None]] = {}
        done = self.operations[:count]
        for _, puts, message_id, queue_id in done[: bisect_left(done, end_lsn, key=lambda item: item.lsn)]:
            if puts:
                queues.setdefault(queue_id, {})[message_id] = None
            else:
                del queues[queue_id][message_id]
        return {queue_id: list(ids) for queue_id, ids in queues.items() if ids}

    def check(self) -> None:
        """Check the IDs, order and contents of all messages."""
        assert shown(self.store) == {queue_id: list(ids) for queue_id, ids in self.on.items() if ids}
        self.check_contents(self.store)

    def check_contents(self, store: JournalStore, share: float = 1.0) -> None:
        for message_id in {message_id for ids in store.messages().values() for message_id in ids}:
            if share == 1.0 or self.rng.random() < share:
                assert content_of(store, message_id) == self.contents[message_id]

    def check_size(self) -> None:
        """Check that at rest the log is at most twice its live records plus four containers (E24, E69)."""
        journal, pins = self.store.journal, self.store.state.pins
        assert pins.live == live_records(self.store)
        assert sum(pins.live.values()) == pins.live_bytes
        assert set(pins.live) <= set(journal.extent.slots)  # E24: no live record is lost
        assert set(journal.extent.slots) <= set(journal.pool.slots()) | {max(journal.extent.slots)}
        assert len(journal.extent.slots) * SIZE <= 2 * pins.live_bytes + 4 * SIZE

    def check_moment(self, moment: Moment) -> int:
        """Cut the power at *moment*, and check that recovery finds the durable operations; return its message count."""
        disk = Disk()
        disk.files, disk.wiring = moment.files.after_power_cut(self.rng), self.disk.wiring
        store, report = disk.open()
        end_lsn = report.log.end_lsn
        found = shown(store)
        assert found == self.expected(end_lsn, moment.operations)
        assert found == self.expected(max(end_lsn, moment.confirmed_lsn), moment.operations)
        self.check_contents(store, 0.2)
        come_to_rest(store)
        assert shown(store) == found
        again, _ = disk.open()  # the next recovery shows the same (I9)
        assert shown(again) == found
        return report.messages
