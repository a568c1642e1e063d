"""Steps with transactions: local ones, prepared ones that stay in doubt for long, and their outcomes."""

from __future__ import annotations

from cairnmq.journal.format.block import BLOCK_HEAD_BYTES
from cairnmq.journal.format.record import HEAD_BYTES
from cairnmq.store.contract.transaction import StoreTransaction, TxState
from tests.harness.recovery.checker import number_of, xid_of
from tests.harness.recovery.cutting import power_cut
from tests.harness.recovery.steps import Step, kill, pass_by, queues, some_queue, wait
from tests.harness.recovery.world import World


def operations(world: World, transaction: StoreTransaction, most: int, most_bytes: int) -> list[bytes]:
    """Add random operations to *transaction*; return the contents of the messages that it puts."""
    contents: list[bytes] = []
    now = world.clock.wall_us()
    there = [(queue, message_id) for queue in queues(world) for message_id in world.on(queue)]
    world.random.shuffle(there)
    used: set[int] = set()
    for _ in range(world.random.randrange(1, most + 1)):
        what = world.random.random()
        queue, message_id = there.pop() if there else (0, 0)
        if what < 0.5 or not message_id or message_id in used:
            contents.append(world.content(world.random.randrange(most_bytes)))
            transaction.put(some_queue(world), contents[-1], now)
            continue
        used.add(message_id)
        others = [other for other in queues(world) if message_id not in world.on(other)]
        if others and what < 0.75:
            transaction.enqueue(message_id, others[0], now)
        else:
            transaction.dequeue(message_id, queue, now)
    return contents


def transaction(world: World) -> None:
    local = world.begin()
    world.commit(local, operations(world, local, 5, 200))
    world.random.choice((world.kick, world.seal))()


def large_transaction(world: World) -> None:
    """Commit a transaction across the end of a container, so that its commit and some operations are separated."""
    local = world.begin()
    world.commit(local, operations(world, local, 6, world.room // 2))
    world.kick()


def transaction_rolled_back(world: World) -> None:
    distributed = world.begin(distributed=True)
    operations(world, distributed, 4, 300)
    world.random.choice((int, world.kick))()
    distributed.rollback(world.clock.wall_us())
    world.kick()


def prepare(world: World) -> None:
    """Prepare a transaction if fewer than three are in doubt, so that other steps still find messages."""
    if len(world.in_doubt()) < 3:
        distributed = world.begin(distributed=True)
        world.prepare(distributed, operations(world, distributed, 4, 300))
        world.kick()


def outcome(world: World) -> None:
    assert world.store is not None
    for number in world.in_doubt()[: world.random.randrange(1, 3)]:
        if world.store.transactions.of(xid_of(number)).state is TxState.PREPARED:
            commit, decide = world.random.random() < 0.6, world.random.random() < 0.3
            world.end(number, commit=commit, decide=decide)
            world.random.choice((int, world.seal, world.kick))()
        else:
            world.forget(number)
    world.kick()


def outcome_far_away(world: World) -> None:
    """Let the log advance between a transaction and its outcome, and afterwards until much is relocated.

    Messages that are neither dequeued nor relocated hold the first containers of the transaction.
    """
    queue = some_queue(world)
    world.put(queue, world.room // 2)
    world.put(queue, 20)
    prepare(world)
    pass_by(world, queue)
    outcome(world)
    for _ in range(world.random.randrange(1, 5)):
        pass_by(world, queue)
    wait(world)


def to_the_end(world: World, queue: int, left_bytes: int) -> None:
    """Fill the container except for *left_bytes*, in the same block as the next record."""
    assert world.store is not None
    journal = world.store.journal
    room = -journal.next_lsn % journal.container_bytes - BLOCK_HEAD_BYTES - HEAD_BYTES
    world.take(queue, world.put(queue, min(max(0, room - left_bytes - HEAD_BYTES), world.room // 2)))


def split_transaction(world: World) -> None:
    """Commit or prepare a transaction whose operations end a container; the commit or prepare begins the next one.

    Either the power fails between the two, or one of the operations is undone. Then one of the two parts is relocated.
    """
    queue = some_queue(world)
    world.put(queue, world.room // 2)
    taken = [world.put(queue, 20) for _ in range(2)]
    world.kick()
    is_cut = world.random.random() < 0.7
    if is_cut:
        pass_by(world, queue)
        world.put(queue, 20)
        world.kick()
    distributed = is_cut and world.random.random() < 0.4
    split, now, contents = world.begin(distributed=distributed), world.clock.wall_us(), []
    for message_id in taken:
        split.dequeue(message_id, queue, now)
    for _ in range(2):
        contents.append(world.content(20))
        split.put(queue, contents[-1], now)
    since = len(world.moments)
    to_the_end(world, queue, world.random.randrange(3, 6) * (HEAD_BYTES + 10))
    (world.prepare if distributed else world.commit)(split, contents)
    world.kick()
    if is_cut:
        power_cut(world, since)
    else:
        pass_by(world, queue)
        for message_id in world.on(queue):
            if message_id == split.message_ids[0]:
                world.take(queue, message_id)
        world.kick()
    for _ in range(world.random.randrange(3, 7)):
        world.put(queue, 20)
        pass_by(world, queue)
    wait(world)


def rolled_back_without_room(world: World) -> None:
    """Roll a transaction back on a full disk: its staged messages are deleted without a record, even if relocated.

    The same applies to messages that recovery finds on no queue.
    """
    distributed = world.begin(distributed=True)
    number = number_of(distributed.xid)
    contents = operations(world, distributed, 4, 300)
    if len(world.in_doubt()) < 3 and world.random.random() < 0.5:
        world.prepare(distributed, contents)
    world.random.choice((world.seal, world.kick))()
    world.random.choice((lambda: pass_by(world, some_queue(world)), lambda: wait(world)))()
    say_full(world, full=True)
    if world.random.random() < 0.3:
        world.put_in_pieces([], 500, 300)
        world.kick()
        world.kill()
        world.open()
        say_full(world, full=True)
    elif number not in world.in_doubt():
        distributed.rollback(world.clock.wall_us())
    if number in world.in_doubt():
        world.end(number, commit=False, decide=False)
    world.kick()
    say_full(world, full=False)
    world.random.choice((world.kick, lambda: wait(world), lambda: kill(world)))()


def say_full(world: World, *, full: bool) -> None:
    assert world.store is not None
    world.disk.left_bytes = 0 if full else 1 << 50
    world.store.journal.pool.look_at_room()


TRANSACTING: dict[Step, int] = {
    transaction: 3,
    large_transaction: 2,
    transaction_rolled_back: 1,
    prepare: 3,
    outcome: 4,
    outcome_far_away: 2,
    split_transaction: 2,
    rolled_back_without_room: 2,
}
"""The weight of each step."""
