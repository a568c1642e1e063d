"""Tests of the decoding of AMQP types: values that proton encoded, and malformed bytes."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from proton import Described, byte, float32, int32, short, symbol, timestamp, ubyte, uint, ulong, ushort

from cairnmq.amqp.codec.primitives import OPAQUE, Malformed, descriptor, extent, read, read_list
from tests.harness.amqp.encoding import encoded
from tests.harness.amqp.strategies import scalars, values

numbers = st.one_of(
    st.integers(0, 2**8 - 1).map(ubyte),
    st.integers(0, 2**16 - 1).map(ushort),
    st.integers(0, 2**32 - 1).map(uint),
    st.integers(0, 2**64 - 1).map(ulong),
    st.integers(-(2**7), 2**7 - 1).map(byte),
    st.integers(-(2**15), 2**15 - 1).map(short),
    st.integers(-(2**31), 2**31 - 1).map(int32),
    st.integers(-(2**63), 2**63 - 1),
    st.integers(-(2**63), 2**63 - 1).map(timestamp),
    st.floats(allow_nan=False),
    st.floats(width=32, allow_nan=False).map(float32),
)


@given(value=numbers | st.none() | st.booleans() | st.text(max_size=300) | st.binary(max_size=300), behind=st.binary())
def test_a_primitive_value_is_read(value: Any, behind: bytes) -> None:
    data = encoded(value)
    for view in (data + behind, memoryview(data + behind)):
        assert read(view, 0) == (value, len(data))
        assert extent(view, 0)[2] == len(data)


@given(value=values, before=st.binary(max_size=5), behind=st.binary(max_size=5))
def test_any_value_is_skipped(value: Any, before: bytes, behind: bytes) -> None:
    """A value of any type is skipped; compound values are not decoded."""
    data = encoded(value)
    found, end = read(before + data + behind, len(before))
    assert end == len(before) + len(data)
    assert (found is OPAQUE) == ((isinstance(value, list | dict) and value != []) or not isinstance(value, SIMPLE))


SIMPLE = (type(None), bool, int, float, str, bytes)


@given(items=st.lists(scalars | st.lists(scalars, max_size=3), max_size=300), behind=st.binary(max_size=5))
def test_a_list_is_read(items: list[Any], behind: bytes) -> None:
    data = encoded(items)
    found, end = read_list(data + behind, 0)
    assert end == len(data)
    assert len(found) == len(items)
    for item, value in zip(items, found, strict=True):
        assert value is OPAQUE or value == item or (isinstance(item, symbol) and value == str(item))


@given(number=st.integers(0, 2**64 - 1), value=values)
def test_a_described_value(number: int, value: Any) -> None:
    data = encoded(Described(ulong(number), value))
    found, at = descriptor(data, 0)
    assert found == number
    assert data[at:] == encoded(value)


@given(data=st.binary(max_size=60), at=st.integers(0, 61))
@example(data=b"\xd0\xff\xff\xff\xff\x00\x00\x00\x00", at=0)
@example(data=b"\xd0\x00\x00\x00\x04\xff\xff\xff\xff", at=0)
@example(data=b"\xc0\x00\x00", at=0)
@example(data=b"\xa1\x02\xff\xff", at=0)
@example(data=b"\xa3\x01\xff", at=0)
@example(data=b"\x00\xa1\x00", at=0)
def test_bad_bytes_are_malformed_and_nothing_worse(data: bytes, at: int) -> None:
    """Invalid bytes raise `Malformed` only, and no function reads beyond the end of the data."""
    for function in (extent, read, read_list, descriptor):
        try:
            result = function(data, at)
        except Malformed:
            continue
        assert at < result[-1] <= len(data)


@given(value=values.filter(lambda value: not isinstance(value, bool)), data=st.data())
def test_a_value_that_is_cut_off_is_malformed(value: Any, data: st.DataObject) -> None:
    complete = encoded(value)
    cut = data.draw(st.integers(0, len(complete) - 1))
    with pytest.raises(Malformed):
        read(complete[:cut], 0)


@given(count=st.integers(1, 2**32 - 1), size=st.integers(0, 20))
def test_a_count_larger_than_its_list_is_refused_at_once(count: int, size: int) -> None:
    """An excessive count is refused before memory is allocated for the values (security A1)."""
    if count > size:
        with pytest.raises(Malformed):
            read_list(b"\xd0" + struct.pack(">II", size + 4, count) + b"\x40" * size, 0)


@given(code=st.integers(0, 255))
def test_every_code_has_one_meaning(code: int) -> None:
    """Each constructor code is either a type of known size or malformed."""
    try:
        _, start, end = extent(bytes((code,)) + bytes(20), 0)
    except Malformed:
        assert code >> 4 in (0, 1, 2, 3)
    else:
        assert 1 <= start <= end <= 21
