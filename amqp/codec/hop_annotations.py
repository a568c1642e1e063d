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


def section_of(hop: Hop) -> bytes:
    """A section with nothing else in it."""
    entries = [_KEYS[TO] + encode.string(hop.to), _KEYS[TRACE] + encode.value(list(hop.trace))]
    if hop.targets is not None:
        entries.append(_KEYS[TARGETS] + encode.value(list(hop.targets)))
    return _section(entries)


def read_head(content: bytes, *, is_all: bool = False) -> Head:
    """Return the head of a message, or of the beginning of one. Raises `Malformed`, and `Cut` if more is needed.

    *is_all*: *content* is a head without a body.
    """
    at = header_bytes = 0
    while True:
        if at == len(content):
            if is_all:
                return Head(header_bytes, at, ())
            raise Cut("the message ends before its body")
        code, _ = descriptor(content, at)
        if code not in (HEADER, DELIVERY_ANNOTATIONS):
            return Head(header_bytes, at, ())
        section = next_section(content, at, HEADER if at else 0)
        at = section.end
        if code == DELIVERY_ANNOTATIONS:
            return Head(header_bytes, at, tuple(decode.raw_entries(content, section.value)))
        header_bytes = at


def annotated(content: bytes | AnnotatedMessage, section: bytes) -> AnnotatedMessage:
    """One copy of *content*, with what *section* has. Raises `Malformed`."""
    if isinstance(content, AnnotatedMessage):
        head = read_head(content.head, is_all=True)
        return AnnotatedMessage(_begun(content.head, head, section), content.rest, content.skip)
    head = read_head(content)
    return AnnotatedMessage(_begun(content, head, section), content, head.end)


def annotated_beginning(content: bytes, section: bytes) -> bytes | None:
    """Return the beginning of a message, rewritten; None if more of it is needed."""
    try:
        head = read_head(content)
    except Cut:
        return None
    return _begun(content, head, section) + content[head.end :]


def take_off(content: bytes) -> tuple[Hop, AnnotatedMessage]:
    """Return the hop annotations of a message, or of the beginning of one, and a copy without them.

    Raises `Malformed`, `Cut`.
    """
    head = read_head(content)
    found: dict[bytes | None, bytes] = {name: value for _, name, value in head.entries if name in _KEYS}
    kept = [key + value for key, name, value in head.entries if name not in _KEYS]
    begin = content[: head.header_bytes]
    if kept:
        begin += _section(kept)
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


def _begun(content: bytes, head: Head, section: bytes) -> bytes:
    """The header of *content*, and its delivery annotations with what *section* has."""
    begin = content[: head.header_bytes]
    if not head.entries:
        return begin + section
    kept = [key + value for key, name, value in head.entries if name not in _KEYS]
    return begin + _section([*kept, *(key + value for key, _, value in decode.raw_entries(section, 3))])


def _section(entries: list[bytes]) -> bytes:
    return encode.described(DELIVERY_ANNOTATIONS, encode.mapped_entries(entries))


_KEYS = {name: encode.symbol(name.decode()) for name in (TO, TRACE, TARGETS)}
_NOTHING = encode.value([])
