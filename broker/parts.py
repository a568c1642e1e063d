"""The parts of a complete broker that its surroundings use: management, metrics, and the program that runs it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from .federation.federated_queues import FederatedQueues
from .federation.upstream import Upstreams
from .kernel.connections import Connections
from .links.context import LinkContext
from .mesh.network import Network
from .nodes.node_removal import RetiredTotals
from .nodes.targets import Endpoint
from .outbound.auto_links import AutoLinks
from .outbound.connectors import Connectors
from .outbound.link_routes import LinkRoutes
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
