"""Decodes requests and encodes responses of AMQP Management (working draft 9).

The application properties of a request contain the `operation`, and the `type` and `name` (or `identity`) of its
entity; further arguments are in the body, a map. The application properties of a response contain `statusCode` and
`statusDescription`, and its correlation-id is the request's, or the request's message-id. All invalid input raises
`Malformed` or `Refusal`, and nothing else.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple
from uuid import UUID

from ...amqp.codec import decode, encode, sections
from ...amqp.codec.primitives import Malformed
from ...amqp.codec.sections import Properties
from ...amqp.codec.types import Int

OK, CREATED, NO_CONTENT = 200, 201, 204
BAD_REQUEST, FORBIDDEN, NOT_FOUND, CONFLICT = 400, 403, 404, 409
NOT_IMPLEMENTED, UNAVAILABLE, FULL = 501, 503, 507
INTERNAL = 500

MAX_REQUEST_BYTES = 64 << 10
MAX_ARGUMENTS_DEPTH = 8
"""The depth of stored arguments, which responses contain some levels deeper."""
_LONG = 1 << 63


class Refusal(Exception):
    """The request is answered with that status."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status
        self.text = text


class Envelope(NamedTuple):
    """The reply address and the correlation ID of a request, and its message sections."""

    reply_to: str | None
    correlation: int | str | bytes | UUID | None
    found: sections.Sections


class Request(NamedTuple):
    """A management request."""

    operation: str
    type: str
    name: str
    properties: Mapping[str, Any]
    body: Any
    """The description as plain text, or None."""

    def map(self) -> Mapping[str, Any]:
        """Return the body, which must be a map with texts for keys; without a body, an empty one."""
        if self.body is None:
            return {}
        if not isinstance(self.body, dict) or not all(isinstance(key, str) for key in self.body):
            raise Refusal(BAD_REQUEST, "the body is to be a map with texts for keys")
        return self.body


def envelope(content: bytes) -> Envelope:
    """Return the envelope of an encoded request. Raises `Malformed`."""
    found = sections.index(content)
    there = sections.properties(content, found.properties.value if found.properties else 0)
    correlation = there.message_id if there.correlation_id is None else there.correlation_id
    return Envelope(there.reply_to, correlation, found)


def parse(content: bytes, found: sections.Sections) -> Request:
    """Parse the request. Raises `Refusal` with 400."""
    try:
        section = found.application_properties
        properties = sections.application_properties(content, section.value if section else 0)
        body = _body(content, found)
    except Malformed as error:
        raise Refusal(BAD_REQUEST, f"it can't be read: {error}") from error
    return Request(
        text(properties, "operation"),
        text(properties, "type", ""),
        text(properties, "name", text(properties, "identity", "")),
        properties,
        body,
    )


def _body(content: bytes, found: sections.Sections) -> Any:
    if not found.body:
        return None
    if found.body[0].code != sections.VALUE:
        return None if found.body[0].end - found.body[0].value <= 2 else content
    return decode.value(content, found.body[0].value, plain=True)[0]


def response(status: int, description: str, body: bytes, to: str | None, asked: Envelope) -> bytes:
    """Return an encoded response; *body* is an encoded value."""
    return b"".join(
        (
            sections.properties_section(Properties(to=to, correlation_id=asked.correlation)),
            sections.application_properties_section({"statusCode": Int(status), "statusDescription": description}),
            encode.described(sections.VALUE, body),
        )
    )


def encoded_map(values: Mapping[str, bytes]) -> bytes:
    """Return a map of encoded *values*."""
    return encode.mapped([part for name, value in values.items() for part in (encode.string(name), value)])


def only(found: Mapping[str, Any], *known: str) -> None:
    """Raise `Refusal` for unknown names: a typing error must not pass for a fulfilled request."""
    for key in found:
        if key not in known:
            others = f" (allowed: {', '.join(known)})" if known else ""
            raise Refusal(BAD_REQUEST, f"unknown key {shown(key)}{others}")


def text(found: Mapping[str, Any], key: str, default: str | None = None) -> str:
    value = found.get(key)
    if value is None and default is not None:
        return default
    if not isinstance(value, str):
        raise Refusal(BAD_REQUEST, f"{key} is missing, or no text")
    return value


def flag(found: Mapping[str, Any], key: str, default: bool) -> bool:
    value = found.get(key, default)
    if not isinstance(value, bool):
        raise Refusal(BAD_REQUEST, f"{key} is to be true or false")
    return value


def number(found: Mapping[str, Any], key: str, default: int, most: int, least: int = 0) -> int:
    value = found.get(key)
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise Refusal(BAD_REQUEST, f"{key} is to be a number from {least} to {most}")
    return value


def arguments(found: Mapping[str, Any], key: str = "arguments") -> dict[str, Any]:
    """Return a map that can be stored in SQL and returned again."""
    value = found.get(key)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise Refusal(BAD_REQUEST, f"{key} is to be a map")
    _check_kept(value, key, MAX_ARGUMENTS_DEPTH)
    return value


def _check_kept(value: Any, where: str, depth: int) -> None:
    if not depth:
        raise Refusal(BAD_REQUEST, f"{where} is nested deeper than {MAX_ARGUMENTS_DEPTH} levels")
    if isinstance(value, dict):
        for key, item in value.items():
            if not isinstance(key, str):
                raise Refusal(BAD_REQUEST, f"{where} has a key that is not a string")
            _check_kept(key, where, depth)
            _check_kept(item, f"{where}: {shown(key)}", depth - 1)
    elif isinstance(value, list):
        for item in value:
            _check_kept(item, where, depth - 1)
    elif isinstance(value, str):
        if "\0" in value:
            raise Refusal(BAD_REQUEST, f"{where} has a text with a NUL in it")
    elif isinstance(value, float):
        if not math.isfinite(value):
            raise Refusal(BAD_REQUEST, f"{where} is not a finite number")
    elif isinstance(value, int):
        if not -_LONG <= value < _LONG:
            raise Refusal(BAD_REQUEST, f"{where} is not a 64-bit number")
    elif value is not None:
        raise Refusal(BAD_REQUEST, f"{where} is of a kind that can't be kept: {type(value).__name__}")


def shown(name: str) -> str:
    """Return a name for use in a sentence, with bounded length."""
    return repr(name if len(name) <= 80 else name[:80] + "...")
