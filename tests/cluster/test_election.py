"""Tests of the election of the store for a bootstrap: its table, and properties of all elections of small groups."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cairnmq.cluster.group.member_id import MemberId
from cairnmq.cluster.kernel.progress_record import Standing
from cairnmq.cluster.state_transfer.election import TABLE, Decision, Facts, StoreState, decide, elect

MEMBERS = tuple(MemberId(node, 100 + node, 1) for node in (1, 2, 3))
STANDINGS = (Standing(), Standing(False, 1, 5, 10), Standing(True, 1, 5, 10), Standing(True, 1, 6, 10))
STATES = st.builds(StoreState, st.sampled_from(STANDINGS), st.sampled_from(("", "a-1", "b-2")), st.booleans())


def expected(facts: Facts) -> Decision:
    """Return the decision by the first fact that rules out all that follow."""
    if not facts.is_complete:
        return Decision.WAIT_FOR_REPORTS
    if facts.is_tied:
        return Decision.WAIT_FOR_OPERATOR
    if facts.is_source_missing:
        return Decision.WAIT_FOR_MEMBER
    if facts.counts:
        return Decision.SERVE
    if facts.is_of_other_cluster:
        return Decision.LEAVE_OTHER_CLUSTER
    return Decision.LEAVE_OWN_QUEUES if facts.has_own_queues else Decision.TRANSFER


@pytest.mark.parametrize("facts", [Facts(*values) for values in product((False, True), repeat=len(Facts._fields))])
def test_exactly_one_row_applies_to_any_facts(facts: Facts) -> None:
    rows = [row for row, _ in TABLE if all(cell is None or cell is fact for cell, fact in zip(row, facts, strict=True))]
    assert len(rows) == 1
    assert decide(facts) is expected(facts)


def test_every_decision_has_one_row() -> None:
    assert [decision for _, decision in TABLE] == [*Decision]


@given(found=st.tuples(STATES, STATES, STATES), is_forced=st.booleans(), size=st.sampled_from((3, 5)))
def test_members_decide_alike(found: tuple[StoreState, ...], is_forced: bool, size: int) -> None:
    states = dict(zip(MEMBERS, found, strict=True))
    elections = {me: elect(states, me, MEMBERS, size, is_forced=is_forced) for me in MEMBERS}
    assert len({election[1:] for election in elections.values()}) == 1
    waiting = (Decision.WAIT_FOR_OPERATOR, Decision.WAIT_FOR_MEMBER)
    decisions = {election.decision for election in elections.values()}
    assert len(decisions) == 1 or not decisions & {*waiting}
    for me, election in elections.items():
        if election.decision not in waiting:
            assert (election.decision is Decision.SERVE) == (me in election.synced)
            assert election.winner in election.synced
            assert all(states[member].empty for member in election.synced - {election.winner})
            assert election.epoch > max(states[member].standing.epoch for member in election.synced)


@given(found=st.tuples(STATES, STATES), is_forced=st.booleans())
def test_members_wait_until_all_have_reported(found: tuple[StoreState, ...], is_forced: bool) -> None:
    states = dict(zip(MEMBERS, found, strict=False))
    for me in MEMBERS:
        assert elect(states, me, MEMBERS, 3, is_forced=is_forced).decision is Decision.WAIT_FOR_REPORTS


@pytest.mark.parametrize(
    ("size", "is_forced", "decision"),
    [(2, False, Decision.SERVE), (3, False, Decision.WAIT_FOR_MEMBER), (3, True, Decision.SERVE)],
)
def test_store_ahead_serves_unless_an_absent_one_may_have_more(size: int, is_forced: bool, decision: Decision) -> None:
    states = {
        MEMBERS[0]: StoreState(Standing(True, 1, 5, 10), "a-1", empty=False),
        MEMBERS[1]: StoreState(Standing(False, 1, 6, 0), "a-1", empty=False),
    }
    election = elect(states, MEMBERS[0], MEMBERS[:2], size, is_forced=is_forced)
    assert election.decision is decision
    assert election.winner == MEMBERS[0]
