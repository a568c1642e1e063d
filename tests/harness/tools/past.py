"""Random histories of a store, with a model of its contents at each LSN."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

from cairnmq.analytics.views.journal import Journal, open_journal
from cairnmq.base.disk.real import RealDirectory
from cairnmq.base.testing.manual_clock import ManualClock
from cairnmq.base.testing.memory_disk import MemoryDirectory
from cairnmq.recovery.recover import recover
from cairnmq.store.contract.dequeue_reason import DequeueReason
from cairnmq.store.journaled.store import JournalStore
from cairnmq.tools.history.history import History, find_history
from tests.harness.columns.logs import lay_out
from tests.harness.recovery.world import OPTIONS, MemoryWiring
from tests.harness.store.stores import NOW_US, come_to_rest, queue, shown

Queues = dict[int, list[int]]
SMALL = replace(OPTIONS, container_bytes=1 << 17, min_container_bytes=1 << 17, reserve_bytes=0)


def no_progress(what: str, done: int, total: int) -> None:
    """Ignore the progress."""


class Past:
    """A store with an archive, and the contents of its queues after each change."""

    def __init__(self, archive: str, seed: int = 0, *, archives: bool = True) -> None:
        self.files = MemoryDirectory()
        self.wiring = MemoryWiring()
        self.archive = archive
        self.rng = random.Random(seed)
        self.options = replace(SMALL, archive_dir=archive if archives else None)
        self.store = self._open()
        self.queues = [queue(self.store, name) for name in "ab"]
        self.on: Queues = {one: [] for one in self.queues}
        self.points: list[tuple[int, Queues]] = []
        """Pairs of an LSN and the contents of the queues as of that LSN."""
        self.contents: dict[int, bytes] = {}
        self.note()

    def _open(self) -> JournalStore:
        store, _ = recover(self.files, self.wiring, ManualClock(), self.options)
        store.run_inline(store.became_durable)
        return store

    def note(self) -> None:
        while self.store.journal.has_unsealed:  # a flush may leave an unflushed record of the log itself
            self.store.kick()
        self.points.append((self.store.next_lsn, {one: list(ids) for one, ids in self.on.items() if ids}))

    def put(self, on: int, size_bytes: int) -> None:
        content = bytes([len(self.contents) % 256]) * size_bytes
        message_id, _ = self.store.put(on, content, NOW_US)
        self.contents[message_id] = content
        self.on[on].append(message_id)
        self.note()

    def put_many(self, on: int) -> None:
        for _ in range(6):
            self.put(on, 20_000)

    def share(self) -> None:
        one, other = self.queues
        mine = [message_id for message_id in self.on[one] if message_id not in self.on[other]]
        if mine:
            message_id = mine[self.rng.randint(0, len(mine) - 1)]
            self.store.enqueue(message_id, other, NOW_US)
            self.on[other].append(message_id)
            self.note()

    def take(self, on: int) -> None:
        if self.on[on]:
            message_id = self.on[on].pop(self.rng.randint(0, len(self.on[on]) - 1))
            self.store.dequeue(message_id, on, NOW_US, DequeueReason.ACCEPTED)
            self.note()

    def take_most(self, on: int) -> None:
        if self.on[on]:
            stays = self.on[on][self.rng.randint(0, len(self.on[on]) - 1)]
            self.store.dequeue_all([one for one in self.on[on] if one != stays], on, NOW_US)
            self.on[on] = [stays]
            self.note()

    def transact(self, on: int) -> None:
        """Dequeue two messages and enqueue two in a transaction, prepared or not, committed or rolled back."""
        how = self.rng.randint(0, 3)
        tx = self.store.transactions.begin(NOW_US, xid=b"xid%d" % len(self.points) if how >= 2 else b"")
        taken = self.on[on][:2]
        for message_id in taken:
            tx.dequeue(message_id, on, NOW_US)
        for size_bytes in (10, 70_000):
            tx.put(on, b"x" * size_bytes, NOW_US)
        if how >= 2:
            tx.prepare(NOW_US)
            self.note()
        if how % 2:
            tx.commit(NOW_US)
            self.on[on] = self.on[on][len(taken) :] + tx.message_ids
        else:
            tx.rollback(NOW_US)
        self.note()

    def purge(self, on: int) -> None:
        self.store.purge(on, NOW_US)
        self.on[on] = []
        self.note()

    def rest(self) -> None:
        come_to_rest(self.store)

    def crash(self) -> None:
        self.store.journal.abandon()
        self.store = self._open()
        assert shown(self.store) == {one: ids for one, ids in self.on.items() if ids}
        self.note()

    def step(self) -> None:
        on = self.queues[self.rng.randint(0, 1)]
        what = self.rng.randint(0, 9)
        if what < 2:
            self.put_many(on)
        elif what == 2:
            self.put(on, self.rng.choice((0, 100, 70_000)))
        elif what == 9:
            self.crash()
        elif what in (7, 8):
            self.rest()
        else:
            (self.share, lambda: self.take(on), lambda: self.take_most(on), lambda: self.transact(on))[what - 3]()
            if not self.rng.randint(0, 5):
                self.purge(on)

    def history(self) -> History:
        self.store.kick()
        store = lay_out(self.files, Path(self.archive).parent / "store")
        return find_history([RealDirectory(f"{store}/journal"), RealDirectory(self.archive, create=True)])


def lived(path: str, seed: int, steps: int, *, archives: bool) -> tuple[Past, Journal]:
    """Create a random history that ends at rest; return it, and the journal of its store in the directory *path*."""
    past = Past(f"{path}/archive", seed, archives=archives)
    for _ in range(steps):
        past.step()
    past.rest()
    past.note()
    past.store.kick()
    past.store.journal.writer.write_mark()
    store = lay_out(past.files, Path(path) / "store")
    return past, open_journal(store, archive=f"{path}/archive" if archives else None)
