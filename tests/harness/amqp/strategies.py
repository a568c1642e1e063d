"""Strategies for messages as proton encodes them, and for damaged ones."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st
from proton import Message, symbol, ubyte, uint, ulong

Strategy = st.SearchStrategy[Any]
texts = st.text(max_size=30)
scalars: Strategy = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**63), 2**63 - 1),
    st.integers(0, 255).map(ubyte),
    st.integers(0, 2**32 - 1).map(uint),
    st.integers(0, 2**64 - 1).map(ulong),
    st.floats(allow_nan=False),
    texts,
    st.binary(max_size=300),
    st.uuids(),
    st.text(st.characters(max_codepoint=127), max_size=20).map(symbol),
)
values: Strategy = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4), max_leaves=12
)
notes: Strategy = st.dictionaries(texts.filter(bool).map(lambda name: symbol(ascii(name))), values, max_size=4)


@st.composite
def messages(draw: st.DrawFn) -> Any:
    """Return a message whose header, annotations, properties, application properties and body are drawn."""
    message = Message(body=draw(values))
    message.durable = draw(st.booleans())
    message.priority = draw(st.integers(0, 255))
    message.ttl = draw(st.integers(0, 2**32 - 1)) / 1000
    message.first_acquirer = draw(st.booleans())
    message.delivery_count = draw(st.integers(0, 2**32 - 1))
    message.inferred = draw(st.booleans())
    message.instructions = draw(st.none() | notes)
    message.annotations = draw(st.none() | notes)
    message.address = draw(st.none() | texts)
    message.id = draw(st.none() | texts | st.uuids() | st.integers(0, 2**64 - 1).map(ulong) | st.binary(max_size=20))
    message.user_id = draw(st.binary(max_size=300))
    message.subject = draw(st.none() | texts)
    message.properties = draw(st.none() | st.dictionaries(texts, scalars, max_size=4))
    return message


@st.composite
def broken(draw: st.DrawFn) -> bytes:
    """Return random bytes, or a message that is truncated or modified."""
    if draw(st.booleans()):
        return draw(st.binary(max_size=100))
    content = bytearray(draw(messages()).encode())
    for _ in range(draw(st.integers(0, 4))):
        content[draw(st.integers(0, min(len(content) - 1, 60)))] = draw(st.integers(0, 255))
    return bytes(content[: draw(st.integers(0, len(content)))])
