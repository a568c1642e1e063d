"""A message's header section: what the sender asked for, and how a redelivery is marked.

The header is the one section an intermediary may change. It is optional and precedes all other sections, which are
passed on byte for byte.

Inside of the broker the header also holds the message-format of the transfers that brought the message, if that is not
0: as a sixth field, in a list whose size has 32 bits (`FORMATTED`). So the format goes wherever the content goes.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from .primitives import Cut, Malformed, Value, descriptor, extent, read_list

HEADER = 0x70
FORMATTED = b"\x00Sp\xd0\0\0\0"
"""The first bytes of a header with a message-format. Other headers that begin with them are rare."""
_CACHE_LIMIT = 1024
_CACHED_BYTES = 261
"""The longest header section that is cached: the maximum of a one-byte size, plus its head."""
_NEXT_BYTES = 3
"""Bytes behind the header section that identify the next section."""


class Header(NamedTuple):
    """The fields of a header section, with AMQP's defaults, and its length in bytes."""

    durable: bool = False
    priority: int = 4
    ttl_ms: int | None = None
    first_acquirer: bool = False
    delivery_count: int = 0
    size_bytes: int = 0
    annotated: bool = False
    """Annotations or properties come next, or something whose descriptor is not spelled in the short way."""
    message_format: int = 0


NO_HEADER = Header()
_NO_HEADER_ANNOTATED = Header(annotated=True)
_OTHERS = frozenset(b"\x00S%c" % code for code in range(HEADER + 1, HEADER + 9))
"""The beginnings of messages without a header."""
_ANNOTATIONS = (b"\x00Sq", b"\x00Sr", b"\x00Ss")
_MESSAGE_ANNOTATIONS, _PROPERTIES = 0x72, 0x73
_JMS_DESTINATION = b"\xa3\x0ex-opt-jms-dest\x51"
"""The name of an annotation, as a symbol, and the type of its value, a byte."""
_JMS_KINDS: dict[bytes | None, tuple[str, ...]] = {
    b"\x00": ("queue",), b"\x01": ("topic",), b"\x02": ("temporary-queue",), b"\x03": ("temporary-topic",),
}  # fmt: skip
_cache: dict[bytes, Header] = {}
_redelivered: dict[tuple[bytes, int], bytes] = {}


def parse(content: bytes) -> Header:
    """The header of an encoded message. Raises `Malformed`.

    Messages of one sender mostly carry the same header, so decoded ones are kept, in a bounded cache.
    """
    if content[:4] == b"\x00Sp\xc0" and len(content) > 4:
        raw = content[: 5 + _NEXT_BYTES + content[4]]
        found = _cache.get(raw)
        if found is None:
            found = _parse(raw)
            if len(_cache) >= _CACHE_LIMIT:
                _cache.clear()
            _cache[raw] = found
        return found
    if content[:3] in _OTHERS:
        return _NO_HEADER_ANNOTATED if content.startswith(_ANNOTATIONS) else NO_HEADER
    return _parse(content)


def _parse(content: bytes) -> Header:
    if not content:
        return NO_HEADER
    section, at = descriptor(content, 0)
    if not HEADER <= section <= HEADER + 8:
        raise Malformed(f"no section of a message has the code 0x{section:x}")
    if section != HEADER:
        return _NO_HEADER_ANNOTATED
    values, end = read_list(content, at)
    fields: list[Value] = [*values[:5], *[None] * (5 - len(values))]
    durable, priority, ttl, first, count = fields
    try:
        return Header(
            _flag(durable),
            _number(priority, 4, 0xFF),
            None if ttl is None else _number(ttl, 0, 0xFFFFFFFF),
            _flag(first),
            _number(count, 0, 0xFFFFFFFF),
            end,
            content.startswith(_ANNOTATIONS, end) or content[end : end + 2] not in (b"", b"\x00S"),
            _number(values[5], 0, 0xFFFFFFFF) if len(values) > 5 else 0,
        )
    except TypeError as error:
        raise Malformed(f"header: {error}") from error


def _flag(value: Value) -> bool:
    if value is None:
        return False
    if not isinstance(value, bool):
        raise TypeError(f"a boolean is expected, found {value!r}")
    return value


def _number(value: Value, default: int, most: int) -> int:
    if value is None:
        return default
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= most:
        raise TypeError(f"a number is expected, found {value!r}")
    return value


def redelivered(content: bytes, failed_attempts: int) -> bytes:
    """Return *content* with a header that marks it as acquired before, with this number of failed deliveries."""
    header = parse(content)
    key = (content[: header.size_bytes], failed_attempts)
    found = _redelivered.get(key)
    if found is None:
        found = _redelivered_header(header, failed_attempts)
        if len(_redelivered) >= _CACHE_LIMIT:
            _redelivered.clear()
        if header.size_bytes <= _CACHED_BYTES:
            _redelivered[key] = found
    return found + content[header.size_bytes :]


def _redelivered_header(header: Header, failed_attempts: int) -> bytes:
    count = min(header.delivery_count + failed_attempts, 0xFFFFFFFF)
    return encoded(header._replace(first_acquirer=False, delivery_count=count))


def encoded(header: Header) -> bytes:
    """Return the header as a section, with all fields, and the message-format if it is not 0."""
    fields = b"".join(
        (
            b"\x41" if header.durable else b"\x42",
            struct.pack("BB", 0x50, header.priority),
            b"\x40" if header.ttl_ms is None else struct.pack(">BI", 0x70, header.ttl_ms),
            b"\x41" if header.first_acquirer else b"\x42",
            struct.pack(">BI", 0x70, header.delivery_count),
        )
    )
    if not header.message_format:
        return b"\x00\x53\x70\xc0" + bytes((len(fields) + 1, 5)) + fields
    fields += struct.pack(">BI", 0x70, header.message_format)
    return b"\x00\x53\x70\xd0" + struct.pack(">II", len(fields) + 4, 6) + fields


def with_format(content: bytes, message_format: int) -> bytes:
    """Return *content*, or its beginning, with that message-format in its header. Raise `Malformed`, or `Cut`."""
    if len(content) < _NEXT_BYTES:
        raise Cut("the first descriptor is cut off")
    header = parse(content)
    return encoded(header._replace(message_format=message_format)) + content[header.size_bytes :]


def without_format(content: bytes) -> tuple[int, bytes]:
    """Return the message-format of *content*, or of its beginning, and the content as it is on the wire."""
    header = parse(content)
    if not header.message_format:
        return 0, content
    plain = header._replace(message_format=0)
    is_empty = plain._replace(size_bytes=0, annotated=False) == NO_HEADER
    return header.message_format, (b"" if is_empty else encoded(plain)) + content[header.size_bytes :]


def address_of(content: bytes) -> str | None:
    """The `to` field of the properties section, for links whose messages name their own target. Raises `Malformed`."""
    return _property(content, 2)


def addressed(content: bytes) -> tuple[str | None, tuple[str, ...]]:
    """Return the `to` field, and the destination type of a JMS client as a capability. Raises `Malformed`.

    JMS clients have one name space for queues and one for topics, and annotate each message with that of `to`.
    """
    kind = None
    at = 0
    while at < len(content):
        section, start = descriptor(content, at)
        if section >= _PROPERTIES:
            break
        end = extent(content, start)[2]
        if section == _MESSAGE_ANNOTATIONS and (found := content.find(_JMS_DESTINATION, start, end)) >= 0:
            kind = content[found + len(_JMS_DESTINATION) : found + len(_JMS_DESTINATION) + 1]
        at = end
    to = _property(content, 2, at)
    return to, _JMS_KINDS.get(kind, ())


def subject_of(content: bytes) -> str:
    """The `subject` field, which is a key where the address has none. Raises `Malformed`."""
    return _property(content, 3) or ""


def _property(content: bytes, number: int, at: int = 0) -> str | None:
    while at < len(content):
        section, start = descriptor(content, at)
        if section == 0x73:
            fields, _ = read_list(content, start)
            found = fields[number] if len(fields) > number else None
            return found if isinstance(found, str) else None
        if section > 0x73:
            return None
        at = extent(content, start)[2]
    return None
