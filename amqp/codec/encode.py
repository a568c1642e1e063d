"""Encoding of values: each in the shortest encoding of its type, see `values` for the types."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Mapping
from typing import Any
from uuid import UUID

from .primitives import FIXED_BYTES
from .types import DECIMALS, MAX_DEPTH, NUMBERS, WIDEST, Array, Char, Described, Int, Symbol, Uint, Ulong

NULL = b"\x40"


def value(of: Any) -> bytes:
    """Encode *of*. Raises `TypeError` for what AMQP knows no type for, `ValueError` for what does not fit its type."""
    return _value(of, MAX_DEPTH)


def listed(items: Iterable[bytes]) -> bytes:
    """A list of encoded values; empty ones at its end are left out."""
    parts = list(items)
    while parts and parts[-1] == NULL:
        parts.pop()
    return _compound(0xC0, parts) if parts else b"\x45"


def mapped(items: Iterable[bytes]) -> bytes:
    """A map of encoded keys and values, in turns."""
    return _compound(0xC1, list(items))


def mapped_entries(entries: list[bytes]) -> bytes:
    """A map of entries, each an encoded key with its value behind it."""
    return _compound(0xC1, entries, 2 * len(entries))


def symbol(name: str) -> bytes:
    return _sized(0xA3, name.encode("ascii"))


def string(text: str) -> bytes:
    return _sized(0xA1, text.encode())


def binary(data: bytes) -> bytes:
    return _sized(0xA0, bytes(data))


def boolean(of: bool) -> bytes:
    return b"\x41" if of else b"\x42"


def described(descriptor: int, encoded: bytes) -> bytes:
    """Return an encoded value with a numeric descriptor, such as a section."""
    return b"\x00" + ulong(descriptor) + encoded


def _sized(code: int, raw: bytes) -> bytes:
    if len(raw) < 256:
        return bytes((code, len(raw))) + raw
    return _head32(code + 0x10, len(raw)) + raw


def _head32(code: int, size: int) -> bytes:
    if size > 0xFFFFFFFF:
        raise ValueError(f"a value of {size} bytes is longer than AMQP can encode")
    return struct.pack(">BI", code, size)


def _compound(code: int, parts: list[bytes], count: int | None = None) -> bytes:
    """*code* is that of the short encoding, the long one is 16 above it; *count*: of values, if not of *parts*."""
    body = b"".join(parts)
    count = len(parts) if count is None else count
    if len(body) < 255 and count < 256:
        return bytes((code, len(body) + 1, count)) + body
    return _head32(code + 0x10, len(body) + 4) + count.to_bytes(4) + body


def uint(of: int) -> bytes:
    if of == 0:
        return b"\x43"
    return bytes((0x52, of)) if 0 < of < 256 else _packed(">BI", 0x70, of)


def ulong(of: int) -> bytes:
    if of == 0:
        return b"\x44"
    return bytes((0x53, of)) if 0 < of < 256 else _packed(">BQ", 0x80, of)


def timestamp(ms: int) -> bytes:
    return _packed(">Bq", 0x83, ms)


def _long(of: int) -> bytes:
    return _packed(">Bb", 0x55, of) if -128 <= of < 128 else _packed(">Bq", 0x81, of)


def _packed(layout: str, code: int, of: Any) -> bytes:
    try:
        return struct.pack(layout, code, of)
    except (struct.error, OverflowError) as error:
        raise ValueError(f"{of} does not fit its type: {error}") from error


def _fixed(layout: str, code: int) -> Callable[[Any], bytes]:
    return lambda of: _packed(layout, code, of)


def _char(of: str) -> bytes:
    if len(of) != 1:
        raise ValueError(f"a character is one, not {len(of)}")
    return b"\x73" + of.encode("utf-32-be")


def _raw(code: int, width: int) -> Callable[[bytes], bytes]:
    def encode(of: bytes) -> bytes:
        if len(of) != width:
            raise ValueError(f"a decimal of {len(of)} bytes, where its type has {width}")
        return bytes((code,)) + of

    return encode


_WIDE: dict[int, Callable[[Any], bytes]] = {
    **{code: _fixed(f">B{layout[1:]}", code) for code, (layout, _) in NUMBERS.items() if code not in WIDEST},
    **{code: _raw(code, FIXED_BYTES[code >> 4]) for code in DECIMALS},
}
"""By the code of the widest encoding of a number or decimal."""
_LEAVES: dict[type, Callable[[Any], bytes]] = {
    **{kind: _WIDE[code] for code, (_, kind) in NUMBERS.items() if code in _WIDE},
    **{kind: _WIDE[code] for code, kind in DECIMALS.items()},
    type(None): lambda of: NULL,
    bool: boolean,
    Uint: uint,
    Ulong: ulong,
    Int: lambda of: _packed(">Bb", 0x54, of) if -128 <= of < 128 else _packed(">Bi", 0x71, of),
    int: _long,
    Char: _char,
    UUID: lambda of: b"\x98" + of.bytes,
    bytes: binary,
    bytearray: binary,
    memoryview: binary,
    str: string,
    Symbol: symbol,
}


def _value(of: Any, depth: int) -> bytes:
    leaf = _LEAVES.get(type(of))
    if leaf is not None:
        return leaf(of)
    if not depth:
        raise ValueError(f"values are nested deeper than {MAX_DEPTH} levels")
    if isinstance(of, Described):
        return b"\x00" + _value(of.descriptor, depth - 1) + _value(of.value, depth - 1)
    if isinstance(of, Array):
        return _array(of, depth)
    if isinstance(of, Mapping):
        return _compound(0xC1, [_value(part, depth - 1) for pair in of.items() for part in pair])
    if isinstance(of, list | tuple):
        parts = [_value(item, depth - 1) for item in of]
        return _compound(0xC0, parts) if parts else b"\x45"
    raise TypeError(f"AMQP has no type for a {type(of).__name__}")


def _array(of: Array, depth: int) -> bytes:
    """One code for all items: the widest of their type, which fits any of them."""
    if of.code not in _BARE and of.code not in _NESTED:
        raise ValueError(f"no items of an array have the code 0x{of.code:02x}")
    if depth - len(of.descriptors) < 1:
        raise ValueError(f"values are nested deeper than {MAX_DEPTH} levels")
    depth -= len(of.descriptors)
    parts = [b"\x00" + _value(descriptor, depth - 1) for descriptor in of.descriptors]
    parts.append(bytes((of.code,)))
    if of.code in _NESTED:
        parts += [_bare_compound(_value(item, depth - 1)) for item in of.items]
    else:
        bare = _BARE[of.code]
        parts += [bare(item)[1:] for item in of.items]
    return _compound(0xE0, parts, len(of.items))


def _bare_compound(encoded: bytes) -> bytes:
    """Return a compound value as an element of an array whose items have sizes of four bytes: without its code."""
    if encoded[0] & 0x10:
        return encoded[1:]
    if encoded == b"\x45":
        return bytes((0, 0, 0, 4, 0, 0, 0, 0))
    return struct.pack(">II", encoded[1] + 3, encoded[2]) + encoded[3:]


def _long_sized(code: int) -> Callable[[bytes], bytes]:
    return lambda raw: _head32(code, len(raw)) + raw


_NESTED = frozenset((0xD0, 0xD1, 0xF0))
_BARE: dict[int, Callable[[Any], bytes]] = {
    **_WIDE,
    0x40: lambda of: NULL,
    0x56: _fixed(">B?", 0x56),
    0x73: _char,
    0x98: _LEAVES[UUID],
    0xB0: _long_sized(0xB0),
    0xB1: lambda of: _long_sized(0xB1)(of.encode()),
    0xB3: lambda of: _long_sized(0xB3)(of.encode("ascii")),
}
"""By the code of an array's items: an item with its code, which is taken off."""
