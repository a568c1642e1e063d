"""The composition root of a cluster member: builds its parts, and passes them the events of the group, in order (D43).

The phases of a member are a state table (`kernel/phases.py`). A member serves clients if it is synced, the group has a
majority, and a majority of the members is synced or at least applies events. All of it runs on the broker's core, at
the end of its steps: this is the deliver thread of the paper. Session, routing and encoding are done earlier, when the
client's batch is processed (D80). Core only.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from ..base.callbacks import ignore
from ..base.clock import Clock
from ..base.errors import CairnError
from ..broker.contents.internal_queues import InternalQueue
from ..broker.federation.upstream import Upstreams
from ..broker.kernel.connections import Connections
from ..broker.kernel.context import CoreContext
from ..broker.links.context import LinkContext
from ..broker.nodes.registry import MakeQueue, NodeDeleted, RenewQueue
from ..broker.transactions.xa import InDoubt
from ..store.contract.transaction import TxState
from .apply_loop import ApplyLoop, ControlHandler
from .feeds.feeds import ReplicatedFeeds
from .group.group import Group, GroupError
from .group.group_events import Configuration, EventBatch, GroupFailed, MemberRefused, Quorum
from .health.clock_skew import ClockSkew
from .health.delays import CommitDelays
from .health.liveness import SILENCE_S, Liveness
from .health.not_serving_log import NotServingLog
from .health.self_delivery_check import SelfDeliveryCheck
from .kernel.broadcaster import Broadcaster
from .kernel.commit_tracker import CommitTracker
from .kernel.context import MemberContext
from .kernel.inbox import Inbox, ReceivedEvent
from .kernel.local_messages import LocalMessageMap
from .kernel.member_events import MemberEvents
from .kernel.member_state import MemberState
from .kernel.phases import SYNCHRONIZED, PhaseEvent
from .kernel.progress_record import NAME, ProgressRecord
from .kernel.service import Service
from .nodes.cluster_nodes import ClusterNodes
from .nodes.cluster_query import ClusterQueries
from .nodes.failover_addresses import ClientAddresses, FailoverAddresses
from .nodes.wiring import apply_change
from .progress import MemberProgress
from .replication.flow_control import LIMIT_BYTES, FlowControl
from .replication.message_handler import MessageHandler
from .replication.ownership_handler import QueueOwnerHandler
from .replication.purge import Purges
from .replication.replicated_returns import ReplicatedReturns
from .replication.transactions import TransactionHandler
from .state_transfer.bootstrap import Bootstrap
from .state_transfer.divergent_state import DivergentState, StateArchive
from .state_transfer.receiver import FOREIGN, TransferReceiver
from .state_transfer.sender import TransferSender
from .state_transfer.view_change import ViewChange

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class MemberOptions:
    """Options of one member."""

    is_alone: bool = False
    """True if the cluster has one member and never gets another one."""
    is_forced: bool = False
    """True if an operator declared the connected members to be enough."""
    silence_s: float = SILENCE_S
    """The time of silence after which a member is expelled."""
    flow_limit_bytes: int = LIMIT_BYTES
    """A member that lags by more bytes pauses all clients."""
    aside: StateArchive | None = None
    """The archive for divergent state that a transfer replaces; None to discard it."""
    places: ClientAddresses = ClientAddresses()
    """The addresses at which clients reach this member."""


class ClusterMember:
    """The membership of one broker in its cluster."""

    nodes: ClusterNodes

    def __init__(
        self,
        group: Group,
        name: str,
        size: Callable[[], int],
        clock: Clock,
        fail: Callable[[CairnError], None],
        options: MemberOptions | None = None,
    ) -> None:
        """*size*: of the whole cluster, known after the group is joined; *fail*: reports a permanent failure."""
        self._options = options or MemberOptions()
        self._clock = clock
        self._size = size
        self._fail = fail
        self._joined = False
        self.group = group
        self.state = MemberState(name, is_alone=self._options.is_alone, is_forced=self._options.is_forced)
        self.commits = CommitTracker()
        self.locals = LocalMessageMap()
        self.inbox = Inbox()
        self.events = MemberEvents()
        self.broadcaster = Broadcaster(group, self.state, self.locals)
        self.service = Service(self.state, self.commits)
        self.addresses = FailoverAddresses(self.state, self.broadcaster, self._options.places)

    # ---- the parts ------------------------------------------------------------------------------------------------

    def make_nodes(self, core: CoreContext, make_queue: MakeQueue, removed: NodeDeleted) -> ClusterNodes:
        self.nodes = ClusterNodes(self.broadcaster, core.store, core.post, make_queue, removed)
        return self.nodes

    def build(self, links: LinkContext, connections: Connections, upstreams: Upstreams, renew: RenewQueue) -> None:
        """Builds the parts, each after those that it uses, and subscribes them to the events."""
        core, nodes, options = links.core, self.nodes, self._options
        self._post = core.post
        self.returns = ReplicatedReturns(core.post, self.broadcaster)
        self.progress_record = ProgressRecord(core.store, self._clock, self.commits)
        self.context = context = MemberContext(
            self.group, self.state, self.service, self.progress_record, self._clock, core.scheduler, core.store,
            core.loader, self.broadcaster, self.locals, self.commits, self.inbox, self.events, self.fail,
            core.schedule_dispatch, self.returns.order,
        )  # fmt: skip
        self.owners = owners = QueueOwnerHandler(context)
        self.feeds = ReplicatedFeeds(upstreams, context, owners)
        self.messages = MessageHandler(context, owners, links.returns)
        self.transactions = TransactionHandler(context, owners, self.messages)
        self.liveness = Liveness(context, owners.replicas, options.silence_s)
        self.self_delivery_check = SelfDeliveryCheck(context, self.liveness.may_dispatch, owners.hold)
        self.commit_delays = CommitDelays(context)
        self.clock_skew = ClockSkew(self.state.name, self._clock)
        self.queries = ClusterQueries(context)
        self.flow = FlowControl(context, links.credit.grant_withheld, options.flow_limit_bytes)
        self.divergent_state = DivergentState(context, options.aside)
        self.sender = TransferSender(context, owners, nodes)
        self.receiver = TransferReceiver(
            context, owners, nodes, self.messages, self.sender, self.divergent_state, self.clock_skew, renew
        )
        self.bootstrap = Bootstrap(context, owners, nodes, self.receiver, self.sender, self.clock_skew)
        self.not_serving_log = NotServingLog(context, self.bootstrap.remedy, self.receiver.progress)
        self.purges = Purges(context, owners, self.messages, self.receiver.purged)
        self.apply_loop = ApplyLoop(
            context, self.messages, self.transactions, self.receiver, partial(apply_change, context, nodes, self.flow),
            self.liveness.came_back, self._control_at_once(), self._control_in_order(),
        )  # fmt: skip
        self.progress = MemberProgress(context, self.apply_loop, self.flow, self.receiver)
        self.view_change = ViewChange(
            context, owners, self.flow, connections, links.transactions, self.receiver, self.bootstrap, self.liveness,
            self.not_serving_log, lambda: self.apply_loop.position,
        )  # fmt: skip
        self._subscribe()

    def _control_at_once(self) -> dict[str, ControlHandler]:
        """Returns the handlers of control messages that apply in every phase."""
        return {
            "report-wish": self.queries.wished,
            "report": self.queries.record_answer,
            "state": self.bootstrap.received,
            "address": self.addresses.received,
            "flow": self.flow.received,
            "follow": self.receiver.follow,
            "sync": self.receiver.asked,
            "snapshot": self.receiver.snapshot,
        }

    def _control_in_order(self) -> dict[str, ControlHandler]:
        """Returns the handlers of control messages that apply only where this member applies events."""
        return {
            "consume": self.owners.consume,
            "cancel": self.owners.cancel,
            "release-queue": self.owners.release_queue,
            "purge-wish": self.purges.wished,
            "purge": self.purges.received,
            "followed": self.feeds.received,
            "update-done": self.receiver.update_done,
            "lacking": self.sender.lacking,
            "synced": self.receiver.synced,
        }

    def _subscribe(self) -> None:
        """Subscribes the parts to the events, each in the order in which they act."""
        events, reassembly, unsent = self.events, self.apply_loop.reassembly, self.broadcaster.unsent
        events.configured.subscribe(
            reassembly.configured, self.flow.left, self.liveness.configured, self.addresses.configured
        )
        events.somebody_joined.subscribe(unsent.somebody_joined, self.flow.say_again, self.addresses.say)
        events.remained.subscribe(self.addresses.remained)
        events.entered.subscribe(
            self.progress.begin, self.flow.begin, self.liveness.begin, self.commit_delays.begin,
            partial(self.view_change.take, PhaseEvent.ENTERED), self.addresses.say,
        )  # fmt: skip
        events.members_changed.subscribe(
            self.sender.members_changed, self.receiver.members_changed, self.purges.members_changed
        )
        events.lost.subscribe(
            self.liveness.lost, self.commit_delays.lost, unsent.lost, reassembly.lost, self.receiver.lost,
            self.purges.lost, self.sender.stop, self.owners.lost, self.queries.lost,
        )  # fmt: skip
        events.service_ended.subscribe(self.feeds.lost)
        events.disk_full.subscribe(self.divergent_state.make_room, self.receiver.make_room)

    # ---- start and stop -------------------------------------------------------------------------------------------

    def attach(self, in_doubt: InDoubt) -> None:
        """Creates the queue of the progress record and joins the group. *in_doubt*: distributed transactions."""
        self.nodes.create_queue(NAME, {}, partial(self._marked, in_doubt))

    def _marked(self, in_doubt: InDoubt, made: InternalQueue | Exception) -> None:
        if isinstance(made, Exception):
            self.fail("the progress record of the cluster cannot be stored", str(made))
            return
        self.progress_record.read(made.queue_id)
        if any(one.state is TxState.PREPARED for one in in_doubt.in_doubt()):
            self.fail(
                "its store has distributed transactions in doubt",
                "start this broker without a cluster, and complete them: cairnmq ctl transactions list",
            )
            return
        if foreign := self.bootstrap.foreign_name():
            self.fail(foreign, FOREIGN)
            return
        try:
            self.group.join(self.state.name)
        except GroupError as error:
            self._fail(error)
            return
        self.state.size = self._size()
        self.commits.majority = self.state.size // 2 + 1
        if self.state.is_forced:
            self.commits.majority = 1
            self.group.force()
        self._joined = True
        self.not_serving_log.begin()
        self._post(ignore)  # only starts a step of the core, whose end polls the group

    def leave(self) -> None:
        """Leaves the group in an orderly way, after recording the position up to which events are applied."""
        if self._joined and self.state.phase == SYNCHRONIZED and not self.state.has_failed:
            self.progress_record.move(self.apply_loop.position)
        if not self.state.has_failed:
            self._joined = False
            self.group.close()

    def fail(self, reason: str, remedy: str = "") -> None:
        """Ends this membership permanently; the others are not affected (D17)."""
        if not self.state.has_failed:
            self.state.has_failed = True
            error = CairnError(f"cluster {self.state.name!r}", reason, remedy)
            log.error("%s", error, extra={"event": "cluster.failed"})
            self.view_change.lost(reason)
            self._joined = False
            self.group.close()
            self._fail(error)

    @property
    def owned_queues(self) -> int:
        """The number of queues that this member leads. Any thread."""
        me = self.state.me
        return 0 if me is None else sum([replica.owner == me for replica in [*self.owners.replicas.values()]])

    # ---- steps ----------------------------------------------------------------------------------------------------

    def step(self) -> bool:
        """Sends waiting events and applies received ones; returns whether it did anything."""
        if not self._joined:
            return False
        self._send()
        inbox, is_alone = self.inbox.events, self.state.is_alone
        for event in self.group.step():
            if isinstance(event, EventBatch):
                last = event.position + len(event.payloads) - 1
                if not is_alone:
                    self.flow.came(last, event.payloads)
                for at, payload in enumerate(event.payloads, event.position):
                    inbox.append(ReceivedEvent(event.sender, at, payload, event.seq, at == last))
            else:
                inbox.append(event)
        did = self.work()
        self.progress.note()
        did = self._answer() or did
        if not is_alone:
            self.progress.look_at_flow()
            self.self_delivery_check.look()
        if not did:
            self.events.idle()
        return did

    def _send(self) -> None:
        if self.group.me != self.state.me:
            return
        self.broadcaster.unsent.resume()
        self.flow.resume()
        if not self.broadcaster.unsent.is_waiting and self.sender.is_busy and not self.flow.somebody_lags:
            self.sender.resume()

    def work(self) -> bool:
        """Applies events until the inbox is empty or stalled; returns whether there were any."""
        did, apply, inbox = False, self.apply_loop.apply, self.inbox
        while inbox.events and not inbox.is_stalled:
            did = True
            event = inbox.events.popleft()
            if isinstance(event, ReceivedEvent):
                apply(event)
            elif isinstance(event, Configuration):
                self.view_change.configured(event)
            elif isinstance(event, Quorum):
                self.view_change.quorum(quorate=event.quorate)
            elif isinstance(event, MemberRefused):
                text, about = "cluster %s: node %d was refused: %s", {"event": "cluster.member-refused"}
                log.warning(text, self.state.name, event.node, event.reason, extra=about)
            elif isinstance(event, GroupFailed):
                self.fail(event.reason, event.remedy or "correct the cause, and start this broker again")
        return did

    def durable(self) -> None:
        """Continues the steps that wait for the durable LSN, which moved."""
        if self._joined:
            self.progress.durable()

    def _answer(self) -> bool:
        """Runs the actions of events that are safe now; returns whether there were any."""
        if not self.state.has_majority:
            return False
        actions = self.commits.safe()
        for action in actions:
            action()
        return bool(actions)
