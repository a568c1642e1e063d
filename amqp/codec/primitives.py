"""The little of AMQP's type system that is read outside proton: primitive values and lists of them.

Every size is checked against the bytes that are there before anything is taken from them (security A1). Nested values
are skipped by their size, never descended into, so depth is no concern (A2). Whole values are read by `decode`.
"""

from __future__ import annotations

import struct

from .types import NUMBERS

Primitive = None | bool | int | float | str | bytes


class Malformed(Exception):
    """The bytes are not what AMQP's encoding allows."""


class Cut(Malformed):
    """The bytes end before the value does: it is malformed, or the rest is not there yet."""


class Opaque:
    """A value that is skipped: compound, or of a type nothing here reads."""

    def __repr__(self) -> str:
        return "OPAQUE"


OPAQUE = Opaque()
Value = Primitive | Opaque

FIXED_BYTES = {4: 0, 5: 1, 6: 2, 7: 4, 8: 8, 9: 16}
"""By the category of a type, the upper half of its code: the size of values of fixed width."""
NAMES = {
    "amqp:error:list": 0x1D,
    "amqp:received:list": 0x23,
    "amqp:accepted:list": 0x24,
    "amqp:rejected:list": 0x25,
    "amqp:released:list": 0x26,
    "amqp:modified:list": 0x27,
    "amqp:source:list": 0x28,
    "amqp:target:list": 0x29,
    "amqp:coordinator:list": 0x30,
    "amqp:declare:list": 0x31,
    "amqp:discharge:list": 0x32,
    "amqp:declared:list": 0x33,
    "amqp:transactional-state:list": 0x34,
    "amqp:sasl-init:list": 0x41,
    "amqp:sasl-response:list": 0x43,
    "amqp:header:list": 0x70,
    "amqp:delivery-annotations:map": 0x71,
    "amqp:message-annotations:map": 0x72,
    "amqp:properties:list": 0x73,
    "amqp:application-properties:map": 0x74,
    "amqp:data:binary": 0x75,
    "amqp:amqp-sequence:list": 0x76,
    "amqp:amqp-value:*": 0x77,
    "amqp:footer:map": 0x78,
}
"""The codes of descriptors given by name, which is rare."""
_CONSTANTS: dict[int, Primitive] = {0x40: None, 0x41: True, 0x42: False, 0x43: 0, 0x44: 0}


def extent(data: bytes | memoryview, at: int) -> tuple[int, int, int]:
    """The code, first content byte and end of the value at *at*."""
    code, at, end = head(data, at)
    if end > len(data):
        raise Cut(f"a value of {end - at} bytes, where {len(data) - at} are left")
    return code, at, end


def head(data: bytes | memoryview, at: int) -> tuple[int, int, int]:
    """Return the code, first content byte and end of the value at *at*, which may be truncated."""
    if at >= len(data):
        raise Cut(f"a value is missing at byte {at}")
    code = data[at]
    category = code >> 4
    at += 1
    if category in FIXED_BYTES:
        end = at + FIXED_BYTES[category]
    elif category in (0xA, 0xC, 0xE):
        if at >= len(data):
            raise Cut("a size is cut off")
        end = at + 1 + data[at]
        at += 1
    elif category in (0xB, 0xD, 0xF):
        if at + 4 > len(data):
            raise Cut("a size is cut off")
        end = at + 4 + int.from_bytes(data[at : at + 4])
        at += 4
    else:
        raise Malformed(f"no type has the code 0x{code:02x}")
    return code, at, end


def read(data: bytes | memoryview, at: int) -> tuple[Value, int]:
    """The value at *at* and where the next one starts."""
    code, start, end = extent(data, at)
    if code in _CONSTANTS:
        return _CONSTANTS[code], end
    if code in NUMBERS:
        number: int | float = struct.unpack_from(NUMBERS[code][0], data, start)[0]
        return number, end
    if code == 0x56:
        return bool(data[start]), end
    if code in (0xA0, 0xB0):
        return bytes(data[start:end]), end
    if code in (0xA1, 0xB1, 0xA3, 0xB3):
        try:
            return str(data[start:end], "utf-8" if code in (0xA1, 0xB1) else "ascii"), end
        except UnicodeDecodeError as error:
            raise Malformed("a string is not UTF-8, or a symbol not ASCII") from error
    return OPAQUE, end


def read_list(data: bytes | memoryview, at: int) -> tuple[list[Value], int]:
    """The list at *at*, nested values as `OPAQUE`, and where the next value starts."""
    code, start, end = extent(data, at)
    if code == 0x45:
        return [], end
    if code not in (0xC0, 0xD0):
        raise Malformed(f"a list is expected, found type 0x{code:02x}")
    width = 1 if code == 0xC0 else 4
    if start + width > end:
        raise Malformed("a list without a count")
    count = int.from_bytes(data[start : start + width])
    if count > end - start - width:
        raise Malformed(f"{count} values do not fit in {end - start - width} bytes")
    at = start + width
    body = data[:end]
    values: list[Value] = []
    for _ in range(count):
        value, at = read(body, at)
        values.append(value)
    return values, end


def descriptor(data: bytes | memoryview, at: int) -> tuple[int, int]:
    """The descriptor, as a number, of the described value at *at*, and where the value itself starts."""
    if at < len(data) and data[at] != 0:
        raise Malformed("a described value is expected")
    if at + 1 >= len(data):
        raise Cut("a descriptor is cut off")
    code = data[at + 1]
    if code == 0x53 and at + 2 < len(data):
        return data[at + 2], at + 3
    if code not in (0x44, 0x53, 0x80, 0xA3, 0xB3):
        raise Malformed("a descriptor that is neither a number nor a name")
    value, end = read(data, at + 1)
    if isinstance(value, str):
        value = NAMES.get(value)
    if not isinstance(value, int):
        raise Malformed("an unknown descriptor name")
    return value, end
