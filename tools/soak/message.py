"""Messages of a soak, encoded and decoded byte by byte, so that received and sent messages are compared as bytes.

A message has a header that declares it durable and never acquired before, sometimes annotations, properties with its
ID, sometimes application properties, and data in one or more sections. The broker may change two fields of the header,
first-acquirer and delivery-count. The digest covers everything else.
"""

from __future__ import annotations

import hashlib
import struct
from random import Random
from typing import NamedTuple

from ...amqp.codec import sections
from ...amqp.codec.header import parse
from ...amqp.codec.primitives import Malformed, read

SECTION_BYTES = 100_000
"""Longer data is written in several sections."""


class Arrived(NamedTuple):
    """The identity of a message that arrived."""

    message: str
    """The ID of the message; empty if the bytes are not one complete message."""
    digest: str
    marked: bool


def encode(message: str, data: bytes, to: str | None, random: Random, *, durable: bool = True) -> tuple[bytes, str]:
    """The bytes of a message, in one of many shapes, and their digest."""
    priority = random.randrange(10)
    fields = (b"\x41" if durable else b"\x42") + bytes((0x50, priority)) + b"\x40\x41"  # no ttl, first acquirer
    if random.random() < 0.3:
        fields += random.choice((b"\x43", b"\x52\x00", b"\x70\x00\x00\x00\x00"))  # a delivery count of 0
    count = 4 + (len(fields) > 5)
    if random.random() < 0.2:
        header = b"\x00\x53\x70\xd0" + struct.pack(">II", len(fields) + 4, count) + fields
    else:
        header = b"\x00\x53\x70\xc0" + bytes((len(fields) + 1, count)) + fields
    rest = b""
    if random.random() < 0.2:
        rest += _section(0x72, 0xC1, b"\x02" + _short(0xA3, b"x-opt-place") + _short(0xA1, message[::-1].encode()))
    address = b"\x40" if to is None else _short(0xA1, to.encode())
    rest += _section(0x73, 0xC0, b"\x03" + _short(0xA1, message.encode()) + b"\x40" + address)
    if random.random() < 0.2:
        rest += _section(0x74, 0xC1, b"\x02" + _short(0xA1, b"number") + b"\x70" + random.randbytes(4))
    for at in range(0, max(len(data), 1), SECTION_BYTES):
        rest += _section(0x75, 0xB0, data[at : at + SECTION_BYTES])
    return header + rest, _digest(durable, priority, rest)


def encode_plain(
    message: str, data: bytes, to: str | None, random: Random, *, durable: bool = True
) -> tuple[bytes, str]:
    """The bytes of a message that any broker keeps the meaning of, and the digest of that."""
    body = message.encode() + b"\0" + data
    header = _section(0x70, 0xC0, b"\x01" + (b"\x41" if durable else b"\x42"))
    return header + _section(0x75, 0xB0, body), _digest(durable, 0, body)


def decode(raw: bytes) -> Arrived:
    """Decode *raw*; never raises, because anything may arrive."""
    try:
        header, found = parse(raw), sections.index(raw)
        message = sections.properties(raw, found.properties.value if found.properties else 0).message_id
    except Malformed:
        message = None
    if not isinstance(message, str) or not header.size_bytes:
        return Arrived("", _digest(False, 0, raw), False)
    digest = _digest(header.durable, header.priority, raw[header.size_bytes :])
    return Arrived(message, digest, not header.first_acquirer or header.delivery_count > 0)


def decode_plain(raw: bytes) -> Arrived:
    """Decode a message that was rewritten on its way, from its header and its data alone; never raises."""
    try:
        header, body = parse(raw), b""
        for section in sections.index(raw).body:
            body += bytes(read(raw, section.value)[0])  # type: ignore[arg-type]
        message, mark, _ = body.partition(b"\0")
        name = message.decode("ascii") if mark else ""
    except (Malformed, UnicodeDecodeError, TypeError, ValueError):
        return Arrived("", _digest(False, 0, raw), False)
    return Arrived(name, _digest(header.durable, 0, body), not header.first_acquirer or header.delivery_count > 0)


def _digest(durable: bool, priority: int, rest: bytes) -> str:
    return hashlib.blake2b(bytes((durable, priority)) + rest, digest_size=12).hexdigest()


def _short(kind: int, value: bytes) -> bytes:
    return bytes((kind, len(value))) + value


def _section(code: int, kind: int, value: bytes) -> bytes:
    size = struct.pack(">I", len(value)) if kind & 0x10 else bytes((len(value),))
    return bytes((0x00, 0x53, code, kind)) + size + value
