"""Bootstraps a group in which no member is known to have all messages (rule 17; see `election` for the decision).

Each member multicasts the standing of its store. When all members have reported, all decide on the same reports. The
other members get the state of the winner by a transfer, also those with an equal standing. A store that was filled by a
transfer has the same messages in another order, and positions follow the order of the store.

A member that stopped during a transfer has no complete state. Its progress record contains the standing of its donor,
so the members wait for a store that is ahead of those present, unless all configured members are present or an operator
declares that they are enough (`--cluster-force`).

A member whose messages belong to another cluster than most stores leaves. If as many stores belong to one cluster as to
another, all members wait for the operator or for further members.

Core only.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass

from ..health.clock_skew import ClockSkew
from ..kernel.context import MemberContext
from ..kernel.control_messages import ControlMessage
from ..kernel.phases import BOOTSTRAPPING, PhaseEvent
from ..kernel.progress_record import Standing
from ..nodes.cluster_nodes import ClusterNodes
from ..replication.ownership_handler import QueueOwnerHandler
from .election import Decision, StoreState, StoreStates, clusters, elect
from .receiver import FOREIGN, TransferReceiver
from .sender import TransferSender

log = logging.getLogger(__name__)

AGAIN = (
    "start it again with --cluster-force: its store has its former messages and the received ones, some perhaps twice"
)


@dataclass(eq=False, repr=False)
class Bootstrap:
    _context: MemberContext
    _owners: QueueOwnerHandler
    _nodes: ClusterNodes
    _receiver: TransferReceiver
    _sender: TransferSender
    _clock_skew: ClockSkew

    def __post_init__(self) -> None:
        self._states: StoreStates = {}
        self._waits_for_missing = False

    def foreign_name(self) -> str:
        """Returns the reason not to join, if the store is of a cluster with another name; else an empty string."""
        cluster = self._context.record.cluster
        if not cluster or cluster.rpartition("-")[0] == self._context.state.name:
            return ""
        return f"this store belongs to another cluster, {cluster}"

    def remedy(self) -> str:
        """Returns the action that an operator can take meanwhile; empty for none."""
        if self._waits_for_missing:
            return (
                "A member that is not here may have more: start it; if it is lost permanently, start this one with "
                "--cluster-force"
            )
        return ""

    def begin(self) -> None:
        """Multicasts the standing of this store, again in each configuration.

        New members have not received earlier reports, nor has a member whose bootstrap begins because the last synced
        member left. Reports of earlier configurations are ignored, so that all members decide at the same position.
        """
        self._states.clear()
        self._waits_for_missing = False
        context, record = self._context, self._context.record
        context.broadcaster.send_control(
            "state", view=context.state.view, empty=not self._nodes.has_own_wiring(), clock_us=context.clock.wall_us(),
            standing=record.standing._asdict(), cluster=record.cluster,
        )  # fmt: skip

    def received(self, message: ControlMessage) -> None:
        """Records the standing of the store of *sender*."""
        sender, _, about = message
        if about["view"] != self._context.state.view:  # members that are still founding report again
            return
        state = StoreState(Standing(**about["standing"]), about["cluster"], about["empty"])
        self._clock_skew.received(sender.node, about["clock_us"])
        if self._context.state.phase != BOOTSTRAPPING:
            if self._context.state.synced:
                self._sender.invite(sender)
            return
        self._states[sender] = state
        self._decide()

    def _decide(self) -> None:
        """Acts on the election, once all members of the view have reported."""
        state, record, me = self._context.state, self._context.record, self._context.state.me
        if me is None:
            return
        election = elect(self._states, me, state.members, state.size, is_forced=state.is_forced)
        decision, best = election.decision, election.best
        self._waits_for_missing = decision is Decision.WAIT_FOR_MEMBER
        if decision is Decision.WAIT_FOR_OPERATOR:
            (first, _), (second, _), *_ = clusters(self._states)
            log.error(
                "cluster %s: as many stores belong to cluster %s as to %s: stop the wrong members, and move their "
                "store directories away", state.name, first, second, extra={"event": "cluster.undecided"},
            )  # fmt: skip
        elif decision is Decision.LEAVE_OTHER_CLUSTER:
            mine = self._states[me].cluster
            reason = f"this store belongs to another cluster, {mine}; the others belong to {best.cluster}"
            self._context.fail(reason, FOREIGN)
        elif decision is Decision.LEAVE_OWN_QUEUES:
            self._context.fail("this store has replicated queues that do not belong to the cluster", FOREIGN)
        elif decision in (Decision.SERVE, Decision.TRANSFER):
            state.epoch = election.epoch
            state.synced = {*election.synced}
            self._sender.stop()
            cluster = best.cluster or f"{state.name}-{election.winner}"
            if decision is Decision.TRANSFER:
                self._receiver.wipe(cluster)
            else:
                record.cluster = cluster
                self._serve(election.epoch)

    def _serve(self, epoch: int) -> None:
        """Serves with the messages of this store."""
        state = self._context.state
        self._receiver.become_synced(PhaseEvent.WON, Standing(True, epoch, state.view, 0))
        self._owners.past = 0  # earlier events are not repeated; joining members get their effects from here
        for replica in self._owners.replicas.values():
            replica.owner = None
            if state.is_forced:  # messages may be lost, and their positions assigned again: it must not continue
                replica.line = ""
            if replica.base:  # messages of a transfer that an operator declared to be enough
                if self._receiver.kept_messages.has_more(replica):
                    self._context.fail("its own messages were not yet compared with those of the others", AGAIN)
                    return
                replica.integrate()
            replica.were_delivered()
            self._owners.decide(replica)
