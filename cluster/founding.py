"""Whose messages count when a group is founded, or none of its members has all: the store that is ahead wins (rule 17).

Each member says how far its store has come, in the order of the group; when all have spoken, all know the same, and so
decide the same. The greatest standing wins, of equals the lowest node. The others are updated from it, also those that
have come just as far: a store that was updated itself has the same messages in another order, and positions are given
anew in the order of the store. Only where nobody has anything at all there is nothing to update. Stores are never
merged.

A member that was being updated when it stopped has dropped what it had, and is no help; but its mark says how far it
had followed, so it knows that there is somebody who is further than others that are here. They wait for that one,
unless all configured members are here, or an operator says that they are enough (`--cluster-force`).

Whoever holds messages of another cluster than most, or of none while the winner has some, leaves; where as many are
of the one as of the other, nobody says which is the right one, and all wait for the operator or for further members.
Core only.
"""

from __future__ import annotations

import logging
from collections import Counter
from typing import TYPE_CHECKING, Any, NamedTuple

from . import events
from .group import MemberId
from .mark import Standing
from .phases import FOUNDING

if TYPE_CHECKING:
    from .core import Core

log = logging.getLogger(__name__)

FOREIGN = "move its store directory away, or give it another --cluster-name"


class State(NamedTuple):
    """What a member says of its store."""

    standing: Standing
    cluster: str
    empty: bool
    """There is nothing replicated in it."""


class Founding:
    def __init__(self, core: Core) -> None:
        self._core = core
        self._states: dict[MemberId, State] = {}

    def foreign_name(self) -> str:
        """Whether this store is of a cluster that is called otherwise: then it joins nobody."""
        cluster = self._core.mark.cluster
        if not cluster or cluster.rpartition("-")[0] == self._core.name:
            return ""
        return f"this store is of another cluster, {cluster}"

    def begin(self) -> None:
        """Say how far this store has come, in each configuration anew: newcomers have not heard what was said, nor has
        who begins only now since the last one that had all messages left. What was said in an earlier one counts for
        nobody, so that all decide at the same place."""
        self._states.clear()
        core = self._core
        mark, empty = core.mark, not core.nodes.own_wiring()
        about = {"standing": mark.standing._asdict(), "cluster": mark.cluster}
        clock_us = core.clock.wall_us()
        core.say(events.told("state", view=core.view, empty=empty, clock_us=clock_us, **about))

    def heard(self, sender: MemberId, about: dict[str, Any]) -> None:
        core = self._core
        if about["view"] != core.view:  # whoever is still founding says it again
            return
        state = State(Standing(**about["standing"]), about["cluster"], about["empty"])
        core.clocks.heard(sender, about["clock_us"])
        if core.phase != FOUNDING:
            if core.owners.synced:
                core.joining.newcomer(sender)
            return
        self._states[sender] = state
        self._decide()

    def _decide(self) -> None:
        core, states = self._core, self._states
        if core.me not in states or not all(member in states for member in core.members):
            return
        ours = self._of_one_cluster()
        if not ours:
            return
        winner = max(ours, key=lambda member: (ours[member].standing, not ours[member].empty, -member.node))
        best = ours[winner]
        if best.cluster and not core.force and self._is_missed(best.standing, ours):
            return
        me = core.me
        assert me is not None
        if self._is_foreign(states[me], best, is_winner=me == winner):
            return
        same = {member for member, state in ours.items() if member == winner or (state.empty and state == best)}
        epoch = max(state.standing.epoch for state in ours.values()) + 1
        core.epoch = epoch
        core.owners.synced = set(same)
        core.updater.begin()
        if not best.cluster:
            core.mark.cluster = f"{core.name}-{winner}"
        if me in same:
            core.mark.cluster = best.cluster or core.mark.cluster
            core.synced(Standing(True, epoch, core.view, 0))
            core.owners.past = 0  # nobody hears again what was said before; newcomers get it from here
            for replica in core.owners.replicas.values():
                replica.owner = None
                if core.force:  # messages may be lost, and their positions given again: nobody goes on with that
                    replica.line = ""
                if replica.base:  # what was brought until an operator said that it is enough
                    replica.integrate()
                replica.were_delivered()
                core.owners.decide(replica)
        else:
            core.joining.wipe(best.cluster or core.mark.cluster)

    def _of_one_cluster(self) -> dict[MemberId, State]:
        """The states of the cluster that most stores are of, and of stores of none; nobody's if no cluster has most."""
        if self._core.force:
            return self._states
        ids = Counter(state.cluster for state in self._states.values() if state.cluster).most_common()
        if len(ids) < 2:
            return self._states
        (first, count), (second, others) = ids[:2]
        if count == others:
            log.error(
                "cluster %s: as many stores are of the cluster %s as of %s: stop the wrong ones, and move their store "
                "directories away", self._core.name, first, second,
            )  # fmt: skip
            return {}
        return {member: state for member, state in self._states.items() if state.cluster in ("", first)}

    def _is_missed(self, best: Standing, ours: dict[MemberId, State]) -> bool:
        """Whether somebody who is not here may have more than the best store that is."""
        if not best.synced:
            return True
        followed = [state.standing for state in ours.values() if not state.standing.synced]
        ahead = any(one._replace(synced=True) > best for one in followed)
        return ahead and len(self._states) < self._core.size

    def _is_foreign(self, mine: State, best: State, *, is_winner: bool) -> bool:
        """Whether this store is none of this cluster's; then this member leaves."""
        core = self._core
        if is_winner:
            return False
        if mine.cluster and best.cluster and mine.cluster != best.cluster:
            core.fail(f"this store is of another cluster, {mine.cluster}, the others are of {best.cluster}", FOREIGN)
            return True
        if not mine.cluster and not mine.empty:
            core.fail("this store has queues of its own, and the cluster has others", FOREIGN)
            return True
        return False
