"""Reading whole values: lists, maps, arrays and described ones with all that is in them.

Every byte is looked at once, every size and count is checked against what is left before anything is made for it (A1),
and nothing is nested deeper than `MAX_DEPTH` (A2). The memory of a result is proportional to its encoded size.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any
from uuid import UUID

from .primitives import FIXED_BYTES, Cut, Malformed, extent
from .types import DECIMALS, MAX_DEPTH, NUMBERS, WIDEST, Array, Char, Described, Symbol, Uint, Ulong

Leaf = Callable[[bytes], Any]
"""Makes a value of its bytes."""

LISTS = frozenset((0x45, 0xC0, 0xD0))
MAPS = frozenset((0xC1, 0xD1))
_ARRAYS = frozenset((0xE0, 0xF0))
_CONSTANTS: dict[int, Any] = {0x40: None, 0x41: True, 0x42: False}
_NESTED = LISTS | MAPS | _ARRAYS | {0}
_NOT_TEXT = "a string is not UTF-8, a symbol not ASCII, or a character none of Unicode's"
_TOO_DEEP = f"values are nested deeper than {MAX_DEPTH} levels"
_REST = "bytes behind the last value of a compound one"
_MOST_WIDTHLESS = 16
"""The maximum length of an array of values without content (such as nulls), which has no other bound (A1)."""
_MOST_ODD_KEYS = 64


def _number(layout: str, kind: type) -> Leaf:
    """Return the decoder of a number, whose *layout* is one of `struct`: upper-case letters are unsigned integers."""
    unpack = struct.Struct(layout).unpack
    if kind in (int, float):
        return int.from_bytes if layout.isupper() else lambda raw: unpack(raw)[0]
    return (lambda raw: kind(raw[0])) if layout == ">B" else lambda raw: kind(unpack(raw)[0])


def _boolean(raw: bytes) -> bool:
    if raw > b"\x01":
        raise Malformed("a boolean is neither 0 nor 1")
    return raw == b"\x01"


def _symbol(raw: bytes) -> Symbol:
    return Symbol(raw, "ascii")


_TYPED: dict[int, Leaf] = {
    0x43: lambda raw: Uint(0),
    0x44: lambda raw: Ulong(0),
    **{code: _number(layout, kind) for code, (layout, kind) in NUMBERS.items()},
    **DECIMALS,
    0x56: _boolean,
    0x73: lambda raw: Char(raw.decode("utf-32-be")),
    0x98: lambda raw: UUID(bytes=raw),
    0xA0: bytes,
    0xA1: bytes.decode,
    0xA3: _symbol,
    0xB0: bytes,
    0xB1: bytes.decode,
    0xB3: _symbol,
}
_PLAIN: dict[int, Leaf] = _TYPED | {
    0x43: int.from_bytes,
    0x44: int.from_bytes,
    **{code: _number(layout, float if issubclass(kind, float) else int) for code, (layout, kind) in NUMBERS.items()},
    0x73: lambda raw: raw.decode("utf-32-be"),
    0xA3: lambda raw: raw.decode("ascii"),
    0xB3: lambda raw: raw.decode("ascii"),
}


_KEYS: frozenset[type] = frozenset((
    type(None), bool, str, bytes, Symbol, Char, *DECIMALS.values(), *(kind for _, kind in NUMBERS.values()),
))  # fmt: skip
"""Types of keys for which a sender can't produce many equal hashes, so that maps of any size take linear time.

Numbers can be chosen for the order in which a dict probes its places: a map of 54 KB then takes 26 ms instead of 2.4.
"""


def value(data: bytes, at: int = 0, *, plain: bool = False) -> tuple[Any, int]:
    """The value at *at*, and where the next one starts. Raises `Malformed`.

    With *plain*, numbers are int and float, symbols and characters str, whatever AMQP types they had.
    """
    return _value(data, at, len(data), _PLAIN if plain else _TYPED, MAX_DEPTH)


def complete(data: bytes) -> Any:
    """The value that *data* is, all of it."""
    found, end = value(data)
    if end != len(data):
        raise Malformed(f"{len(data) - end} bytes behind a value")
    return found


def read_items(data: bytes, at: int) -> list[Any]:
    """The list at *at*, plain."""
    if data[at] not in LISTS:
        raise Malformed(f"a list is expected, found type 0x{data[at]:02x}")
    found: list[Any] = _value(data, at, len(data), _PLAIN, MAX_DEPTH)[0]
    return found


def read_map(data: bytes, at: int, *, plain: bool = True) -> dict[Any, Any]:
    """The map at *at*."""
    if data[at] not in MAPS:
        raise Malformed(f"a map is expected, found type 0x{data[at]:02x}")
    found: dict[Any, Any] = _value(data, at, len(data), _PLAIN if plain else _TYPED, MAX_DEPTH)[0]
    return found


def raw_entries(data: bytes, at: int) -> list[tuple[bytes, bytes | None, bytes]]:
    """The entries of the map at *at* as encoded keys, the keys' names if they are symbols, and encoded values."""
    code = data[at]
    if code not in MAPS:
        raise Malformed(f"a map is expected, found type 0x{code:02x}")
    begin, end = _bounds(code, data, at + 1, len(data))
    count, at = _count(code, data, begin, end)
    if count & 1:
        raise Malformed("a map's last key has no value")
    entries: list[tuple[bytes, bytes | None, bytes]] = []
    for _ in range(0, count, 2):
        between = extent_of(data, at, end)
        name = None
        if data[at] in (0xA3, 0xB3):
            name = data[at + (2 if data[at] == 0xA3 else 5) : between]
        stop = extent_of(data, between, end)
        entries.append((data[at:between], name, data[between:stop]))
        at = stop
    if at != end:
        raise Malformed(_REST)
    return entries


def extent_of(data: bytes, at: int, end: int) -> int:
    """The end of the value at *at*, which may be described, and so may its descriptor: each is one more to come."""
    due = 1
    while due:
        if at < end and not data[at]:
            at += 1
            due += 1
            if due > MAX_DEPTH + 1:
                raise Malformed(_TOO_DEEP)
        else:
            at = extent(data, at)[2]
            due -= 1
    if at > end:
        raise Cut("a value exceeds the value that contains it")
    return at


def _value(data: bytes, at: int, end: int, leaves: dict[int, Leaf], depth: int) -> tuple[Any, int]:
    """*end*: of the value that this one is in; *depth*: how many levels more there may be."""
    if at >= end:
        raise Cut(f"a value is missing at byte {at}")
    code = data[at]
    if not code:
        if not depth:
            raise Malformed(_TOO_DEEP)
        descriptor, at = _value(data, at + 1, end, leaves, depth - 1)
        described, at = _value(data, at, end, leaves, depth - 1)
        return Described(descriptor, described), at
    if code < 0xC0 and code != 0x45:
        values, at = _values(data, at, end, 1, leaves, depth)
        return values[0], at
    if not depth:
        raise Malformed(_TOO_DEEP)
    if code == 0x45:
        return [], at + 1
    at, stop = _bounds(code, data, at + 1, end)
    return _compound(code, data, at, stop, leaves, depth), stop


def _bounds(code: int, data: bytes, at: int, end: int) -> tuple[int, int]:
    """Return the start and the end of the content of a value that carries its size. Raises `Cut`."""
    width = 4 if code & 0x10 else 1
    begin = at + width
    if begin > end:
        raise Cut("a size is cut off")
    stop = begin + int.from_bytes(data[at:begin])
    if stop > end:
        raise Cut(f"a value of {stop - begin} bytes, where {end - begin} are left")
    return begin, stop


def _count(code: int, data: bytes, at: int, end: int) -> tuple[int, int]:
    """Return the number of values between *at* and *end*, and the start of the first one. Raises `Malformed`."""
    begin = at + (4 if code & 0x10 else 1)
    if begin > end:
        raise Malformed("a compound value without a count")
    count = int.from_bytes(data[at:begin])
    if count > end - begin and code not in _ARRAYS:
        raise Malformed(f"{count} values do not fit in {end - begin} bytes")
    return count, begin


def _compound(code: int, data: bytes, at: int, end: int, leaves: dict[int, Leaf], depth: int) -> Any:
    """Decode the compound value between *at* and *end*: a count, and that many values. Raises `Malformed`."""
    count, begin = _count(code, data, at, end)
    if code in _ARRAYS:
        return _array(count, data, begin, end, leaves, depth)
    values, at = _values(data, begin, end, count, leaves, depth - 1)
    if at != end:
        raise Malformed(_REST)
    if code not in MAPS:
        if code not in LISTS:
            raise Malformed(f"no type has the code 0x{code:02x}")
        return values
    if count & 1:
        raise Malformed("a map's last key has no value")
    if count > _MOST_ODD_KEYS * 2 and not _KEYS.issuperset(map(type, values[::2])):
        raise Malformed(f"a map of more than {_MOST_ODD_KEYS} entries has a key that is a UUID or a described value")
    try:
        found = dict(zip(values[::2], values[1::2], strict=True))
    except TypeError as error:
        raise Malformed("a map's key is a compound value") from error
    if len(found) * 2 != count:
        raise Malformed("two keys of a map are equal")
    return found


def _values(data: bytes, at: int, end: int, count: int, leaves: dict[int, Leaf], depth: int) -> tuple[list[Any], int]:
    """*count* values, one behind the other. The hot loop: strings are done in place."""
    values: list[Any] = []
    append = values.append
    try:
        for _ in range(count):
            code = data[at]
            if code == 0xA1:
                begin = at + 2
                at = begin + data[at + 1]
                append(data[begin:at].decode())
            elif 0x40 <= code <= 0x42:
                append(_CONSTANTS[code])
                at += 1
            elif code in leaves:
                if code < 0xA0:
                    begin = at + 1
                    at = begin + FIXED_BYTES[code >> 4]
                elif code < 0xB0:
                    begin = at + 2
                    at = begin + data[at + 1]
                else:
                    begin = at + 5
                    at = begin + int.from_bytes(data[at + 1 : begin])
                if at > end:
                    raise Cut(f"a value of {at - begin} bytes, where {max(0, end - begin)} are left")
                append(leaves[code](data[begin:at]))
            elif code in _NESTED:
                found, at = _value(data, at, end, leaves, depth)
                append(found)
            else:
                raise Malformed(f"no type has the code 0x{code:02x}")
    except IndexError:
        raise Cut(f"a value is missing at byte {at}") from None
    except UnicodeDecodeError as error:
        raise Malformed(_NOT_TEXT) from error
    if at > end:
        raise Cut("the last value exceeds the value that contains it")
    return values, at


def _array(count: int, data: bytes, at: int, end: int, leaves: dict[int, Leaf], depth: int) -> Array:
    """One encoding for all: the code stands once, perhaps with descriptors, then the bare contents."""
    descriptors = []
    while at < end and data[at] == 0:
        depth -= 1
        if not depth:
            raise Malformed(_TOO_DEEP)
        descriptor, at = _value(data, at + 1, end, leaves, depth)
        descriptors.append(descriptor)
    if at >= end:
        raise Malformed("an array without a type")
    code = data[at]
    at += 1
    most = end - at if code >> 4 != 4 else _MOST_WIDTHLESS
    if count > most:
        raise Malformed(f"{count} values do not fit in {end - at} bytes")
    items: list[Any] = []
    if code >> 4 == 4:
        if code not in _CONSTANTS and code not in leaves and code != 0x45:
            raise Malformed(f"no type has the code 0x{code:02x}")
        items = [_value(data, at - 1, at, leaves, depth - 1)[0] for _ in range(count)]
    elif code in leaves and code < 0xA0:
        width = FIXED_BYTES[code >> 4]
        if count * width != end - at:
            raise Malformed(f"{count} values of {width} bytes each don't fill {end - at} bytes")
        items = [_leaf(leaves[code], data[begin : begin + width]) for begin in range(at, end, width)]
        at = end
    elif code in leaves or code in _NESTED:
        for _ in range(count):
            begin, stop = _bounds(code, data, at, end)
            if code in leaves:
                items.append(_leaf(leaves[code], data[begin:stop]))
            elif depth < 2:
                raise Malformed(_TOO_DEEP)
            else:
                items.append(_compound(code, data, begin, stop, leaves, depth - 1))
            at = stop
    else:
        raise Malformed(f"no type has the code 0x{code:02x}")
    if at != end:
        raise Malformed(_REST)
    return Array(WIDEST.get(code, code), items, tuple(descriptors))


def _leaf(read: Leaf, raw: bytes) -> Any:
    try:
        return read(raw)
    except UnicodeDecodeError as error:
        raise Malformed(_NOT_TEXT) from error
