"""Steps of a workload in small containers, which are full after a few blocks."""

from __future__ import annotations

from collections.abc import Callable

from tests.harness.recovery.checker import Broken, content_of
from tests.harness.recovery.world import World

Step = Callable[[World], None]


def queues(world: World) -> list[int]:
    return sorted(world.history.queues) or [world.queue("a")]


def some_queue(world: World) -> int:
    return world.random.choice(queues(world))


def put_small(world: World) -> None:
    for _ in range(world.random.randrange(1, 4)):
        world.put(some_queue(world), world.random.choice((0, 10, 300, 400, 700)))
    world.kick()


def put_large(world: World) -> None:
    """Put a message that fills a container, or nearly: the next record goes into the next container."""
    world.put(some_queue(world), world.room - world.random.choice((0, 1, 200, 600)))
    world.kick()


def put_in_pieces(world: World) -> None:
    """Put a message of several records on one or all queues; its pieces may be in different flushes."""
    between = world.random.choice((int, world.kick, world.seal))
    chosen = world.random.choice((queues(world), [some_queue(world)]))
    world.put_in_pieces(chosen, world.random.choice((700, 1500)), 400, between)
    world.kick()


def overtaken(world: World) -> None:
    """Put shorter messages on the queue while the pieces of a longer one arrive."""
    queue = some_queue(world)
    world.put_in_pieces([queue], 600, 250, lambda: world.put(queue, 20))
    world.kick()


def stage_only(world: World) -> None:
    """Stage a message that never reaches a queue: the next recovery discards it."""
    world.put_in_pieces([], 500, 300)
    world.kick()


def groups(world: World) -> None:
    """Write several blocks in one flush, as when the writer is slower than the traffic."""
    queue = some_queue(world)
    for size_bytes in world.random.sample((384, 384, 40, 900), 3):
        world.put(queue, size_bytes)
        world.seal()
    world.put(queue, 40)
    world.kick()


def across_containers(world: World) -> None:
    """Make one flush that crosses the end of a container, perhaps with another block in the next one."""
    queue = some_queue(world)
    for _ in range(3):
        world.put(queue, world.room // 2)
    if world.random.random() < 0.5:
        world.seal()
        world.put(queue, 40)
    world.kick()
    for message_id in world.on(queue)[-4:]:
        world.take(queue, message_id)
    world.kick()


def take_some(world: World) -> None:
    for queue in queues(world):
        for message_id in world.on(queue):
            if world.random.random() < 0.6:
                world.take(queue, message_id)
    world.kick()


def take_oldest(world: World) -> None:
    """Dequeue the oldest messages, so that the base moves."""
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
    """Put and dequeue large messages, so that containers are recycled."""
    queue = some_queue(world)
    for _ in range(3):
        message_id = world.put(queue, world.room // 2)
        world.kick()
        world.take(queue, message_id)
        world.kick()


def pass_by(world: World, queue: int) -> None:
    """Put and dequeue messages until the log reaches another container."""
    assert world.store is not None
    journal = world.store.journal
    slot = journal.extent.current_slot
    while journal.extent.current_slot == slot:
        world.take(queue, world.put(queue, world.room // 3))
        world.kick()


def stragglers(world: World) -> None:
    """Leave messages, of one record or of several, in several containers, among others that are consumed.

    The log is soon several times its live records, so the messages are relocated.
    """
    for _ in range(world.random.randrange(3, 6)):
        queue = some_queue(world)
        if world.random.random() < 0.4:
            world.put_in_pieces(queues(world), 350, 150)
        else:
            world.put(queue, world.random.choice((10, 300)))
        pass_by(world, queue)


def dead_in_the_middle(world: World) -> None:
    """Leave an older and a newer message; the containers between them hold only consumed messages."""
    queue = some_queue(world)
    world.put(queue, 20)
    for _ in range(3):
        pass_by(world, queue)
    world.put(queue, 20)
    world.kick()


def wait(world: World) -> None:
    """Let relocation proceed without traffic, with a flush after each step."""
    world.kick()
    assert world.store is not None
    for _ in range(world.random.randrange(1, 8)):
        world.store.became_durable(world.store.durable_lsn)
        read(world)
        world.kick()


def read(world: World) -> None:
    """Check that all flushed messages can be read, also those that relocation has just copied."""
    assert world.store is not None
    if world.store.journal.writer.sealed:
        return  # sealed blocks are not on the disk yet
    for message_id in {one for queue in queues(world) for one in world.on(queue)}:
        if content_of(world.store, message_id) != world.history.contents[message_id]:
            raise Broken("I3", f"message {message_id} has another content while the store is at work")


def take_from_one(world: World) -> None:
    """Dequeue messages that are on several queues from all but one of them."""
    on = [(queue, message_id) for queue in queues(world) for message_id in world.on(queue)]
    for queue, message_id in on:
        if sum(message_id == other for _, other in on) > 1 and message_id in world.on(queue):
            world.take(queue, message_id)
            on = [other for other in on if other != (queue, message_id)]
    world.kick()


def on_a_second_queue(world: World) -> None:
    """Enqueue some messages on a second queue, and dequeue some of these from the first."""
    for queue in queues(world):
        for message_id in world.on(queue):
            others = [other for other in queues(world) if message_id not in world.on(other)]
            if others and world.random.random() < 0.7:
                world.enqueue(others[0], message_id)
                if world.random.random() < 0.5:
                    world.take(queue, message_id)
    world.kick()


def on_again(world: World) -> None:
    """Dequeue messages from one of their queues, and enqueue them there again, at the end."""
    assert world.store is not None
    for queue in queues(world):
        for message_id in world.on(queue):
            others = [other for other in queues(world) if other != queue and message_id in world.on(other)]
            if others and world.random.random() < 0.7:
                world.take(queue, message_id)
                world.random.choice((int, world.kick, world.seal))()
                world.enqueue(queue, message_id)
    world.kick()


def new_queue(world: World) -> None:
    if len(world.history.queues) < 3:
        world.queue(f"queue {len(world.history.queues)}")


def reopen(world: World) -> None:
    world.close()
    world.open()


def kill(world: World) -> None:
    """Append a record, and kill the process before the record is written."""
    world.put(some_queue(world), 30)
    world.kill()
    world.open()


# ---- cases that depend on positions ---------------------------------------------------------------------------------


def second_queue(world: World) -> int:
    return queues(world)[1] if len(queues(world)) > 1 else world.queue("b")


def ends_apart(world: World) -> None:
    """Write dequeues alone in a container; a neighbor holds the earlier container with the dequeued records."""
    queue = some_queue(world)
    world.put(queue, world.random.choice((20, world.room // 2)))
    removed = [world.put(queue, 20) for _ in range(world.random.randrange(1, 3))]
    pass_by(world, queue)
    for message_id in removed:
        world.take(queue, message_id)
    world.kick()
    pass_by(world, queue)
    world.random.choice((World.idle, reopen, kill))(world)


def back_after_a_while(world: World) -> None:
    """Dequeue a message and enqueue it again, each in another container.

    Only the dequeue is needed of its container, so it is relocated, behind the later enqueue.
    """
    first, other = some_queue(world), second_queue(world)
    if first == other:
        first = queues(world)[0]
    world.put(first, world.room // 2)  # holds the first container, and is expensive to move
    message_id = world.put(first, 20)
    world.enqueue(other, message_id)
    world.kick()
    pass_by(world, first)
    world.take(other, message_id)
    pass_by(world, first)
    world.enqueue(other, message_id)
    for _ in range(world.random.randrange(1, 5)):
        pass_by(world, first)
    wait(world)


def until_relocation(world: World, queue: int, keep_bytes: int) -> None:
    """Keep a message in each container, among consumed ones, until relocation is at work; then kill the process.

    At the kill, the first half of the copies is durable.
    """
    assert world.store is not None
    slot = -1
    for _ in range(60):
        if world.store.journal.extent.current_slot != slot:
            slot = world.store.journal.extent.current_slot
            world.put(queue, keep_bytes)
        world.take(queue, world.put(queue, world.room // 3))
        world.kick()
        if world.store.relocation.is_at_work:
            break
    if not world.is_late:  # else already written
        world.kick()
    world.kill()
    world.open()


def take_what_was_moved(world: World, queue: int) -> None:
    """Dequeue the relocated messages and all messages outside the half relocated containers; then fill containers."""
    assert world.store is not None
    size, moved = world.store.journal.container_bytes, world.store.state.moved
    half = {message_id // size for message_id in moved}
    for at in queues(world):
        for message_id in world.on(at):
            if half and (message_id in moved or message_id // size not in half):
                world.take(at, message_id)
    world.kick()
    for _ in range(2):
        pass_by(world, queue)


def interrupted_relocation(world: World) -> None:
    """Kill the process while a container is half relocated.

    The copies are dequeued and leave the log, perhaps after another relocation; the originals remain beside the records
    that were not copied.
    """
    assert world.store is not None
    drain(world)
    reopen(world)  # ends a relocation in progress
    queue = some_queue(world)
    world.put(queue, 20)
    world.kick()
    world.take(queue, world.put(queue, world.room // 3))
    world.kick()
    world.put(queue, world.room // 4)
    pass_by(world, queue)
    until_relocation(world, queue, world.room // 3)
    for _ in range(world.random.choice((0, 12))):
        if world.store.relocation.emptied:
            break
        world.take(queue, world.put(queue, 20))
        world.kick()
    take_what_was_moved(world, queue)


def some_copies_go(world: World) -> None:
    """Dequeue every second relocated message, after the containers of the first records have left the log."""
    stragglers(world)
    wait(world)
    assert world.store is not None
    some = set(sorted(world.store.state.moved)[::2])
    for queue in queues(world):
        for message_id in sorted(some.intersection(world.on(queue))):
            world.take(queue, message_id)
    world.kick()
    for _ in range(2):
        pass_by(world, some_queue(world))
    world.random.choice((World.idle, kill))(world)


def gone_since_a_checkpoint(world: World) -> None:
    """Dequeue a message that a checkpoint has; let both it and the dequeue leave the log with their containers."""
    queue = some_queue(world)
    removed = world.put(queue, 20)
    pass_by(world, queue)
    world.put(queue, 20)
    world.random.choice((reopen, pass_by_a_checkpoint))(world)
    world.take(queue, removed)
    world.kick()
    for _ in range(2):
        pass_by(world, queue)
    world.random.choice((World.idle, kill))(world)


def pass_by_a_checkpoint(world: World) -> None:
    """Put and dequeue messages until a checkpoint has just begun, if one is due soon."""
    assert world.store is not None
    queue, checkpointing = some_queue(world), world.store.checkpointing
    was_at_work = True
    for _ in range(16):
        if checkpointing is None or (checkpointing.is_at_work and not was_at_work):
            return
        was_at_work = checkpointing.is_at_work
        world.take(queue, world.put(queue, 300))
        world.kick()


def particulars_during_a_checkpoint(world: World) -> None:
    """Enqueue plain messages on a second queue between two steps of a checkpoint."""
    second_queue(world)
    world.put(some_queue(world), 20)
    pass_by_a_checkpoint(world)
    on_a_second_queue(world)
    settle(world)


def settle(world: World) -> None:
    """Let a checkpoint in progress commit; then idle, or recover from it at once."""
    assert world.store is not None
    for _ in range(4):
        world.store.became_durable(world.store.durable_lsn)
        world.kick()
    world.random.choice((World.idle, kill))(world)


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
    ends_apart: 1,
    back_after_a_while: 1,
    interrupted_relocation: 1,
    some_copies_go: 1,
    gone_since_a_checkpoint: 1,
    particulars_during_a_checkpoint: 1,
    World.idle: 1,
    new_queue: 2,
    reopen: 2,
    kill: 2,
}
"""The weight of each step. Each new operation of the store gets a step, and a line here."""
