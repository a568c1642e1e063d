"""Tests of checkpoints: recovery replays only the log after the checkpoint, and the log takes precedence."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

import pytest

from cairnmq.base.errors import CorruptJournal
from cairnmq.base.testing.manual_clock import ManualClock
from cairnmq.base.testing.memory_disk import MemoryDirectory
from cairnmq.journal.read.scanner import LogReader
from cairnmq.journal.write.open import MIN_CONTAINER_BYTES
from cairnmq.recovery.recover import recover
from cairnmq.recovery.report import RecoveryReport
from cairnmq.store.checkpoint import checkpoint
from cairnmq.store.checkpoint import checkpointer as checkpointing
from cairnmq.store.contract.options import StoreOptions
from cairnmq.store.contract.wiring_rows import QueueRow
from cairnmq.store.journaled.store import JournalStore
from tests.harness.checkpoints import MemoryCheckpoint
from tests.harness.recovery.world import MemoryWiring

SIZE = MIN_CONTAINER_BYTES
NOW_US = 7


class Home:
    """A store's disk, SQL and checkpoint, and the expected contents of its two queues."""

    def __init__(self, checkpoint_bytes: int = 0, seed: int = 1) -> None:
        self.disk = MemoryDirectory()
        self.wiring = MemoryWiring()
        self.file = MemoryCheckpoint()
        self.options = StoreOptions(container_bytes=SIZE, checkpoint_bytes=checkpoint_bytes)
        self.random = random.Random(seed)
        self.on: dict[int, list[int]] = {}
        self.contents: dict[int, bytes] = {}
        self.store, self.report = self.open()
        for name in ("a", "b"):
            self.store.create_queue(name, self.made)

    def made(self, row: QueueRow | Exception) -> None:
        assert isinstance(row, QueueRow)
        self.on[row.id] = []

    def open(self) -> tuple[JournalStore, RecoveryReport]:
        self.store, self.report = recover(self.disk, self.wiring, ManualClock(), self.options, checkpoint=self.file)
        self.store.run_inline(self.store.became_durable)
        return self.store, self.report

    def put(self, size_bytes: int = 300) -> int:
        queue_id = self.random.choice(list(self.on))
        content = self.random.randbytes(size_bytes)
        message_id, _ = self.store.put(queue_id, content, NOW_US)
        self.contents[message_id] = content
        self.on[queue_id].append(message_id)
        return message_id

    def put_on_both(self) -> int:
        content = self.random.randbytes(100_000)
        message_id = self.store.stage(content[:70_000], NOW_US)
        self.store.append_content(message_id, content[70_000:], NOW_US, last=True)
        self.contents[message_id] = content
        for queue_id in self.on:
            self.store.enqueue(message_id, queue_id, NOW_US)
            self.on[queue_id].append(message_id)
        return message_id

    def put_again(self) -> None:
        """Enqueue a message on the other queue as well, so it needs details, and maybe dequeue it from the first."""
        one, other = self.random.sample(list(self.on), 2)
        there = [message_id for message_id in self.on[one] if message_id not in self.on[other]]
        if there:
            message_id = self.random.choice(there)
            self.store.enqueue(message_id, other, NOW_US)
            self.on[other].append(message_id)
            if self.random.random() < 0.5:
                self.store.dequeue(message_id, one, NOW_US)
                self.on[one].remove(message_id)

    def take(self, first: bool = False) -> None:
        queue_id = self.random.choice(list(self.on))
        ids = self.on[queue_id]
        if ids:
            self.store.dequeue(ids.pop(0 if first else self.random.randrange(len(ids))), queue_id, NOW_US)

    def work(self, steps: int) -> None:
        for _ in range(steps):
            for _ in range(self.random.randrange(20)):
                self.random.choice((self.put, self.put, self.put_on_both, self.take, self.take, self.take))()
            self.store.kick()

    def check(self) -> None:
        found = self.store.messages()
        assert {queue_id: list(ids) for queue_id, ids in found.items()} == {q: ids for q, ids in self.on.items() if ids}
        for message_id in {message_id for ids in self.on.values() for message_id in ids}:
            pieces = range(self.store.piece_count(message_id))
            assert b"".join(self.store.load_piece(message_id, n) for n in pieces) == self.contents[message_id]

    def kill(self) -> None:
        self.store.journal.abandon()

    def close(self) -> None:
        self.store.close()


def test_a_clean_shutdown_replays_nothing() -> None:
    home = Home()
    home.work(30)
    home.close()
    _, report = home.open()
    assert report.log.records == 0
    assert report.log.resumed_lsn
    home.check()


def test_only_what_the_log_says_behind_it_is_replayed() -> None:
    home = Home(checkpoint_bytes=200_000)
    home.work(60)
    assert home.store.checkpointing is not None
    assert home.store.checkpointing.taken > 3
    home.kill()
    _, report = home.open()
    assert 0 < report.log.end_lsn - report.log.resumed_lsn < 3_000_000
    home.check()


@pytest.mark.parametrize("seed", range(6))
def test_any_checkpoint_leads_to_the_same(seed: int) -> None:
    """With the newest checkpoint, an older one or none, or after a power cut, recovery finds the state of the log."""
    home = Home(checkpoint_bytes=100_000, seed=seed)
    for _ in range(12):
        home.work(12)
        home.random.choice((home.close, home.kill))()
        match home.random.randrange(4):
            case 0 if home.file.commits:
                home.file.entries = home.random.choice(home.file.commits)
            case 1:
                home.file.entries = None
            case 2:
                home.disk = home.disk.after_power_cut(home.random)
        home.open()
        home.check()
    home.work(5)
    home.check()


@pytest.mark.parametrize("steps", range(6))
def test_what_got_particulars_after_its_page_was_taken_does_not_come_back_as_plain(steps: int) -> None:
    """The checkpoint's page still has the message as plain; the checkpoint after the next start must remove it."""
    home = Home(checkpoint_bytes=1)
    store, (a, b) = home.store, home.on
    home.put()  # keeps the container in the log
    message_id, _ = store.put(a, b"plain", NOW_US)
    store.kick()
    for _ in range(steps):
        store.became_durable(store.durable_lsn)
    store.enqueue(message_id, b, NOW_US)
    store.kick()
    assert store.checkpointing is not None
    while not store.checkpointing.taken:  # the next checkpoint would be right
        store.became_durable(store.durable_lsn)
    home.kill()
    home.options = replace(home.options, checkpoint_bytes=0)
    store, _ = home.open()
    for queue_id in home.on:
        store.dequeue(message_id, queue_id, NOW_US)
    store.kick()
    home.close()
    home.open()
    home.check()


def test_a_step_takes_so_much_at_most() -> None:
    """A step is limited for all kinds of messages, as the core has other work."""
    home = Home()
    store, (a, b) = home.store, home.on
    ids, _ = store.put_all(a, [b"fan-out"] * 5000, NOW_US)
    for message_id in ids:
        store.enqueue(message_id, b, NOW_US)
    store.kick()
    state = store.state
    state.change_all()
    state.pins.changed_tombstones.update(range(1000, 3500))
    portions = [*checkpoint.particulars(state, 1000), *checkpoint.ends(state, 1000)]
    assert [len(portion) for portion in portions] == [1000] * 7 + [500]
    assert {key[:1] for portion in portions[:5] for key in portion} == {b"o"}
    assert state.changed_detailed == state.pins.changed_tombstones == set()
    assert max(map(len, checkpoint.pages(state, list(range(2500)), 1000))) == 1000


@pytest.mark.parametrize("seed", range(8))
def test_messages_change_between_the_portions(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The checkpoint agrees with the log after it, whatever happens between its steps, also after a power cut."""
    monkeypatch.setattr(checkpointing, "_STEP_MESSAGES", 3)
    monkeypatch.setattr(checkpointing, "_STEP_DETAILED", 2)
    home = Home(checkpoint_bytes=1, seed=seed)
    taken = 0
    for _ in range(25):
        for _ in range(home.random.randrange(60)):
            home.random.choice((home.put, home.put_on_both, home.put_again, home.put_again, home.take, home.take))()
            home.store.kick()  # each call is a step
        assert home.store.checkpointing is not None
        taken += home.store.checkpointing.taken
        home.random.choice((home.close, home.kill))()
        if home.random.random() < 0.5:
            home.disk = home.disk.after_power_cut(home.random)
        home.open()
        home.check()
    assert taken > 10


def test_nothing_is_committed_that_is_not_durable() -> None:
    """After a power cut, only the checkpoint would contain such a message."""
    home = Home(checkpoint_bytes=1)
    home.work(3)
    checkpointing = home.store.checkpointing
    assert checkpointing is not None
    while checkpointing.is_at_work:
        checkpointing.step()
    home.put()
    home.store.journal.seal()
    home.store.journal.writer.write_out()
    checkpointing.step()  # the checkpoint begins
    home.put()
    commits = len(home.file.commits)
    for _ in range(20):
        checkpointing.step()
    assert checkpointing.is_at_work
    assert len(home.file.commits) == commits
    home.store.kick()
    for _ in range(20):
        checkpointing.step()
    assert len(home.file.commits) > commits


def damaged(file: MemoryCheckpoint, how: Callable[[dict[bytes, bytes]], object]) -> None:
    assert file.entries is not None
    file.entries = dict(file.entries)
    how(file.entries)


@pytest.mark.parametrize(
    "how",
    [
        lambda entries: entries.pop(b"m"),
        lambda entries: entries.pop(min(key for key in entries if key[:1] == b"p")),
        lambda entries: entries.update({b"p" + bytes(8): entries[max(key for key in entries if key[:1] == b"p")]}),
        lambda entries: entries.update({key: value[:-1] + b"x" for key, value in entries.items() if key[:1] == b"p"}),
        lambda entries: entries.clear(),
    ],
    ids=["no meta", "a page is missing", "a page under another key", "rot", "empty"],
)
def test_a_checkpoint_that_is_not_whole_costs_time_only(how: Callable[[dict[bytes, bytes]], object]) -> None:
    home = Home()
    home.work(20)
    home.close()
    damaged(home.file, how)
    _, report = home.open()
    assert not report.log.resumed_lsn
    assert any("the checkpoint was not used" in line for line in report.lines())
    home.check()
    home.close()
    assert home.open()[1].log.resumed_lsn


def test_the_checkpoint_of_another_store_is_not_used() -> None:
    home, other = Home(), Home(seed=2)
    for one in (home, other):
        one.work(10)
        one.close()
    home.file.entries = other.file.entries
    _, report = home.open()
    assert "of another log" in "".join(report.lines())
    home.check()


def test_a_checkpoint_from_the_future_is_not_used() -> None:
    """The journal is restored from a backup, so the checkpoint is of later records that the log does not have."""
    home = Home()
    home.work(20)
    home.kill()
    before = home.disk.after_kill(), {queue_id: list(ids) for queue_id, ids in home.on.items()}
    home.open()
    home.work(20)
    home.close()
    home.disk, home.on = before
    _, report = home.open()
    assert not report.log.resumed_lsn
    home.check()


def test_a_lost_container_that_the_checkpoint_spares_reading_is_noticed() -> None:
    home = Home()
    while len(home.store.journal.extent.slots) < 6:
        home.put(60_000)
        home.store.kick()
    home.close()
    reader = LogReader(home.disk)
    home.disk.unlink(f"{reader.heads.by_slot[reader.slots[2]].number:08d}.cairn")
    with pytest.raises(CorruptJournal):
        home.open()


def test_a_checkpoint_that_can_not_be_written_is_tried_again() -> None:
    home = Home(checkpoint_bytes=50_000)
    home.file.fails = True
    home.work(20)
    checkpointing = home.store.checkpointing
    assert checkpointing is not None
    assert "no space left" in checkpointing.failure
    assert home.file.entries is None
    home.file.fails = False
    home.work(40)
    assert not checkpointing.failure
    assert checkpointing.taken
    home.kill()
    assert home.open()[1].log.resumed_lsn
    home.check()
