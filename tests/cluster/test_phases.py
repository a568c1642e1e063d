"""Tests of the state table of a member's phases, over all pairs of phase and event."""

from __future__ import annotations

from itertools import product

import pytest

from cairnmq.cluster.kernel import phases
from cairnmq.cluster.kernel.member_state import MemberState
from cairnmq.cluster.kernel.phases import (
    BOOTSTRAPPING,
    BUFFERING,
    DISCARDING,
    OUTSIDE,
    PHASES,
    REQUESTING,
    SYNCHRONIZED,
    TABLE,
    TRANSFERRING,
    PhaseEvent,
    public_name,
)

PAIRS = [*product(PHASES, PhaseEvent)]


def documented() -> dict[tuple[str, PhaseEvent], str]:
    """Return the phase that each pair enters, from the table in the module's docstring; empty for none."""
    assert phases.__doc__ is not None
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in phases.__doc__.splitlines()
        if line.startswith("|") and line.count("|") > 4 and "---" not in line
    ]
    events = [PhaseEvent[name.upper().replace(" ", "_")] for name in rows[0][1:]]
    return {(row[0], event): cell for row in rows[1:] for event, cell in zip(events, row[1:], strict=True)}


def in_phase(phase: str) -> MemberState:
    state = MemberState("test")
    state.phase = phase
    return state


@pytest.mark.parametrize(("phase", "event"), PAIRS, ids=lambda one: getattr(one, "name", one))
def test_phase_of_each_pair(phase: str, event: PhaseEvent) -> None:
    state, entered = in_phase(phase), documented()[phase, event]
    assert state.handle(event) == (entered or None)
    assert state.phase == (entered or phase)


def test_documented_table_has_each_pair() -> None:
    assert documented().keys() == {*PAIRS}


def test_member_comes_to_all_messages_only_by_a_bootstrap_or_a_complete_transfer() -> None:
    before = {(phase, event) for (phase, event), entered in TABLE.items() if entered == SYNCHRONIZED}
    assert before == {
        (BOOTSTRAPPING, PhaseEvent.WON), (TRANSFERRING, PhaseEvent.COMPLETED), (SYNCHRONIZED, PhaseEvent.COMPLETED),
    }  # fmt: skip
    assert {phase for (phase, _), entered in TABLE.items() if entered == TRANSFERRING} == {BUFFERING}


def test_member_outside_acts_only_when_it_enters() -> None:
    effective = {event for (phase, event), entered in TABLE.items() if phase == OUTSIDE and entered != OUTSIDE}
    assert effective == {PhaseEvent.ENTERED}


def test_each_phase_can_be_reached() -> None:
    reached = {OUTSIDE}
    while more := {entered for (phase, _), entered in TABLE.items() if phase in reached} - reached:
        reached |= more
    assert reached == {*PHASES}


def test_keeping_is_shown_as_asking() -> None:
    shown = [OUTSIDE, BOOTSTRAPPING, DISCARDING, REQUESTING, REQUESTING, TRANSFERRING, SYNCHRONIZED]
    assert [public_name(phase) for phase in PHASES] == shown
    assert in_phase(BUFFERING).phase_name == "requesting"
