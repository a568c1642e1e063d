"""Operations of the node itself: dispatch of requests to the types, QUERY, and descriptions of the types.

A QUERY is answered in steps from a list that is made at its beginning: between two steps the core serves other clients,
so the answer is not a consistent snapshot. Entities that were deleted meanwhile are omitted; so are those that the
caller may not read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import islice
from typing import Any

from ...broker.nodes.replication_port import Members
from ...broker.scheduling.background import BackgroundWork
from ..protocol.call import Call
from ..protocol.entity import Type
from ..protocol.request import BAD_REQUEST, NOT_FOUND, NOT_IMPLEMENTED, Refusal, number, only, shown, text
from . import clusterwide

SELF = "org.amqp.management"
"""The type of the node itself."""
FIRST = ("name", "identity", "type")
"""The attributes that a QUERY over all types returns by default."""
STEP_ROWS = 256
"""Rows of a QUERY made in one step of the core, if it has time for them."""
ROWS_AT_ONCE = 16
"""The number of rows between two checks for remaining time."""
MOST_BYTES = 4 << 20
"""The number of bytes after which an answer ends: its `count` shows where to continue."""
NOT_HERE = ("REGISTER", "DEREGISTER")
READING = ("READ", "PEEK", "ROUTE", "ACCESS", "ACCOUNTS")
"""Operations of types that change nothing."""


class NodeOperations:
    """The operations of the node itself, and the dispatch of requests to those of the types. Core only."""

    def __init__(self, background: BackgroundWork, members: Members, types: Mapping[str, Type]) -> None:
        self._background = background
        self._members = members
        self._types = types

    def do(self, call: Call) -> None:
        """Have the operation done that the request names. Raises `Refusal`."""
        request = call.request
        of_node = NODE_OPERATIONS.get(request.operation)
        if of_node is not None:
            of_node(self, call)
            return
        if request.operation in NOT_HERE:
            raise Refusal(NOT_IMPLEMENTED, f"there is no {request.operation}: this node knows of no others")
        if not request.type:
            reason = "is not an operation of the node, and has no type; GET-OPERATIONS lists operations"
            raise Refusal(BAD_REQUEST, f"{shown(request.operation)} {reason}")
        kind = self._types.get(request.type)
        if kind is None:
            raise Refusal(NOT_FOUND, _no_type(request.type))
        operation = kind.operations.get(request.operation)
        if operation is None:
            reason = f"there is no {shown(request.operation)} of a {request.type}; GET-OPERATIONS lists operations"
            raise Refusal(NOT_IMPLEMENTED, reason)
        call.is_change = operation.name not in READING
        call.arguments = operation.arguments
        operation.do(call)

    def _asked_types(self, call: Call) -> Mapping[str, Type]:
        """Return the types of the request: all, or the named one."""
        name = text(call.request.properties, "entityType", "")
        if not name and call.request.type != SELF:
            name = call.request.type
        if not name:
            return self._types
        if name not in self._types:
            raise Refusal(NOT_FOUND, _no_type(name))
        return {name: self._types[name]}

    def _get_types(self, call: Call) -> None:
        call.answer({name: [] for name in self._asked_types(call)})

    def _get_attributes(self, call: Call) -> None:
        call.answer({name: list(kind.attributes) for name, kind in self._asked_types(call).items()})

    def _get_operations(self, call: Call) -> None:
        call.answer(
            {
                name: {operation.name: list(operation.arguments) for operation in kind.operations.values()}
                for name, kind in self._asked_types(call).items()
            }
        )

    def _get_nodes(self, call: Call) -> None:
        call.answer([])

    def _query(self, call: Call) -> None:
        types = self._asked_types(call)
        asked = call.request.map()
        only(asked, "attributeNames")
        offset = number(call.request.properties, "offset", 0, 1 << 62)
        most = number(call.request.properties, "count", 1 << 62, 1 << 62)
        internal = call.request.properties.get("internal") is True
        scope = text(call.request.properties, "scope", "")
        if scope == "cluster":
            clusterwide.query(self._members, call, types, _names(asked, types), offset, most, internal=internal)
        elif scope:
            raise Refusal(BAD_REQUEST, f"there is no scope {shown(scope)}: it is `cluster`, or left out")
        else:
            _Query(self._background, call, types, _names(asked, types), offset, most, internal=internal).step()


class _Query:
    """A QUERY that is being answered."""

    def __init__(
        self,
        background: BackgroundWork,
        call: Call,
        types: Mapping[str, Type],
        names: list[str],
        offset: int,
        most: int,
        *,
        internal: bool,
    ) -> None:
        self._background = background
        self._call = call
        self._names = names
        everything = [
            (kind, [one for one in kind.all() if internal or not kind.is_internal(one)]) for kind in types.values()
        ]
        self._total = sum(len(entities) for _, entities in everything)
        in_order = ((kind, entity) for kind, entities in everything for entity in entities)
        self._left = islice(in_order, offset, min(offset + most, self._total))
        self._next = min(offset, self._total)
        self._rows: list[bytes] = []
        self._size_bytes = 0

    def step(self) -> None:
        names, call = self._names, self._call
        background = self._background
        is_over = True
        for looked_at, (kind, entity) in enumerate(islice(self._left, STEP_ROWS), 1):
            if kind.is_there(entity) and kind.may_monitor(call, kind.resource_of(entity)):
                row = kind.row_of(entity, names)
                self._rows.append(row)
                self._size_bytes += len(row)
            self._next += 1
            if self._size_bytes > MOST_BYTES:
                break
            if looked_at == STEP_ROWS or (looked_at % ROWS_AT_ONCE == 0 and not background.has_time()):
                is_over = False
                break
        if is_over:
            self._finish()
        else:
            background.put_off(self.step, call.link.attach.user)

    def _finish(self) -> None:
        following = self._next if self._next < self._total else None
        self._call.answer_rows(self._names, self._rows, following)


def _no_type(name: str) -> str:
    if name == "cluster":
        return clusterwide.NO_MEMBER
    return f"there is no type {shown(name)}; GET-TYPES lists them"


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
            raise Refusal(BAD_REQUEST, f"there is no attribute {shown(name)}; GET-ATTRIBUTES lists them")
    if len(items) > len(known):
        raise Refusal(BAD_REQUEST, "attributeNames has names more than once; send each once")
    return items


NODE_OPERATIONS: dict[str, Callable[[NodeOperations, Call], None]] = {
    "QUERY": NodeOperations._query,
    "GET-TYPES": NodeOperations._get_types,
    "GET-ATTRIBUTES": NodeOperations._get_attributes,
    "GET-OPERATIONS": NodeOperations._get_operations,
    "GET-MGMT-NODES": NodeOperations._get_nodes,
}
