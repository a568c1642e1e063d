"""Tests of transactions of the journal store against a plain model, in long random histories."""

from __future__ import annotations

import pytest

from cairnmq.journal.format.record import Flag, RecordType
from tests.harness.store.stores import NOW_US, come_to_rest, shown
from tests.harness.store.transaction_histories import SMALL, Life


@pytest.mark.parametrize("seed", range(8))
def test_history_agrees_with_model(seed: int) -> None:
    """E40 to E45, E71: operations in any order, with compaction, checkpoints, small containers and kills."""
    life = Life(seed)
    steps = [life.put] * 4 + [life.take] * 5 + [life.transaction] * 2 + [life.outcome, life.kick, life.kick]
    for number in range(1500):
        life.rng.choice(steps)()
        if number % 150 == 149:
            life.kick()
            life.check()
        if life.rng.random() < 0.02:
            life.kill()
    assert life.store.relocation.emptied or life.store.journal.incarnation > 5


@pytest.mark.parametrize("seed", [25, 41, 50, *range(6)])
def test_any_history_with_purges(seed: int) -> None:
    """E53, E54: purged messages do not come back after kills and after copies of the purge or of the messages."""
    life = Life(seed)
    steps = [life.put] * 4 + [life.take] * 5 + [life.transaction] * 2
    steps += [life.outcome, life.kick, life.kick, life.kill]
    for _ in range(800):
        life.rng.choice(steps)()
        if life.rng.random() < 0.02:
            life.purge()
    life.kick()
    life.check()


@pytest.mark.parametrize("seed", [4688, *range(2)])
def test_recovery_without_checkpoint_finds_the_same(seed: int) -> None:
    """E53, E54: a purge record that was copied twice since the checkpoint stays as long as what it ended."""
    life = Life(seed)
    steps = [life.put] * 4 + [life.take] * 5 + [life.transaction] * 2
    steps += [life.outcome, life.kick, life.kick, life.kill]
    for _ in range(250):
        step = life.rng.choice(steps)
        step()
        if life.rng.random() < 0.02:
            life.purge()
        del life.checkpoint.commits[:-1]
        if step in (life.kick, life.kill):
            expected = {queue_id: ids for queue_id, ids in life.durable.on.items() if ids}
            assert life.shown_without_checkpoint() == expected


def test_what_was_never_committed_is_not_relocated_as_if_it_were() -> None:
    """A dequeue whose commit a power cut lost stays in the log; its container is compacted."""
    life = Life(0)
    store = life.store
    old, _ = store.put(1, bytes(2500), NOW_US)
    store.put(1, bytes(3500), NOW_US)
    while store.journal.next_lsn < SMALL:
        store.dequeue(store.put(1, bytes(300), NOW_US)[0], 1, NOW_US)
        store.kick()
    store.put(1, b"holds the container", NOW_US)
    slot = store.journal.extent.current_slot
    store.journal.append(
        RecordType.DEQUEUE, time_us=NOW_US, flags=Flag.DELETE, message_id=old, queue_id=1, txn_id=old + 64, extra=old
    )
    for number in range(60):
        store.dequeue(store.put(1, bytes(1500), NOW_US)[0], 1, NOW_US)
        if number % 5 == 0:
            store.put(1, b"holds another one", NOW_US)
        store.kick()
    come_to_rest(store)
    assert 0 in store.journal.extent.slots
    assert slot not in store.journal.extent.slots
    store.kick()
    store.journal.abandon()
    life.checkpoint.entries = None
    assert old in shown(life.open())[1]
