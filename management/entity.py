"""Types of what is managed: a table of attributes and a table of operations each, from which all else follows.

docs/MANAGEMENT.md is these tables for people; a test keeps them the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from ..amqp import encode
from ..broker.access import LOOK
from .request import NOT_FOUND, Refusal, shown

if TYPE_CHECKING:
    from .call import Call


class Attribute(NamedTuple):
    """One thing to be known of an entity."""

    name: str
    kind: str
    """string, boolean, number, map, list, or time, which is a timestamp."""
    meaning: str
    read: Callable[[Any], Any]


class Operation(NamedTuple):
    """One thing to be done with an entity, or to make one."""

    name: str
    arguments: tuple[str, ...]
    """Keys of the request's body."""
    meaning: str
    do: Callable[[Call], None]


class Type:
    """One type. Core only."""

    name = ""
    meaning = ""

    def __init__(self, attributes: Iterable[Attribute], operations: Iterable[Operation]) -> None:
        first = (
            Attribute("name", "string", "What it is called.", self.name_of),
            Attribute("identity", "string", "What it is found by.", self.identity_of),
            Attribute("type", "string", f"`{self.name}`.", lambda entity: self.name),
        )
        self.attributes = {attribute.name: attribute for attribute in (*first, *attributes)}
        read = Operation("READ", (), "All its attributes.", self._read)
        self.operations = {operation.name: operation for operation in (read, *operations)}

    def add(self, operation: Operation) -> None:
        """An operation that needs to know the type first."""
        self.operations[operation.name] = operation

    # ---- for the types --------------------------------------------------------------------------------------------

    def all(self) -> list[Any]:
        """Everything of this type, in the order in which it came."""
        raise NotImplementedError

    def find(self, name: str) -> Any:
        """What has that name or identity, None if nothing has."""
        raise NotImplementedError

    def name_of(self, entity: Any) -> str:
        raise NotImplementedError

    def identity_of(self, entity: Any) -> str:
        return self.name_of(entity)

    def is_there(self, entity: Any) -> bool:
        """Whether it has not gone since `all` was asked."""
        return True

    def is_internal(self, entity: Any) -> bool:
        """Whether it is the broker's own: a QUERY tells of it only if it is asked to."""
        return False

    def resource_of(self, entity: Any) -> str:
        """The name that access rules are asked about; empty for what they know no names of."""
        return ""

    def resource_named(self, name: str) -> str:
        """The same for what has that name, which may not be there: who may not look is not told that."""
        return ""

    # ---- for operations -------------------------------------------------------------------------------------------

    def wanted(self, call: Call, operation: str) -> Any:
        """The entity that the request names. Raises `Refusal` if the caller may not do that, or there is none."""
        name = call.name()
        call.check(operation, self.resource_named(name))
        entity = self.find(name)
        if entity is None:
            raise Refusal(NOT_FOUND, f"there is no {self.name} {shown(name)}")
        return entity

    def _read(self, call: Call) -> None:
        call.answer(self.map_of(self.wanted(call, LOOK)))

    def map_of(self, entity: Any) -> Mapping[str, Any]:
        return {name: attribute.read(entity) for name, attribute in self.attributes.items()}

    def row_of(self, entity: Any, names: Iterable[str]) -> bytes:
        """The values of these attributes as an encoded list; null for what this type does not have."""
        attributes = self.attributes
        return encode.value([attributes[name].read(entity) if name in attributes else None for name in names])


class Named(Type):
    """Entities with names of their own, by which the broker keeps them."""

    prefix = ""
    """What access rules call them by, before the name of each."""

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
