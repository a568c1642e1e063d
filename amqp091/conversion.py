"""Conversion of messages between AMQP 0-9-1 and AMQP 1.0, by RabbitMQ's rules.

The store keeps messages in the form of AMQP 1.0. Beyond RabbitMQ's rules, what AMQP 0-9-1 has and these rules drop is
kept in message annotations, so that a message which is published and consumed by AMQP 0-9-1 is the same:

| AMQP 0-9-1 | AMQP 1.0 |
|---|---|
| exchange | annotation `x-exchange` |
| routing key | `subject`, by which exchanges route, and annotation `x-routing-key` |
| `type`, `expiration`, `cluster_id` | annotations `x-basic-type` and so on; `expiration` is also the header's `ttl` |
| `priority` | that of the header, 0 without one; the annotation `x-basic-priority` marks an explicit 0 |
| headers whose values are tables, arrays, decimals or strings that are no UTF-8 | annotation `x-basic-headers`, a map |
| other headers | application properties |
"""

from __future__ import annotations

from decimal import Decimal
from typing import Any, NamedTuple
from uuid import UUID

from ..amqp.codec import decode, encode, sections
from ..amqp.codec.header import parse
from ..amqp.codec.types import Described, Symbol, Timestamp
from .properties import PERSISTENT, TRANSIENT, BasicProperties
from .tables import LongString

EXCHANGE, ROUTING_KEY = Symbol("x-exchange"), Symbol("x-routing-key")
_TYPE, _EXPIRATION, _PRIORITY, _CLUSTER, _HEADERS = (
    Symbol(f"x-basic-{name}") for name in ("type", "expiration", "priority", "cluster-id", "headers")
)
_DECIMAL, _RAW = Symbol("amqp-0-9-1:decimal"), Symbol("amqp-0-9-1:longstr")
"""Descriptors of values that AMQP 1.0 has no equal type for."""
_OWN = "x-opt-"
"""The beginning of annotations that the broker writes, or that mean something in AMQP 1.0 only."""
_COMPLEX = (dict, list, Decimal, LongString)
AMQP10_TYPE = "amqp-1.0"
"""The `type` of a message whose body is AMQP 1.0 encoded, since AMQP 0-9-1 can't express it."""
MOST_TTL_MS = (1 << 32) - 1
_DATA_HEAD = b"\x00\x53\x75"


class BadContent(ValueError):
    """Properties that no message can have; the channel is closed with `precondition-failed`."""


class Departure(NamedTuple):
    """The beginning of a message as AMQP 0-9-1 has it."""

    exchange: str
    routing_key: str
    redelivered: bool
    properties: BasicProperties
    body_at: int
    """The position of the body in the encoded message."""
    body_bytes: int
    """The size of the body; -1 for the rest of the encoded message, whatever its size is."""


def ttl_ms(expiration: str | None) -> int | None:
    """Return the time to live in ms that `expiration` states. Raises `BadContent`."""
    if expiration is None:
        return None
    if not (expiration.isascii() and expiration.isdigit()) or len(expiration) > 20:
        raise BadContent(f"invalid expiration {expiration[:32]!r}; use a number of milliseconds")
    return int(expiration)


def encoded_start(properties: BasicProperties, exchange: str, key: str, body_bytes: int) -> bytes:
    """Return the encoded message up to its body, which follows as it is. Raises `BadContent`, `ValueError`."""
    time_ms = ttl_ms(properties.expiration)
    durable = properties.delivery_mode == PERSISTENT
    priority = bytes((0x50, properties.priority or 0))
    ttl = encode.NULL if time_ms is None or time_ms > MOST_TTL_MS else encode.uint(time_ms)
    parts = [
        encode.described(0x70, encode.listed([encode.boolean(durable), priority, ttl, encode.boolean(True)])),
        encode.described(0x72, encode.value(_annotations(properties, exchange, key))),
        sections.properties_section(
            sections.Properties(
                message_id=_id(properties.message_id),
                user_id=None if properties.user_id is None else properties.user_id.encode(),
                subject=key,
                reply_to=properties.reply_to,
                correlation_id=_id(properties.correlation_id),
                content_type=_ascii(properties.content_type),
                content_encoding=_ascii(properties.content_encoding),
                creation_time_ms=properties.timestamp,
                group_id=properties.app_id,
            )
        ),
    ]
    simple = {name: value for name, value in (properties.headers or {}).items() if not isinstance(value, _COMPLEX)}
    if simple:
        parts.append(encode.described(0x74, encode.value(simple)))
    size = bytes((0xA0, body_bytes)) if body_bytes < 256 else b"\xb0" + body_bytes.to_bytes(4)
    parts.append(_DATA_HEAD + size)
    return b"".join(parts)


def _annotations(properties: BasicProperties, exchange: str, key: str) -> dict[Symbol, Any]:
    found: dict[Symbol, Any] = {EXCHANGE: exchange, ROUTING_KEY: key}
    for name, value in (
        (_TYPE, properties.type),
        (_EXPIRATION, properties.expiration),
        (_CLUSTER, properties.cluster_id),
        (_PRIORITY, None if properties.priority else properties.priority),
    ):
        if value is not None:
            found[name] = value
    headers = properties.headers
    if headers is not None:
        kept = {name: _described(value) for name, value in headers.items() if isinstance(value, _COMPLEX)}
        if kept or not headers:
            found[_HEADERS] = kept
    return found


def _described(value: Any) -> Any:
    """Return a value of a table as AMQP 1.0 encodes it."""
    if isinstance(value, Decimal):
        return Described(_DECIMAL, str(value))
    if isinstance(value, LongString):
        return Described(_RAW, bytes(value))
    if isinstance(value, dict):
        return {name: _described(item) for name, item in value.items()}
    return [_described(item) for item in value] if isinstance(value, list) else value


def _plain(value: Any) -> Any:
    """Return a value of AMQP 1.0 as a table has it; None for what has no equal type."""
    if isinstance(value, Described):
        if value.descriptor == _DECIMAL:
            return Decimal(value.value)
        return LongString(value.value) if value.descriptor == _RAW else _plain(value.value)
    if isinstance(value, dict):
        return {str(name): _plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, UUID):
        return f"urn:uuid:{value}"
    return value


def _id(text: str | None) -> str | UUID | None:
    """Return an ID: a UUID in its usual spelling is one, and comes back in the same spelling."""
    if text is None or not text.startswith("urn:uuid:"):
        return text
    try:
        found = UUID(text)
    except ValueError:
        return text
    return found if f"urn:uuid:{found}" == text else text


def _ascii(text: str | None) -> Symbol | None:
    """Return a symbol. Raises `BadContent` for other than ASCII."""
    if text is None:
        return None
    if not text.isascii():
        raise BadContent(f"{text[:32]!r} is not ASCII, as a content type or encoding must be")
    return Symbol(text)


def outgoing(content: bytes) -> Departure:
    """Return the beginning of *content* for a client, where *content* may end in its body. Raises `Malformed`."""
    found = sections.index(content, complete=False)
    header = parse(content)
    there = sections.properties(content, found.properties.value if found.properties else 0)
    annotations = sections.annotations_of(content, found.message_annotations.value) if found.message_annotations else {}
    exchange, key = annotations.pop(EXCHANGE, ""), annotations.pop(ROUTING_KEY, None)
    kind, expiration, cluster = (annotations.pop(name, None) for name in (_TYPE, _EXPIRATION, _CLUSTER))
    is_stated = annotations.pop(_PRIORITY, None) is not None or header.priority > 0
    headers = _headers(content, found, annotations)
    body_at, body_bytes = _body(content, found)
    if body_bytes < 0:
        kind = AMQP10_TYPE
    properties = BasicProperties(
        content_type=there.content_type,
        content_encoding=there.content_encoding,
        headers=headers,
        delivery_mode=PERSISTENT if header.durable else TRANSIENT,
        priority=header.priority if is_stated else None,
        correlation_id=_short(there.correlation_id, "x-correlation-id", headers),
        reply_to=_short(there.reply_to, "", headers),
        expiration=expiration if expiration is not None or header.ttl_ms is None else str(header.ttl_ms),
        message_id=_short(there.message_id, "x-message-id", headers),
        timestamp=None if there.creation_time_ms is None else Timestamp(there.creation_time_ms),
        type=kind,
        user_id=None if there.user_id is None else _short(there.user_id.decode("utf-8", "replace"), "", headers),
        app_id=_short(there.group_id, "", headers),
        cluster_id=cluster,
    )
    is_again = header.delivery_count > 0 or (key is not None and not header.first_acquirer)
    return Departure(exchange, key or there.subject or "", is_again, properties, body_at, body_bytes)


def _headers(content: bytes, found: sections.Sections, annotations: dict[Any, Any]) -> dict[str, Any] | None:
    """Return the headers table of a message; None without one."""
    kept = annotations.pop(_HEADERS, None)
    headers: dict[str, Any] = {}
    if found.application_properties is not None:
        entries, _ = decode.value(content, found.application_properties.value)
        headers.update({name: _plain(value) for name, value in entries.items()})
    if isinstance(kept, dict):
        headers.update({str(name): _plain(value) for name, value in kept.items()})
    for name, value in annotations.items():
        if isinstance(name, str) and name.startswith("x-") and not name.startswith(_OWN):
            headers[str(name)] = _plain(value)
    return headers if headers or kept is not None else None


def _short(of: object, beyond: str, headers: dict[str, Any] | None) -> str | None:
    """Return *of* as a short string; if it is none, keep it in the header *beyond*."""
    if of is None:
        return None
    text = f"urn:uuid:{of}" if isinstance(of, UUID) else of if isinstance(of, str) else str(of)
    if not isinstance(of, bytes) and len(text.encode()) < 256 and "\0" not in text:
        return text
    if beyond and headers is not None:
        headers[beyond] = of
    return None


def _body(content: bytes, found: sections.Sections) -> tuple[int, int]:
    """Return the position of the body, and its size; -1 unless it is that of a single data section."""
    begin = found.body[0].begin if found.body else found.end
    if content[begin : begin + 3] != _DATA_HEAD or len(found.body) > 1:
        return begin, -1
    if content[begin + 3] == 0xA0:
        at, size = begin + 5, content[begin + 4]
    else:
        at, size = begin + 8, int.from_bytes(content[begin + 4 : begin + 8])
    return at, size
