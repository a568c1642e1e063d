"""The parts of a complete broker that its surroundings use: management, metrics, and the program that runs it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from .federation.federated_queues import FederatedQueues
from .federation.upstream import STREAM, ReplicatedUpstreams, Upstreams
from .kernel.connections import Connections
from .links.attach import LinkOpener
from .links.context import LinkContext
from .links.handlers import LinkHandlers
from .mesh.network import Network
from .nodes.node_removal import RetiredTotals
from .nodes.targets import Endpoint
from .outbound.auto_links import AutoLinks
from .outbound.connectors import Connectors
from .outbound.link_routes import LinkRoutes
from .passthrough.address import PassthroughTable
from .selector.background_compiler import Compiler
from .transactions.xa import InDoubt


@dataclass(frozen=True, slots=True)
class RemoteParts:
    """The parts that connect a broker with other containers."""

    connectors: Connectors
    link_routes: LinkRoutes
    auto_links: AutoLinks
    network: Network
    upstreams: Upstreams
    federated_queues: FederatedQueues

    @classmethod
    def build(
        cls,
        links: LinkContext,
        replicated: ReplicatedUpstreams,
        connections: Connections,
        opener: LinkOpener,
        addresses: PassthroughTable,
        endpoints: dict[str, Endpoint],
        container_id: str,
    ) -> RemoteParts:
        """Build the parts of one broker with the AMQP container ID *container_id*."""
        connectors = Connectors(links.core)
        return cls(
            connectors,
            LinkRoutes(links, connectors),
            AutoLinks(links, connectors, container_id, opener.open_at),
            Network(links.core, connections, connectors, addresses, endpoints, container_id),
            Upstreams(links.core, links.nodes, links.resolver, replicated),
            FederatedQueues(links, connectors, container_id),
        )

    def register(self, handlers: LinkHandlers) -> None:
        """Register the handlers of links that lead to other containers."""
        handlers.claims.append(self.link_routes.take)
        handlers.prefixes[STREAM] = self.upstreams.open


@dataclass(frozen=True, slots=True)
class BrokerParts:
    """The parts that management and metrics read, and operations of management change."""

    links: LinkContext
    connections: Connections
    endpoints: dict[str, Endpoint]
    """Endpoints by their addresses, which begin with a dollar and never name a queue."""
    remote: RemoteParts
    compiler: Compiler
    in_doubt: InDoubt
    totals: RetiredTotals
    when_answered: Callable[[Callable[[], None]], None]
    """Runs an action when all that was posted so far is durable and its confirmation noted down."""
