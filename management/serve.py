"""The composition of management: its operations, and the node that serves them."""

from __future__ import annotations

from collections.abc import Sequence

from ..base.accounts.audit import Audit
from ..broker.parts import BrokerParts
from .entities.system import Reload
from .entities.users import AccountsPort
from .entity_types import make_types
from .node import ADDRESS, Management
from .operations.clusterwide import reporter
from .operations.operations import NodeOperations
from .protocol.call import CallServices, DenialReason
from .protocol.entity import Type
from .samples.sampler import Sampler


def serve(
    parts: BrokerParts,
    denial_reason: DenialReason,
    reload: Reload | None = None,
    more: Sequence[Type] = (),
    audit: Audit | None = None,
    accounts: AccountsPort | None = None,
    sampler: Sampler | None = None,
) -> Management:
    """Attach the management node to the broker that has *parts*.

    *denial_reason* is called before every operation and read (A13). *reload* reads the files of users, rules and
    certificates again. *more*: types of the broker's caller. *audit*: the log of changes.
    *accounts*: the users file. *sampler*: the samples of the broker, which the caller starts.
    """
    links = parts.links
    sampler = sampler or sampler_of(parts)
    types = make_types(parts, reload, more, accounts, sampler)
    operations = NodeOperations(links.core.background, links.members, types)
    services = CallServices(parts.connections, links.resolver, denial_reason, audit or Audit())
    node = Management(links.core, services, links.members, operations.do)
    parts.endpoints[ADDRESS] = node
    links.members.reports_by(reporter(types))
    return node


def sampler_of(parts: BrokerParts) -> Sampler:
    """Return the sampler of the broker that has *parts*; `begin` starts it."""
    return Sampler(parts.links.core, parts.links.nodes, parts.totals)
