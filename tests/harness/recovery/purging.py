"""Steps in which a queue is purged by one record."""

from __future__ import annotations

from tests.harness.recovery.steps import Step, pass_by, queues, read, some_queue, wait
from tests.harness.recovery.world import World


def purge(world: World) -> None:
    """Purge a queue as it is, sometimes except for a few messages."""
    queue = some_queue(world)
    on = world.on(queue)
    world.purge(queue, world.random.sample(on, min(len(on), world.random.choice((0, 0, 0, 1, 2)))))
    if world.random.random() < 0.3:
        world.put(queue, 20)  # in the same block
    world.kick()


def purge_many(world: World) -> None:
    """Purge a queue with messages in several containers, in pieces and on several queues, while the log continues."""
    queue = some_queue(world)
    for _ in range(world.random.randrange(1, 4)):
        for _ in range(world.random.randrange(2, 10)):
            world.put(queue, world.random.choice((10, 150)))
        if world.random.random() < 0.5:
            world.put_in_pieces(queues(world), 350, 150)
        pass_by(world, queue)
    world.purge(queue)
    if world.random.random() < 0.5:
        world.put(queue, 20)
    world.kick()
    if world.random.random() < 0.5:
        wait(world)
    for _ in range(world.random.randrange(3)):
        pass_by(world, queue)
    read(world)


def purge_again(world: World) -> None:
    """Purge a queue again before the first purge is complete."""
    queue = some_queue(world)
    for _ in range(2):
        for _ in range(4):
            world.put(queue, 10)
        world.purge(queue, world.on(queue)[-1:])
    world.kick()


def taken_meanwhile(world: World) -> None:
    """Dequeue messages from other queues, or enqueue them there, while a purge of their queue is in progress."""
    queue, other = some_queue(world), some_queue(world)
    if other == queue:
        other = world.queue(f"beside {queue}")
    ids = [world.put(queue, 10) for _ in range(6)]
    for message_id in ids[::2]:
        world.enqueue(other, message_id)
    world.kick()
    world.purge(queue, ids[:1])
    if world.random.random() < 0.5:
        world.kick()
    for message_id in ids[2::2]:
        world.take(other, message_id)
    world.kick()


PURGING: dict[Step, int] = {purge: 2, purge_many: 2, purge_again: 1, taken_meanwhile: 1}
"""The weight of each step."""
