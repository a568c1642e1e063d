"""Types of managed entities: a table of attributes and a table of operations each, from which all else follows.

docs/reference/management.md documents these tables; a test keeps them equal.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial
from typing import Any, NamedTuple

from ...amqp.codec import encode
from ...broker.nodes.access_control import CONFIGURE, MONITOR
from ...broker.nodes.addresses import DYNAMIC_PREFIX
from ...broker.nodes.registry import MAX_NAME_BYTES
from .call import Call
from .request import BAD_REQUEST, NOT_FOUND, Refusal, shown


class Attribute(NamedTuple):
    """An attribute of an entity type."""

    kind: str
    """string, boolean, number, map, list, or time, which is a timestamp."""
    name: str
    meaning: str
    read: Callable[[Any], Any]


string, boolean, number, time = (partial(Attribute, kind) for kind in ("string", "boolean", "number", "time"))


class Operation(NamedTuple):
    """An operation on an entity or on its type."""

    name: str
    arguments: tuple[str, ...]
    """Keys of the request's body."""
    meaning: str
    do: Callable[[Call], None]


class Type:
    """An entity type. Core only."""

    name = ""
    meaning = ""
    is_named_by_pattern = False
    """Access rules are asked about its names as patterns."""
    naming: frozenset[str] = frozenset()
    """Attributes that contain names of other entities."""

    def __init__(self, attributes: Iterable[Attribute], operations: Iterable[Operation] = ()) -> None:
        first = (
            string("name", "The name.", self.name_of),
            string("identity", "The identity, unique within the type.", self.identity_of),
            string("type", f"`{self.name}`.", lambda entity: self.name),
        )
        self.attributes = {attribute.name: attribute for attribute in (*first, *attributes)}
        read = Operation("READ", (), "Returns all attributes.", self._read)
        self.operations = {operation.name: operation for operation in (read, *operations)}

    def add(self, operation: Operation) -> None:
        """Add an operation that depends on the type."""
        self.operations[operation.name] = operation

    def all(self) -> list[Any]:
        """Return all entities of the type, in the order of their creation."""
        raise NotImplementedError

    def find(self, name: str) -> Any:
        """Return the entity of that name or identity; None if none has it."""
        return next((one for one in self.all() if name in (self.identity_of(one), self.name_of(one))), None)

    def name_of(self, entity: Any) -> str:
        raise NotImplementedError

    def identity_of(self, entity: Any) -> str:
        return self.name_of(entity)

    def is_there(self, entity: Any) -> bool:
        """Return whether the entity still exists since `all` returned it."""
        return True

    def is_internal(self, entity: Any) -> bool:
        """Return whether the entity is internal to the broker: a QUERY returns it only on request."""
        return False

    def resource_of(self, entity: Any) -> str:
        """Return the name for access rules; empty for entities without one."""
        return self.name_of(entity) if self.is_named_by_pattern else ""

    def resource_named(self, name: str) -> str:
        """Return the name for access rules of an entity that may not exist: its absence is confidential, too."""
        return name if self.is_named_by_pattern else ""

    def new_name(self, call: Call, operation: str) -> str:
        """Return the name of an entity to create. Raise `Refusal` for a bad name, or if the caller may not do that."""
        name = call.name()
        if not 1 <= len(name.encode()) <= MAX_NAME_BYTES or "\0" in name:
            raise Refusal(BAD_REQUEST, f"the name of a {self.name} has 1 to {MAX_NAME_BYTES} bytes, and no NUL")
        if name.startswith(("$", DYNAMIC_PREFIX)):
            reserved = f"names of {self.name}s that begin with $ or {DYNAMIC_PREFIX} are reserved for the broker"
            raise Refusal(BAD_REQUEST, f"{reserved}; use another")
        call.check(operation, self.resource_named(name), pattern=self.is_named_by_pattern)
        return name

    def deletion(self, meaning: str, delete: Callable[[Any, Callable[[Any], None]], None]) -> Operation:
        """Return the operation DELETE of entities that are configured."""
        return Operation("DELETE", (), meaning, lambda call: delete(self.wanted(call, CONFIGURE), call.then_answer()))

    def wanted(self, call: Call, operation: str) -> Any:
        """Raises `Refusal` if the caller may not do that, or if the entity does not exist."""
        name = call.name()
        call.check(operation, self.resource_named(name), pattern=self.is_named_by_pattern)
        entity = self.find(name)
        if entity is None:
            raise Refusal(NOT_FOUND, f"there is no {self.name} {shown(name)}")
        return entity

    def may_monitor(self, call: Call, resource: str) -> bool:
        """Return whether the caller may read the entity that access rules know as *resource*."""
        return not call.denial_reason(MONITOR, resource, pattern=self.is_named_by_pattern)

    def hidden_from(self, call: Call) -> frozenset[str]:
        """Return the attributes with names of other entities, unless the caller may monitor all."""
        return self.naming if self.naming and call.denial_reason(MONITOR, "*", pattern=True) else frozenset()

    def _read(self, call: Call) -> None:
        found = self.map_of(self.wanted(call, MONITOR))
        hidden = self.hidden_from(call)
        call.answer({name: None if name in hidden else value for name, value in found.items()} if hidden else found)

    def map_of(self, entity: Any) -> Mapping[str, Any]:
        return {name: attribute.read(entity) for name, attribute in self.attributes.items()}

    def row_of(self, entity: Any, names: Iterable[str]) -> bytes:
        """Return the values of these attributes as an encoded list; null for those that this type does not have."""
        attributes = self.attributes
        return encode.value([attributes[name].read(entity) if name in attributes else None for name in names])


class Listed(Type):
    """A type whose entities are in a collection of the broker."""

    def __init__(
        self, entities: Callable[[], Collection[Any]], attributes: Iterable[Attribute],
        operations: Iterable[Operation] = (),
    ) -> None:  # fmt: skip
        self._entities = entities
        super().__init__(attributes, operations)

    def all(self) -> list[Any]:
        return list(self._entities())

    def is_there(self, entity: Any) -> bool:
        return entity in self._entities()


class Named(Type):
    """A type whose entities have names, by which the broker stores them."""

    prefix = ""
    """The prefix of the entities' names in access rules."""

    def __init__(
        self, by_name: Mapping[str, Any], attributes: Iterable[Attribute], operations: Iterable[Operation]
    ) -> None:
        self.by_name = by_name
        super().__init__(attributes, operations)

    def all(self) -> list[Any]:
        return list(self.by_name.values())

    def find(self, name: str) -> Any:
        return self.by_name.get(name)

    def name_of(self, entity: Any) -> str:
        name: str = entity.name
        return name

    def is_there(self, entity: Any) -> bool:
        return self.by_name.get(entity.name) is entity

    def resource_of(self, entity: Any) -> str:
        return self.prefix + self.name_of(entity)

    def resource_named(self, name: str) -> str:
        return self.prefix + name
