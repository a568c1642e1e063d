"""The properties of a content (its header frame) as bytes and as a value."""

from __future__ import annotations

import struct
from typing import Any, NamedTuple

from ..amqp.codec.types import Timestamp
from .tables import BadTable, read_table, write_table

TRANSIENT, PERSISTENT = 1, 2
"""The delivery modes."""
_MORE_FLAGS = 1


class BasicProperties(NamedTuple):
    """The properties of a message, in the order of the protocol; None for those that it does not have."""

    content_type: str | None = None
    content_encoding: str | None = None
    headers: dict[str, Any] | None = None
    delivery_mode: int | None = None
    priority: int | None = None
    correlation_id: str | None = None
    reply_to: str | None = None
    expiration: str | None = None
    message_id: str | None = None
    timestamp: Timestamp | None = None
    """Milliseconds since 1970, in whole seconds."""
    type: str | None = None
    user_id: str | None = None
    app_id: str | None = None
    cluster_id: str | None = None


NO_PROPERTIES = BasicProperties()
_TABLE, _OCTET, _TIME, _TEXT = "headers", "octet", "time", "text"
_KINDS = (_TEXT, _TEXT, _TABLE, _OCTET, _OCTET, _TEXT, _TEXT, _TEXT, _TEXT, _TIME, _TEXT, _TEXT, _TEXT, _TEXT)
_FLAGS = tuple(1 << (15 - number) for number in range(len(_KINDS)))
_HEAD = struct.Struct(">HHQH")
CLASS_BASIC = 60


def read_content_header(payload: bytes) -> tuple[int, BasicProperties]:
    """Return the size of the body in bytes, and the properties, of the payload of a header frame. Raises `BadTable`."""
    try:
        class_id, _, body_bytes, flags = _HEAD.unpack_from(payload)
        if class_id != CLASS_BASIC or flags & _MORE_FLAGS:
            raise BadTable("a content header has an unknown class, or unknown properties")
        if not flags:
            return body_bytes, NO_PROPERTIES
        values, at = _values(payload, flags)
    except (struct.error, IndexError, UnicodeDecodeError) as error:
        raise BadTable(f"a content header can't be read: {error}") from error
    if at != len(payload):
        raise BadTable(f"a content header has {len(payload) - at} bytes that belong to no property")
    return body_bytes, BasicProperties(*values)


def _values(payload: bytes, flags: int) -> tuple[list[Any], int]:
    values: list[Any] = []
    at, size = _HEAD.size, len(payload)
    for flag, kind in zip(_FLAGS, _KINDS, strict=True):
        if not flags & flag:
            values.append(None)
            continue
        if kind is _TEXT:
            end = at + 1 + payload[at]
            values.append(payload[at + 1 : end].decode())
        elif kind is _OCTET:
            values.append(payload[at])
            end = at + 1
        elif kind is _TABLE:
            table, end = read_table(payload, at, size)
            values.append(table)
        else:
            seconds = int.from_bytes(payload[at : at + 8])
            values.append(Timestamp(min(seconds, (1 << 63) // 1000 - 1) * 1000))
            end = at + 8
        if end > size:
            raise BadTable("a property exceeds the content header")
        at = end
    return values, at


def write_content_header(body_bytes: int, properties: BasicProperties) -> bytes:
    """Return the payload of a header frame. Raises `BadTable`."""
    flags, parts = 0, [b""]
    values: tuple[Any, ...] = properties
    for flag, kind, value in zip(_FLAGS, _KINDS, values, strict=True):
        if value is None:
            continue
        flags |= flag
        if kind is _TEXT:
            parts.append(short_string(value))
        elif kind is _OCTET:
            parts.append(bytes((value,)))
        elif kind is _TABLE:
            parts.append(write_table(value))
        else:
            parts.append(struct.pack(">Q", max(0, value) // 1000))
    parts[0] = _HEAD.pack(CLASS_BASIC, 0, body_bytes, flags)
    return b"".join(parts)


def short_string(text: str) -> bytes:
    """Return *text* with its length in a byte. Raises `BadTable`."""
    raw = text.encode()
    if len(raw) > 255:
        raise BadTable(f"{text[:32]!r}... has more than 255 bytes")
    return bytes((len(raw),)) + raw
