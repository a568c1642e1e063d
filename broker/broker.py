"""The composition of a broker: builds its parts, each after those that it uses. They run on the core.

Nothing on the core blocks: slow operations (SQL, the disk) answer later, through `post` of the core. Every answer that
depends on durability waits in one commit queue, in LSN order (`commits` of the core).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Protocol

from ..amqp.ports import TerminalEnd
from ..base.clock import Clock
from ..store.contract.owner import OwnedStore
from ..store.journaled.store import JournalStore
from .access_review import AccessReview
from .contents.ports import QueueState
from .drivers import BrokerDrivers
from .federation.federated_queues import FederatedQueues
from .federation.upstream import STREAM, Upstreams
from .federation.upstream_link import ReplicaPosition
from .kernel.connections import Connections
from .kernel.context import CoreContext, Post
from .kernel.loader import Submit
from .kernel.memory_budget import DEFAULT_LIMIT_BYTES
from .links.attach import LinkOpener
from .links.consumer import Consumer
from .links.context import LinkContext, SenderCredit
from .links.handlers import LinkHandlers
from .mesh.network import Network
from .node_links import NodeLinks
from .nodes.access_control import Access
from .nodes.node_removal import NodeRemoval, RetiredTotals
from .nodes.owned_nodes import OwnedNodes
from .nodes.registry import MakeQueue, NodeDeleted, NodeRegistry, RenewQueue
from .nodes.replication_port import Members
from .nodes.resolver import Resolver
from .nodes.subscriptions import Subscriptions
from .nodes.targets import Endpoint
from .outbound.auto_links import AutoLinks
from .outbound.connectors import Connectors
from .outbound.link_routes import LinkRoutes
from .parts import BrokerParts, RemoteParts
from .passthrough.address import PassthroughTable
from .passthrough.links import PassthroughLinks
from .queue_factory import QueueFactory
from .queues.deduplication import forget_orphans
from .queues.delivery_counts import recall_counts
from .queues.purges import QueuePurges
from .resume.registry import LinkEndpoints
from .selector.background_compiler import DEFAULT_SIZE_BYTES, Compiler
from .standalone import Standalone
from .steps import CoreSteps
from .transactions.context import TransactionLimits
from .transactions.coordinator import open_coordinator
from .transactions.dead_letters import Returns
from .transactions.moves import Moves
from .transactions.registry import Transactions
from .transactions.xa import InDoubt
from .users.quotas import Quotas

DEFAULT_TRANSACTION_LIMITS = TransactionLimits()


class BrokerMembers(Members, Protocol):
    """The other members, and the parts of a broker that differ between a member of a cluster and a standalone one."""

    def follow(self, queue: QueueState, said: ReplicaPosition, terminal: TerminalEnd) -> None:
        """Open the link of a downstream broker to a replicated queue, or refuse it."""

    def nodes(self, core: CoreContext, make_queue: MakeQueue, removed: NodeDeleted) -> NodeRegistry:
        """Build the nodes of the broker: changes of replicated ones are ordered (D58)."""

    def build(self, links: LinkContext, connections: Connections, upstreams: Upstreams, renew: RenewQueue) -> None:
        """Build the parts of the member: those of the broker exist, and its nodes are not recovered.

        *renew*: replaces a replicated queue by an empty one without bindings.
        """

    def attach(self, in_doubt: InDoubt) -> None:
        """Join: the broker is complete and recovered. *in_doubt*: its distributed transactions."""


class Broker:
    """The parts of one broker."""

    def __init__(
        self,
        store: OwnedStore,
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
        cluster: BrokerMembers | None = None,
        notes: JournalStore | None = None,
        compile_on: Submit | None = None,
        max_selector_bytes: int = DEFAULT_SIZE_BYTES,
    ) -> None:
        """*submit*: runs a function on the reader's thread.

        *auto_create*: patterns of names for which a durable queue is created on first use; *credit*: per sender.
        *memory_limit_bytes*: the limit of content in memory; *access*: the access rules, None to allow everything.
        *quotas*: the limits of each user; *vouch*: a message's user-id must be its sender. *transaction_limits*: limits
        of open transactions; *anycast*, *multicast*: patterns of passthrough addresses. *container_id*: the AMQP
        container ID of this broker; *cluster*: the cluster of which it is a member. *notes*: the log of acquisitions,
        None for no log; *compile_on*: the thread that compiles selectors, None for the reader's; *max_selector_bytes*:
        their maximum length.
        """
        members: BrokerMembers = cluster or Standalone()
        self.core = core = CoreContext.build(
            store, clock, post, submit, memory_limit_bytes=memory_limit_bytes, quotas=quotas, notes=notes
        )
        self.connections = Connections(clock)
        self.compiler = Compiler(clock, core.scheduler, compile_on or submit, post, max_selector_bytes)
        self.addresses = PassthroughTable(anycast, multicast)
        self.endpoints: dict[str, Endpoint] = {}

        purges = QueuePurges(core)
        factory = QueueFactory(purges)
        removal = NodeRemoval(purges)
        self.nodes = nodes = members.nodes(core, factory.make, removal.deleted)
        self.resolver = Resolver(nodes, core.users, access, self.addresses, auto_create)
        self.returns = Returns(core, self.resolver, Moves(core, members))
        self.subscriptions = Subscriptions(core.users, nodes, self.resolver)
        self.transactions = Transactions(core, self.returns, members, transaction_limits)
        core.events.connection_closed.append(self.transactions.connection_closed)
        self.sender_credit = SenderCredit(core, members)
        self.links = LinkContext(
            core, nodes, self.resolver, self.subscriptions, self.transactions, self.returns, members,
            self.sender_credit, vouch,
        )  # fmt: skip
        factory.connect(self.links)

        self.totals = RetiredTotals()
        owned = OwnedNodes(core, nodes)
        removal.queue_removed += (owned.node_deleted, self.totals.take_over, core.users.queue_went)
        removal.exchange_removed += (owned.node_deleted, self.totals.take_over, self.subscriptions.exchange_deleted)

        handlers = self._open_links(owned, credit)
        connectors = Connectors(core)
        self.remote = RemoteParts(
            connectors,
            LinkRoutes(self.links, connectors),
            AutoLinks(self.links, connectors, container_id, self.link_opener.open_at),
            Network(core, self.connections, connectors, self.addresses, self.endpoints, container_id),
            Upstreams(self.links, members.follow),
            FederatedQueues(self.links, connectors, container_id),
        )
        handlers.claims.append(self.remote.link_routes.take)
        handlers.prefixes[STREAM] = self.remote.upstreams.open
        self.review = AccessReview(self.links, self.connections, self.endpoints, self.remote.link_routes)
        core.events.connection_opened.append(self.review.connection_opened)
        self.drivers = BrokerDrivers(self.links, self.connections, self.link_opener, self.remote)
        self.steps = CoreSteps(core, members, store.became_durable)

        renew = partial(nodes.renew_queue, renewed=removal.replaced)
        members.build(self.links, self.connections, self.remote.upstreams, renew)
        self._recover()
        self.parts = BrokerParts(
            self.links, self.connections, self.endpoints, self.remote, self.compiler, self.in_doubt, self.totals,
            self.drivers.when_answered,
        )  # fmt: skip
        post(forget_orphans, nodes)
        post(self.subscriptions.forget_orphans)
        post(members.attach, self.in_doubt)

    def _open_links(self, owned: OwnedNodes, credit: int) -> LinkHandlers:
        """Build the features that open links, and return their handlers; *credit* is that of a sender."""
        links = self.links
        self.link_endpoints = LinkEndpoints(links)
        self.subscriptions.connect(partial(Consumer, links), self.link_endpoints.open_to)
        handlers = LinkHandlers(self.endpoints, self.subscriptions.find)
        handlers.claims.append(partial(open_coordinator, self.transactions))
        NodeLinks(links, self.connections, self.link_endpoints, credit).register(handlers)
        PassthroughLinks(links, self.addresses, self.endpoints, credit).register(handlers)
        self.link_opener = LinkOpener(
            links, self.connections, self.compiler, owned, self.link_endpoints.give_up, handlers
        )
        if self.core.acquisitions is not None:
            self.core.events.link_closed.append(self.core.acquisitions.link_went)
        return handlers

    def _recover(self) -> None:
        """Recover the nodes of the store, and then what depends on them."""
        self.nodes.recover()
        queues = self.nodes.queues.values()
        counting = {queue.name: queue.delivery_counts for queue in queues if queue.delivery_counts is not None}
        recall_counts(self.core, self.nodes, counting)
        self.in_doubt = InDoubt(self.core, self.transactions, queues)
        self.link_endpoints.recover()
        self.remote.federated_queues.recover()
