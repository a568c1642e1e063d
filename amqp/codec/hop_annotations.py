"""Annotations that a message carries from one broker to the next (C29).

A message between brokers carries, in its delivery annotations, its address, the brokers that it has passed, and, if it
goes to all receivers, the brokers that this copy is for. Each copy has its own annotations; the message itself is
shared. Other entries of the section are kept. The last broker removes the entries of the brokers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from . import decode, encode
from .annotated_message import AnnotatedMessage
from .header import HEADER
from .primitives import Cut, Malformed, descriptor
from .sections import DELIVERY_ANNOTATIONS, next_section

TO, TRACE, TARGETS = b"x-opt-cairnmq-to", b"x-opt-cairnmq-trace", b"x-opt-cairnmq-for"
MOST_HEAD_BYTES = 64 << 10
"""More than that is not looked through for them."""
MOST_ROUTERS = 256


class Hop(NamedTuple):
    """The annotations of a message on its way between brokers."""

    to: str
    trace: tuple[str, ...]
    """The brokers that the message has passed, beginning with the one where it was sent."""
    targets: tuple[str, ...] | None
    """The brokers that the message is for; None if it is for one receiver at any broker."""


class Head(NamedTuple):
    """The beginning of a message, up to its delivery annotations."""

    header_bytes: int
    end: int
    entries: tuple[tuple[bytes, bytes | None, bytes], ...]
    """The entries of the delivery annotations."""


def entries_of(hop: Hop) -> bytes:
    """The encoded entries."""
    parts = [_KEYS[TO], encode.string(hop.to), _KEYS[TRACE], encode.value(list(hop.trace))]
    if hop.targets is not None:
        parts += [_KEYS[TARGETS], encode.value(list(hop.targets))]
    return b"".join(parts)


def section_of(hop: Hop) -> bytes:
    """A section with nothing else in it."""
    return _section([entries_of(hop)], 6 if hop.targets is not None else 4)


def read_head(content: bytes) -> Head:
    """Return the head of a message, or of the beginning of one. Raises `Malformed`, and `Cut` if more is needed."""
    at = last = 0
    header_bytes = 0
    entries: tuple[tuple[bytes, bytes | None, bytes], ...] = ()
    while True:
        if at == len(content):
            raise Cut("the message ends before its body")
        code, _ = descriptor(content, at)
        if code not in (HEADER, DELIVERY_ANNOTATIONS):
            return Head(header_bytes, at, entries)
        section = next_section(content, at, last)
        last, at = section.code, section.end
        if code == HEADER:
            header_bytes = at
        else:
            entries = tuple(decode.raw_entries(content, section.value))
            return Head(header_bytes, at, entries)


def annotated(content: bytes | AnnotatedMessage, section: bytes) -> AnnotatedMessage:
    """One copy of *content*, with what *section* has. Raises `Malformed`."""
    begin = content if isinstance(content, bytes) else content.head
    if isinstance(content, AnnotatedMessage) and not begin:
        head = Head(0, 0, ())
    elif isinstance(content, AnnotatedMessage):
        head = _head_of(begin)
    else:
        head = read_head(begin)
    new = begin[: head.header_bytes] + _merged(head, section)
    if isinstance(content, bytes):
        return AnnotatedMessage(new, content, head.end)
    return AnnotatedMessage(new, content.rest, content.skip)


def annotated_beginning(content: bytes, section: bytes) -> bytes | None:
    """Return the beginning of a message, rewritten; None if more of it is needed."""
    try:
        head = read_head(content)
    except Cut:
        return None
    return content[: head.header_bytes] + _merged(head, section) + content[head.end :]


def take_off(content: bytes) -> tuple[Hop, AnnotatedMessage]:
    """Return the hop annotations of a message, or of the beginning of one, and a copy without them.

    Raises `Malformed`, `Cut`.
    """
    head = read_head(content)
    found: dict[bytes | None, bytes] = {name: value for _, name, value in head.entries if name in _KEYS}
    kept = [(key, value) for key, name, value in head.entries if name not in _KEYS]
    begin = content[: head.header_bytes]
    if kept:
        begin += _section([key + value for key, value in kept], 2 * len(kept))
    return _hop(found), AnnotatedMessage(begin, content, head.end)


def _hop(found: Mapping[bytes | None, bytes]) -> Hop:
    to = decode.complete(found[TO]) if TO in found else None
    if not isinstance(to, str):
        raise Malformed("a message between brokers names no address")
    targets = _names(found[TARGETS]) if TARGETS in found else None
    return Hop(to, _names(found.get(TRACE, _NOTHING)), targets)


def _names(raw: bytes) -> tuple[str, ...]:
    names = decode.complete(raw)
    if not isinstance(names, list) or len(names) > MOST_ROUTERS or not all(isinstance(one, str) for one in names):
        raise Malformed("a list of brokers is expected")
    return tuple(names)


def _head_of(begin: bytes) -> Head:
    """Decode a head without a body."""
    header_bytes = 0
    section = next_section(begin, 0, 0)
    if section.code == HEADER:
        header_bytes = section.end
        if section.end == len(begin):
            return Head(header_bytes, header_bytes, ())
        section = next_section(begin, section.end, section.code)
    return Head(header_bytes, section.end, tuple(decode.raw_entries(begin, section.value)))


def _merged(head: Head, section: bytes) -> bytes:
    if not head.entries:
        return section
    ours = decode.raw_entries(section, 3)
    kept = [key + value for key, name, value in head.entries if name not in _KEYS]
    return _section([*kept, *(key + value for key, _, value in ours)], 2 * (len(kept) + len(ours)))


def _section(entries: list[bytes], count: int) -> bytes:
    body = b"".join(entries)
    if len(body) < 255 and count < 256:
        raw = bytes((0xC1, len(body) + 1, count)) + body
    else:
        raw = b"\xd1" + (len(body) + 4).to_bytes(4) + count.to_bytes(4) + body
    return encode.described(DELIVERY_ANNOTATIONS, raw)


_KEYS = {name: encode.symbol(name.decode()) for name in (TO, TRACE, TARGETS)}
_NOTHING = encode.value([])
