"""Applies view changes: the effect of each configuration on this member, and the end of its membership.

A member that joins is a new one, whatever it was before, and begins with a bootstrap; so do all members if no remaining
one has all messages. A member outside the group, or in a minority, owns and completes nothing, and events in flight are
never delivered to it (rule 4): its clients are disconnected, and their messages are requeued. Core only.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial

from ...broker.transactions.registry import Transactions
from ..group.group import Group
from ..group.group_events import Configuration
from ..group.member_id import MemberId
from ..health.liveness import Liveness
from ..health.not_serving_log import NotServingLog
from ..kernel import events
from ..kernel.context import MemberContext
from ..kernel.local_messages import LocalEvent, abandon
from ..kernel.phases import BUFFERING, SYNCHRONIZED, TRANSFERRING, PhaseAction, PhaseEvent
from ..kernel.progress_record import ProgressRecord
from ..nodes.client_disconnect import ClientDisconnector
from ..replication.flow_control import FlowControl
from ..replication.ownership_handler import QueueOwnerHandler
from .bootstrap import Bootstrap
from .receiver import TransferReceiver

log = logging.getLogger(__name__)


class ViewChange:
    """The place of one member in its group, as configurations change it."""

    def __init__(
        self,
        context: MemberContext,
        group: Group,
        record: ProgressRecord,
        owners: QueueOwnerHandler,
        flow: FlowControl,
        clients: ClientDisconnector,
        transactions: Transactions,
        receiver: TransferReceiver,
        bootstrap: Bootstrap,
        liveness: Liveness,
        not_serving_log: NotServingLog,
        applied: Callable[[], int],
    ) -> None:
        """*applied*: the position behind the last event that was applied."""
        self._state = context.state
        self._broadcaster = context.broadcaster
        self._locals = context.locals
        self._commits = context.commits
        self._events = context.events
        self._group = group
        self._record = record
        self._owners = owners
        self._flow = flow
        self._clients = clients
        self._transactions = transactions
        self._receiver = receiver
        self._bootstrap = bootstrap
        self._liveness = liveness
        self._not_serving_log = not_serving_log
        self._applied = applied
        self.lost_times = 0

    def quorum(self, *, quorate: bool) -> None:
        """Records the quorum of the local daemon; without a quorum clients are disconnected."""
        was, self._state.is_quorate = self._state.is_quorate, quorate
        if was and not quorate:
            self._clients.expel()

    def configured(self, config: Configuration) -> None:
        """Applies a configuration: its members are those of the group from here on."""
        state = self._state
        me = self._group.me
        state.view = config.view
        self._events.configured(config)
        mine = next((member for member in config.joined if member == me), None)
        if config.joined:
            self._events.somebody_joined()
        if mine is None and (state.me not in config.members or not config.primary):
            self.lost(self._lost_reason(config))
            return
        self._events.remained(config)
        if state.phase == BUFFERING and mine is None and not config.left:
            self._receiver.keep(config)
            state.members = config.members
            self._commits.members(config.members)
            return
        state.members = config.members
        if mine is not None:
            self._entered(mine, config)
        else:
            self._goes_on(config)

    def _lost_reason(self, config: Configuration) -> str:
        if config.expelled is None or config.expelled != self._state.me:
            return "the majority of the cluster is not connected"
        return f"the others expelled this member, which was silent for {self._liveness.limit_s:.0f} s"

    def _entered(self, me: MemberId, config: Configuration) -> None:
        """Begins a new membership, whatever this member was before."""
        state = self._state
        if state.me is not None:
            self.lost("it rejoined the cluster as a new member")
        state.is_primary = config.primary
        state.me = me
        for replica in self._owners.replicas.values():
            if replica.queue.limits is not None:
                replica.queue.limits.nothing_is_under_way()
        self._record.membership_ends()
        self._commits.begin(me, config.position, config.members)
        self._events.entered()

    def _goes_on(self, config: Configuration) -> None:
        """Applies a configuration in which this member remains and others joined or left."""
        state = self._state
        self._commits.members(config.members)
        self._owners.members_are(config.members)
        if state.phase in (TRANSFERRING, SYNCHRONIZED):
            if config.expelled is None:
                self._counts(state.view)
            else:
                self._broadcaster.send(events.control("nothing"), LocalEvent(partial(self._counts, state.view)))
        self._events.members_changed(config)
        self._take(PhaseEvent.MEMBERS_CHANGED if state.synced else PhaseEvent.NO_SOURCE)

    def _counts(self, view: int) -> None:
        """Records that a configuration has a majority.

        The engine agrees on its own configurations. An expulsion may have reached only a mute member that multicast it:
        its store would be ahead of those that continue without it. So an expulsion counts when others have acknowledged
        events behind it.
        """
        if self._state.phase in (TRANSFERRING, SYNCHRONIZED):
            standing = self._record.standing
            self._record.write(standing._replace(view=max(view, standing.view), position=self._applied()))

    def entered(self) -> None:
        """Begins a bootstrap, since this member is in the group under a new ID."""
        self._take(PhaseEvent.ENTERED)

    def _take(self, event: PhaseEvent) -> None:
        """Begins a bootstrap, if the phase requires it after *event*."""
        if self._state.handle(event) is PhaseAction.BOOTSTRAP:
            self._receiver.lost()
            self._bootstrap.begin()

    def lost(self, reason: str) -> None:
        """Leaves the group or its majority: nothing is completed nor owned from here on (rule 4)."""
        state = self._state
        if state.me is None:
            return
        event = {"event": "cluster.disconnected"}
        log.warning("cluster %s: clients are disconnected: %s", state.name, reason, extra=event)
        self.lost_times += 1
        state.leave()
        self._events.lost()
        for action in self._commits.lost():
            action()
        for local in [*self._locals.lost(), *self._flow.lost()]:
            abandon(local)
        self._transactions.lost()
        self._events.service_ended(reason)
        self._clients.expel()
        self._not_serving_log.begin()
