"""Steps with transactions: local ones, prepared ones that stay in doubt for long, and their outcomes."""

from __future__ import annotations

from cairnmq.store.transaction import Transaction, TxState

from .checker import xid_of
from .steps import Step, pass_by, queues, some_queue, wait
from .world import World


def operations(world: World, transaction: Transaction, most: int, most_bytes: int) -> list[bytes]:
    """Some of each kind; the contents of what is put."""
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
    """It goes over the end of a container, so its commit stands elsewhere than some of it."""
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
    """At most three are in doubt at a time, or nothing is left to be done by others."""
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
    """Between a transaction and its outcome the log goes on, and behind that until much is relocated. What is neither
    taken nor moved holds the containers of the first."""
    queue = some_queue(world)
    world.put(queue, world.room // 2)
    world.put(queue, 20)
    prepare(world)
    pass_by(world, queue)
    outcome(world)
    for _ in range(world.random.randrange(1, 5)):
        pass_by(world, queue)
    wait(world)


TRANSACTING: dict[Step, int] = {
    transaction: 3,
    large_transaction: 2,
    transaction_rolled_back: 1,
    prepare: 3,
    outcome: 4,
    outcome_far_away: 2,
}
"""Each step and how often it is drawn."""
