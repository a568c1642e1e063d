"""Tests of the state table of a consumer, over all pairs of state and event."""

from __future__ import annotations

from itertools import product

import pytest

from cairnmq.broker.links import consumer_states
from cairnmq.broker.links.consumer_states import (
    CLOSED,
    CUT_OFF,
    DRAINING,
    ENDED,
    FLOWING,
    RECORDING,
    RECORDING_DRAIN,
    REFUSED,
    STATES,
    TABLE,
    ConsumerAction,
    ConsumerEvent,
)

PAIRS = [*product(STATES, ConsumerEvent)]


def documented() -> dict[tuple[str, ConsumerEvent], str]:
    """Return the next state by state and event, from the table in the module docstring; empty for no transition."""
    assert consumer_states.__doc__ is not None
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in consumer_states.__doc__.splitlines()
        if line.startswith("|") and line.count("|") > 4 and "---" not in line
    ]
    events = [ConsumerEvent[name.upper().replace(" ", "_")] for name in rows[0][1:]]
    return {(row[0], event): cell for row in rows[1:] for event, cell in zip(events, row[1:], strict=True)}


@pytest.mark.parametrize(("state", "event"), PAIRS, ids=lambda one: getattr(one, "name", one))
def test_state_of_each_pair(state: str, event: ConsumerEvent) -> None:
    entered, _ = TABLE.get((state, event), ("", None))
    assert entered == documented()[state, event]


def test_documented_table_has_each_pair() -> None:
    assert documented().keys() == {*PAIRS}


def test_action_follows_from_event_and_entered_state() -> None:
    for (_, event), (entered, action) in TABLE.items():
        expected = {
            (ConsumerEvent.FLOW, FLOWING): ConsumerAction.DISPATCH,
            (ConsumerEvent.FLOW, RECORDING): ConsumerAction.DISPATCH,
            (ConsumerEvent.DRAIN, DRAINING): ConsumerAction.DRAIN,
            (ConsumerEvent.RECORDED, FLOWING): ConsumerAction.DISPATCH,
            (ConsumerEvent.RECORDED, DRAINING): ConsumerAction.DRAIN,
            (ConsumerEvent.DISPATCHED, FLOWING): ConsumerAction.RETURN_CREDIT,
        }.get((event, entered))
        assert action is expected


def test_credit_is_returned_only_to_a_client_that_drains() -> None:
    returning = {state for (state, _), (_, action) in TABLE.items() if action is ConsumerAction.RETURN_CREDIT}
    assert returning == {DRAINING}


def test_drain_outlasts_the_record_of_messages() -> None:
    assert TABLE[RECORDING, ConsumerEvent.DRAIN][0] == RECORDING_DRAIN
    assert TABLE[DRAINING, ConsumerEvent.RECORD][0] == RECORDING_DRAIN
    assert TABLE[RECORDING_DRAIN, ConsumerEvent.RECORDED] == (DRAINING, ConsumerAction.DRAIN)


def test_ended_consumer_dispatches_nothing() -> None:
    for (state, _), (entered, action) in TABLE.items():
        if state in (*ENDED, REFUSED):
            assert entered in ENDED
            assert action is None
    assert not [event for state, event in TABLE if state == CUT_OFF]


def test_each_state_can_be_reached() -> None:
    reached = {FLOWING}
    while more := {entered for (state, _), (entered, _) in TABLE.items() if state in reached} - reached:
        reached |= more
    assert reached == {*STATES}
    assert {CLOSED, CUT_OFF} == {*ENDED}
