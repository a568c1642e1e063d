"""Tests of the link state machine: every event in every state."""

from __future__ import annotations

from itertools import product

import pytest

from cairnmq.amqp.links.link import Link
from cairnmq.amqp.links.link_state import TABLE, UNANSWERED, LinkAction, LinkEvent, LinkState
from cairnmq.amqp.native.proton_ffi import NULL

PAIRS = list(product(LinkState, LinkEvent))
OWN_ATTACH = {LinkState.ATTACHING, LinkState.ATTACHED}
"""States in which this side has sent an attach but no detach."""
PEER_ENDS = {LinkEvent.PEER_DETACH, LinkEvent.PEER_CLOSE}
ENDS = PEER_ENDS | {LinkEvent.DETACH, LinkEvent.CLOSE, LinkEvent.LOST}
IMPOSSIBLE = {(LinkState.PLANNED, event) for event in (LinkEvent.PEER_ATTACH, *PEER_ENDS)}
"""Events of the peer for an attach that was not sent."""
EARLY = {LinkState.LEFT: LinkAction.DETACH, LinkState.GONE: LinkAction.CLOSE}
"""States of a link that its peer detached before the answer to its attach, which the detach waits for (C4)."""
WAITS = {(state, event) for state in (LinkState.REQUESTED, *EARLY) for event in PEER_ENDS}


@pytest.mark.parametrize(("state", "event"), PAIRS)
def test_link_takes_each_event_in_each_state(state: LinkState, event: LinkEvent) -> None:
    link = Link(NULL, NULL, "l", sender=True, state=state)
    link.closed = link.is_paused = state is LinkState.CLOSED
    actions = link.move(event)
    after = link.state
    assert (after, actions) == TABLE[state][event]
    assert link.closed == link.is_paused == (after is LinkState.CLOSED)

    is_answer = state in EARLY and event is LinkEvent.ATTACH
    is_end = is_answer or (event in ENDS and (state, event) not in IMPOSSIBLE | WAITS)
    assert (after is LinkState.CLOSED) == (is_end or state is LinkState.CLOSED), "only an end closes, and for good"
    is_new = after is LinkState.CLOSED and state is not LinkState.CLOSED
    assert actions.count(LinkAction.REPORT) == (is_new and state is not LinkState.PLANNED), "one report of one end"
    assert (LinkAction.REFUSE in actions) == (
        is_new and state in UNANSWERED and event is not LinkEvent.LOST and not is_answer
    )
    detaches = [action for action in actions if action in (LinkAction.DETACH, LinkAction.CLOSE)]
    has_attach = state in OWN_ATTACH or is_answer or LinkAction.REFUSE in actions
    assert len(detaches) == (is_new and has_attach and event is not LinkEvent.LOST), "a detach for each attach"
    if state in OWN_ATTACH and detaches:
        is_for_good = event in (LinkEvent.CLOSE, LinkEvent.PEER_CLOSE)
        assert detaches == [LinkAction.CLOSE if is_for_good else LinkAction.DETACH]
    if is_answer:
        assert detaches == [EARLY[state]]
    has_both = state is not LinkState.PLANNED and (event in PEER_ENDS and (state, event) not in WAITS)
    has_both |= state in EARLY and is_new and event is not LinkEvent.LOST
    assert (LinkAction.FREE in actions) == has_both, "it is freed when both sides have detached it"
    if LinkAction.FREE in actions:
        assert actions[-1] is LinkAction.FREE


def test_table_is_complete() -> None:
    assert {(state, event) for state, events in TABLE.items() for event in events} == set(PAIRS)


@pytest.mark.parametrize(
    ("events", "state"),
    [
        pytest.param((LinkEvent.ATTACH, LinkEvent.PEER_ATTACH), LinkState.ATTACHED, id="this side asks"),
        pytest.param((LinkEvent.ATTACH,), LinkState.ATTACHING, id="the peer has not answered"),
        pytest.param((LinkEvent.ATTACH, LinkEvent.PEER_ATTACH, LinkEvent.LOST), LinkState.CLOSED, id="lost"),
        pytest.param((LinkEvent.LOST, LinkEvent.ATTACH), LinkState.CLOSED, id="lost before it was asked for"),
    ],
)
def test_link_of_this_side(events: tuple[LinkEvent, ...], state: LinkState) -> None:
    link = Link(NULL, NULL, "l", sender=True)
    for event in events:
        link.move(event)
    assert link.state is state
