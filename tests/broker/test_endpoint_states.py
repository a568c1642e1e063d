"""Tests of the state table of a link endpoint that outlasts its link, over all pairs of state and event."""

from __future__ import annotations

from itertools import product

import pytest

from cairnmq.broker.resume import endpoint_states
from cairnmq.broker.resume.endpoint_states import ABANDONED, ATTACHED, DROPPED, STATES, TABLE, WAITING, EndpointEvent

PAIRS = [*product(STATES, EndpointEvent)]


def documented() -> dict[tuple[str, EndpointEvent], str]:
    """Return the next state by state and event, from the table in the module docstring; empty for no transition."""
    assert endpoint_states.__doc__ is not None
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in endpoint_states.__doc__.splitlines()
        if line.startswith("|") and line.count("|") > 4 and "---" not in line
    ]
    events = [EndpointEvent[name.upper().replace(" ", "_")] for name in rows[0][1:]]
    return {(row[0], event): cell for row in rows[1:] for event, cell in zip(events, row[1:], strict=True)}


@pytest.mark.parametrize(("state", "event"), PAIRS, ids=lambda one: getattr(one, "name", one))
def test_state_of_each_pair(state: str, event: EndpointEvent) -> None:
    assert TABLE.get((state, event), "") == documented()[state, event]


def test_documented_table_has_each_pair() -> None:
    assert documented().keys() == {*PAIRS}


def test_endpoint_that_a_link_has_does_not_expire() -> None:
    assert {state for state, event in TABLE if event is EndpointEvent.EXPIRE} == {WAITING}


def test_endpoint_is_kept_only_for_a_client_that_may_resume() -> None:
    assert {pair for pair, entered in TABLE.items() if entered == WAITING} == {(ATTACHED, EndpointEvent.DETACH)}
    assert TABLE[ABANDONED, EndpointEvent.DETACH] == DROPPED


def test_dropped_endpoint_stays_dropped() -> None:
    assert DROPPED not in {state for state, _ in TABLE}
