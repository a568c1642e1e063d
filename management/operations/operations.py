"""Operations of the node itself: dispatch of requests to the types, QUERY, and descriptions of the types.

A QUERY is answered in steps from a list that is made at its beginning: between two steps the core serves other clients,
so the answer is not a consistent snapshot. Entities that were deleted meanwhile are omitted; so are those that the
caller may not read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
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
READING = ("READ", "SAMPLES", "PEEK", "ROUTE", "ACCESS", "ACCOUNTS", "AUDIT")
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
        call.reads_messages = operation.name == "PEEK"
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

    def _describe(self, call: Call, of: Callable[[Type], Any]) -> None:
        """Answer with what *of* returns for each type of the request."""
        call.answer({name: of(kind) for name, kind in self._asked_types(call).items()})

    def _query(self, call: Call) -> None:
        types = self._asked_types(call)
        asked = call.request.map()
        only(asked, "attributeNames")
        hidden = frozenset[str]().union(*(kind.hidden_from(call) for kind in types.values()))
        names = [name for name in _names(asked, types) if name not in hidden]
        offset = number(call.request.properties, "offset", 0, 1 << 62)
        most = number(call.request.properties, "count", 1 << 62, 1 << 62)
        internal = call.request.properties.get("internal") is True
        scope = text(call.request.properties, "scope", "")
        if scope == "cluster":
            clusterwide.query(self._members, call, types, names, offset, most, internal=internal)
        elif scope:
            raise Refusal(BAD_REQUEST, f"there is no scope {shown(scope)}: it is `cluster`, or left out")
        else:
            rows = self._rows(call, types, names, offset, most, internal=internal)
            self._step(rows, call.link.attach.user)

    def _rows(
        self, call: Call, types: Mapping[str, Type], names: list[str], offset: int, most: int, *, internal: bool
    ) -> Iterator[None]:
        """Answer a QUERY with the rows of the entities that exist now; yield at the end of each step but the last."""
        everything = [
            (kind, [one for one in kind.all() if internal or not kind.is_internal(one)]) for kind in types.values()
        ]
        total = sum(len(entities) for _, entities in everything)
        in_order = ((kind, entity) for kind, entities in everything for entity in entities)
        following, size_bytes = min(offset, total), 0
        rows: list[bytes] = []
        for looked_at, (kind, entity) in enumerate(islice(in_order, offset, min(offset + most, total)), 1):
            if kind.is_there(entity) and kind.may_monitor(call, kind.resource_of(entity)):
                row = kind.row_of(entity, names)
                rows.append(row)
                size_bytes += len(row)
            following += 1
            if size_bytes > MOST_BYTES:
                break
            if looked_at % STEP_ROWS == 0 or (looked_at % ROWS_AT_ONCE == 0 and not self._background.has_time()):
                yield
        call.answer_rows(names, rows, following if following < total else None)

    def _step(self, answer: Iterator[None], user: str) -> None:
        """Take a step of *answer*, and have the others taken later, in turns of *user*."""
        for _ in answer:
            self._background.put_off(partial(self._step, answer, user), user)
            return


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
    "GET-TYPES": lambda node, call: node._describe(call, lambda kind: []),
    "GET-ATTRIBUTES": lambda node, call: node._describe(call, lambda kind: list(kind.attributes)),
    "GET-OPERATIONS": lambda node, call: node._describe(
        call, lambda kind: {operation.name: list(operation.arguments) for operation in kind.operations.values()}
    ),
    "GET-MGMT-NODES": lambda node, call: call.answer([]),
}
