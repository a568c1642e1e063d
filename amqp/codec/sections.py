"""The sections of an encoded message: their positions, and the values of properties and maps.

code  section                 at most  its value
0x70  header                        1  list
0x71  delivery annotations          1  map, of symbols
0x72  message annotations           1  map, of symbols
0x73  properties                    1  list
0x74  application properties        1  map, of strings
0x75  data                        any  binary
0x76  sequence                    any  list
0x77  value                         1  any
0x78  footer                        1  map

They occur in this order, and a body is of one kind. Anything else is malformed, in particular after the body: no second
properties section can be smuggled past a reader of the first one (A15).
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any, NamedTuple
from uuid import UUID

from . import decode, encode
from .header import HEADER, Header
from .header import encoded as encoded_header
from .primitives import Cut, Malformed, descriptor, extent

DELIVERY_ANNOTATIONS, MESSAGE_ANNOTATIONS, PROPERTIES, APPLICATION_PROPERTIES = 0x71, 0x72, 0x73, 0x74
DATA, SEQUENCE, VALUE, FOOTER = 0x75, 0x76, 0x77, 0x78

_LISTS, _MAPS = decode.LISTS, decode.MAPS
_KINDS: dict[int, frozenset[int]] = {
    HEADER: _LISTS,
    DELIVERY_ANNOTATIONS: _MAPS,
    MESSAGE_ANNOTATIONS: _MAPS,
    PROPERTIES: _LISTS,
    APPLICATION_PROPERTIES: _MAPS,
    DATA: frozenset((0xA0, 0xB0)),
    SEQUENCE: _LISTS,
    FOOTER: _MAPS,
}
"""The codes that a section's value may have."""


_COMMON = {
    bytes((0x00, 0x53, code, kind)): code
    for code in range(HEADER, DATA)
    for kind in (0xC0, 0xC1)
    if kind in _KINDS[code]
}
"""The first four bytes of nearly all sections before the body, to the section's code.

The fifth byte is the number of bytes that follow it.
"""


class Section(NamedTuple):
    """One section: its code, its start, the start of its value, and its end."""

    code: int
    begin: int
    value: int
    end: int


class Sections(NamedTuple):
    """The sections of a message."""

    header: Section | None = None
    delivery_annotations: Section | None = None
    message_annotations: Section | None = None
    properties: Section | None = None
    application_properties: Section | None = None
    body: tuple[Section, ...] = ()
    footer: Section | None = None
    end: int = 0
    """The end of the last complete section."""


class Properties(NamedTuple):
    """The properties section. Ids are int for ulong; times are in ms since 1970."""

    message_id: int | str | bytes | UUID | None = None
    user_id: bytes | None = None
    to: str | None = None
    subject: str | None = None
    reply_to: str | None = None
    correlation_id: int | str | bytes | UUID | None = None
    content_type: str | None = None
    content_encoding: str | None = None
    absolute_expiry_time_ms: int | None = None
    creation_time_ms: int | None = None
    group_id: str | None = None
    group_sequence: int | None = None
    reply_to_group_id: str | None = None


NO_PROPERTIES = Properties()


# ---- where they stand -----------------------------------------------------------------------------------------------


def next_section(content: bytes, at: int, last: int) -> Section:
    """The section at *at*, behind one of the code *last* (0 for none). Raises `Malformed`, `Cut` at the end."""
    code, value = descriptor(content, at)
    if not HEADER <= code <= FOOTER:
        raise Malformed(f"a message has no section 0x{code:02x}")
    if code <= last and not code == last in (DATA, SEQUENCE):
        raise Malformed(f"section 0x{code:02x} stands behind section 0x{last:02x}")
    if DATA <= last < code < FOOTER:
        raise Malformed("a message's body is of two kinds")
    if value >= len(content):
        raise Cut(f"section 0x{code:02x} has no value")
    if code != VALUE and content[value] not in _KINDS[code]:
        raise Malformed(f"section 0x{code:02x} has a value of type 0x{content[value]:02x}")
    end = decode.extent_of(content, value, len(content)) if code == VALUE else extent(content, value)[2]
    return Section(code, at, value, end)


def index(content: bytes, *, complete: bool = True) -> Sections:
    """The sections of a message. Raises `Malformed`.

    With *complete* False, *content* is the beginning of a message: the section it ends in is not there yet.
    """
    found: list[Section | None] = [None] * 5
    body: list[Section] = []
    footer = None
    at = last = 0
    size = len(content)
    while at < size:
        code = _COMMON.get(content[at : at + 4], 0)
        if last < code and at + 4 < size and at + 5 + content[at + 4] <= size:
            end = at + 5 + content[at + 4]
            found[code - HEADER] = Section(code, at, at + 3, end)
            last, at = code, end
            continue
        try:
            section = next_section(content, at, last)
        except Cut:
            if complete:
                raise
            break
        last = section.code
        at = section.end
        if last < DATA:
            found[last - HEADER] = section
        elif last < FOOTER:
            body.append(section)
        else:
            footer = section
    return Sections(found[0], found[1], found[2], found[3], found[4], tuple(body), footer, at)


def find(content: bytes, code: int) -> int:
    """Return the start of the value of the section with this *code*, which comes before the body.

    Returns 0 if the section is absent or incomplete.
    """
    at = last = 0
    size = len(content)
    while at < size:
        common = _COMMON.get(content[at : at + 4], 0)
        if last < common and at + 4 < size and at + 5 + content[at + 4] <= size:
            if common >= code:
                return at + 3 if common == code else 0
            last = common
            at += 5 + content[at + 4]
            continue
        try:
            section = next_section(content, at, last)
        except Cut:
            return 0
        last = section.code
        if last >= code:
            return section.value if last == code else 0
        at = section.end
    return 0


# ---- their values ---------------------------------------------------------------------------------------------------

_FIELDS: tuple[tuple[type, ...], ...] = (
    (str, int, UUID, bytes), (bytes,), (str,), (str,), (str,), (str, int, UUID, bytes), (str,), (str,), (int,), (int,),
    (str,), (int,), (str,),
)  # fmt: skip


_allowed: set[tuple[type, ...]] = set()
"""Types of fields that were found right: senders mostly fill in the same ones."""
_ALLOWED_LIMIT = 256


def properties(content: bytes, at: int) -> Properties:
    """The properties section whose value begins at *at*, or what is said without one at 0. Raises `Malformed`."""
    if not at:
        return NO_PROPERTIES
    fields = decode.read_items(content, at)
    kinds = tuple(map(type, fields))
    if kinds not in _allowed:
        _check(kinds)
        if len(_allowed) < _ALLOWED_LIMIT:
            _allowed.add(kinds)
    return Properties(*fields)


def _check(kinds: tuple[type, ...]) -> None:
    if len(kinds) > len(_FIELDS):
        raise Malformed(f"properties have {len(_FIELDS)} fields, these have {len(kinds)}")
    for kind, allowed, name in zip(kinds, _FIELDS, Properties._fields, strict=False):
        if kind not in allowed and kind is not type(None):
            raise Malformed(f"properties: {name} is a {kind.__name__}")


def application_properties(content: bytes, at: int) -> dict[str, Any]:
    """Plain values by name; *at* as for `properties`. Raises `Malformed`."""
    if not at:
        return {}
    found = decode.read_map(content, at)
    for key in found:
        if type(key) is not str:
            raise Malformed(f"application properties: {key!r} is not a name")
    return found


def annotations_of(content: bytes, at: int) -> dict[Any, Any]:
    """Typed values by symbol, of any of the sections that are annotations; *at* as before. Raises `Malformed`."""
    return decode.read_map(content, at, plain=False) if at else {}


# ---- making them ----------------------------------------------------------------------------------------------------


def header_section(header: Header) -> bytes:
    if header.message_format:
        return encoded_header(header)
    ttl_ms, count = header.ttl_ms, header.delivery_count
    fields = (
        b"\x41" if header.durable else encode.NULL,
        encode.NULL if header.priority == 4 else bytes((0x50, header.priority)),
        encode.NULL if ttl_ms is None else encode.uint(ttl_ms),
        b"\x41" if header.first_acquirer else encode.NULL,
        encode.uint(count) if count else encode.NULL,
    )
    return encode.described(HEADER, encode.listed(fields))


def _id(of: int | str | bytes | UUID) -> bytes:
    return encode.ulong(of) if isinstance(of, int) and of >= 0 else encode.value(of)


_WRITERS: tuple[Callable[[Any], bytes], ...] = (
    _id, encode.binary, encode.string, encode.string, encode.string, _id, encode.symbol, encode.symbol,
    encode.timestamp, encode.timestamp, encode.string, encode.uint, encode.string,
)  # fmt: skip


def properties_section(of: Properties) -> bytes:
    fields = [encode.NULL if field is None else write(field) for write, field in zip(_WRITERS, of, strict=True)]
    return encode.described(PROPERTIES, encode.listed(fields))


def application_properties_section(entries: dict[str, Any]) -> bytes:
    parts = (part for name, of in entries.items() for part in (encode.string(name), encode.value(of)))
    return encode.described(APPLICATION_PROPERTIES, encode.mapped(parts))


def annotated(content: bytes, entries: dict[str, Any], without: Collection[str] = ()) -> bytes:
    """*content* with these message annotations added or replaced, and everything else byte for byte as it was.

    But those *without* which it is to be.

    *content* may be the beginning of a message, if its annotations end there. Raises `Malformed`.
    """
    at = last = 0
    kept: list[bytes] = []
    begin = end = 0
    while at < len(content):
        section = _before_body(content, at, last)
        if section is None or section.code > MESSAGE_ANNOTATIONS:
            break
        last, at = section.code, section.end
        if section.code == MESSAGE_ANNOTATIONS:
            begin, end = section.begin, section.end
            names = {name.encode("ascii") for name in (*entries, *without)}
            for key, name, rest in decode.raw_entries(content, section.value):
                if name not in names:
                    kept += (key, rest)
            break
        begin = end = at
    kept += [part for name, of in entries.items() for part in (encode.symbol(name), encode.value(of))]
    new = encode.described(MESSAGE_ANNOTATIONS, encode.mapped(kept))
    return content[:begin] + new + content[end:]


def envelope(content: bytes) -> bytes:
    """The sections before the body, as far as they are whole and right: all that a queue may want to know of one."""
    at = last = 0
    try:
        while at < len(content) and (section := _before_body(content, at, last)) is not None:
            last, at = section.code, section.end
    except Malformed:
        pass
    return content[:at]


def _before_body(content: bytes, at: int, last: int) -> Section | None:
    """The section at *at*, None if it is of the body, which may continue beyond *content*."""
    if descriptor(content, at)[0] >= DATA:
        return None
    return next_section(content, at, last)
