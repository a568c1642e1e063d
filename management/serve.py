"""The composition of management: its types, its operations, and the node that serves them."""

from __future__ import annotations

from collections.abc import Sequence

from ..base.accounts.audit import Audit
from ..broker.parts import BrokerParts
from .entities.clients import ConnectionType, LinkType, SessionType
from .entities.connectors import AutoLinkType, ConnectorType, LinkRouteType, RouterType
from .entities.exchanges import BindingType, ExchangeType
from .entities.federation import FollowerType, FollowingType
from .entities.queues import QueueType, TemplateType
from .entities.system import BrokerType, Reload, StoreType, TransactionType
from .entities.users import AccountsPort, UserType
from .node import ADDRESS, Management
from .operations.clusterwide import reporter
from .operations.moves import MoveOperation, MoverContext
from .operations.operations import NodeOperations
from .operations.peeks import PeekOperation
from .protocol.call import WhyNot
from .protocol.entity import Type


def serve(
    parts: BrokerParts,
    why_not: WhyNot,
    reload: Reload | None = None,
    more: Sequence[Type] = (),
    audit: Audit | None = None,
    accounts: AccountsPort | None = None,
) -> Management:
    """Attach the management node to the broker that has *parts*.

    *why_not* is called before every operation, including reads (A13). *reload* reads the files of users, rules and
    certificates again. *more*: types of the broker's caller. *audit*: the log of changes.
    *accounts*: the users file.
    """
    links = parts.links
    types = make_types(parts, reload, more, accounts)
    operations = NodeOperations(links.core.background, links.members, types)
    node = Management(links.core, parts.connections, links.resolver, links.members, why_not, operations.do, audit)
    parts.endpoints[ADDRESS] = node
    links.members.reports_by(reporter(types))
    return node


def make_types(
    parts: BrokerParts,
    reload: Reload | None = None,
    more: Sequence[Type] = (),
    accounts: AccountsPort | None = None,
) -> dict[str, Type]:
    """Return all types by name, those of *more* included. For *reload* and *accounts* see `serve`."""
    links, connections, remote = parts.links, parts.connections, parts.remote
    core, nodes = links.core, links.nodes
    queues = QueueType(nodes, links.resolver, connections, core.users)
    queues.add(PeekOperation(core).operation(queues))
    mover = MoverContext(core, links.resolver, links.returns, parts.when_answered)
    moves = MoveOperation(mover)
    queues.add(moves.operation(queues))
    queues.add(moves.discard_operation(queues))
    types: Sequence[Type] = (
        queues,
        ExchangeType(nodes),
        BindingType(nodes, parts.compiler),
        TemplateType(nodes),
        ConnectionType(connections, core.loader),
        SessionType(connections),
        LinkType(connections, core.loader),
        UserType(core.users, accounts, reload),
        ConnectorType(remote.connectors, remote.network, remote.link_routes),
        LinkRouteType(remote.link_routes),
        AutoLinkType(remote.auto_links),
        FollowingType(remote.federated_queues, core.clock),
        FollowerType(remote.upstreams),
        RouterType(remote.network),
        TransactionType(core, connections, links.transactions, parts.in_doubt),
        BrokerType(core, nodes, connections, reload),
        StoreType(core.store),
        *more,
    )
    return {type.name: type for type in types}
