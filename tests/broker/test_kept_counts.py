"""Tests of stored failure counts: crashes, limits that are added and removed, and full disks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from random import Random

import pytest

from cairnmq.amqp.native.proton_ffi import ACCEPTED, MODIFIED, RELEASED
from cairnmq.amqp.ports import Outcome
from cairnmq.base.errors import StoreError
from cairnmq.base.testing.memory_disk import MemoryDirectory
from cairnmq.broker.queues.delivery_counts import RECORD, RETRY_S
from tests.harness.broker.failure_counts import COUNTS, counts, fail, policed, recorded
from tests.harness.broker.policies import Policed, decoded
from tests.harness.broker.transacting import Transacting

__all__ = ["policed"]


# ---- crashes --------------------------------------------------------------------------------------------------------


def test_a_power_cut_at_any_moment_leaves_no_count_too_high() -> None:
    """Recovered counts are at most the real ones, and the counts of dequeued messages are removed."""
    policed = Policed()
    policed.make("q", max_deliveries=9)
    for number in range(4):
        policed.send("q", number)
    warm = policed.open("q", 1)
    fail(policed, warm)  # creates the queue of counts, so that the wiring does not change below
    policed.world.do(warm.driver.close, [], False, False)
    disks: list[tuple[MemoryDirectory, Counter[int]]] = []
    failures = Counter({0: 2})

    def cut(operation: str) -> None:
        disks.append((disk.after_power_cut(Random(len(disks))), failures.copy()))

    disk, taker = policed.world.disk, policed.open("q")
    disk.on_operation = cut
    for number in (0, 1, 2, 3, 0, 1, 2, 0, 1, 0):
        tag, _ = next(one for one in reversed(taker.forwarded) if decoded(one[1]).body == number)
        failures[number] += 1
        policed.world.do(taker.driver.outcomes, [Outcome(None, tag, MODIFIED, True, False)])
    for tag, _ in taker.forwarded[-2:]:
        policed.world.settle(taker, tag, ACCEPTED)
    disk.on_operation = None
    assert len(disks) > 20
    for left, real in disks:
        policed.world.disk = left
        policed.restart()
        policed.world.step()
        there = recorded(policed)
        seen = {tag.message_id: decoded(content).body for tag, content in policed.open("q").forwarded}
        assert {*there} <= {*seen}
        assert all(count <= real[seen[message_id]] for message_id, count in there.items())


def test_a_kill_forgets_no_more_than_what_was_not_written_yet(policed: Policed) -> None:
    """A kill after any of the first actions of the core loses only a failure that was not written yet."""
    for done in range(6):
        life = Policed()
        life.make("q", max_deliveries=9)
        life.send("q", "poison")
        taker = life.open("q")
        fail(life, taker)
        world = life.world
        world._actions.append(
            (taker.driver.outcomes, ([Outcome(None, taker.forwarded[-1][0], MODIFIED, True, False)],))
        )
        for _ in range(done):
            if world._actions:
                action, args = world._actions.popleft()
                action(*args)
                world.broker.steps.finish()
        life.restart()
        assert counts(life) == ([1] if done < 2 else [2])


def test_a_count_without_its_message_goes_at_the_next_start(policed: Policed) -> None:
    policed.make("q", max_deliveries=9)
    policed.send("q", "a")
    fail(policed, policed.open("q"))
    store, place = policed.world.store, policed.world.queue(COUNTS).queue_id
    there = recorded(policed)
    store.put_all(place, [RECORD.pack(12345, 3), b"rotten", RECORD.pack(next(iter(there)), 0)], 0)
    store.kick()
    policed.restart()
    policed.world.step()
    assert recorded(policed) == there


def test_counts_of_another_log_are_none_of_this_ones(policed: Policed) -> None:
    """Counts of another log are ignored, as a salvaged or loaded store has other messages with the same IDs."""
    policed.make("q", max_deliveries=3)
    policed.send("q", "a")
    policed.make(COUNTS, x_log="another")
    message_id = policed.world.queue().contents.ready[0].message_id
    policed.world.store.put(policed.world.queue(COUNTS).queue_id, RECORD.pack(message_id, 2), 0)
    policed.world.store.kick()
    policed.restart()
    taker = policed.open("q")
    for left in (1, 1, 0):
        assert counts(policed) == [taker.forwarded[-1][0].failures] * bool(taker.forwarded[-1][0].failures)
        fail(policed, taker)
        assert policed.world.queue().messages == left


def test_of_two_counts_of_a_message_the_higher_one_is_the_later(policed: Policed) -> None:
    policed.make("q", max_deliveries=3)
    policed.send("q", "a")
    fail(policed, policed.open("q"))
    [message_id] = recorded(policed)
    policed.world.store.put(policed.world.queue(COUNTS).queue_id, RECORD.pack(message_id, 2), 0)
    policed.world.store.kick()
    policed.restart()
    policed.world.step()
    assert recorded(policed) == {message_id: 2}
    fail(policed, policed.open("q"))
    assert policed.world.queue().messages == 0


# ---- special cases --------------------------------------------------------------------------------------------------


def test_a_queue_without_a_limit_writes_nothing_down(policed: Policed) -> None:
    policed.make("q")
    policed.make("limited", max_deliveries=3)
    for name in ("q", "limited"):
        policed.send(name, "a")
    taker, end_lsn = policed.open("q"), policed.world.store.next_lsn
    for _ in range(20):
        fail(policed, taker)
    assert policed.world.store.next_lsn == end_lsn
    taker = policed.open("limited")
    for _ in range(20):
        policed.world.settle(taker, taker.forwarded[-1][0], RELEASED)
    assert policed.world.store.next_lsn == end_lsn, "nothing has failed"
    assert [*policed.world.broker.nodes.queues] == ["q", "limited"]


def test_what_is_not_stored_is_counted_in_memory(policed: Policed) -> None:
    policed.make("q", max_deliveries=3)
    policed.send("q", "a", durable=False)
    taker = policed.open("q")
    for left in (1, 1, 0):
        fail(policed, taker)
        assert policed.world.queue().messages == left
    assert COUNTS not in policed.world.broker.nodes.queues


def test_a_full_disk_counts_in_memory(policed: Policed) -> None:
    """Failures count in memory while the disk is full; the first failure afterwards writes the count."""
    policed.make("q", max_deliveries=6)
    policed.send("q", "a")
    taker, world = policed.open("q"), policed.world
    fail(policed, taker)

    def left(size_bytes: int) -> None:
        world.disk.left_bytes = size_bytes
        while not size_bytes and not world.store.full():
            world.store.put(world.queue("filler").queue_id, bytes(100_000), 0)
            world.store.journal.pool.look_at_room()
            world.store.kick()
        world.store.journal.pool.look_at_room()

    policed.make("filler")
    left(0)
    for _ in range(2):
        fail(policed, taker)
    assert counts(policed) == [1]
    left(1 << 50)
    assert not world.store.full()
    fail(policed, taker)
    assert counts(policed) == [4]
    for expected in (1, 0):
        fail(policed, taker)
        assert world.queue().messages == expected


def test_a_limit_may_come_and_go(policed: Policed) -> None:
    policed.make("q")
    policed.send("q", "a")
    taker, change = policed.open("q"), policed.world.broker.nodes.change_queue

    def limit(most: int) -> None:
        policed.world.do(change, policed.world.queue(), {"max-deliveries": most}, lambda error: None)

    fail(policed, taker)
    limit(9)
    assert counts(policed) == []
    fail(policed, taker)
    assert counts(policed) == [2]
    limit(0)
    assert counts(policed) == []
    fail(policed, taker)
    assert counts(policed) == []
    limit(9)
    fail(policed, taker)
    assert counts(policed) == [4]
    limit(0)
    policed.restart()
    policed.world.step()
    assert COUNTS not in policed.world.broker.nodes.queues


def test_a_limit_that_sinks_below_a_count_ends_the_message_when_it_fails_again(policed: Policed) -> None:
    policed.make("q", max_deliveries=9)
    policed.send("q", "a")
    taker = policed.open("q")
    for _ in range(5):
        fail(policed, taker)
    policed.world.do(
        policed.world.broker.nodes.change_queue, policed.world.queue(), {"max-deliveries": 2}, lambda error: None
    )
    policed.restart()
    taker = policed.open("q")
    policed.world.settle(taker, taker.forwarded[-1][0], RELEASED)
    assert policed.world.queue().messages == 1
    fail(policed, taker)
    assert policed.world.queue().messages == 0


@pytest.mark.parametrize("how", ["purged", "deleted"])
def test_counts_may_be_taken_away(policed: Policed, how: str) -> None:
    policed.make("q", max_deliveries=9)
    for number in range(3):
        policed.send("q", number)
    taker = policed.open("q")
    for number in range(3):
        fail(policed, taker, number)
    kept, world = policed.world.queue(COUNTS), policed.world
    if how == "purged":
        world.do(kept.order.purge, lambda count: None, "")
    else:
        world.do(world.broker.nodes.delete_queue, kept, lambda error: None)
    assert counts(policed) == []
    fail(policed, taker, 3)
    assert counts(policed) == [2]
    tags = [taker.forwarded[number][0] for number in (4, 5, 6)]
    assert tags[-1] is taker.forwarded[3][0], "the one that is counted again comes last"
    world.do(taker.driver.outcomes, [Outcome(None, tag, ACCEPTED, False, False) for tag in tags])
    assert counts(policed) == []


def test_what_ended_is_not_held_while_its_count_waits_for_a_place(policed: Policed) -> None:
    """The entry of a dequeued message is released while the queue of counts is created, which may take hours."""
    policed.make("q", max_deliveries=9)
    policed.send("q", "a")
    taker, world = policed.open("q"), policed.world
    world._actions.append((taker.driver.outcomes, ([Outcome(None, taker.forwarded[0][0], MODIFIED, True, False)],)))
    counted = world.queue().delivery_counts
    assert counted is not None
    while not counted._is_making:
        action, args = world._actions.popleft()
        action(*args)
        world.broker.steps.finish()
    assert len(counted._failed) == 1
    taker.driver.outcomes([Outcome(None, taker.forwarded[1][0], ACCEPTED, False, False)])
    assert counted._failed == {}
    world.step()
    assert counts(policed) == []


def test_a_place_that_is_refused_is_not_asked_for_at_each_failure(
    policed: Policed, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    policed.make("q", max_deliveries=1000)
    policed.send("q", "a")
    taker, world = policed.open("q"), policed.world

    def refuse(name: str, done: Callable[[StoreError], None], arguments: object) -> None:
        done(StoreError("sql", "the server is away", "wait"))

    with monkeypatch.context() as away:
        away.setattr(world.store, "create_queue", refuse)
        for _ in range(100):
            fail(policed, taker)
    assert len([record for record in caplog.records if "counted in memory only" in record.message]) == 1
    fail(policed, taker)
    assert counts(policed) == []
    world.clock.advance(RETRY_S)
    fail(policed, taker)
    assert counts(policed) == [102]


@pytest.mark.parametrize("length", [1014, 1015, 1024])
def test_a_queue_with_a_long_name_counts_as_others(policed: Policed, length: int) -> None:
    name = "q" * length
    policed.make(name, max_deliveries=3)
    policed.send(name, "a")
    for _ in range(3):
        policed.restart()
        assert policed.world.queue(name).messages == 1
        fail(policed, policed.open(name))
    assert policed.world.queue(name).messages == 0
    policed.world.do(policed.world.broker.nodes.delete_queue, policed.world.queue(name), lambda _: None)
    assert [*policed.world.broker.nodes.queues] == []


def test_what_was_there_before_a_limit_has_failed_as_often_as_it_did(policed: Policed) -> None:
    """A message from before the limit counts its actual failures, whether it was acquired since the start or not."""
    policed.make("q")
    policed.send("q", "a")
    policed.send("q", "b")
    policed.restart()
    taker = policed.open("q", 1)
    change = policed.world.broker.nodes.change_queue
    policed.world.do(change, policed.world.queue(), {"max-deliveries": 2}, lambda error: None)
    other = policed.open("q", 1)
    fail(policed, taker)
    fail(policed, other)
    assert counts(policed) == [1, 1]
    assert policed.world.queue().messages == 2


def test_a_delay_goes_on_from_the_count(policed: Policed) -> None:
    """A restart ends the current delay; the next delay is twice as long."""
    policed.make("q", max_deliveries=9, retry_delay_ms=100)
    policed.send("q", "later")
    for delay_s in (0.1, 0.2, 0.4):
        taker = policed.open("q")
        fail(policed, taker)
        policed.world.advance(delay_s - 0.001)
        assert len(taker.forwarded) == 1
        policed.world.advance(0.002)
        assert len(taker.forwarded) == 2
        policed.world.do(taker.driver.close, [taker.forwarded[1][0]], False, False)
        policed.restart()
    fail(policed, policed.open("q"))
    policed.restart()
    assert policed.bodies("q") == ["later"]


def test_what_a_prepared_transaction_holds_keeps_its_count(policed: Transacting) -> None:
    policed.make("q", max_deliveries=4)
    policed.send("q", "a")
    taker = policed.open("q")
    for _ in range(2):
        fail(policed, taker)
    txn_id = policed.declare(b"xid")
    policed.retire(txn_id, taker, -1, ACCEPTED)
    assert policed.discharge(txn_id) == ""
    policed.world.do(policed.world.broker.in_doubt.prepare, b"xid", lambda: None)
    policed.restart()
    policed.world.step()
    assert counts(policed) == [2]
    policed.world.do(policed.world.broker.in_doubt.rollback, b"xid", lambda: None)
    taker = policed.open("q")
    fail(policed, taker)
    assert counts(policed) == [3]
    fail(policed, taker)
    assert policed.world.queue().messages == 0


def test_many_that_fail_together_are_written_together(policed: Policed) -> None:
    """Counts of many messages that fail together are recovered, and removed when the messages are dequeued."""
    many = 2000
    policed = Policed(60_000)
    policed.make("q", max_deliveries=9)
    for number in range(many):
        policed.send("q", number)
    taker = policed.open("q", many)
    held = [tag for tag, _ in taker.forwarded]
    policed.world.do(taker.driver.close, held, True, False)
    assert counts(policed) == [1] * len(held)
    policed.restart()
    policed.world.step()
    taker = policed.open("q", many)
    assert [tag.failures for tag, _ in taker.forwarded] == [1] * len(taker.forwarded)
    assert len(taker.forwarded) == many
    policed.world.do(
        taker.driver.outcomes, [Outcome(None, tag, ACCEPTED, False, False) for tag, _ in taker.forwarded[:1500]]
    )
    assert counts(policed) == [1] * 500
