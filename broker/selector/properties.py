"""The meanings of the names in a selector in an AMQP message.

| name | value |
|---|---|
| `amqp.` and a field of the header or the properties, with `_` for `-` | that field |
| `amqp.delivery_mode`, `amqp.redelivered` | 'PERSISTENT' or 'NON_PERSISTENT'; True after a delivery |
| `JMSDeliveryMode`, `JMSPriority`, `JMSTimestamp`, `JMSType` | delivery mode, priority, creation time, subject |
| `JMSMessageID`, `JMSCorrelationID` | the ID as a JMS client shows it: see `jms_id` |
| `JMSXGroupID`, `JMSXGroupSeq`, `JMSXUserID`, `JMSXDeliveryCount`, `JMSRedelivered` | the fields of these names |
| `JMSDestination`, `JMSReplyTo`, `JMSExpiration` | not allowed in JMS |
| any other | the application property of that name |

A name whose field or property is missing is null.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple
from uuid import UUID

from ...amqp.codec import sections
from ...amqp.codec.header import Header
from ...amqp.codec.sections import Properties
from ...base.errors import CairnError

HEADER, PROPERTIES, APPLICATION = 1, 2, 4
"""The parts of a message that a name needs, as bits; a selector needs the union."""


class OverBudget(CairnError):
    """A selector that needs more steps for a message than its budget."""


class Budget:
    """The number of steps that are left. A step is about a nanosecond."""

    __slots__ = ("steps",)

    def __init__(self, steps: int) -> None:
        self.steps = steps

    def spend(self, steps: int) -> None:
        """Subtract *steps* from the budget. Raise `OverBudget`."""
        self.steps -= steps
        if self.steps < 0:
            raise OverBudget("selector", "it needs more work for a message than it may do", "use fewer LIKE patterns")


class View(NamedTuple):
    """The parts of a message that a selector reads; others are not decoded."""

    header: Header
    properties: Properties
    named: dict[str, Any]
    budget: Budget | None = None
    """The budget of LIKE for this message; None if it can't be exceeded."""


Get = Callable[[View], Any]
_FORBIDDEN = {"JMSDestination": "amqp.to", "JMSReplyTo": "amqp.reply_to", "JMSExpiration": "amqp.absolute_expiry_time"}
_ENCODED = ("ID:AMQP_UUID:", "ID:AMQP_ULONG:", "ID:AMQP_BINARY:", "ID:AMQP_STRING:", "ID:AMQP_NO_PREFIX:")


class BadName(ValueError):
    """A name that a selector can't use."""


def getter(name: str) -> tuple[Get, int]:
    """Return the function that gets the value of *name*, and the parts that it needs. Raise `BadName`."""
    known = _KNOWN.get(name)
    if known is not None:
        return known
    if name in _FORBIDDEN:
        raise BadName(f"{name} can't be selected by; {_FORBIDDEN[name]} can")
    if name.startswith("amqp."):
        raise BadName(f"AMQP's header and properties have no field {name.removeprefix('amqp.')!r}")
    return (lambda view: view.named.get(name)), APPLICATION


@lru_cache(64)  # a selector may name it often, and an id may be long
def jms_id(of: int | str | bytes | UUID | None, *, message: bool) -> str | None:
    """Return an ID as JMS clients for AMQP show it: always a string, which contains its AMQP type.

    IDs of a *message* all begin with `ID:`; other strings are unchanged.
    """
    if of is None:
        return None
    if isinstance(of, UUID):
        return f"ID:AMQP_UUID:{of}"
    if isinstance(of, int):
        return f"ID:AMQP_ULONG:{of}"
    if isinstance(of, bytes):
        return f"ID:AMQP_BINARY:{of.hex().upper()}"
    if of.startswith(_ENCODED):
        return f"ID:AMQP_STRING:{of}"
    return of if not message or of.startswith("ID:") else f"ID:AMQP_NO_PREFIX:{of}"


def _plain_id(of: int | str | bytes | UUID | None) -> Any:
    return str(of) if isinstance(of, UUID) else of


def _user_id(view: View) -> str | None:
    of = view.properties.user_id
    return None if of is None else _decoded(of)


@lru_cache(64)
def _decoded(of: bytes) -> str | None:
    try:
        return of.decode()
    except UnicodeDecodeError:
        return None


def _delivery_mode(view: View) -> str:
    return "PERSISTENT" if view.header.durable else "NON_PERSISTENT"


def _field(place: int) -> tuple[Get, int]:
    return (lambda view: view.properties[place]), PROPERTIES


_FIELDS = {name.removesuffix("_ms"): _field(place) for place, name in enumerate(sections.Properties._fields)}
_KNOWN: dict[str, tuple[Get, int]] = {
    **{f"amqp.{name}": get for name, get in _FIELDS.items()},
    "amqp.message_id": (lambda view: _plain_id(view.properties.message_id), PROPERTIES),
    "amqp.correlation_id": (lambda view: _plain_id(view.properties.correlation_id), PROPERTIES),
    "amqp.user_id": (_user_id, PROPERTIES),
    "amqp.durable": (lambda view: view.header.durable, HEADER),
    "amqp.delivery_mode": (_delivery_mode, HEADER),
    "amqp.priority": (lambda view: view.header.priority, HEADER),
    "amqp.ttl": (lambda view: view.header.ttl_ms, HEADER),
    "amqp.first_acquirer": (lambda view: view.header.first_acquirer, HEADER),
    "amqp.delivery_count": (lambda view: view.header.delivery_count, HEADER),
    "amqp.redelivered": (lambda view: view.header.delivery_count > 0, HEADER),
    "JMSMessageID": (lambda view: jms_id(view.properties.message_id, message=True), PROPERTIES),
    "JMSCorrelationID": (lambda view: jms_id(view.properties.correlation_id, message=False), PROPERTIES),
    "JMSTimestamp": _FIELDS["creation_time"],
    "JMSType": _FIELDS["subject"],
    "JMSXGroupID": _FIELDS["group_id"],
    "JMSXGroupSeq": _FIELDS["group_sequence"],
    "JMSXUserID": (_user_id, PROPERTIES),
    "JMSDeliveryMode": (_delivery_mode, HEADER),
    "JMSPriority": (lambda view: view.header.priority, HEADER),
    "JMSXDeliveryCount": (lambda view: view.header.delivery_count + 1, HEADER),
    "JMSRedelivered": (lambda view: view.header.delivery_count > 0, HEADER),
}
