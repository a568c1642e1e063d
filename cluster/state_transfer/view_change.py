"""Applies view changes: the effect of each configuration on this member, and the end of its membership.

A member that joins is a new one, whatever it was before, and begins with a bootstrap; so do all members if no remaining
one has all messages. A member outside the group, or in a minority, owns and completes nothing, and events in flight are
never delivered to it (rule 4): its clients are disconnected, and their messages are requeued. Core only.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from ...broker.kernel.connections import Connections
from ...broker.transactions.registry import Transactions
from ..group.group_events import Configuration
from ..group.member_id import MemberId
from ..health.liveness import Liveness
from ..health.not_serving_log import NotServingLog
from ..kernel.context import MemberContext
from ..kernel.local_messages import LocalEvent, abandon
from ..kernel.phases import BOOTSTRAPPING, BUFFERING, SYNCHRONIZED, TRANSFERRING, PhaseEvent
from ..replication.flow_control import FlowControl
from ..replication.ownership_handler import QueueOwnerHandler
from .bootstrap import Bootstrap
from .receiver import TransferReceiver

log = logging.getLogger(__name__)


@dataclass(eq=False, repr=False)
class ViewChange:
    """The place of one member in its group, as configurations change it."""

    _context: MemberContext
    _owners: QueueOwnerHandler
    _flow: FlowControl
    _connections: Connections
    _transactions: Transactions
    _receiver: TransferReceiver
    _bootstrap: Bootstrap
    _liveness: Liveness
    _not_serving_log: NotServingLog
    _applied: Callable[[], int]
    """Returns the position behind the last event that was applied."""
    lost_times: int = 0

    def quorum(self, *, quorate: bool) -> None:
        """Records the quorum of the local daemon; without a quorum clients are disconnected."""
        was, self._context.state.is_quorate = self._context.state.is_quorate, quorate
        if was and not quorate:
            self._disconnect_clients()

    def configured(self, config: Configuration) -> None:
        """Applies a configuration: its members are those of the group from here on."""
        state = self._context.state
        me = self._context.group.me
        state.view = config.view
        self._context.events.configured(config)
        mine = next((member for member in config.joined if member == me), None)
        if config.joined:
            self._context.events.somebody_joined()
        if mine is None and (state.me not in config.members or not config.primary):
            self.lost(self._lost_reason(config))
            return
        self._context.events.remained(config)
        self._log_changes(config)
        if state.phase == BUFFERING and mine is None and not config.left:
            self._receiver.keep(config)
            state.members = config.members
            self._context.commits.members(config.members)
            return
        state.members = config.members
        if mine is not None:
            self._entered(mine, config)
        else:
            self._goes_on(config)

    def _log_changes(self, config: Configuration) -> None:
        """Log the other members that joined or left."""
        state = self._context.state
        for member in config.left:
            reason = "its process ended, or it was disconnected"
            if member == config.expelled:
                reason = f"it was expelled, being silent for {self._liveness.limit_s:.0f} s"
            about = {"event": "cluster.member-left", "fields": {"node": member.node, "reason": reason}}
            text = "cluster %s: node %d (process %d) left: %s; %d members remain"
            log.warning(text, state.name, member.node, member.pid, reason, len(config.members), extra=about)
        for member in config.joined:
            if member != self._context.group.me:
                about = {"event": "cluster.member-joined", "fields": {"node": member.node}}
                text = "cluster %s: node %d (process %d) joined; %d members"
                log.info(text, state.name, member.node, member.pid, len(config.members), extra=about)

    def _lost_reason(self, config: Configuration) -> str:
        if config.expelled is None or config.expelled != self._context.state.me:
            return "the majority of the cluster is not connected"
        return f"the others expelled this member, which was silent for {self._liveness.limit_s:.0f} s"

    def _entered(self, me: MemberId, config: Configuration) -> None:
        """Begins a new membership, whatever this member was before."""
        state = self._context.state
        if state.me is not None:
            self.lost("it rejoined the cluster as a new member")
        state.is_primary = config.primary
        state.me = me
        for replica in self._owners.replicas.values():
            if replica.queue.limits is not None:
                replica.queue.limits.nothing_is_under_way()
        self._context.record.membership_ends()
        self._context.commits.begin(me, config.position, config.members)
        self._context.events.entered()

    def _goes_on(self, config: Configuration) -> None:
        """Applies a configuration in which this member remains and others joined or left."""
        state = self._context.state
        self._context.commits.members(config.members)
        self._owners.members_are(config.members)
        if state.phase in (TRANSFERRING, SYNCHRONIZED):
            if config.expelled is None:
                self._counts(state.view)
            else:
                self._context.broadcaster.send_control("nothing", LocalEvent(partial(self._counts, state.view)))
        self._context.events.members_changed(config)
        self.take(PhaseEvent.MEMBERS_CHANGED if state.synced else PhaseEvent.NO_SOURCE)

    def _counts(self, view: int) -> None:
        """Records that a configuration has a majority.

        The engine agrees on its own configurations. An expulsion may have reached only a mute member that multicast it:
        its store would be ahead of those that continue without it. So an expulsion counts when others have acknowledged
        events behind it.
        """
        if self._context.state.phase in (TRANSFERRING, SYNCHRONIZED):
            standing = self._context.record.standing
            self._context.record.write(standing._replace(view=max(view, standing.view), position=self._applied()))

    def take(self, event: PhaseEvent) -> None:
        """Begins a bootstrap, if the phase requires it after *event*."""
        if self._context.state.handle(event) == BOOTSTRAPPING:
            self._receiver.lost()
            self._bootstrap.begin()

    def lost(self, reason: str) -> None:
        """Leaves the group or its majority: nothing is completed nor owned from here on (rule 4)."""
        state = self._context.state
        if state.me is None:
            return
        event = {"event": "cluster.disconnected"}
        log.warning("cluster %s: clients are disconnected: %s", state.name, reason, extra=event)
        self.lost_times += 1
        state.leave()
        self._context.events.lost()
        for action in self._context.commits.lost():
            action()
        for local in [*self._context.locals.lost(), *self._flow.lost()]:
            abandon(local)
        self._transactions.lost()
        self._context.events.service_ended(reason)
        self._disconnect_clients()
        self._not_serving_log.begin()

    def _disconnect_clients(self) -> None:
        """Closes all connections, rolls transactions back, and requeues what consumers have."""
        reason = self._context.service.not_serving_reason() or "this broker has left its cluster"
        for connection in [*self._connections.by_end.values()]:
            connection.end.expel(reason, elsewhere=True)
        self._transactions.roll_back_all(reason)
        for replica in self._owners.replicas.values():
            replica.take_back()
        self._owners.forget_consumers()
