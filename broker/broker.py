"""The broker: what it consists of, what comes and goes with connections and links, and the end of each step.

All of it runs on the core. Nothing here blocks: what takes time (SQL, the disk) answers later, through `post` of the
core. Everything that must not be told before it is durable waits in one line, in LSN order (`line`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, Protocol

from ..base.clock import Clock
from ..base.errors import CairnError
from ..channel.ports import ConnectionEnd, Open, OutwardEnd, TerminalEnd
from ..store.contract.interface import MessageStore, PurgesInSlices
from .federation.federated_queues import FederatedQueues
from .federation.upstream import STREAM, ReplicatedUpstreams, Upstreams
from .kernel.acquisition_log import Notes
from .kernel.connections import Connections
from .kernel.context import CoreContext, Post
from .kernel.loader import Submit
from .kernel.memory_budget import DEFAULT_LIMIT_BYTES
from .links.attach import LinkOpener
from .links.consumer import Consumer
from .links.context import LinkContext
from .links.exchange_links import ExchangeLinks
from .links.handlers import LinkHandlers
from .links.late_selection import LateSelection
from .links.owned_nodes import OwnedNodes
from .links.queue_links import QueueLinks
from .links.sender_credit import SenderCredit
from .mesh.network import Network
from .nodes import lifetimes
from .nodes.access_control import Access
from .nodes.exchanges import Exchange
from .nodes.registry import Arguments, MakeQueue, NodeDeleted, NodeRegistry
from .nodes.replication_port import Members
from .nodes.resolver import Resolver
from .nodes.retired_totals import RetiredTotals
from .nodes.subscriptions import Subscriptions, selector_of, subscribers
from .nodes.targets import Endpoint, ExchangeTarget
from .outbound.auto_links import AutoLinks
from .outbound.connectors import Connectors
from .outbound.link_routes import LinkRoutes
from .passthrough.address import PassthroughAddress, PassthroughTable
from .passthrough.links import PassthroughLinks
from .queues.deduplication import forget_orphans
from .queues.delivery_counts import recall_counts
from .queues.policy import policy_of
from .queues.queue import Queue, QueueServices
from .queues.queue_order import QueueOrder
from .queues.sorted_queue import SortedQueue
from .resume.registry import LinkEndpoints
from .selector.background_compiler import DEFAULT_SIZE_BYTES, Compiler
from .standalone import StandaloneAssembly
from .transactions.context import TransactionLimits
from .transactions.coordinator import open_coordinator
from .transactions.dead_letters import Returns
from .transactions.local_order import LocalOrder
from .transactions.moves import Moves
from .transactions.registry import Transactions
from .transactions.xa import InDoubt
from .users.quotas import Quotas

DEFAULT_TRANSACTION_LIMITS = TransactionLimits()


class BrokerMembers(Members, ReplicatedUpstreams, Protocol):
    """The members of a cluster; none for a standalone broker."""


class MemberAssembly(Protocol):
    """Builds the parts of a broker that differ between a member of a cluster and a standalone broker."""

    @property
    def members(self) -> BrokerMembers:
        """Return the port to the other members."""
        ...

    def nodes(self, core: CoreContext, make_queue: MakeQueue, gone: NodeDeleted) -> NodeRegistry:
        """Build the nodes of the broker: changes of replicated ones are ordered (D58)."""
        ...

    def moves(self, core: CoreContext) -> Moves:
        """Build what moves messages among queues."""
        ...

    def build(self, broker: Broker) -> None:
        """Build the parts of the member: those of the broker exist, and its nodes are not recovered."""
        ...

    def attach(self, broker: Broker) -> None:
        """Join: the broker is complete and recovered."""
        ...


class Broker:
    """The nodes of one broker, and the drivers on them."""

    def __init__(
        self,
        store: MessageStore,
        clock: Clock,
        post: Post,
        submit: Submit,
        *,
        auto_create: Sequence[str] = ("*",),
        credit: int = 1000,
        memory_limit_bytes: int = DEFAULT_LIMIT_BYTES,
        access: Access | None = None,
        quotas: Quotas | None = None,
        vouch: bool = False,
        transaction_limits: TransactionLimits = DEFAULT_TRANSACTION_LIMITS,
        anycast: Sequence[str] = (),
        multicast: Sequence[str] = (),
        container_id: str = "cairnmq",
        cluster: MemberAssembly | None = None,
        notes: Notes | None = None,
        compile_on: Submit | None = None,
        max_selector_bytes: int = DEFAULT_SIZE_BYTES,
    ) -> None:
        """*submit*: have something read on the reader's thread.

        *auto_create*: patterns of names for which a durable queue is made on first use; *credit*: per sender;
        *memory_limit_bytes*: how much content may be held in memory; *access*: who may do what, None for everybody
        everything; *quotas*: how much of the broker each user may have; *vouch*: a message's user-id must be the user
        who sends it; *transaction_limits*: what clients may have open; *anycast*, *multicast*: patterns of addresses
        that messages pass through without being stored; *container_id*: what other brokers call this one;
        *cluster*: the one that it is a member of; *notes*: where acquisitions are written down, None for nowhere;
        *compile_on*: the thread that compiles selectors, None for the reader's; *max_selector_bytes*: the longest one.
        """
        assembly: MemberAssembly = cluster or StandaloneAssembly()
        self.members = assembly.members
        self._shares_queues = self.members.shares_queues
        self.core = core = CoreContext.build(
            store, clock, post, submit, memory_limit_bytes=memory_limit_bytes, quotas=quotas, notes=notes
        )
        self.store = store
        self.clock = clock
        self.loader = core.loader
        self.background = core.background
        self.disposal = core.disposal
        self.scheduler = core.scheduler
        self.compiler = Compiler(clock, self.scheduler, compile_on or submit, post, max_selector_bytes)
        self.users = core.users
        self.commits = core.commits
        self.memory = core.memory
        self.acquisitions = core.acquisitions
        self.post = post
        self.nodes = assembly.nodes(core, self._queue, self._gone)
        self.direct = PassthroughTable(anycast, multicast)
        self.resolver = Resolver(self.nodes, core.users, access, self.direct, auto_create)
        self.returns = Returns(core, self.resolver, assembly.moves(core))
        self.subscriptions = Subscriptions(
            core, self.nodes, self.resolver, self._make_consumer, self._open_resumable
        )
        self.transactions = Transactions(
            core, self.returns, self.members, transaction_limits, ordered=self._shares_queues
        )
        self.sender_credit = SenderCredit(store, self.members)
        self.links = LinkContext(
            core, self.nodes, self.resolver, self.subscriptions, self.transactions, self.returns, self.members,
            self.sender_credit, vouch,
        )  # fmt: skip
        self.connections = Connections(clock)
        self.connectors = Connectors(core)
        self.link_routes = LinkRoutes(core, self.connectors, self.resolver, self.transactions)
        self.former = RetiredTotals()
        self.why_gone: Callable[[ConnectionEnd], str] = _stays
        """Why a connection may not be there, now that it is opened; empty if it may."""
        self.endpoints: dict[str, Endpoint] = {}
        """Endpoints by their addresses, which begin with a dollar and never name a queue."""
        core.events.link_closed.append(self._link_closed)
        core.events.connection_closed += (self.transactions.connection_closed, self._connection_closed)
        self.upstreams = Upstreams(core, self.nodes, self.resolver, self.members)
        self._open_links(credit)
        if core.acquisitions is not None:
            core.events.link_closed.append(core.acquisitions.link_went)
        self.network = Network(core, self.connections, self.connectors, self.direct, self.endpoints, container_id)
        self.auto_links = AutoLinks(
            core, self.connectors, self.resolver, self.members, container_id, self.link_opener.open_at
        )
        self.federated_queues = FederatedQueues(core, self.nodes, self.connectors, self.members, container_id)
        self._queue_services = QueueServices(self.nodes, self.returns.bury, self._local_order, self.check_lifetime)
        assembly.build(self)
        self.nodes.recover()
        queues = self.nodes.queues.values()
        counting = {queue.name: queue.delivery_counts for queue in queues if queue.delivery_counts is not None}
        recall_counts(core, self.nodes, counting)
        self.in_doubt = InDoubt(core, self.transactions, queues)
        self.link_endpoints.recover()
        self.federated_queues.recover()
        self.later(forget_orphans, self.nodes)
        self.later(self.subscriptions.forget_orphans)
        self.later(assembly.attach, self)

    def _open_links(self, credit: int) -> None:
        """Build the features that open links; *credit* is that of a sender."""
        links = self.links
        self.owned = OwnedNodes(self.core, self.nodes)
        self.link_endpoints = LinkEndpoints(links)
        passthrough = PassthroughLinks(links, self.direct, self.endpoints, credit)
        queue_links = QueueLinks(links, self.connections, self.link_endpoints, credit)
        exchange_links = ExchangeLinks(links, self.link_endpoints, credit)
        handlers = LinkHandlers(self.endpoints, self.subscriptions.find, passthrough.open_relay)
        handlers.claims += (partial(open_coordinator, self.transactions), self.link_routes.take)
        handlers.prefixes[STREAM] = self.upstreams.open
        handlers.targets |= {
            Queue: queue_links.open,
            ExchangeTarget: exchange_links.open,
            PassthroughAddress: passthrough.open,
        }
        self.link_opener = LinkOpener(
            links,
            self.connections,
            self.compiler,
            self.owned,
            self.link_endpoints,
            handlers,
            queue_links,
            exchange_links,
        )

    def _local_order(self, queue: Queue) -> QueueOrder:
        return LocalOrder(queue, self.core, self.returns, self._purge_here)

    def _queue(self, name: str, queue_id: int, arguments: Arguments) -> Queue:
        policy = policy_of(name, arguments)
        kind = SortedQueue if policy.is_sorted else Queue
        queue = kind(self.core, self._queue_services, name, queue_id, arguments)
        if queue_id and self.members.replicates(name, policy):
            self.members.made(queue)
        queue.keep_counts()
        text = selector_of(queue)
        if text is not None:
            queue.late_selector = LateSelection(self.core, queue, text)
        self.users.queue_came(queue)
        return queue

    def _make_consumer(self, terminal: TerminalEnd, queue: Queue, *, presettled: bool) -> Consumer:
        return Consumer(self.links, terminal, queue, presettled=presettled)

    def _open_resumable(self, wish: Open, terminal: TerminalEnd, queue: Queue, filters: bytes) -> None:
        self.link_endpoints.open_to(wish, terminal, queue, filters)

    # ---- channels -------------------------------------------------------------------------------------------------

    def is_routed(self, address: str | None) -> bool:
        if address is not None and address.startswith(STREAM):
            return True
        return bool(self.link_routes.all) and self.link_routes.may_fit(address)

    def connected(self, name: str, connection: OutwardEnd) -> None:
        self.connectors.connected(name, connection)

    def disconnected(self, name: str, connection: object, why: str) -> None:
        self.connectors.disconnected(name, connection, why)

    def is_manager(self, user: str) -> bool:
        return self.resolver.is_manager(user)

    def why_not_in(self, user: str) -> str:
        return self.resolver.why_not_in(user)

    def core_share(self, user: str) -> int:
        return self.users.quotas.of(user).core_share

    def most_connections(self, user: str) -> int:
        return self.users.quotas.of(user).max_connections

    def resumes(self, user: str, container: str) -> bool:
        return self.link_endpoints.resumes(user, container)

    def open(self, wish: Open, terminal: TerminalEnd) -> None:
        self.link_opener.open(wish, terminal)

    def check_lifetime(self, queue: Queue) -> None:
        """Delete *queue* if the lifetime that its policy sets is over."""
        queue.was_filled = queue.was_filled or queue.messages > 0
        if queue.order.deletes() and not queue.is_deleting and lifetimes.is_over(queue):
            self.nodes.delete_queue(queue, _ignore, "it is not needed any more")

    def link_closed(self, terminal: TerminalEnd) -> None:
        for closed in self.core.events.link_closed:
            closed(terminal)

    def _link_closed(self, terminal: TerminalEnd) -> None:
        link = self.connections.links.get(terminal)
        if link is not None:
            self.users.link_closed(link.wish.user, terminal)
        self.connections.link_went(terminal)

    def connection_opened(self, connection: ConnectionEnd) -> None:
        self.connections.came(connection)
        self.users.connection_opened(connection.user)
        if why := self.why_gone(connection):  # it came in while that was changed
            connection.expel(why)
        if why_not := self.members.why_not_serving():
            connection.expel(why_not, elsewhere=True)

    def session_begun(self, connection: object, number: int) -> None:
        self.connections.session_came(connection, number)

    def session_ended(self, connection: object, number: int) -> None:
        self.connections.session_went(connection, number)

    def connection_closed(self, connection: object) -> None:
        for closed in self.core.events.connection_closed:
            closed(connection)

    def _connection_closed(self, connection: object) -> None:
        there = self.connections.by_end.get(connection)
        if there is not None:
            self.users.connection_closed(there.end.user)
        self.connections.went(connection)

    def _gone(self, node: Queue | Exchange, why: str) -> None:
        """Handle a deleted node: purge its messages, and close its links with the reason."""
        self.owned.node_deleted(node)
        self.former.take_over(node)
        if isinstance(node, Queue):
            self.users.queue_went(node)
            node.order.deleted()
        kind = "queue" if isinstance(node, Queue) else "exchange"
        if isinstance(node, Queue):
            drivers = _drivers(node)
            self._purge(node)
        else:
            drivers = [*node.producers, *subscribers(node)]
            self.subscriptions.exchange_gone(node)
        for driver in drivers:
            driver.terminal.failure("amqp:resource-deleted", f"the {kind} {node.name!r} is gone: {why}")

    def renew(self, queue: Queue) -> Queue:
        """Begin a replicated *queue* anew, empty and without bindings. The store keeps what it has of it."""
        return self.nodes.renew_queue(queue, self._renewed)

    def _renewed(self, queue: Queue) -> None:
        self.former.take_over(queue)
        self.users.queue_went(queue)
        queue.order.deleted()
        drivers = _drivers(queue)
        queue.end()
        for driver in drivers:
            driver.terminal.failure("amqp:connection:forced", f"the queue {queue.name!r} is brought up to date")

    def _purge(self, queue: Queue) -> None:
        """Purge a deleted queue by one record; the wiring forgets the queue when the record is durable."""
        queue.end()
        if queue.limits is not None:
            queue.limits.end()
        if queue.delivery_counts is not None:
            queue.delivery_counts.end()
        if queue.queue_id:
            purging = self._purging(queue.queue_id, is_final=True)

            def purged(lsn: int) -> None:
                self.commits.when_durable(lsn, self.store.finish_destroy_queue, queue.queue_id, _ignore)

            self._go_on_purging(purging, "", purged)

    def purge(self, queue: Queue, done: Callable[[int | Exception], None], user: str = "") -> None:
        """Take all messages off *queue* but those that consumers and transactions have; *done* gets how many.

        They are off the queue at once. *done* is called when the work that follows is done, in turns of *user*, and
        when the purge is durable.
        """
        queue.order.purge(done, user)

    def _purge_here(self, queue: Queue, done: Callable[[int | Exception], None], user: str) -> None:
        purging: Iterator[int] = iter((0,))
        if queue.queue_id:
            keep = [entry.message_id for entry in queue.with_consumers() if entry.message_id]
            try:
                purging = self._purging(queue.queue_id, keep=keep)
            except CairnError as error:
                done(error)
                return
        count = queue.clear(user)

        def purged(lsn: int) -> None:
            self.disposal.then(lambda: self.commits.when_durable(lsn, done, count), user)

        self._go_on_purging(purging, user, purged)

    def _purging(self, queue_id: int, *, keep: Sequence[int] = (), is_final: bool = False) -> Iterator[int]:
        """Cut the queue; what follows is done by going through the LSNs returned, the last of which is to wait for."""
        store, now_us = self.store, self.clock.wall_us()
        if isinstance(store, PurgesInSlices):
            return store.purge_in_slices(queue_id, now_us, keep=keep, is_final=is_final)
        return iter((store.purge(queue_id, now_us, keep=keep, is_final=is_final),))

    def _go_on_purging(self, purging: Iterator[int], user: str, then: Callable[[int], None], lsn: int = 0) -> None:
        """Go on as long as this step has time; *then* gets the last LSN, which is *lsn* if there are no more."""
        for last_lsn in purging:
            lsn = last_lsn
            if not self.background.has_time():
                self.background.put_off(partial(self._go_on_purging, purging, user, then, lsn), user)
                return
        then(lsn)

    def stopping(self) -> None:
        """Handle that the broker stops: from now on connections are closed, and transactions rolled back."""
        self.returns.is_stopping = True

    # ---- steps ----------------------------------------------------------------------------------------------------

    def later(self, action: Callable[..., None], *args: Any) -> None:
        """Do *action* on the core, after what waits there already."""
        self.post(action, *args)

    def when_answered(self, action: Callable[[], None]) -> None:
        self.members.when_answered(partial(self.commits.when_durable, 0, action))

    def held_up(self, then: Callable[[], None]) -> bool:
        return self.commits.held_up(then) or (self._shares_queues and self.members.held_up(then))

    def durable(self) -> None:
        """The store's durable LSN has moved."""
        self.commits.move()
        for act in [*self.core.events.durable]:  # an act may remove itself
            act()
        if self._shares_queues:
            self.members.durable()

    def finish_step(self) -> None:
        if self.memory.starved:
            for relieved in self.memory.take_relieved():
                self.core.schedule_dispatch(relieved)
        commits = self.commits
        while (self._shares_queues and self.members.step()) or commits.dirty:
            dirty, commits.dirty = commits.dirty, {}
            for queue in dirty:
                if not queue.is_deleted:
                    queue.dispatch()
                    if queue.has_lifetime:
                        queue.check_lifetime()
        if self.background.end_s or self.background.jobs:
            self.background.end_step()
        if self.memory.waiting:
            self.memory.release()
        if self.users.changed:
            self.users.step()
        if self.loader.put_off:
            self.loader.end_step()
        self.store.kick()


def _stays(connection: ConnectionEnd) -> str:
    return ""


def _ignore(result: object) -> None:
    """Ignore the result; failures are logged."""


def _drivers(queue: Queue) -> list[Any]:
    """Return the drivers of all links on *queue*."""
    return [*queue.consumers, *queue.browsers, *queue.producers]
