"""Tests of the state table of a link to a downstream, over all pairs of state and event."""

from __future__ import annotations

from itertools import product

from cairnmq.broker.federation import upstream_states
from cairnmq.broker.federation.upstream_states import TABLE, UpstreamEvent, UpstreamState


def documented() -> dict[tuple[UpstreamState, UpstreamEvent], UpstreamState | None]:
    """Return the next state by state and event, from the table in the module docstring; None for no transition."""
    assert upstream_states.__doc__ is not None
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in upstream_states.__doc__.splitlines()
        if line.startswith("|") and line.count("|") > 4 and "---" not in line
    ]
    events = [UpstreamEvent(name) for name in rows[0][1:]]
    return {
        (UpstreamState(row[0]), event): UpstreamState(cell) if cell else None
        for row in rows[1:]
        for event, cell in zip(events, row[1:], strict=True)
    }


def test_documented_table_has_each_pair_and_is_the_code() -> None:
    table = documented()
    assert table.keys() == {*product(UpstreamState, UpstreamEvent)}
    assert {pair: entered for pair, entered in table.items() if entered is not None} == TABLE


def test_ended_link_reads_no_more() -> None:
    assert UpstreamState.OVER not in {state for state, _ in TABLE}
    assert {state for state, event in TABLE if event is UpstreamEvent.ENDED} == {*UpstreamState} - {UpstreamState.OVER}


def test_only_one_read_at_a_time() -> None:
    assert [state for state, event in TABLE if event is UpstreamEvent.READ] == [UpstreamState.READY]
