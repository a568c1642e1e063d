"""The properties that the sender gave a message, as text."""

from __future__ import annotations

from typing import NamedTuple

from ...amqp.codec import sections
from ...amqp.codec.primitives import Malformed


class Properties(NamedTuple):
    """The properties that a sender gave a message, as text."""

    message_id: str
    correlation_id: str
    properties: dict[str, str]


def properties_of(content: bytes) -> Properties:
    """The properties of the message that *content* is, or begins; none if it is not AMQP."""
    try:
        found = sections.properties(content, sections.find(content, sections.PROPERTIES))
        own = sections.application_properties(content, sections.find(content, sections.APPLICATION_PROPERTIES))
    except Malformed:
        return Properties("", "", {})
    return Properties(_words(found.message_id), _words(found.correlation_id), {k: _words(v) for k, v in own.items()})


def amqp_id_of(content: bytes) -> str:
    """Return the message-id of a message whose beginning is *content*; empty for a message without one."""
    try:
        return _words(sections.properties(content, sections.find(content, sections.PROPERTIES)).message_id)
    except Malformed:
        return ""


def _words(value: object) -> str:
    return "" if value is None else value.hex() if isinstance(value, bytes) else str(value)
