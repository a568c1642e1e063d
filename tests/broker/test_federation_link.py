"""Tests of the state table of the link of a federated queue, over all pairs of state and event."""

from __future__ import annotations

from itertools import product

import pytest

from cairnmq.broker.federation import federation_link
from cairnmq.broker.federation.federated_queues import FederatedQueue
from cairnmq.broker.federation.federation_link import (
    ATTACHING,
    BROKEN,
    ENDING,
    LINK_STATES,
    TABLE,
    UP,
    WAITING,
    FederationAction,
    FederationEvent,
)
from cairnmq.broker.federation.replica import DownstreamReplica
from cairnmq.store.contract.wiring_rows import QueueRow
from tests.harness.broker.world import World

PAIRS = [*product(LINK_STATES, FederationEvent)]
ACTIONS = {
    FederationEvent.CONNECTED: FederationAction.ATTACH,
    FederationEvent.ANSWERED: FederationAction.OPEN,
    FederationEvent.LINK_ENDED: FederationAction.DETACH,
    FederationEvent.RESYNCHRONIZE: FederationAction.LEAVE,
    FederationEvent.PROMOTE: FederationAction.LEAVE,
    FederationEvent.DELETE: FederationAction.LEAVE,
    FederationEvent.NOT_ENDED: FederationAction.RETRY,
    FederationEvent.DAMAGED: FederationAction.REPORT,
}


def documented() -> dict[tuple[str, FederationEvent], str]:
    """Return the next state by state and event, from the table in the module docstring; empty for no transition."""
    assert federation_link.__doc__ is not None
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in federation_link.__doc__.splitlines()
        if line.startswith("|") and line.count("|") > 4 and "---" not in line
    ]
    events = [FederationEvent[name.upper().replace(" ", "_")] for name in rows[0][1:]]
    return {(row[0], event): cell for row in rows[1:] for event, cell in zip(events, row[1:], strict=True)}


def in_state(state: str) -> FederatedQueue:
    world = World(1 << 20)
    row = QueueRow(1, "q", {"follows": {"connector": "there", "source": "q", "follower": "f"}})
    queue = FederatedQueue(DownstreamReplica(world.store, world.clock, "q", 1, 2), row)
    queue.state, queue.reason = state, "before"
    return queue


@pytest.mark.parametrize(("state", "event"), PAIRS, ids=lambda one: getattr(one, "name", one))
def test_state_and_action_of_each_pair(state: str, event: FederationEvent) -> None:
    queue, entered = in_state(state), documented()[state, event]
    assert queue.heeds(event) == bool(entered)
    assert queue.handle(event, "after") == (ACTIONS[event] if entered else None)
    assert (queue.state, queue.reason) == ((entered, "after") if entered else (state, "before"))


def test_documented_table_has_each_pair() -> None:
    assert documented().keys() == {*PAIRS}


def test_reason_stays_without_another_one() -> None:
    queue = in_state(WAITING)
    queue.handle(FederationEvent.PROMOTE)
    assert (queue.state, queue.reason) == (ENDING, "before")


def test_queue_has_a_link_only_after_its_connector_was_connected() -> None:
    assert {pair for pair, (entered, _) in TABLE.items() if entered == ATTACHING} == {
        (WAITING, FederationEvent.CONNECTED)
    }
    assert {pair for pair, (entered, _) in TABLE.items() if entered == UP} == {(ATTACHING, FederationEvent.ANSWERED)}


def test_damaged_copy_can_only_be_deleted() -> None:
    assert {event for state, event in TABLE if state == BROKEN} == {FederationEvent.DELETE}
