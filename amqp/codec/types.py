"""AMQP types as Python values, for code that must return values with their original types.

| AMQP | Python | | AMQP | Python |
|---|---|---|---|---|
| null, boolean | None, bool | | binary, string | bytes, str |
| long, double | int, float | | symbol, char | `Symbol`, `Char` |
| ubyte, ushort, uint, ulong | `Ubyte` ... `Ulong` | | uuid | `uuid.UUID` |
| byte, short, int | `Byte`, `Short`, `Int` | | list, map | list, dict |
| timestamp, in ms | `Timestamp` | | array | `Array` |
| float | `Float` | | described | `Described` |
| decimal32, 64, 128 | `Decimal32` ... `Decimal128` | | | |

All numbers are subclasses of int or float, and all texts of str, so other code can ignore the types.
"""

from __future__ import annotations

from typing import Any, NamedTuple

MAX_DEPTH = 16
"""The maximum nesting depth of values (security A2): lists, maps, arrays and described values each count as a level."""


WIDEST = {
    0x41: 0x56, 0x42: 0x56, 0x43: 0x70, 0x52: 0x70, 0x44: 0x80, 0x53: 0x80, 0x54: 0x71, 0x55: 0x81,
    0x45: 0xD0, 0xA0: 0xB0, 0xA1: 0xB1, 0xA3: 0xB3, 0xC0: 0xD0, 0xC1: 0xD1, 0xE0: 0xF0,
}  # fmt: skip
"""Codes of types that have several encodings, and the code of the one that any value of the type fits in."""


class Symbol(str):
    __slots__ = ()


class Char(str):
    """One character."""

    __slots__ = ()


class Ubyte(int):
    __slots__ = ()


class Ushort(int):
    __slots__ = ()


class Uint(int):
    __slots__ = ()


class Ulong(int):
    __slots__ = ()


class Byte(int):
    __slots__ = ()


class Short(int):
    __slots__ = ()


class Int(int):
    __slots__ = ()


class Timestamp(int):
    """Milliseconds since 1970."""

    __slots__ = ()


class Float(float):
    """A float of 32 bits."""

    __slots__ = ()


class Decimal32(bytes):
    """A decimal in its encoded form; it does not support arithmetic."""

    __slots__ = ()


class Decimal64(bytes):
    __slots__ = ()


class Decimal128(bytes):
    __slots__ = ()


NUMBERS: dict[int, tuple[str, type]] = {
    0x50: (">B", Ubyte), 0x51: (">b", Byte), 0x52: (">B", Uint), 0x53: (">B", Ulong), 0x54: (">b", Int),
    0x55: (">b", int), 0x60: (">H", Ushort), 0x61: (">h", Short), 0x70: (">I", Uint), 0x71: (">i", Int),
    0x72: (">f", Float), 0x80: (">Q", Ulong), 0x81: (">q", int), 0x82: (">d", float), 0x83: (">q", Timestamp),
}  # fmt: skip
"""By the code of a number: its layout for `struct`, and its type."""
DECIMALS: dict[int, type[bytes]] = {0x74: Decimal32, 0x84: Decimal64, 0x94: Decimal128}
"""By the code of a decimal: its type."""


class Described(NamedTuple):
    """A value with a descriptor that defines its meaning."""

    descriptor: Any
    value: Any


class Array(NamedTuple):
    """Values of one type: the *code* of its widest encoding, and the descriptors that all of them share."""

    code: int
    items: list[Any]
    descriptors: tuple[Any, ...] = ()
    """From the outermost one inwards."""
