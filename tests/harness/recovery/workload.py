"""Workloads of a world: lives, that is, runs that consist of steps.

`workload` is one complete life at the real container size. `Life` draws steps in small containers by seed.
"""

from __future__ import annotations

import random
from typing import NamedTuple
from uuid import UUID

from cairnmq.base.testing.memory_disk import MemoryDirectory
from cairnmq.store.contract.options import StoreOptions
from tests.harness.recovery.cutting import power_cut
from tests.harness.recovery.kept_checkpoint import WatchedCheckpoint
from tests.harness.recovery.purging import PURGING
from tests.harness.recovery.steps import (
    STEPS,
    Step,
    across_containers,
    back_after_a_while,
    dead_in_the_middle,
    ends_apart,
    gone_since_a_checkpoint,
    groups,
    interrupted_relocation,
    kill,
    new_queue,
    on_a_second_queue,
    on_again,
    overtaken,
    particulars_during_a_checkpoint,
    put_in_pieces,
    put_large,
    put_small,
    reopen,
    some_copies_go,
    stage_only,
    stragglers,
    take_from_one,
    take_oldest,
    wait,
)
from tests.harness.recovery.transacting import TRANSACTING
from tests.harness.recovery.world import WiringAnswers, World

# ---- lives in small containers --------------------------------------------------------------------------------------


class Kind(NamedTuple):
    """The emphasis of a life: steps that are drawn often, and probabilities."""

    steps: tuple[Step, ...] = ()
    """Steps that are drawn more often than in other lives."""
    checkpoints: float = 0.5
    """The probability that a life has checkpoints."""
    checkpoint_bytes: tuple[int, ...] = (0, 3000, 3000, 10_000)
    late: float = 0.3
    """The probability that a life reports durability late."""
    most_containers: int = 6
    """The number of containers from which on the oldest messages are dequeued first, to limit the time of reads."""


KINDS = {
    "anything": Kind(),
    "relocation": Kind(
        (stragglers, interrupted_relocation, some_copies_go, back_after_a_while, ends_apart, wait, power_cut),
        checkpoints=0.25, most_containers=9,
    ),
    "checkpoints": Kind(
        (gone_since_a_checkpoint, particulars_during_a_checkpoint, ends_apart, on_a_second_queue, reopen, kill),
        checkpoints=1, checkpoint_bytes=(0, 600, 3000, 10_000),
    ),
    "holes": Kind((dead_in_the_middle, ends_apart, across_containers, groups, power_cut), late=0.5, most_containers=8),
    "queues": Kind(
        (new_queue, on_again, on_a_second_queue, take_from_one, back_after_a_while, particulars_during_a_checkpoint),
        checkpoints=0.8,
    ),
    "transactions": Kind(
        (*TRANSACTING, stragglers, across_containers, interrupted_relocation, wait, reopen, power_cut),
        checkpoints=0.5, most_containers=9,
    ),
    "purges": Kind(
        (*PURGING, *PURGING, on_a_second_queue, interrupted_relocation, wait, reopen, kill),
        checkpoints=0.7, checkpoint_bytes=(0, 600, 3000), most_containers=9,
    ),
    "long": Kind((put_in_pieces, overtaken, put_large, across_containers, stage_only, kill)),
}  # fmt: skip
"""The kinds of lives; shards use them in turn."""
MANY_MESSAGES = 5
"""The number of messages from which on the oldest are dequeued first."""


class Life(NamedTuple):
    """The life of one shard of an exploration."""

    options: StoreOptions
    sector_bytes: int
    steps: int
    has_checkpoint: bool
    is_late: bool
    kind: Kind

    @classmethod
    def drawn(cls, rng: random.Random, number: int) -> Life:
        kind = list(KINDS.values())[number % len(KINDS)]
        sector_bytes = rng.choice((512, 512, 512, 4096))
        size = rng.choice((4096, 4096, 8192) if sector_bytes == 512 else (8192, 16384))
        buffers, checkpoint_bytes = rng.choice((1, 3)), rng.choice(kind.checkpoint_bytes)
        options = StoreOptions(size, 2, buffers, checkpoint_bytes, min_container_bytes=4096, reserve_bytes=0)
        return cls(options, sector_bytes, 40, rng.random() < kind.checkpoints, rng.random() < kind.late, kind)

    def begun(self, rng: random.Random) -> World:
        """Return a world with an empty disk."""
        disk = MemoryDirectory(sector_bytes=self.sector_bytes)
        wiring = WiringAnswers(UUID(int=rng.getrandbits(128)))
        file = WatchedCheckpoint() if self.has_checkpoint else None
        return World(disk, wiring, options=self.options, random=rng, file=file, is_late=self.is_late)

    def live(self, world: World, end: Step = World.close) -> World:
        """Run the life, from the creation of the store to *end*."""
        rng = world.random
        world.open()
        world.queue("a")
        # Lives leave out some steps, so that others have a larger effect.
        every = STEPS | TRANSACTING | PURGING | {power_cut: 2}
        weights = {step: weight * rng.choice((0, 1, 1, 3)) for step, weight in every.items()} | {put_small: 6}
        weights |= dict.fromkeys(self.kind.steps, 10)
        for _ in range(self.steps):
            work(world, weights, self.kind)
        end(world)
        return world

    def go_on(self, world: World) -> None:
        """Run a few more steps after a recovery."""
        a_little_work(world, self.kind)


def work(world: World, weights: dict[Step, int], kind: Kind) -> None:
    """Run one step: a random one, or `take_oldest` if the store has many messages or containers."""
    assert world.store is not None
    live = sum(len(world.on(queue)) for queue in world.history.queues)
    if live >= MANY_MESSAGES or (live and len(world.store.journal.pool.slots()) >= kind.most_containers):
        take_oldest(world)
    else:
        world.random.choices(list(weights), list(weights.values()))[0](world)


def a_little_work(world: World, kind: Kind = KINDS["anything"]) -> None:
    """Run two steps after a recovery, in small containers."""
    for _ in range(2):
        work(world, STEPS | dict.fromkeys(kind.steps, 6), kind)


# ---- one life at the real size --------------------------------------------------------------------------------------


def large_groups(world: World, queue_id: int) -> None:
    for size_bytes in (384, 3000, 384, 384):
        world.put(queue_id, size_bytes)
        world.seal()
    world.put(queue_id, 40)
    world.kick()


def workload(world: World) -> None:
    """Run a complete small life: create a store, fill several containers, empty it, close, kill and use it again."""
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
    large_groups(world, a)
    world.take(a, both)
    old = [world.put(queue, 60_000) for queue in (a, b, a, b)]
    world.kick()
    for message_id, queue in zip(old, (a, b, a, b), strict=True):
        world.take(queue, message_id)
    second = [world.put(a, 64_000) for _ in range(6)]
    world.kick()
    # A batch of several blocks that crosses the end of a container, and bounds the write buffers.
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
            large_groups(world, b)
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
    """Run a short mixed workload on any recovered store, which reaches the next container."""
    queues = sorted(world.history.queues)
    if not queues:
        queues = [world.queue("a")]
    queue = queues[0]
    for message_id in world.on(queue)[:1]:
        world.take(queue, message_id)
    world.put(queue, 40)
    world.kick()
    large_groups(world, queue)
    passing = [world.put(queue, 65_000) for _ in range(9)]
    world.kick()
    for message_id in passing[1:]:
        world.take(queue, message_id)
    world.kick()
