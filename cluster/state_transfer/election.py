"""Elects the store whose messages count when no member of the group is known to have all (rule 17). Pure.

All members of a view decide on the same reports, so they decide alike. The greatest standing wins, of equals a store
with queues before one without, then the lowest node. Stores are never merged.

| all reported | tied | source missing | counts | other cluster | own queues | decision |
|---|---|---|---|---|---|---|
| no | | | | | | wait for reports |
| yes | yes | | | | | wait for operator |
| yes | no | yes | | | | wait for member |
| yes | no | no | yes | | | serve |
| yes | no | no | no | yes | | leave: other cluster |
| yes | no | no | no | no | yes | leave: own queues |
| yes | no | no | no | no | no | transfer |

An empty cell: the fact does not matter.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from enum import Enum, auto
from typing import NamedTuple

from ..group.member_id import MemberId
from ..kernel.progress_record import Standing


class StoreState(NamedTuple):
    """The state of a store, as its member multicasts it."""

    standing: Standing
    cluster: str
    empty: bool
    """True if the store has no replicated queues."""


StoreStates = dict[MemberId, StoreState]
"""The reported states by member."""


class Facts(NamedTuple):
    """The facts that one member decides on."""

    is_complete: bool
    """All members of the view have reported their stores."""
    is_tied: bool
    """The stores of one cluster are as many as those of another one."""
    is_source_missing: bool
    """An absent member may have more than the best store here."""
    counts: bool
    """The store of this member won, or is just as empty as the winner."""
    is_of_other_cluster: bool
    """The store of this member is of another cluster than the winner."""
    has_own_queues: bool
    """The store of this member is of no cluster, and has replicated queues."""


class Decision(Enum):
    """The result of an election for one member."""

    WAIT_FOR_REPORTS = auto()
    WAIT_FOR_OPERATOR = auto()
    """No cluster has most of the stores."""
    WAIT_FOR_MEMBER = auto()
    """A member with more messages may come."""
    SERVE = auto()
    """The messages of this member count."""
    LEAVE_OTHER_CLUSTER = auto()
    LEAVE_OWN_QUEUES = auto()
    TRANSFER = auto()
    """This member gets the messages of the winner."""


TABLE: tuple[tuple[tuple[bool | None, ...], Decision], ...] = (
    ((False, None, None, None, None, None), Decision.WAIT_FOR_REPORTS),
    ((True, True, None, None, None, None), Decision.WAIT_FOR_OPERATOR),
    ((True, False, True, None, None, None), Decision.WAIT_FOR_MEMBER),
    ((True, False, False, True, None, None), Decision.SERVE),
    ((True, False, False, False, True, None), Decision.LEAVE_OTHER_CLUSTER),
    ((True, False, False, False, False, True), Decision.LEAVE_OWN_QUEUES),
    ((True, False, False, False, False, False), Decision.TRANSFER),
)
"""The decisions by facts; None: the fact does not matter. Exactly one row applies."""


class Election(NamedTuple):
    """A decision, and its consequences if it does not wait."""

    decision: Decision
    winner: MemberId | None = None
    best: StoreState = StoreState(Standing(), "", empty=True)
    """The store of the winner."""
    synced: frozenset[MemberId] = frozenset()
    """The members whose stores count."""
    epoch: int = 0


def decide(facts: Facts) -> Decision:
    """Returns the decision of the row that applies."""
    return next(
        decision
        for row, decision in TABLE
        if all(cell is None or cell is fact for cell, fact in zip(row, facts, strict=True))
    )


def elect(states: StoreStates, me: MemberId, members: Iterable[MemberId], size: int, *, is_forced: bool) -> Election:
    """Returns the election by the reported *states*, as *me*, one of *members* of a cluster of *size*, decides it."""
    unknown = Facts(True, False, False, False, False, False)
    if me not in states or not all(member in states for member in members):
        return Election(decide(unknown._replace(is_complete=False)))
    ours = states if is_forced else of_one_cluster(states)
    if not ours:
        return Election(decide(unknown._replace(is_tied=True)))
    winner = max(ours, key=lambda member: (ours[member].standing, not ours[member].empty, -member.node))
    best, mine = ours[winner], states[me]
    synced = frozenset(member for member, one in ours.items() if member == winner or (one.empty and one == best))
    facts = Facts(
        is_complete=True,
        is_tied=False,
        is_source_missing=bool(best.cluster) and not is_forced and is_source_missing(best.standing, ours, states, size),
        counts=me in synced,
        is_of_other_cluster=bool(mine.cluster and best.cluster) and mine.cluster != best.cluster,
        has_own_queues=not mine.cluster and not mine.empty,
    )
    epoch = max(one.standing.epoch for one in ours.values()) + 1
    return Election(decide(facts), winner, best, synced, epoch)


def of_one_cluster(states: StoreStates) -> StoreStates:
    """Returns the states of the cluster that most stores are of, and of stores of none; none if no cluster has most."""
    found = clusters(states)
    if len(found) < 2:
        return states
    (first, count), (_, others) = found[:2]
    if count == others:
        return {}
    return {member: state for member, state in states.items() if state.cluster in ("", first)}


def clusters(states: StoreStates) -> list[tuple[str, int]]:
    """Returns the clusters that the stores are of, each with its number of stores, the most frequent first."""
    return Counter(state.cluster for state in states.values() if state.cluster).most_common()


def is_source_missing(best: Standing, ours: StoreStates, states: StoreStates, size: int) -> bool:
    """Returns whether an absent member may have more than the *best* store here."""
    if not best.synced:
        return True
    followed = [state.standing for state in ours.values() if not state.standing.synced]
    ahead = any(one._replace(synced=True) > best for one in followed)
    return ahead and len(states) < size
