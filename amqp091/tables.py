"""Field tables of AMQP 0-9-1 as Python values, with the types of RabbitMQ's errata.

Values have the classes of `amqp.codec.types`, so each is encoded with the type that it came with. Tables come from
clients: sizes are checked before they are used, and nesting is bounded.

| tag | type | Python | | tag | type | Python |
|---|---|---|---|---|---|---|
| `t` | boolean | bool | | `f`, `d` | float, double | `Float`, float |
| `b`, `B` | octet | `Byte`, `Ubyte` | | `S` | long string | str, or `LongString` if it is not UTF-8 |
| `s`, `u` | short | `Short`, `Ushort` | | `x` | bytes | bytes |
| `I`, `i` | int | `Int`, `Uint` | | `T` | time in seconds | `Timestamp`, in ms |
| `l`, `L` | long | int | | `D` | decimal | `Decimal` |
| `V` | void | None | | `F`, `A` | table, array | dict, list |
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from typing import Any

from ..amqp.codec.types import Byte, Float, Int, Short, Timestamp, Ubyte, Uint, Ulong, Ushort

MAX_DEPTH = 8
"""The maximum nesting depth of tables and arrays; converted values are nested deeper in a message."""
MOST_VALUES = 4096
"""The maximum number of values in a table, with those of nested ones: each costs about a microsecond."""
_MOST_SCALE = 255
_LONGEST_SECONDS = (1 << 63) // 1000


class BadTable(ValueError):
    """Bytes that are no field table, or values that no field table can have."""


class LongString(bytes):
    """A long string that is not UTF-8."""

    __slots__ = ()


def read_table(data: bytes, at: int, end: int) -> tuple[dict[str, Any], int]:
    """Return the table at *at*, and its end, which is at most *end*. Raises `BadTable`."""
    try:
        return _table(data, at, end, _Budget())
    except (struct.error, IndexError, UnicodeDecodeError) as error:
        raise BadTable(f"a field table can't be read: {error}") from error


def write_table(table: Mapping[str, Any]) -> bytes:
    """Return the encoded table. Raises `BadTable`."""
    try:
        return _written_table(table, MAX_DEPTH)
    except struct.error as error:
        raise BadTable(f"a value does not fit its type: {error}") from error


class _Budget:
    """Limits of the rest of a table."""

    __slots__ = ("depth", "values")

    def __init__(self) -> None:
        self.depth = MAX_DEPTH
        self.values = MOST_VALUES

    def enter(self) -> None:
        if not self.depth:
            raise BadTable(f"tables are nested deeper than {MAX_DEPTH} levels")
        self.depth -= 1

    def count(self) -> None:
        if not self.values:
            raise BadTable(f"a table has more than {MOST_VALUES} values")
        self.values -= 1


def _extent(data: bytes, at: int, end: int) -> tuple[int, int]:
    """Return begin and end of what has its size in four bytes at *at*."""
    size = int.from_bytes(data[at : at + 4])
    begin = at + 4
    if begin + size > end:
        raise BadTable(f"a field of {size} bytes exceeds its table")
    return begin, begin + size


def _table(data: bytes, at: int, end: int, left: _Budget) -> tuple[dict[str, Any], int]:
    at, end = _extent(data, at, end)
    left.enter()
    found: dict[str, Any] = {}
    while at < end:
        name_end = at + 1 + data[at]
        if name_end >= end:
            raise BadTable("a name exceeds its table")
        name = data[at + 1 : name_end].decode()
        found[name], at = _value(data, name_end, end, left)
    left.depth += 1
    return found, end


def _array(data: bytes, at: int, end: int, left: _Budget) -> tuple[list[Any], int]:
    at, end = _extent(data, at, end)
    left.enter()
    found = []
    while at < end:
        one, at = _value(data, at, end, left)
        found.append(one)
    left.depth += 1
    return found, end


def _long_string(data: bytes, at: int, end: int, left: _Budget) -> tuple[str | LongString, int]:
    at, end = _extent(data, at, end)
    raw = data[at:end]
    try:
        return raw.decode(), end
    except UnicodeDecodeError:
        return LongString(raw), end


def _bytes(data: bytes, at: int, end: int, left: _Budget) -> tuple[bytes, int]:
    at, end = _extent(data, at, end)
    return data[at:end], end


def _decimal(data: bytes, at: int, end: int, left: _Budget) -> tuple[Decimal, int]:
    scale, digits = struct.unpack_from(">Bi", data, at)
    return Decimal(digits).scaleb(-scale), at + 5


def _seconds(data: bytes, at: int, end: int, left: _Budget) -> tuple[Timestamp, int]:
    seconds = int.from_bytes(data[at : at + 8])
    if seconds >= _LONGEST_SECONDS:
        raise BadTable(f"a time of {seconds} s is none")
    return Timestamp(seconds * 1000), at + 8


_Reader = Callable[[bytes, int, int, _Budget], tuple[Any, int]]


def _number(layout: str, kind: Callable[[Any], Any]) -> _Reader:
    packed = struct.Struct(layout)

    def read(data: bytes, at: int, end: int, left: _Budget) -> tuple[Any, int]:
        return kind(packed.unpack_from(data, at)[0]), at + packed.size

    return read


_READERS: dict[int, _Reader] = {
    ord("t"): _number(">B", bool), ord("b"): _number(">b", Byte), ord("B"): _number(">B", Ubyte),
    ord("s"): _number(">h", Short), ord("u"): _number(">H", Ushort), ord("I"): _number(">i", Int),
    ord("i"): _number(">I", Uint), ord("l"): _number(">q", int), ord("L"): _number(">q", int),
    ord("f"): _number(">f", Float), ord("d"): _number(">d", float), ord("D"): _decimal, ord("S"): _long_string,
    ord("x"): _bytes, ord("T"): _seconds, ord("V"): lambda data, at, end, left: (None, at), ord("F"): _table,
    ord("A"): _array,
}  # fmt: skip


def _value(data: bytes, at: int, end: int, left: _Budget) -> tuple[Any, int]:
    read = _READERS.get(data[at])
    if read is None:
        raise BadTable(f"there is no field type {data[at]:#04x}")
    left.count()
    found, at = read(data, at + 1, end, left)
    if at > end:
        raise BadTable("a value exceeds its table")
    return found, at


def _sized(tag: bytes, raw: bytes) -> bytes:
    return tag + struct.pack(">I", len(raw)) + raw


def _fixed(tag: bytes, layout: str) -> Callable[[Any], bytes]:
    packed = struct.Struct(f">c{layout}")
    return lambda of: packed.pack(tag, of)


def _long(of: int) -> bytes:
    return struct.pack(">cq", b"l", of if of < 1 << 63 else (1 << 63) - 1)


def _written_decimal(of: Decimal) -> bytes:
    exponent = of.as_tuple().exponent
    if not isinstance(exponent, int) or not -_MOST_SCALE <= exponent <= 0:
        raise BadTable(f"the decimal {of} has a scale that AMQP 0-9-1 can't express")
    return struct.pack(">cBi", b"D", -exponent, int(of.scaleb(-exponent)))


_WRITERS: dict[type, Callable[[Any], bytes]] = {
    type(None): lambda of: b"V",
    bool: _fixed(b"t", "?"),
    Byte: _fixed(b"b", "b"),
    Ubyte: _fixed(b"B", "B"),
    Short: _fixed(b"s", "h"),
    Ushort: _fixed(b"u", "H"),
    Int: _fixed(b"I", "i"),
    Uint: _fixed(b"i", "I"),
    int: _long,
    Ulong: _long,
    Float: _fixed(b"f", "f"),
    float: _fixed(b"d", "d"),
    Decimal: _written_decimal,
    bytes: lambda of: _sized(b"x", of),
    LongString: lambda of: _sized(b"S", of),
    Timestamp: lambda of: struct.pack(">cQ", b"T", max(0, of) // 1000),
}


def _written(of: Any, depth: int) -> bytes:
    write = _WRITERS.get(type(of))
    if write is not None:
        return write(of)
    if isinstance(of, str):  # a symbol, too
        return _sized(b"S", of.encode())
    if isinstance(of, Mapping):
        return b"F" + _written_table(of, depth - 1)
    if isinstance(of, Sequence) and depth > 1:
        return _sized(b"A", b"".join([_written(item, depth - 1) for item in of]))
    raise BadTable(f"AMQP 0-9-1 has no type for a {type(of).__name__}, or it is nested too deep")


def _written_table(table: Mapping[str, Any], depth: int) -> bytes:
    if not depth:
        raise BadTable(f"tables are nested deeper than {MAX_DEPTH} levels")
    parts: list[bytes] = []
    for name, of in table.items():
        encoded = str(name).encode()
        if len(encoded) > 255:
            raise BadTable(f"the name {name[:32]!r}... has more than 255 bytes")
        parts += (bytes((len(encoded),)), encoded, _written(of, depth))
    body = b"".join(parts)
    return struct.pack(">I", len(body)) + body
