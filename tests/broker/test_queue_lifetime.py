"""Tests of the state table of the lifetime of a queue, over all pairs of state and event."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest

from cairnmq.base.errors import StoreError
from cairnmq.broker.queues import queue_lifetime
from cairnmq.broker.queues.queue import Queue
from cairnmq.broker.queues.queue_lifetime import TABLE, LifetimeEvent, QueueLifetime
from tests.harness.broker.world import World

PAIRS = [*product(QueueLifetime, LifetimeEvent)]
BEFORE: dict[QueueLifetime, tuple[LifetimeEvent, ...]] = {
    QueueLifetime.ACTIVE: (),
    QueueLifetime.DELETING: (LifetimeEvent.DELETE,),
    QueueLifetime.DELETED: (LifetimeEvent.REMOVED,),
}
"""The events that lead to each state."""


def documented() -> dict[tuple[QueueLifetime, LifetimeEvent], str]:
    """Return the next state by state and event, from the table in the module docstring; empty for no transition."""
    assert queue_lifetime.__doc__ is not None
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in queue_lifetime.__doc__.splitlines()
        if line.startswith("|") and line.count("|") > 4 and "---" not in line
    ]
    events = [LifetimeEvent(name) for name in rows[0][1:]]
    return {
        (QueueLifetime(row[0]), event): cell for row in rows[1:] for event, cell in zip(events, row[1:], strict=True)
    }


@pytest.mark.parametrize(("state", "event"), PAIRS, ids=lambda one: one.name)
def test_state_and_flags_of_each_pair(state: QueueLifetime, event: LifetimeEvent) -> None:
    queue = World(1 << 20).broker.nodes.add_queue("q", {})
    for before in BEFORE[state]:
        queue.change_lifetime(before)
    assert queue.lifetime is state
    entered = documented()[state, event]
    queue.change_lifetime(event)
    found = queue.lifetime
    assert found is (QueueLifetime(entered) if entered else state)
    assert (queue.is_deleting, queue.is_deleted) == (
        found is not QueueLifetime.ACTIVE, found is QueueLifetime.DELETED,
    )  # fmt: skip


def test_documented_table_has_each_pair() -> None:
    assert documented().keys() == {*PAIRS}


def test_deleted_queue_never_comes_back() -> None:
    assert {state for state, _ in TABLE} == {QueueLifetime.ACTIVE, QueueLifetime.DELETING}


@pytest.mark.parametrize("fails", [False, True])
def test_second_deletion_at_once_has_its_own_result(fails: bool) -> None:
    world, results = World(1 << 20), list[Any]()
    nodes = world.broker.nodes
    world.do(nodes.create_queue, "q", {}, results.append)
    queue = results.pop()

    def delete_twice() -> None:
        for _ in range(2):
            nodes.delete_queue(queue, results.append)

    world.wiring.refuse_writing(fails)
    world.do(delete_twice)
    assert [isinstance(result, StoreError) for result in results] == [fails, fails]
    assert ("q" in nodes.queues) == fails
    world.wiring.refuse_writing(False)
    world.do(nodes.delete_queue, queue, results.append)
    assert results[2:] == [None]
    assert "q" not in nodes.queues


@pytest.mark.parametrize("fails", [False, True])
def test_queue_that_is_renewed_while_it_is_deleted_is_deleted_or_kept_as_a_whole(fails: bool) -> None:
    world, results = World(1 << 20), list[Any]()
    nodes = world.broker.nodes
    world.do(nodes.create_queue, "q", {}, results.append)
    queue = results.pop()

    def delete_and_renew() -> None:
        nodes.delete_queue(queue, results.append)
        nodes.create_queue("q", {}, results.append)
        renewed.append(nodes.renew_queue(queue, lambda old: old.end()))
        assert renewed[0].is_deleting, "nothing is enqueued that its deletion would remove"

    renewed: list[Queue] = []
    world.wiring.refuse_writing(fails)
    world.do(delete_and_renew)
    assert [isinstance(result, StoreError) for result in results] == ([True, False] if fails else [False, False])
    found = nodes.queues["q"]
    assert found.lifetime is QueueLifetime.ACTIVE
    assert renewed[0].is_deleted == (not fails)
    assert (found.queue_id == queue.queue_id) == fails
    assert results[1] is found
    world.wiring.refuse_writing(False)
    world.kill_and_start()
    assert world.queue().queue_id == found.queue_id
