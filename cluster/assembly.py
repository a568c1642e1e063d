"""Builds the parts of a broker that is a member of a cluster."""

from __future__ import annotations

from ..broker.broker import Broker
from ..broker.kernel.context import CoreContext
from ..broker.nodes.registry import MakeQueue, NodeDeleted
from ..broker.transactions.moves import Moves
from ..broker.transactions.replicated_moves import ReplicatedMoves
from .broker_handler import BrokerHandler
from .member import ClusterMember
from .nodes.cluster_nodes import ClusterNodes
from .replicated_order import ReplicatedReturns


class ClusterAssembly:
    """Fulfills `broker.broker.MemberAssembly`. Core only."""

    def __init__(self, member: ClusterMember) -> None:
        self._member = member
        self.members = BrokerHandler(member)

    def nodes(self, core: CoreContext, make_queue: MakeQueue, gone: NodeDeleted) -> ClusterNodes:
        self._member.nodes = ClusterNodes(self.members, core.store, core.post, make_queue, gone)
        return self._member.nodes

    def moves(self, core: CoreContext) -> Moves:
        return ReplicatedMoves(core, self.members)

    def build(self, broker: Broker) -> None:
        self.members.returns = ReplicatedReturns(broker.core.post, self.members)
        self._member.build(broker, self.members.returns.order)

    def attach(self, broker: Broker) -> None:
        self._member.attach()
