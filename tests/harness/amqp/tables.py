"""Strategies of values and tables of AMQP 0-9-1."""

from __future__ import annotations

import string
from decimal import Decimal
from typing import Any

from hypothesis import strategies as st

from cairnmq.amqp.codec.types import Byte, Float, Int, Short, Timestamp, Ubyte, Uint, Ushort
from cairnmq.amqp091.tables import MAX_DEPTH, LongString


def _is_text(raw: bytes) -> bool:
    try:
        raw.decode()
    except UnicodeDecodeError:
        return False
    return True


names = st.text(string.ascii_letters, max_size=20)
leaves = st.one_of(
    st.none(), st.booleans(), st.integers(-128, 127).map(Byte), st.integers(0, 255).map(Ubyte),
    st.integers(-(1 << 15), (1 << 15) - 1).map(Short), st.integers(0, (1 << 16) - 1).map(Ushort),
    st.integers(-(1 << 31), (1 << 31) - 1).map(Int), st.integers(0, (1 << 32) - 1).map(Uint),
    st.integers(-(1 << 63), (1 << 63) - 1), st.floats(width=32, allow_nan=False).map(Float),
    st.floats(allow_nan=False), st.text(), st.binary(),
    st.binary().filter(lambda raw: not _is_text(raw)).map(LongString),
    st.integers(0, (1 << 40)).map(lambda seconds: Timestamp(seconds * 1000)),
    st.decimals(-1000, 1000, places=3).map(Decimal),
)  # fmt: skip
values = st.recursive(
    leaves, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(names, inner, max_size=4), max_leaves=12
)


def depth_of(value: Any) -> int:
    """Return how deep tables and arrays are nested in *value*."""
    if isinstance(value, dict | list):
        return 1 + max(map(depth_of, value.values() if isinstance(value, dict) else value), default=0)
    return 0


tables = st.dictionaries(names, values, max_size=6).filter(lambda table: depth_of(table) <= MAX_DEPTH)


def typed(value: Any) -> Any:
    """Return *value* with the types of all its parts."""
    if isinstance(value, dict):
        return {name: typed(item) for name, item in value.items()}
    return [typed(item) for item in value] if isinstance(value, list) else (type(value), value)
