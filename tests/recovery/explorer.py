"""The crash-state explorer: a workload on a disk in memory, and every state in which a crash may leave that disk.

After each operation on the disk the world is held: the disk with what is pending on it, SQL, what was done so far and
what was confirmed. Of each such moment, several disks that a power cut could leave are made, recovered, and checked.
"""

from __future__ import annotations

import os
import random
import sqlite3
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import cast
from uuid import UUID

from sqlalchemy import create_engine
from sqlalchemy.pool import StaticPool

from cairnmq.base.clock import ManualClock
from cairnmq.disk.memory import Junk, MemoryDirectory, Pending
from cairnmq.disk.seam import Directory
from cairnmq.journal.opening import MIN_CONTAINER_BYTES
from cairnmq.recovery.recover import StoreOptions, recover
from cairnmq.recovery.report import RecoveryReport
from cairnmq.store.journal_store import JournalStore
from cairnmq.store.wiring import Wiring

from .checker import Broken, History, Shown, check, check_base

SCALE = float(os.environ.get("CAIRNMQ_EXPLORE", "1"))
"""How much to explore, as a multiple of what every run does."""
OPTIONS = StoreOptions(container_bytes=MIN_CONTAINER_BYTES, initial_containers=2, max_write_buffers=3)


class MemoryWiring(Wiring):
    """SQL that survives everything: a commit is durable, closing keeps it, and its state can be held and put back."""

    def __init__(self) -> None:
        engine = create_engine("sqlite://", poolclass=StaticPool, connect_args={"check_same_thread": False})
        super().__init__(engine, "memory")
        self._sqlite = cast(sqlite3.Connection, engine.raw_connection().driver_connection)
        self.on_commit: Callable[[str], None] = lambda what: None

    def identify(self, new_uuid: UUID) -> tuple[UUID, bool]:
        found = super().identify(new_uuid)
        if found[0] == new_uuid:
            self.on_commit("commit of the identity")
        return found

    def set_formatted(self) -> None:
        super().set_formatted()
        self.on_commit("commit that there is a journal")

    def hold(self) -> bytes:
        return self._sqlite.serialize()

    def put_back(self, held: bytes) -> None:
        self._sqlite.deserialize(held)

    def close(self) -> None:
        pass


@dataclass
class Moment:
    """Everything just after an operation on the disk."""

    after: str
    disk: MemoryDirectory
    sql: bytes
    history: History
    operations: int
    queues: frozenset[int]
    confirmed_lsn: int
    decided: History | None = None
    """Inside a recovery: what it would have shown. The next one may still find what this one did not, such as a block
    whose container had lost its head, but only until this one's opening record is there."""

    def past(self) -> History:
        return self.history.as_of(self.operations, self.queues)


@dataclass
class World:
    """A store on a disk in memory, whose every disk operation is a `Moment`."""

    disk: MemoryDirectory
    wiring: MemoryWiring = field(default_factory=MemoryWiring)
    history: History = field(default_factory=History)
    confirmed_lsn: int = 0
    moments: list[Moment] = field(default_factory=list)
    store: JournalStore | None = None
    report: RecoveryReport | None = None
    clock: ManualClock = field(default_factory=ManualClock)
    through: Directory | None = None
    """What the store sees in place of *disk*: a faulty one over it."""
    random: random.Random = field(default_factory=lambda: random.Random(1))

    def __post_init__(self) -> None:
        self.disk.on_operation = self.wiring.on_commit = self._hold

    def _hold(self, operation: str) -> None:
        if self.store is not None:
            self.confirmed_lsn = self.store.journal.durable_lsn
            check_base(self.store)
        self.moments.append(self.now(operation))

    def now(self, after: str) -> Moment:
        history = self.history
        return Moment(
            after, self.disk.after_kill(), self.wiring.hold(), history, len(history.operations), history.queues,
            self.confirmed_lsn,
        )  # fmt: skip

    # ---- what a workload does -------------------------------------------------------------------------------------

    def open(self) -> JournalStore:
        before = len(self.moments)
        store, self.report = recover(self.through or self.disk, self.wiring, self.clock, OPTIONS)
        store.run_inline(store.became_durable)
        self.store = store
        self.history = self.history.until(self.report.log.end_lsn)
        self.confirmed_lsn = store.journal.durable_lsn
        for moment in self.moments[before:]:
            moment.decided = self.history
        return store

    def queue(self, name: str) -> int:
        assert self.store is not None
        made: list[int] = []
        self.store.create_queue(name, lambda row: made.append(row.id))  # type: ignore[union-attr]
        self.history.queues |= {made[0]}
        self._hold("commit of a queue")
        return made[0]

    def content(self, size_bytes: int) -> bytes:
        return self.random.randbytes(size_bytes)

    def on(self, queue_id: int) -> list[int]:
        """The messages on a queue."""
        return self.history.shown(1 << 63).get(queue_id, [])

    def put(self, queue_id: int, size_bytes: int) -> int:
        assert self.store is not None
        content = self.content(size_bytes)
        message_id, lsn = self.store.put(queue_id, content, self.clock.wall_us())
        self.history.contents[message_id] = content
        self.history.did(lsn, "enqueue", message_id, queue_id)
        return message_id

    def put_in_pieces(
        self, queue_ids: Iterable[int], size_bytes: int, piece_bytes: int, between: Callable[[], object] = int
    ) -> int:
        """A message that is staged, appended to and then put on the queues; *between* these steps something happens."""
        assert self.store is not None
        content = self.content(size_bytes)
        now = self.clock.wall_us()
        pieces = [content[at : at + piece_bytes] for at in range(0, size_bytes, piece_bytes)]
        message_id = self.store.stage(pieces[0], now)
        self.history.contents[message_id] = content
        for piece in pieces[1:]:
            between()
            self.store.append_content(message_id, piece, now, last=piece is pieces[-1])
        for queue_id in queue_ids:
            between()
            lsn = self.store.enqueue(message_id, queue_id, now)
            self.history.did(lsn, "enqueue", message_id, queue_id)
        return message_id

    def groups(self, queue_id: int) -> None:
        """Several blocks in one flush, as when the writer is slower than what arrives."""
        assert self.store is not None
        for size_bytes in (384, 3000, 384, 384):
            self.put(queue_id, size_bytes)
            self.store.journal.seal()
        self.put(queue_id, 40)
        self.kick()

    def take(self, queue_id: int, message_id: int) -> None:
        assert self.store is not None
        lsn = self.store.dequeue(message_id, queue_id, self.clock.wall_us())
        self.history.did(lsn, "dequeue", message_id, queue_id)

    def kick(self) -> None:
        assert self.store is not None
        self.store.kick()
        check_base(self.store)

    def idle(self) -> None:
        assert self.store is not None
        self.store.journal.write_mark()

    def close(self) -> None:
        assert self.store is not None
        self.store.close()
        self.confirmed_lsn = self.store.journal.durable_lsn
        self.store = None

    def kill(self) -> None:
        """The process is gone; what it wrote is in the page cache."""
        assert self.store is not None
        self.confirmed_lsn = self.store.journal.durable_lsn
        self.history = self.history.until(self.confirmed_lsn)  # without threads, what is written is durable
        self.store.journal.abandon()
        self.store = None


def workload(world: World) -> None:
    """A store's whole life in small: made, filled past several containers, emptied, closed, killed, and used again."""
    world.open()
    a, b = world.queue("a"), world.queue("b")
    pin = world.put(a, 10)
    world.kick()
    first = [world.put(b, size) for size in (0, 300, 5000)]
    world.kick()
    both = world.put_in_pieces([a, b], 150_000, 40_000)
    world.take(b, first[0])
    world.kick()
    slow = world.put_in_pieces([b], 100_000, 65_536, between=world.kick)
    world.kick()
    late = world.put_in_pieces([a, b], 3000, 1000, between=lambda: world.put(b, 20))  # overtaken by shorter ones
    world.groups(a)
    world.take(a, both)
    old = [world.put(queue, 60_000) for queue in (a, b, a, b)]
    world.kick()
    for message_id, queue in zip(old, (a, b, a, b), strict=True):
        world.take(queue, message_id)
    second = [world.put(a, 64_000) for _ in range(6)]
    world.kick()
    # A batch of several blocks that goes over the end of a container, and bounds the write buffers.
    second += [world.put(a, 60_000) for _ in range(18)]
    world.kick()
    world.take(b, both)
    for message_id in second[:-2]:
        world.take(a, message_id)
    world.kick()
    world.idle()
    assert {pin, slow, late, *first[1:]} <= {*world.on(a), *world.on(b)}
    for queue in (a, b):
        for message_id in world.on(queue):
            if message_id not in second:
                world.take(queue, message_id)
    world.kick()  # from now on the log can be reclaimed
    world.take(a, second[-2])
    world.kick()
    world.put(b, 700)
    world.kick()
    world.close()

    world.open()
    for number in range(8):  # traffic one at a time, through recycled containers
        passing = [world.put(a, 60_000) for _ in range(4)]
        if number == 5:
            world.groups(b)
        world.kick()
        for message_id in passing:
            world.take(a, message_id)
        world.kick()
    world.take(a, second[-1])
    world.put(a, 20)
    world.kick()
    world.put(a, 30)  # never written
    world.kill()

    world.open()
    world.put_in_pieces([a, b], 70_000, 30_000)
    world.kick()
    world.put(b, 1)
    world.put_in_pieces([], 70_000, 40_000)  # never enqueued: discarded by the next recovery
    world.kick()
    world.kill()

    world.open()
    more_work(world)
    world.close()


def more_work(world: World) -> None:
    """A little of everything, on any recovered store: also into the next container."""
    queues = sorted(world.history.queues)
    if not queues:
        queues = [world.queue("a")]
    queue = queues[0]
    for message_id in world.on(queue)[:1]:
        world.take(queue, message_id)
    world.put(queue, 40)
    world.kick()
    world.groups(queue)
    passing = [world.put(queue, 65_000) for _ in range(9)]
    world.kick()
    for message_id in passing[1:]:
        world.take(queue, message_id)
    world.kick()


# ---- what a crash leaves ------------------------------------------------------------------------------------------


def subsets(pending: list[Pending], rng: random.Random, samples: int, singles: int) -> Iterator[frozenset[Pending]]:
    """Which of the pending changes survive: none, all, all but one and just one of a few, and samples of every size."""
    seen: set[frozenset[Pending]] = set()
    everything = frozenset(pending)
    few = pending if len(pending) <= singles else [*pending[:2], *pending[-2:], *rng.sample(pending, singles // 2)]
    kept = [frozenset[Pending](), everything]
    kept += [everything - {item} for item in few]
    kept += [frozenset({item}) for item in few]
    for _ in range(samples if pending else 0):
        share = rng.choice((0.1, 0.5, 0.5, 0.9, 0.98))
        kept.append(frozenset(item for item in pending if rng.random() < share))
        cut = rng.randrange(len(pending) + 1)
        kept.append(frozenset(pending[:cut]))
    for subset in kept:
        if subset not in seen:
            seen.add(subset)
            yield subset


def others_content(disk: MemoryDirectory) -> Junk:
    """Lost sectors hold what another file has at the same place, if nothing but zeros was ever synced there."""
    disk = disk.after_kill()  # one that has no lock held
    names = disk.names()

    def junk(name: str, sector: int, synced: bytes) -> bytes:
        if any(synced):
            return synced
        other = names[(names.index(name) + 1) % len(names)] if name in names else names[0]
        file = disk.open(other)
        try:
            return file.read_at(sector * len(synced), len(synced))
        finally:
            file.close()

    return junk


@dataclass
class Explorer:
    """Recovers and checks states. One explorer counts them."""

    seed: int = 1
    states: int = 0
    nested: int = 0
    wiring: MemoryWiring = field(default_factory=MemoryWiring)

    def __post_init__(self) -> None:
        self.rng = random.Random(self.seed)

    def recovered(self, disk: MemoryDirectory, moment: Moment) -> tuple[World, Shown]:
        """Recover *disk* as it was left after *moment*, and check it."""
        self.states += 1
        self.wiring.put_back(moment.sql)
        world = World(disk, self.wiring, moment.past(), moment.confirmed_lsn, random=random.Random(self.states))
        try:
            store = world.open()
        except Broken:
            raise
        except Exception as error:  # no legal crash may keep a store from opening
            raise Broken("I10", f"{type(error).__name__}: {error}") from error
        assert world.report is not None
        try:
            shown = check(moment.past(), moment.confirmed_lsn, store, world.report)
        except Broken:
            if moment.decided is None:
                raise
            shown = check(moment.decided, moment.confirmed_lsn, store, world.report)
            world.history = moment.decided.until(world.report.log.end_lsn)
        return world, shown

    def cut(self, moment: Moment, samples: int, singles: int = 6) -> None:
        """Cut the power at *moment*, in several ways."""
        for kept in subsets(moment.disk.pending(), self.rng, samples, singles):
            self.one(moment, kept)

    def one(self, moment: Moment, kept: frozenset[Pending]) -> tuple[World, Shown]:
        try:
            return self.recovered(moment.disk.after_power_cut(kept), moment)
        except Broken as error:
            lost = [item for item in moment.disk.pending() if item not in kept]
            error.add_note(f"after {moment.after!r}, lost {len(lost)}: {lost[:5]}")
            raise

    def cut_again(self, moment: Moment, kept: frozenset[Pending], samples: int) -> None:
        """Cut the power at *moment*; then again after each operation of the recovery, and of the work that follows."""
        world, shown = self.one(moment, kept)
        self.again(world, shown, samples)

    def kill(self, moment: Moment, samples: int) -> None:
        """Kill the process at *moment*, recover, and cut the power after each operation from then on."""
        world, shown = self.recovered(moment.disk.after_kill(), moment)
        self.again(world, shown, samples)

    def stays(self, world: World, shown: Shown, samples: int) -> None:
        """*world* has just recovered; what it has shown must stay."""
        recovered = world.now("recovery")
        for kept in subsets(recovered.disk.pending(), self.rng, samples, 4):
            again = self.one(recovered, kept)[1]
            if again != shown:
                raise Broken("I9", f"the second recovery shows {again}, the first {shown}")

    def again(self, world: World, shown: Shown, samples: int) -> None:
        """The same, and with the power cut after each operation of its recovery and of the work that follows."""
        during = len(world.moments)
        sql = world.wiring.hold()
        self.stays(world, shown, samples)
        self.wiring.put_back(sql)
        more_work(world)
        for number, moment in enumerate(world.moments):
            before = self.states
            self.cut(moment, samples, singles=2)
            if number < during:
                self.nested += self.states - before
