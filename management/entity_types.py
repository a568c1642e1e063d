"""The types of entities that management serves, composed for one broker."""

from __future__ import annotations

from collections.abc import Sequence

from ..broker.parts import BrokerParts
from .entities.clients import ConnectionType, LinkType, SessionType
from .entities.connectors import AutoLinkType, ConnectorType, LinkRouteType, RouterType
from .entities.exchanges import BindingType, ExchangeType
from .entities.federation import DownstreamType, FederatedQueueType
from .entities.queues import QueueType, TemplateType
from .entities.system import BrokerType, Reload, StoreType
from .entities.transactions import TransactionType
from .entities.users import AccountsPort, UserType
from .operations.history_records import audit_operation
from .operations.moves import MoveOperations
from .operations.peeks import peek_operation
from .protocol.entity import Type
from .samples.operation import add_samples
from .samples.sampler import Sampler


def make_types(
    parts: BrokerParts, reload: Reload | None, more: Sequence[Type], accounts: AccountsPort | None, sampler: Sampler
) -> dict[str, Type]:
    """Return all types by name, those of *more* included. For *reload* and *accounts* see `serve.serve`."""
    links, connections, remote = parts.links, parts.connections, parts.remote
    core, nodes = links.core, links.nodes
    queues = QueueType(nodes, links.resolver, connections, core.users, sampler)
    queues.add(peek_operation(core, queues))
    queues.add(audit_operation())
    broker = BrokerType(core, nodes, connections, reload)
    add_samples(broker, queues, sampler)
    MoveOperations(core, links.resolver, links.returns, parts.when_answered).add_to(queues)
    types: Sequence[Type] = (
        queues,
        ExchangeType(nodes),
        BindingType(nodes, parts.compiler),
        TemplateType(nodes),
        ConnectionType(connections, core.loader),
        SessionType(connections),
        LinkType(connections, core.loader),
        UserType(core.users, accounts, reload),
        ConnectorType(remote.connectors, remote.link_routes),
        LinkRouteType(remote.link_routes),
        AutoLinkType(remote.auto_links),
        FederatedQueueType(remote.federated_queues, core.clock),
        DownstreamType(remote.upstreams),
        RouterType(remote.network),
        TransactionType(core, connections, links.transactions, parts.in_doubt),
        broker,
        StoreType(core.store),
        *more,
    )
    return {type.name: type for type in types}
