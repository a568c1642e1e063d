"""What happens in a world: steps, each a function of the world, and the lives that are made of them.

`workload` is one whole life at the real container size. `Life` draws steps in small containers, others for each seed,
where a container ends after a few blocks. A new thing that the store can do becomes a step here, and a line in `STEPS`.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import NamedTuple
from uuid import UUID

from cairnmq.disk.memory import MemoryDirectory
from cairnmq.recovery.recover import StoreOptions

from .kept_checkpoint import WatchedCheckpoint
from .world import WiringAnswers, World

Step = Callable[[World], None]

# ---- steps in small containers --------------------------------------------------------------------------------------


def queues(world: World) -> list[int]:
    return sorted(world.history.queues) or [world.queue("a")]


def some_queue(world: World) -> int:
    return world.random.choice(queues(world))


def put_small(world: World) -> None:
    for _ in range(world.random.randrange(1, 4)):
        world.put(some_queue(world), world.random.choice((0, 10, 300, 400, 700)))
    world.kick()


def put_large(world: World) -> None:
    """As large as a container takes, or a little less: the next record goes into the next container."""
    world.put(some_queue(world), world.room - world.random.choice((0, 1, 200, 600)))
    world.kick()


def put_in_pieces(world: World) -> None:
    """A message of several records, on one or all queues, whose pieces may come in different flushes."""
    between = world.random.choice((int, world.kick, world.seal))
    chosen = world.random.choice((queues(world), [some_queue(world)]))
    world.put_in_pieces(chosen, world.random.choice((700, 1500)), 400, between)
    world.kick()


def overtaken(world: World) -> None:
    """Shorter messages come onto the queue while a longer one arrives."""
    queue = some_queue(world)
    world.put_in_pieces([queue], 600, 250, lambda: world.put(queue, 20))
    world.kick()


def stage_only(world: World) -> None:
    """A message that never reaches a queue: discarded by the next recovery."""
    world.put_in_pieces([], 500, 300)
    world.kick()


def groups(world: World) -> None:
    """Several blocks in one flush, as when the writer is slower than what arrives."""
    queue = some_queue(world)
    for size_bytes in world.random.sample((384, 384, 40, 900), 3):
        world.put(queue, size_bytes)
        world.seal()
    world.put(queue, 40)
    world.kick()


def across_containers(world: World) -> None:
    """One flush that goes over the end of a container."""
    queue = some_queue(world)
    for _ in range(3):
        world.put(queue, world.room // 2)
    world.kick()
    for message_id in world.on(queue)[-3:]:
        world.take(queue, message_id)
    world.kick()


def take_some(world: World) -> None:
    for queue in queues(world):
        for message_id in world.on(queue):
            if world.random.random() < 0.6:
                world.take(queue, message_id)
    world.kick()


def take_oldest(world: World) -> None:
    """The base moves."""
    for queue in queues(world):
        for message_id in world.on(queue)[:2]:
            world.take(queue, message_id)
            world.kick()


def drain(world: World) -> None:
    for queue in queues(world):
        for message_id in world.on(queue):
            world.take(queue, message_id)
    world.kick()


def pass_through(world: World) -> None:
    """Traffic through recycled containers."""
    queue = some_queue(world)
    for _ in range(3):
        message_id = world.put(queue, world.room // 2)
        world.kick()
        world.take(queue, message_id)
        world.kick()


def pass_by(world: World, queue: int) -> None:
    """Traffic until the log goes on to another container."""
    assert world.store is not None
    journal = world.store.journal
    slot = journal.current_slot
    while journal.current_slot == slot:
        message_id = world.put(queue, world.room // 3)
        world.take(queue, message_id)
        world.kick()


def stragglers(world: World) -> None:
    """In each of several containers a message lives on, of one record or of several, among others that are consumed:
    the log is soon several times what lives in it, so they are relocated."""
    for _ in range(world.random.randrange(3, 6)):
        queue = some_queue(world)
        if world.random.random() < 0.4:
            world.put_in_pieces(queues(world), 350, 150)
        else:
            world.put(queue, world.random.choice((10, 300)))
        pass_by(world, queue)


def dead_in_the_middle(world: World) -> None:
    """Older and newer messages live on; the containers between them hold nothing but what is consumed."""
    queue = some_queue(world)
    world.put(queue, 20)
    for _ in range(3):
        pass_by(world, queue)
    world.put(queue, 20)
    world.kick()


def wait(world: World) -> None:
    """Relocation goes on by itself: what it copied is flushed, until nothing more is to do."""
    assert world.store is not None
    for _ in range(world.random.randrange(1, 8)):
        world.store.became_durable(world.store.durable_lsn)
        world.kick()


def take_from_one(world: World) -> None:
    """Messages that are on several queues leave one of them."""
    on = [(queue, message_id) for queue in queues(world) for message_id in world.on(queue)]
    for queue, message_id in on:
        if sum(message_id == other for _, other in on) > 1 and message_id in world.on(queue):
            world.take(queue, message_id)
            on = [other for other in on if other != (queue, message_id)]
    world.kick()


def on_a_second_queue(world: World) -> None:
    """Messages of one record come onto another queue, too, and some leave the first."""
    for queue in queues(world):
        for message_id in world.on(queue):
            others = [other for other in queues(world) if message_id not in world.on(other)]
            if others and world.random.random() < 0.7:
                world.enqueue(others[0], message_id)
                if world.random.random() < 0.5:
                    world.take(queue, message_id)
    world.kick()


def on_again(world: World) -> None:
    """A message leaves one of its queues and comes back to it, at the end."""
    assert world.store is not None
    for queue in queues(world):
        for message_id in world.on(queue):
            others = [other for other in queues(world) if other != queue and message_id in world.on(other)]
            if others and world.random.random() < 0.7:
                world.take(queue, message_id)
                world.random.choice((int, world.kick, world.seal))()
                world.enqueue(queue, message_id)
    world.kick()


def idle(world: World) -> None:
    world.idle()


def new_queue(world: World) -> None:
    if len(world.history.queues) < 3:
        world.queue(f"queue {len(world.history.queues)}")


def reopen(world: World) -> None:
    world.close()
    world.open()


def kill(world: World) -> None:
    """Something was appended and never written."""
    world.put(some_queue(world), 30)
    world.kill()
    world.open()


STEPS: dict[Step, int] = {
    put_small: 6,
    put_large: 2,
    put_in_pieces: 3,
    overtaken: 1,
    stage_only: 1,
    groups: 3,
    across_containers: 2,
    take_some: 3,
    take_oldest: 3,
    drain: 2,
    pass_through: 2,
    stragglers: 3,
    dead_in_the_middle: 1,
    wait: 2,
    take_from_one: 1,
    on_a_second_queue: 2,
    on_again: 2,
    idle: 1,
    new_queue: 2,
    reopen: 2,
    kill: 2,
}
"""Each step and how often it is drawn."""
MANY_MESSAGES = 5
MANY_CONTAINERS = 6
"""From so many on the oldest messages are taken off first: what is read in each state takes the time."""


class Life(NamedTuple):
    """What one shard of an exploration lives through."""

    options: StoreOptions
    sector_bytes: int
    steps: int
    has_checkpoint: bool
    is_late: bool

    @classmethod
    def drawn(cls, rng: random.Random) -> Life:
        sector_bytes = rng.choice((512, 512, 512, 4096))
        size = rng.choice((4096, 4096, 8192) if sector_bytes == 512 else (8192, 16384))
        buffers, checkpoint_bytes = rng.choice((1, 3)), rng.choice((0, 3000, 3000, 10_000))
        options = StoreOptions(size, 2, buffers, checkpoint_bytes, min_container_bytes=4096, reserve_bytes=0)
        return cls(options, sector_bytes, 40, rng.random() < 0.5, rng.random() < 0.3)

    def begun(self, rng: random.Random) -> World:
        """A world with an empty disk."""
        disk = MemoryDirectory(sector_bytes=self.sector_bytes)
        wiring = WiringAnswers(UUID(int=rng.getrandbits(128)))
        file = WatchedCheckpoint() if self.has_checkpoint else None
        return World(disk, wiring, options=self.options, random=rng, file=file, is_late=self.is_late)

    def live(self, world: World, end: Step = World.close) -> World:
        """Its life, from the making of the store to *end*."""
        rng = world.random
        world.open()
        world.queue("a")
        # Not every life has everything: without one thing another goes further.
        weights = {step: weight * rng.choice((0, 1, 1, 3)) for step, weight in STEPS.items()} | {put_small: 6}
        for _ in range(self.steps):
            work(world, weights)
        end(world)
        return world


def work(world: World, weights: dict[Step, int]) -> None:
    """One step."""
    assert world.store is not None
    live = sum(len(world.on(queue)) for queue in world.history.queues)
    if live >= MANY_MESSAGES or (live and len(world.store.journal.pool.slots()) >= MANY_CONTAINERS):
        take_oldest(world)
    else:
        world.random.choices(list(weights), list(weights.values()))[0](world)


def a_little_work(world: World) -> None:
    """After a recovery, in small containers."""
    for _ in range(2):
        work(world, STEPS)


# ---- one life at the real size --------------------------------------------------------------------------------------


def large_groups(world: World, queue_id: int) -> None:
    for size_bytes in (384, 3000, 384, 384):
        world.put(queue_id, size_bytes)
        world.seal()
    world.put(queue_id, 40)
    world.kick()


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
    large_groups(world, a)
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
    """A little of everything, on any recovered store: also into the next container."""
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
