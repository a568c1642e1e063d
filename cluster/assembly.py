"""Builds the parts of a broker that is a member of a cluster."""

from __future__ import annotations

from ..broker.federation.upstream import Upstreams
from ..broker.kernel.connections import Connections
from ..broker.kernel.context import CoreContext
from ..broker.links.context import LinkContext
from ..broker.nodes.registry import MakeQueue, NodeDeleted, RenewQueue
from ..broker.transactions.moves import Moves
from ..broker.transactions.replicated_moves import ReplicatedMoves
from ..broker.transactions.xa import InDoubt
from .broker_handler import BrokerHandler
from .member import ClusterMember
from .nodes.cluster_nodes import ClusterNodes
from .replicated_order import ReplicatedReturns


class ClusterAssembly:
    """Fulfills `broker.broker.MemberAssembly`. Core only."""

    def __init__(self, member: ClusterMember) -> None:
        self._member = member
        self.members = BrokerHandler(member)

    def nodes(self, core: CoreContext, make_queue: MakeQueue, removed: NodeDeleted) -> ClusterNodes:
        self._member.nodes = ClusterNodes(self.members, core.store, core.post, make_queue, removed)
        return self._member.nodes

    def moves(self, core: CoreContext) -> Moves:
        return ReplicatedMoves(core, self.members)

    def build(self, links: LinkContext, connections: Connections, upstreams: Upstreams, renew: RenewQueue) -> None:
        self.members.returns = ReplicatedReturns(links.core.post, self.members)
        self._member.build(links, connections, upstreams, renew, self.members.returns.order)

    def attach(self, in_doubt: InDoubt) -> None:
        self._member.attach(in_doubt)
