"""What the node as such does: finding the operation that a request names, QUERY, and telling about its types.

A QUERY is answered from a list taken at its beginning, in steps: between two of them the core does what others want, so
it is no picture of one moment. What went meanwhile is left out; so is what the caller may not look at.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

from ..amqp import encode
from ..broker.access import LOOK
from ..broker.broker import Broker
from . import clusterwide
from .call import Call, WhyNot
from .clients import ConnectionType, LinkType, SessionType
from .connecting import AutoLinkType, ConnectorType, LinkRouteType, RouterType
from .entity import Type
from .exchanges import BindingType, ExchangeType
from .following import FollowerType, FollowingType
from .moving import Moving
from .node import ADDRESS, Management
from .peeking import Peeking
from .queues import QueueType, TemplateType
from .request import BAD_REQUEST, NOT_FOUND, NOT_IMPLEMENTED, Refusal, number, only, shown, text
from .system import BrokerType, Reload, StoreType, TransactionType

SELF = "org.amqp.management"
"""The type of the node itself."""
FIRST = ("name", "identity", "type")
"""What a QUERY over all types tells, unless it says otherwise."""
STEP_ROWS = 256
"""Rows of a QUERY made in one step of the core."""
MOST_BYTES = 4 << 20
"""An answer ends when it has so many bytes: its `count` tells where to go on."""


def serve(broker: Broker, why_not: WhyNot, reload: Reload | None = None, more: Sequence[Type] = ()) -> Management:
    """Put the node in its place. *why_not* is asked before every operation, also those that only read (A13).

    *reload* has the files of users, rules and certificates read again.
    *more*: types of those who run the broker.
    """
    queues = QueueType(broker)
    queues.add(Peeking(broker).operation(queues))
    queues.add(Moving(broker).operation(queues))
    types: tuple[Type, ...] = (
        queues,
        ExchangeType(broker),
        BindingType(broker),
        TemplateType(broker),
        ConnectionType(broker),
        SessionType(broker),
        LinkType(broker),
        ConnectorType(broker),
        LinkRouteType(broker),
        AutoLinkType(broker),
        FollowingType(broker),
        FollowerType(broker),
        RouterType(broker),
        TransactionType(broker),
        BrokerType(broker, reload),
        StoreType(broker),
        *more,
    )
    node = Management(broker, types, why_not, do)
    broker.endpoints[ADDRESS] = node
    if broker.cluster is not None:
        broker.cluster.reports_by(clusterwide.reporter(node.types))
    return node


def do(call: Call) -> None:
    """Have the operation done that the request names. Raises `Refusal`."""
    request = call.request
    of_node = NODE_OPERATIONS.get(request.operation)
    if of_node is not None:
        of_node(call)
        return
    if request.operation in NOT_HERE:
        raise Refusal(NOT_IMPLEMENTED, f"there is no {request.operation}: this node knows of no others")
    if not request.type:
        raise Refusal(BAD_REQUEST, f"{shown(request.operation)} is no operation of the node, and there is no type")
    kind = call.node.types.get(request.type)
    if kind is None:
        raise Refusal(NOT_FOUND, f"there is no type {shown(request.type)}")
    operation = kind.operations.get(request.operation)
    if operation is None:
        raise Refusal(NOT_IMPLEMENTED, f"there is no {shown(request.operation)} of a {request.type}")
    operation.do(call)


def _types(call: Call) -> Mapping[str, Type]:
    """The types that the request is about: all, or the one that it names."""
    name = text(call.request.properties, "entityType", "")
    if not name and call.request.type != SELF:
        name = call.request.type
    if not name:
        return call.node.types
    if name not in call.node.types:
        raise Refusal(NOT_FOUND, f"there is no type {shown(name)}")
    return {name: call.node.types[name]}


# ---- about types ----------------------------------------------------------------------------------------------------


def _get_types(call: Call) -> None:
    call.answer({name: [] for name in _types(call)})


def _get_attributes(call: Call) -> None:
    call.answer({name: list(kind.attributes) for name, kind in _types(call).items()})


def _get_operations(call: Call) -> None:
    call.answer(
        {
            name: {operation.name: list(operation.arguments) for operation in kind.operations.values()}
            for name, kind in _types(call).items()
        }
    )


def _get_nodes(call: Call) -> None:
    call.answer([])


# ---- QUERY ----------------------------------------------------------------------------------------------------------


def _query(call: Call) -> None:
    types = _types(call)
    asked = call.request.map()
    only(asked, "attributeNames")
    offset = number(call.request.properties, "offset", 0, 1 << 62)
    most = number(call.request.properties, "count", 1 << 62, 1 << 62)
    internal = call.request.properties.get("internal") is True
    scope = text(call.request.properties, "scope", "")
    if scope == "cluster":
        clusterwide.query(call, types, _names(asked, types), offset, most, internal=internal)
    elif scope:
        raise Refusal(BAD_REQUEST, f"there is no scope {shown(scope)}: it is `cluster`, or left out")
    else:
        _Query(call, types, _names(asked, types), offset, most, internal=internal).step()


def _names(asked: Mapping[str, Any], types: Mapping[str, Type]) -> list[str]:
    names = asked.get("attributeNames")
    items = getattr(names, "items", names)  # an AMQP array is as good as a list
    if items is None or items == []:
        return list(next(iter(types.values())).attributes) if len(types) == 1 else list(FIRST)
    known = {name for kind in types.values() for name in kind.attributes}
    if not isinstance(items, list) or not all(isinstance(name, str) for name in items):
        raise Refusal(BAD_REQUEST, "attributeNames is to be a list of texts")
    for name in items:
        if name not in known:
            raise Refusal(BAD_REQUEST, f"there is no attribute {shown(name)}")
    if len(items) > len(known):
        raise Refusal(BAD_REQUEST, "attributeNames has names more than once")
    return items


class _Query:
    """One QUERY on its way."""

    def __init__(
        self, call: Call, types: Mapping[str, Type], names: list[str], offset: int, most: int, *, internal: bool
    ) -> None:
        self._call = call
        self._names = names
        everything = [
            (kind, [one for one in kind.all() if internal or not kind.is_internal(one)]) for kind in types.values()
        ]
        self._total = sum(len(entities) for _, entities in everything)
        self._left = islice(_in_order(everything), offset, min(offset + most, self._total))
        self._next = min(offset, self._total)
        self._rows: list[bytes] = []
        self._size_bytes = 0

    def step(self) -> None:
        names, call = self._names, self._call
        looked_at = 0
        for kind, entity in islice(self._left, STEP_ROWS):
            looked_at += 1
            if kind.is_there(entity) and not call.why_not(LOOK, kind.resource_of(entity)):
                row = kind.row_of(entity, names)
                self._rows.append(row)
                self._size_bytes += len(row)
            self._next += 1
            if self._size_bytes > MOST_BYTES:
                looked_at = 0
                break
        if looked_at == STEP_ROWS:
            call.node.broker.reader.next_step(self.step)
        else:
            self._finish()

    def _finish(self) -> None:
        parts = (
            encode.string("attributeNames"),
            encode.value(self._names),
            encode.string("results"),
            encode.listed(self._rows),
            encode.string("count"),
            encode.value(len(self._rows)),
            encode.string("next"),
            encode.value(self._next if self._next < self._total else None),
        )
        self._call.answer_encoded(encode.mapped(parts))


def _in_order(everything: list[tuple[Type, list[Any]]]) -> Iterator[tuple[Type, Any]]:
    return ((kind, entity) for kind, entities in everything for entity in entities)


NODE_OPERATIONS: dict[str, Callable[[Call], None]] = {
    "QUERY": _query,
    "GET-TYPES": _get_types,
    "GET-ATTRIBUTES": _get_attributes,
    "GET-OPERATIONS": _get_operations,
    "GET-MGMT-NODES": _get_nodes,
}
NOT_HERE = ("REGISTER", "DEREGISTER")
