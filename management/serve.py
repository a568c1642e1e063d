"""The composition of management: its types, its operations, and the node that serves them."""

from __future__ import annotations

from collections.abc import Sequence

from ..base.accounts.audit import Audit
from ..broker.broker import Broker
from .entities.clients import ConnectionType, LinkType, SessionType
from .entities.connectors import AutoLinkType, ConnectorType, LinkRouteType, RouterType
from .entities.exchanges import BindingType, ExchangeType
from .entities.federation import FollowerType, FollowingType
from .entities.queues import QueueType, TemplateType
from .entities.system import BrokerType, Reload, StoreType, TransactionType
from .entities.users import UserType
from .node import ADDRESS, Management
from .operations.clusterwide import reporter
from .operations.moves import MoveOperation, MoverContext
from .operations.operations import NodeOperations
from .operations.peeks import PeekOperation
from .protocol.call import WhyNot
from .protocol.entity import Type


def serve(
    broker: Broker,
    why_not: WhyNot,
    reload: Reload | None = None,
    more: Sequence[Type] = (),
    audit: Audit | None = None,
) -> Management:
    """Attach the management node to *broker*.

    *why_not* is asked before every operation, also those that only read (A13).
    *reload* reads the files of users, rules and certificates again.
    *more*: types of whoever runs the broker. *audit*: where changes are recorded.
    """
    types = make_types(broker, reload, more)
    operations = NodeOperations(broker.background, broker.members, types)
    node = Management(broker.core, broker.connections, broker.resolver, why_not, operations.do, audit)
    broker.endpoints[ADDRESS] = node
    broker.members.reports_by(reporter(types))
    return node


def make_types(broker: Broker, reload: Reload | None = None, more: Sequence[Type] = ()) -> dict[str, Type]:
    """Return all types by name, those of *more* included. *reload* reads users, rules and certificates again."""
    core, nodes, connections, network = broker.core, broker.nodes, broker.connections, broker.network
    queues = QueueType(nodes, broker.resolver, connections, core.users, broker.purge)
    queues.add(PeekOperation(core).operation(queues))
    mover = MoverContext(core, broker.resolver, broker.returns, broker.when_answered)
    queues.add(MoveOperation(mover).operation(queues))
    types: Sequence[Type] = (
        queues,
        ExchangeType(nodes),
        BindingType(nodes, broker.compiler),
        TemplateType(nodes),
        ConnectionType(connections, core.loader),
        SessionType(connections),
        LinkType(connections, core.loader),
        UserType(core.users),
        ConnectorType(broker.connectors, network, broker.link_routes),
        LinkRouteType(broker.link_routes),
        AutoLinkType(broker.auto_links),
        FollowingType(broker.federated_queues, core.clock),
        FollowerType(broker.upstreams),
        RouterType(network),
        TransactionType(core, connections, broker.transactions, broker.in_doubt),
        BrokerType(core, nodes, connections, reload),
        StoreType(core.store),
        *more,
    )
    return {type.name: type for type in types}
