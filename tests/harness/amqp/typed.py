"""Values of all AMQP types, in the representation of this package and in that of proton."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import proton
from hypothesis import strategies as st

from cairnmq.amqp.codec import types as ours

Strategy = st.SearchStrategy[Any]
characters = st.characters(exclude_categories=["Cs"])
asciis = st.text(st.characters(max_codepoint=127), max_size=300)
leaves: Strategy = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(0, 2**8 - 1).map(ours.Ubyte),
    st.integers(0, 2**16 - 1).map(ours.Ushort),
    st.integers(0, 2**32 - 1).map(ours.Uint),
    st.integers(0, 300).map(ours.Uint),
    st.integers(0, 2**64 - 1).map(ours.Ulong),
    st.integers(0, 300).map(ours.Ulong),
    st.integers(-(2**7), 2**7 - 1).map(ours.Byte),
    st.integers(-(2**15), 2**15 - 1).map(ours.Short),
    st.integers(-(2**31), 2**31 - 1).map(ours.Int),
    st.integers(-200, 200).map(ours.Int),
    st.integers(-(2**63), 2**63 - 1),
    st.integers(-200, 200),
    st.integers(-(2**63), 2**63 - 1).map(ours.Timestamp),
    st.floats(allow_nan=False),
    st.floats(width=32, allow_nan=False).map(ours.Float),
    st.binary(min_size=4, max_size=4).map(ours.Decimal32),
    st.binary(min_size=8, max_size=8).map(ours.Decimal64),
    st.binary(min_size=16, max_size=16).map(ours.Decimal128),
    characters.map(ours.Char),
    st.uuids(),
    st.binary(max_size=300),
    st.text(characters, max_size=300),
    asciis.map(ours.Symbol),
)


def _array_of(kind: tuple[int, Strategy]) -> Strategy:
    code, items = kind
    return st.lists(items, min_size=1, max_size=5).map(lambda found: ours.Array(code, found))


arrays: Strategy = st.sampled_from(
    [
        (0x70, st.integers(0, 2**32 - 1).map(ours.Uint)),
        (0x81, st.integers(-(2**63), 2**63 - 1)),
        (0x56, st.booleans()),
        (0x98, st.uuids()),
        (0xB1, st.text(characters, max_size=300)),
        (0xB3, asciis.map(ours.Symbol)),
        (0xB0, st.binary(max_size=20)),
        (0x83, st.integers(0, 2**40).map(ours.Timestamp)),
    ]
).flatmap(_array_of)
keys = st.text(characters, max_size=8) | st.text(st.characters(max_codepoint=127), max_size=8).map(ours.Symbol)


def _deeper(inner: Strategy) -> Strategy:
    # proton miscounts the values after a described value that is directly inside another one
    bare = inner.filter(lambda value: not isinstance(value, ours.Described))
    return st.one_of(
        st.lists(inner, max_size=4),
        st.dictionaries(keys, inner, max_size=4),
        st.builds(ours.Described, st.integers(0, 2**64 - 1).map(ours.Ulong) | asciis.map(ours.Symbol), bare),
    )


values: Strategy = st.recursive(leaves | arrays, _deeper, max_leaves=10)

_TO_PROTON: dict[type, Callable[[Any], Any]] = {
    ours.Ubyte: proton.ubyte,
    ours.Ushort: proton.ushort,
    ours.Uint: proton.uint,
    ours.Ulong: proton.ulong,
    ours.Byte: proton.byte,
    ours.Short: proton.short,
    ours.Int: proton.int32,
    ours.Timestamp: proton.timestamp,
    ours.Float: proton.float32,
    ours.Decimal32: lambda of: proton.decimal32(int.from_bytes(of)),
    ours.Decimal64: lambda of: proton.decimal64(int.from_bytes(of)),
    ours.Decimal128: proton.decimal128,
    ours.Char: proton.char,
    ours.Symbol: proton.symbol,
}
_ARRAY_TYPES = {
    0x70: proton.Data.UINT,
    0x81: proton.Data.LONG,
    0x56: proton.Data.BOOL,
    0x98: proton.Data.UUID,
    0xB1: proton.Data.STRING,
    0xB3: proton.Data.SYMBOL,
    0xB0: proton.Data.BINARY,
    0x83: proton.Data.TIMESTAMP,
}


def to_proton(value: Any) -> Any:
    """Return *value* converted to proton's Python types."""
    if type(value) in _TO_PROTON:
        return _TO_PROTON[type(value)](value)
    if isinstance(value, ours.Described):
        return proton.Described(to_proton(value.descriptor), to_proton(value.value))
    if isinstance(value, ours.Array):
        return proton.Array(proton.UNDESCRIBED, _ARRAY_TYPES[value.code], *map(to_proton, value.items))
    if isinstance(value, dict):
        return {to_proton(key): to_proton(of) for key, of in value.items()}
    if isinstance(value, list):
        return [to_proton(item) for item in value]
    return value


def same(one: Any, other: Any) -> bool:
    """Return whether both values are equal and have the same types at every level of nesting."""
    if type(one) is not type(other):
        return False
    if isinstance(one, ours.Described | ours.Array | list):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, dict):
        return same([part for pair in one.items() for part in pair], [part for pair in other.items() for part in pair])
    return bool(one == other)


def put_by_proton(value: Any) -> bytes:
    data = proton.Data()
    data.put_object(to_proton(value))
    return bytes(data.encode())


def got_by_proton(encoded: bytes) -> Any:
    data = proton.Data()
    assert data.decode(encoded) == len(encoded)
    data.rewind()
    assert data.next()
    return _copied(data.get_object())


def _copied(value: Any) -> Any:
    """Return a copy of *value* without views into proton's memory."""
    if isinstance(value, memoryview):
        return bytes(value)
    if isinstance(value, proton.Described):
        return proton.Described(_copied(value.descriptor), _copied(value.value))
    if isinstance(value, proton.Array):
        return proton.Array(value.descriptor, value.type, *map(_copied, value.elements))
    if isinstance(value, dict):
        return {_copied(key): _copied(of) for key, of in value.items()}
    return [_copied(item) for item in value] if isinstance(value, list) else value
