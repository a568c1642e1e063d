"""Tests of the state table of a client's transaction, over all pairs of state and event."""

from __future__ import annotations

from itertools import product

import pytest

from cairnmq.broker.transactions import transaction_state
from cairnmq.broker.transactions.transaction import ClientTransaction
from cairnmq.broker.transactions.transaction_state import DECIDED, OPEN, TABLE, TransactionEvent
from cairnmq.broker.transactions.transaction_state import TransactionAction as Action
from cairnmq.broker.transactions.transaction_state import TransactionState as State
from tests.harness.broker.world import World, message

PAIRS = [*product(State, TransactionEvent)]
ACTIONS = {
    State.DISCHARGED: Action.STOP_ACQUIRING, State.PREPARED: Action.DETACH, State.SUBMITTED: Action.AWAIT,
    State.COMMITTED: Action.APPLY, State.FAILED: Action.UNDO, State.ROLLED_BACK: Action.UNDO,
    State.LOST: Action.GIVE_BACK,
}  # fmt: skip
"""The action upon entry of each state; a discharge always stops the acquisition."""
DROPS = {Action.UNDO, Action.GIVE_BACK}


def documented() -> dict[tuple[State, TransactionEvent], str]:
    """Return the next state by state and event, from the table in the module docstring; empty for no transition."""
    assert transaction_state.__doc__ is not None
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in transaction_state.__doc__.splitlines()
        if line.startswith("|") and line.count("|") > 4 and "---" not in line
    ]
    events = [TransactionEvent[name.upper()] for name in rows[0][1:]]
    return {(State(row[0]), event): cell for row in rows[1:] for event, cell in zip(events, row[1:], strict=True)}


def in_state(world: World, state: State) -> ClientTransaction:
    """Return a transaction in *state* that enqueues one message."""
    queue = world.broker.nodes.add_queue("q", {})
    transaction = world.broker.transactions.declare("connection", b"")
    transaction.work.stage([queue], [(1, message(1, 10, False), 0)])
    assert len(transaction.staging.posts) == 1
    transaction.state = state
    return transaction


@pytest.mark.parametrize(("state", "event"), PAIRS, ids=lambda one: one.name)
def test_state_and_action_of_each_pair(state: State, event: TransactionEvent) -> None:
    world = World(1 << 20)
    transaction, entered = in_state(world, state), documented()[state, event]
    controller = transaction.staging.controller
    transaction.handle(event, None if event is TransactionEvent.DISCHARGED else ("condition", "why"))
    assert transaction.state is (State(entered) if entered else state)
    action = TABLE[state, event][1] if entered else None
    if entered:
        assert action is (Action.STOP_ACQUIRING if event is TransactionEvent.DISCHARGED else ACTIONS[State(entered)])
    assert transaction.failure == (("condition", "why") if entered and event is not event.DISCHARGED else None)
    assert len(transaction.staging.posts) == (action not in DROPS)
    assert (transaction in world.broker.transactions.under_way) == (action is Action.AWAIT)
    assert (transaction.staging.controller is controller) == (action is not Action.DETACH)
    assert bool(controller.size_bytes) == (action not in {*DROPS, Action.DETACH})


def test_documented_table_has_each_pair() -> None:
    assert documented().keys() == {*PAIRS}


def test_outcome_is_open_or_decided_or_in_doubt_or_negative() -> None:
    assert not OPEN & DECIDED
    assert {*State} - OPEN - DECIDED == {State.PREPARED, State.FAILED, State.ROLLED_BACK}


def test_final_state_is_never_left() -> None:
    assert {state for state, _ in TABLE} == {*State} - {State.COMMITTED, State.ROLLED_BACK, State.LOST}


def test_each_state_can_be_reached() -> None:
    reached = {State.OPEN}
    while more := {entered for (state, _), (entered, _) in TABLE.items() if state in reached} - reached:
        reached |= more
    assert reached == {*State}
