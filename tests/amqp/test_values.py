"""Tests of complete values: exchange with proton in both directions, and malformed bytes."""

from __future__ import annotations

import struct
import sys
import tracemalloc
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from cairnmq.amqp.codec import decode, encode
from cairnmq.amqp.codec.primitives import Cut, Malformed
from cairnmq.amqp.codec.types import MAX_DEPTH, Array, Described, Symbol, Ubyte, Uint, Ulong
from tests.harness.amqp.typed import got_by_proton, put_by_proton, same, to_proton, values


@given(value=values, behind=st.binary(max_size=5))
def test_what_proton_writes_is_read_with_its_types(value: Any, behind: bytes) -> None:
    encoded = put_by_proton(value)
    found, end = decode.value(encoded + behind)
    assert end == len(encoded)
    assert same(found, value)


@given(value=values)
def test_what_is_written_proton_reads(value: Any) -> None:
    assert same(got_by_proton(encode.value(value)), to_proton(value))


@given(value=values)
def test_what_is_written_is_read(value: Any) -> None:
    assert same(decode.complete(encode.value(value)), value)


@given(value=values)
def test_plain_values_are_equal_to_typed_ones(value: Any) -> None:
    def plain(of: Any) -> bool:
        if isinstance(of, Described | list | Array):
            return all(map(plain, of))
        if isinstance(of, dict):
            return all(map(plain, of)) and all(map(plain, of.values()))
        return type(of) in (int, str, tuple) or not isinstance(of, int | float) or type(of) in (bool, float)

    found, _ = decode.value(encode.value(value), plain=True)
    assert found == value
    assert plain(found)


@given(value=values, data=st.data())
def test_a_value_that_is_cut_off_is_cut(value: Any, data: st.DataObject) -> None:
    encoded = encode.value(value)
    with pytest.raises(Cut):
        decode.value(encoded[: data.draw(st.integers(0, len(encoded) - 1))])


def mutated(encoded: bytes, data: st.DataObject) -> bytes:
    changed = bytearray(encoded)
    for _ in range(data.draw(st.integers(1, 3))):
        changed[data.draw(st.integers(0, len(changed) - 1))] = data.draw(st.integers(0, 255))
    return bytes(changed)


@given(raw=st.binary(max_size=80) | values.map(encode.value), data=st.data())
def test_bad_bytes_are_malformed_and_nothing_worse(raw: bytes, data: st.DataObject) -> None:
    if raw:
        raw = mutated(raw, data)
    try:
        _, end = decode.value(raw)
    except Malformed:
        return
    assert 0 < end <= len(raw)


@pytest.mark.parametrize(
    "raw",
    [
        b"\xe0\x06\xff\x40\x00\x00\x00\x00",  # 255 nulls
        b"\xf0\x00\x00\x00\x05\xff\xff\xff\xff\x40",  # 4 billion nulls
        b"\xf0\x00\x00\x00\x05\xff\xff\xff\xff\x45",  # 4 billion empty lists
        b"\xf0\x00\x00\x00\x05\xff\xff\xff\xff\x43",
        b"\xf0\x00\x00\x00\x06\xff\xff\xff\xff\x50\x00",
        b"\xf0\x00\x00\x00\x0a\x00\x00\x00\x01\xb0\xff\xff\xff\xff\x00",
        b"\xd0\xff\xff\xff\xff\xff\xff\xff\xff",
        b"\xd1\x00\x00\x00\x06\xff\xff\xff\xff\x40\x40",
        b"\xc1\x02\x01\x40",  # a key without a value
        b"\xc1\x05\x04\x40\x40\x40\x40",  # the same key twice
        b"\xc1\x03\x02\x45\x40",  # a list as a key
        b"\xc0\x04\x01\x40\x40\x40",  # bytes after the last item
        b"\xc0\x03\x01\xa1\x05abcde",  # an item that ends after its list
        b"\x56\x02",
        b"\x73\x00\x11\x00\x00",  # beyond Unicode
        b"\x73\x00\x00\xd8\x00",  # half of a surrogate pair
        b"\xa1\x01\xff",
        b"\xa3\x01\xff",
        b"\x3f",
        b"\xff\x00\x00\x00\x04\x00\x00\x00\x00",
    ],
)
def test_sizes_and_counts_are_checked_first(raw: bytes) -> None:  # A1
    with pytest.raises(Malformed):
        decode.value(raw)


def nested(depth: int, kind: str) -> bytes:
    raw = b"\x40"
    for _ in range(depth):
        size = len(raw)
        if kind == "list":
            raw = b"\xd0" + struct.pack(">II", size + 4, 1) + raw
        elif kind == "map":
            raw = b"\xd1" + struct.pack(">II", size + 5, 2) + b"\x40" + raw
        elif kind == "described":
            raw = b"\x00\x40" + raw
        elif kind == "descriptor":
            raw = b"\x00" + raw + b"\x40"
        else:
            body = raw[1:] if raw != b"\x40" else b""
            raw = b"\xf0" + struct.pack(">II", len(body) + 5, 1) + raw[:1] + body
    return raw


@pytest.mark.parametrize("kind", ["list", "map", "described", "descriptor", "array"])
def test_the_depth_is_limited(kind: str) -> None:  # A2
    decode.value(nested(MAX_DEPTH, kind))
    for depth in (MAX_DEPTH + 1, 20_000 if kind in ("described", "descriptor") else 2000):
        with pytest.raises(Malformed, match="nested deeper"):
            decode.value(nested(depth, kind))


def test_what_is_written_has_the_same_limit() -> None:
    value: Any = None
    for _ in range(MAX_DEPTH):
        value = [value]
    decode.value(encode.value(value))
    with pytest.raises(ValueError, match="nested deeper"):
        encode.value([value])


@pytest.mark.parametrize(
    "raw",
    [
        b"\xd0" + struct.pack(">II", 100_004, 100_000) + b"\x40" * 100_000,
        b"\xd0" + struct.pack(">II", 100_004, 100_000) + b"\x45" * 100_000,
        b"\xf0" + struct.pack(">II", 100_005, 100_000) + b"\x50" + bytes(100_000),
        b"\xd0" + struct.pack(">II", 100_004, 20_000) + b"\xe0\x03\x10\x40\x00"[:0] + b"\xe0\x02\x10\x40\x40" * 20_000,
    ],
)
def test_memory_is_bounded_by_the_bytes(raw: bytes) -> None:  # A1
    tracemalloc.start()
    try:
        decode.value(raw)
    except Malformed:
        pass
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 100 * len(raw)


def test_the_work_is_proportional_to_the_bytes() -> None:
    """Decoding four times the bytes takes about four times the steps (calls and lines), whatever the content."""

    def steps(raw: bytes) -> int:
        count = 0

        def trace(frame: Any, event: str, arg: Any) -> Any:
            nonlocal count
            count += 1
            return trace

        before = sys.gettrace()
        sys.settrace(trace)
        try:
            decode.value(raw)
        finally:
            sys.settrace(before)
        return count

    for item in (b"\xa1\x03abc", nested(14, "list"), nested(14, "described"), nested(14, "array"), b"\x52\x07"):

        def raw(count: int, item: bytes = item) -> bytes:
            return b"\xd0" + struct.pack(">II", 4 + count * len(item), count) + item * count

        assert steps(raw(400)) < 5 * steps(raw(100))


@pytest.mark.parametrize(
    ("value", "error"),
    [
        (Ubyte(256), ValueError),
        (Uint(-1), ValueError),
        (Ulong(2**64), ValueError),
        (2**63, ValueError),
        (Symbol("é"), ValueError),
        (object(), TypeError),
        ({1, 2}, TypeError),
        (Array(0x52, [1]), ValueError),
    ],
)
def test_what_does_not_fit_is_not_written(value: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        encode.value(value)


@given(items=st.lists(st.lists(st.integers(0, 300), max_size=3), min_size=1, max_size=5), tags=st.integers(0, 3))
@example(items=[[]], tags=0)
def test_arrays_of_lists_and_of_described_values(items: list[list[int]], tags: int) -> None:
    array = Array(0xD0, items, tuple(map(Ulong, range(tags))))
    assert same(decode.complete(encode.value(array)), array)
